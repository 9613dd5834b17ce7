"""Builds the CPU extension: one Cython module and one set of engines per instruction set.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import OptionError, PlatformError

KERNELS = Path("roipool") / "kernels"
ADDRESSES = runpy.run_path("roipool/_addresses.py")
# Compiled for each instruction set, the slowest first.
ENGINES = ("average", "maximum", "position_sensitive", "integers")
# Compiled once: plans and steps of calls, definitions, and the table of engines.
CALLS = [
    *(str(KERNELS / "cpu" / f"{name}.cpp") for name in ("calls", "placing")),
    *sorted(str(path) for path in (KERNELS / "cpu" / "definitions").glob("*.cpp")),
]
TABLE = str(KERNELS / "cpu" / "engines.cpp")

# Decisions (floor, ceil, outside the map) must not depend on the compiler: no contraction.
GEOMETRY_FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"]
# Sums in the average engine may use fused multiply-add; the order of a sample's corners in the
# maximum engine decides ties, so it may not.
CONTRACTION = {
    "average": "-ffp-contract=fast",
    "position_sensitive": "-ffp-contract=fast",
    "maximum": "-ffp-contract=off",
    "integers": "-ffp-contract=off",
    "masks": "-ffp-contract=off",  # bounded by the memory of pictures: one instruction set will do
}
# Python's own flags ask for debug information, ten times the size of the code.
asked_flags = f"{os.environ.get('CFLAGS', '')} {os.environ.get('CXXFLAGS', '')}".split()
if not any(flag.startswith("-g") for flag in asked_flags):
    GEOMETRY_FLAGS.append("-g0")
# pip builds beside a NumPy in a folder of another name each time, so that its headers must not
# count as changed: those of system folders do not.
NUMPY_HEADERS = ["-isystem", np.get_include()]
X86_ENGINES = {"baseline": [], "avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4"]}
X86_NAMES = ("x86_64", "amd64")

# Contributors build for one instruction set: ROIPOOL_BUILD_ISA names it, or asks for the best that
# this machine runs.
NATIVE = "native"
NATIVE_PROGRAM = """
#include <stdio.h>
#include "processor.h"
int main() {
  puts(roipool::runs_avx512() ? "avx512" : roipool::runs_avx2() ? "avx2" : "baseline");
}
"""

OPENMP_PROGRAM = """
#include <omp.h>
#include <stdio.h>
int main(void) {
  int threads = 0;
#pragma omp parallel num_threads(2)
#pragma omp atomic
  ++threads;
#if defined(__GNUC__) && !defined(__clang__)
  omp_pause_resource_all(omp_pause_hard);  /* GCC 9 and later: see kernels/cpu/threads.h */
#endif
  printf("threads=%d", threads);
  return threads == 0;
}
"""


# What to install where no compiler is found, by `sys.platform`; docs/install.md says more.
NO_COMPILER = {
    "darwin": "run `xcode-select --install`, and `brew install libomp` for more than one thread",
    "win32": (
        "install LLVM, or Visual Studio's component 'C++ Clang Compiler for Windows', and put the "
        "folder of clang-cl on PATH"
    ),
    "": (
        "run `apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), `apk add g++` "
        "(Alpine), or `conda install cxx-compiler`"
    ),
}


def no_compiler(program: str, problem: str) -> PlatformError:
    """Return the error of a missing compiler, which says what to install on this system."""
    advice = NO_COMPILER.get(sys.platform, NO_COMPILER[""])
    return PlatformError(
        f"roipool is compiled from C++, and the compiler {program!r} {problem}: {advice}; or "
        "install a wheel, which needs none"
    )


# The threads of calls by ROIPOOL_BUILD_TEAM, as macros: see kernels/cpu/pool.h.
TEAMS: dict[str, list[tuple[str, str | None]]] = {"openmp": [], "pool": [("ROIPOOL_POOL", None)]}


def asked_team() -> list[tuple[str, str | None]]:
    """Return the macros of the threads that the environment asks for."""
    name = os.environ.get("ROIPOOL_BUILD_TEAM", "") or "openmp"
    if name not in TEAMS:
        raise PlatformError(f"ROIPOOL_BUILD_TEAM is {name!r}; it must be {' or '.join(TEAMS)}")
    return TEAMS[name]


# One module for every Python since 3.11, by the limited API. Free-threaded ones had none
# before 3.15.
LIMITED_API = sys.implementation.name == "cpython" and not sysconfig.get_config_var(
    "Py_GIL_DISABLED"
)


def openmp_candidates() -> list[tuple[list[str], list[str]]]:
    """Return (compiler flags, linker flags) to try, most likely first."""
    if sys.platform == "win32":
        return [(["-openmp"], ["libomp.lib"])]
    if sys.platform != "darwin":
        return [(["-fopenmp"], ["-fopenmp"])]
    candidates = [(["-Xpreprocessor", "-fopenmp"], ["-lomp"])]
    for prefix in ("/opt/homebrew/opt/libomp", "/usr/local/opt/libomp", "/opt/local/libomp"):
        flags = ["-Xpreprocessor", "-fopenmp", f"-I{prefix}/include"]
        candidates.append((flags, [f"-L{prefix}/lib", "-lomp"]))
    return candidates


def is_older(obj: Path, included: Path) -> bool:
    """Return whether an object is older than a file that its source includes.

    The compiler's list of files begins with the source.
    """
    _, *names = shlex.split(included.read_text().replace("\\\n", " ").partition(": ")[2])
    built = obj.stat().st_mtime
    return any(not Path(name).exists() or Path(name).stat().st_mtime > built for name in names)


def built_for(instruction_sets: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the macros by which the table of engines knows which are compiled."""
    return [(f"ROIPOOL_BUILT_{name.upper()}", None) for name in instruction_sets]


class BuildWithEngines(build_ext):
    """Probes the compiler, then builds the engines as objects of the extension."""

    def build_extension(self, ext: Extension) -> None:
        """Add what this compiler can do to `ext` and build it."""
        if self.editable_mode:
            self.build_temp = self.kept_objects()
        if self.compiler.compiler_type == "msvc":
            self.use_clang_cl(ext)
        self.check_compiler()
        if os.environ.get("ROIPOOL_NO_OPENMP", "") in ("", "0"):
            self.add_openmp(ext)
        else:
            ext.define_macros.append(("ROIPOOL_ONE_THREAD", None))
        ext.define_macros += asked_team()
        ext.extra_compile_args += self.spelled(GEOMETRY_FLAGS)
        engines = self.chosen_engines(ext)
        jobs = [partial(self.build_shared, ext, source) for source in [*ext.sources, *CALLS]]
        jobs += [
            partial(self.build_engine, engine, isa, flags)
            for engine in ENGINES
            for isa, flags in engines.items()
        ]
        jobs.append(partial(self.build_engine, "masks", "baseline", []))
        jobs.append(partial(self.build_shared, ext, TABLE, built_for(engines)))
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a compiler
            ext.extra_objects += pool.map(lambda job: job(), jobs)
        # The sources are compiled. Other objects than before make another module, too.
        ext.sources, ext.depends = [], ext.sources + ext.depends + ext.extra_objects
        super().build_extension(ext)

    def kept_objects(self) -> str:
        """Return the folder of ``build_ext``'s objects, which ``pip install -e`` would not keep."""
        return str(Path("build") / f"temp.{self.plat_name}-{sys.implementation.cache_tag}")

    def check_compiler(self) -> None:
        """Raise the error that says what to install if there is no compiler of C++."""
        command = getattr(self.compiler, "compiler_so_cxx", None)
        program = (command or getattr(self.compiler, "compiler_so", None) or ["clang-cl"])[0]
        if program.startswith("-"):
            raise PlatformError("CC or CXX is set, but empty: unset it, or set it to a compiler")
        if shutil.which(program) is None:
            raise no_compiler(program, "is not on PATH")
        # The compiler of macOS is on PATH before it is installed.
        if not self.compiles("int main() { return 0; }", []):
            raise no_compiler(program, "does not compile an empty program")

    def build_shared(
        self, ext: Extension, source: str, macros: Sequence[tuple[str, str | None]] = ()
    ) -> str:
        """Compile what Cython made, or what all engines share; return the object's path.

        Setuptools would do the same, but only after the engines.
        """
        return self.compile_if_changed(
            [source],
            output_dir=self.build_temp,
            macros=[*ext.define_macros, *macros],
            include_dirs=ext.include_dirs,
            debug=self.debug,
            extra_postargs=[*ext.extra_compile_args, *self.spelled(NUMPY_HEADERS)],
        )

    def build_engine(self, engine: str, isa: str, flags: list[str]) -> str:
        """Compile one engine for one instruction set; return the object's path."""
        return self.compile_if_changed(
            [str(KERNELS / "cpu" / f"{engine}.cpp")],
            output_dir=str(Path(self.build_temp) / isa),
            macros=[("ROIPOOL_ENGINE", isa)],
            extra_postargs=self.spelled([*GEOMETRY_FLAGS, CONTRACTION[engine], *flags]),
        )

    def compile_if_changed(
        self, sources: list[str], output_dir: str, extra_postargs: list[str], **options: Any
    ) -> str:
        """Compile a source unless its object was made of it and is newer than what it includes.

        Setuptools compiles everything as soon as one file is newer: a line in the header of one
        definition would cost a minute for the engines, which do not include it. And Cython writes
        the same module again each time that pip builds.
        """
        (name,) = self.compiler.object_filenames(sources, output_dir=output_dir)
        obj, included = Path(name), Path(f"{name}.d")
        asked = Path(f"{name}.command")
        made_of = [hashlib.sha256(Path(source).read_bytes()).hexdigest() for source in sources]
        compiler = getattr(self.compiler, "compiler_so", None)
        command = repr((compiler, extra_postargs, options, made_of))
        command = command.replace(np.get_include(), f"NumPy {np.__version__}")
        if not (
            self.force
            or not (obj.exists() and included.exists() and asked.exists())
            or asked.read_text() != command
            or is_older(obj, included)
        ):
            return name
        obj.parent.mkdir(parents=True, exist_ok=True)
        asked.unlink(missing_ok=True)
        list_included = self.spelled(["-MMD", "-MF", str(included)])
        self.compiler.compile(
            sources,
            output_dir=output_dir,
            extra_postargs=[*extra_postargs, *list_included],
            **options,
        )
        asked.write_text(command)
        return name

    def use_clang_cl(self, ext: Extension) -> None:
        """Replace Microsoft's compiler, which lacks GCC's vector types, by LLVM's for its linker.

        The program's folder holds LLVM's OpenMP; the linker is told where, and of the library
        that has the detection of processors.
        """
        program = shutil.which("clang-cl")
        if program is None:
            raise no_compiler("clang-cl", "is not on PATH")
        self.compiler.initialize()
        self.compiler.cc = program
        answer = subprocess.run(
            [program, "/clang:-print-resource-dir"], capture_output=True, text=True, check=True
        )
        folders = [
            Path(program).parents[1] / "lib",
            Path(answer.stdout.strip()) / "lib" / "windows",
        ]
        for folder in folders:
            self.compiler.add_library_dir(str(folder))
        if platform.machine().lower() in X86_NAMES:
            ext.libraries.append("clang_rt.builtins-x86_64")

    def spelled(self, flags: list[str]) -> list[str]:
        """Return flags of GCC and clang as this compiler's program takes them."""
        if self.compiler.compiler_type == "msvc":
            return [f"/clang:{flag}" for flag in flags]
        return flags

    def chosen_engines(self, ext: Extension) -> dict[str, list[str]]:
        """Return the usable engines, or the only one that ROIPOOL_BUILD_ISA asks for."""
        engines = self.usable_engines()
        asked = os.environ.get("ROIPOOL_BUILD_ISA", "").strip()
        if not asked:
            return engines
        if asked not in (*engines, NATIVE):
            raise OptionError(
                f"ROIPOOL_BUILD_ISA is {asked!r}; this compiler builds for "
                f"{', '.join((*engines, NATIVE))}"
            )
        name = self.native_engine(ext) if asked == NATIVE else asked
        return {name: engines.get(name, [])}

    def native_engine(self, ext: Extension) -> str:
        """Return the name of the best instruction set that this machine runs."""
        answer = self.answer_of(NATIVE_PROGRAM, [f"-I{KERNELS / 'cpu'}"], [], ext.libraries)
        if answer is None:
            raise PlatformError(
                f"ROIPOOL_BUILD_ISA={NATIVE} needs a compiler for this machine: name an "
                "instruction set"
            )
        return answer.strip()

    def usable_engines(self) -> dict[str, list[str]]:
        """Return the instruction sets that this compiler can build for, with their flags."""
        if platform.machine().lower() in X86_NAMES and all(
            self.compiles("int main() { return 0; }", self.spelled(flags))
            for flags in X86_ENGINES.values()
        ):
            return X86_ENGINES
        return {"baseline": []}

    def compiles(self, program: str, flags: list[str]) -> bool:
        """Return whether the compiler accepts a program with these flags."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.cpp"
            source.write_text(program)
            try:
                self.compiler.compile([str(source)], output_dir=folder, extra_postargs=flags)
            except Exception:  # noqa: BLE001 - each compiler class raises its own
                return False
            return True

    def add_openmp(self, ext: Extension) -> None:
        """Add OpenMP's flags if a program built with them runs; warn and go on if none does.

        pip does not show the warning: the first call repeats it.
        """
        for compile_flags, link_flags in openmp_candidates():
            if self.openmp_runs(compile_flags, link_flags):
                ext.extra_compile_args += compile_flags
                ext.extra_link_args += link_flags
                return
        warnings.warn(
            "no working OpenMP found: roipool will use one thread. Install your compiler's OpenMP "
            "(macOS: brew install libomp), or set ROIPOOL_NO_OPENMP=1 to build without this "
            "warning.",
            stacklevel=2,
        )

    def openmp_runs(self, compile_flags: list[str], link_flags: list[str]) -> bool:
        """Compile, link and run a small OpenMP program."""
        answer = self.answer_of(OPENMP_PROGRAM, compile_flags, link_flags)
        return answer is not None and answer.startswith("threads=")

    def answer_of(
        self,
        program: str,
        compile_flags: list[str],
        link_flags: list[str],
        libraries: Sequence[str] = (),
    ) -> str | None:
        """Compile, link and run a small program; return its output, None if one of these fails."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.cpp"
            source.write_text(program)
            try:
                objects = self.compiler.compile(
                    [str(source)], output_dir=folder, extra_postargs=compile_flags
                )
                name = str(Path(folder) / "probe")
                asked = shlex.split(os.environ.get("LDFLAGS", ""))  # else for libraries only
                self.compiler.link_executable(
                    objects,
                    name,
                    libraries=libraries,
                    extra_postargs=link_flags + asked,
                    target_lang="c++",  # sanitizers need its library
                )
                return subprocess.run([name], capture_output=True, text=True, check=True).stdout
            except Exception:  # noqa: BLE001 - each compiler class raises its own
                return None


extension = Extension(
    "roipool._cpu",
    ["roipool/_cpu.pyx"],
    py_limited_api=LIMITED_API,
    include_dirs=["roipool"],
    define_macros=[
        ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
        ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
        ("ROIPOOL_ENGINE", "shared"),
        *([("Py_LIMITED_API", "0x030B0000")] if LIMITED_API else []),
    ],
    depends=[
        "roipool/_launches.pxi",
        "roipool/_tensors.pxi",
        *(str(source) for suffix in ("h", "cpp") for source in KERNELS.rglob(f"*.{suffix}")),
    ],
    language="c++",
)


def readme_for_an_index() -> str:
    """Return README without what only the source tree has: pictures, and links to files.

    Once the project has addresses, links lead to the repository, and pip asks the index.
    """
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[.*\]\((?!https?:).*\)\n\n(\*.*\*\n\n)?", "", text, flags=re.MULTILINE)
    if ADDRESSES["INDEX"]:
        text = text.replace('".[', '"roipool[')
    to_file = r"[\1](" + ADDRESSES["REPOSITORY"] + r"/blob/main/\2)"
    target = to_file if ADDRESSES["REPOSITORY"] else r"\1"
    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)", target, text)


def options_for_read_only_tree() -> dict[str, dict[str, str]]:
    """Return options that build outside a source tree that cannot be written, else none."""
    if os.access(".", os.W_OK):
        return {}
    folder = tempfile.mkdtemp(prefix="roipool-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"egg_info": {"egg_base": folder}, "build": {"build_base": folder}}


options = options_for_read_only_tree()
if LIMITED_API:
    options["bdist_wheel"] = {"py_limited_api": "cp311"}
setup(
    ext_modules=cythonize([extension], build_dir=options.get("build", {}).get("build_base")),
    cmdclass={"build_ext": BuildWithEngines},
    options=options,
    long_description=readme_for_an_index(),
    long_description_content_type="text/markdown",
    project_urls=ADDRESSES["links"](),
)
