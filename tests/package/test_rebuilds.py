"""Builds: only what includes a changed file is compiled; a missing compiler is reported."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _support.platforms import needs_posix

from roipool import _cpu

pytest.importorskip("Cython", reason="builds need Cython")

pytestmark = [needs_posix, pytest.mark.thorough]

SOURCES = Path(__file__).parents[2]
KERNELS = "roipool/kernels"
# Python sees which instruction sets the engines are compiled for.
BUILT = """
extern "C" const char* built =
#ifdef ROIPOOL_BUILT_BASELINE
    " baseline"
#endif
#ifdef ROIPOOL_BUILT_AVX2
    " avx2"
#endif
#ifdef ROIPOOL_BUILT_AVX512
    " avx512"
#endif
    "";
"""
# A tree of the names that setup.py knows: the module includes a definition, one engine another
# header.
FILES = {
    "README.md": "# roipool\n",
    "pyproject.toml": (
        "[project]\nname = 'roipool'\nversion = '1'\ndynamic = ['readme', 'urls']\n"
        "[tool.setuptools]\npackages = []\n"
    ),
    "roipool/_cpu.pyx": (
        "cdef extern from 'kernels/roi_align.h':\n    int answer() noexcept\n"
        "def ask():\n    return answer()\n"
        "cdef extern from *:\n    'extern \"C\" const char* built;'\n    const char* built\n"
        "def sets():\n    return built.decode().split()\n"
    ),
    f"{KERNELS}/roi_align.h": "inline int answer() { return 1; }\n",
    f"{KERNELS}/cpu/lanes.h": "inline int lanes() { return 4; }\n",
    f"{KERNELS}/cpu/average.cpp": '#include "lanes.h"\nstatic int average = lanes();\n',
    f"{KERNELS}/cpu/maximum.cpp": "static int maximum = 2;\n",
    f"{KERNELS}/cpu/position_sensitive.cpp": "static int position_sensitive = 3;\n",
    f"{KERNELS}/cpu/integers.cpp": "static int integers = 4;\n",
    f"{KERNELS}/cpu/masks.cpp": "static int masks = 7;\n",
    f"{KERNELS}/cpu/calls.cpp": "static int calls = 5;\n",
    f"{KERNELS}/cpu/placing.cpp": "static int placing = 6;\n",
    f"{KERNELS}/cpu/definitions/roi_pool.cpp": (
        '#include "../../roi_pool.h"\nstatic int bins = pool();\n'
    ),
    f"{KERNELS}/cpu/engines.cpp": BUILT,
    f"{KERNELS}/roi_pool.h": "inline int pool() { return 6; }\n",
}
ONE_SET = {"average", "maximum", "position_sensitive", "integers"}
ONCE = {"_cpu", "calls", "placing", "roi_pool", "masks", "engines"}
EVERY_OBJECT = ONE_SET | ONCE
# As pip installs a folder: the build backend's function, in the folder.
EDITABLE = """
import os, sys
from setuptools import build_meta
os.makedirs(sys.argv[1], exist_ok=True)
build_meta.build_editable(sys.argv[1])
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("setup.py", "roipool/_addresses.py", f"{KERNELS}/cpu/processor.h"):
        shutil.copy(SOURCES / name, tmp_path / name)
    return tmp_path


def build(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build in place."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    settings = {**os.environ, "ROIPOOL_NO_OPENMP": "1", **environment}
    return subprocess.run(
        command, cwd=tree, env=settings, capture_output=True, text=True, check=False
    )


def built(tree: Path, **environment: str) -> set[str]:
    """Build in place; return the recompiled objects."""
    objects = {path: path.stat().st_mtime_ns for path in tree.rglob("*.o")}
    run = build(tree, **environment)
    assert run.returncode == 0, run.stderr
    changed = {path for path in tree.rglob("*.o") if path.stat().st_mtime_ns != objects.get(path)}
    return {path.stem for path in changed}


def change(tree: Path, name: str) -> None:
    """Change a file, with a later modification time than the build."""
    for path in tree.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    path = tree / name
    path.write_text(path.read_text() + "\n")


def test_only_what_includes_a_changed_file_is_compiled(tree: Path) -> None:
    assert built(tree) == EVERY_OBJECT
    assert built(tree) == set()
    change(tree, f"{KERNELS}/roi_align.h")
    assert built(tree) == {"_cpu"}
    change(tree, f"{KERNELS}/roi_pool.h")
    assert built(tree) == {"roi_pool"}
    change(tree, f"{KERNELS}/cpu/lanes.h")
    assert built(tree) == {"average"}
    change(tree, f"{KERNELS}/cpu/maximum.cpp")
    assert built(tree) == {"maximum"}


def test_a_module_that_is_written_again_is_not_compiled(tree: Path) -> None:
    """Cython does so whenever pip builds, because a NumPy that was just installed is newer."""
    built(tree)
    (tree / "roipool/_cpu.cpp").unlink()
    assert built(tree) == set()
    module = tree / "roipool/_cpu.pyx"
    module.write_text(module.read_text() + "def ask_again():\n    return 2 * answer()\n")
    assert built(tree) == {"_cpu"}


def sets_in(tree: Path) -> list[str]:
    """Return the instruction sets of the module in a tree."""
    command = [sys.executable, "-c", "import _cpu; print(*_cpu.sets())"]
    folder = tree / "roipool"  # no package of its own, so that another `roipool` would be imported
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_one_instruction_set_is_built_on_request(tree: Path) -> None:
    assert built(tree, ROIPOOL_BUILD_ISA="baseline") == EVERY_OBJECT
    assert sets_in(tree) == ["baseline"]
    assert built(tree, ROIPOOL_BUILD_ISA="baseline") == set()
    if not ("x86" in platform.machine().lower() or platform.machine().lower() == "amd64"):
        return
    assert built(tree, ROIPOOL_BUILD_ISA="avx2") == {*ONE_SET, "engines"}
    assert sets_in(tree) == ["avx2"]
    assert built(tree, ROIPOOL_BUILD_ISA="baseline") == {"engines"}
    assert sets_in(tree) == ["baseline"]
    assert built(tree) == {*ONE_SET, "engines"}  # avx512's
    assert sets_in(tree) == ["baseline", "avx2", "avx512"]


def test_the_instruction_set_of_this_machine_is_built_on_request(tree: Path) -> None:
    built(tree, ROIPOOL_BUILD_ISA="native")
    (native,) = sets_in(tree)
    here = _cpu.instruction_sets()
    assert native == here[0] or len(here) == 1  # itself built for one set


def test_an_unknown_instruction_set_is_an_error(tree: Path) -> None:
    run = build(tree, ROIPOOL_BUILD_ISA="avx1024")
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith("error: ROIPOOL_BUILD_ISA is 'avx1024'; this compiler builds for ")
    assert last.endswith(", native")
    assert not list(tree.rglob("*.o"))


def test_an_editable_install_keeps_its_objects(tree: Path) -> None:
    """pip builds in a temporary folder, which setuptools gives it."""

    def install() -> set[Path]:
        command = [sys.executable, "-c", EDITABLE, str(tree / "wheels")]
        settings = {**os.environ, "ROIPOOL_NO_OPENMP": "1", "ROIPOOL_BUILD_ISA": "baseline"}
        subprocess.run(command, cwd=tree, env=settings, capture_output=True, check=True)
        return set(tree.rglob("*.o"))

    objects = install()
    assert {path.stem for path in objects} == EVERY_OBJECT
    times = {path: path.stat().st_mtime_ns for path in objects}
    assert install() == objects
    assert {path: path.stat().st_mtime_ns for path in objects} == times


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"PATH": "/nowhere", "CXX": "g++"}, "'g++' is not on PATH"),
        ({"CXX": "false"}, "'false' does not compile an empty program"),
    ],
)
def test_a_missing_compiler_is_said_in_one_sentence(
    tree: Path, settings: dict[str, str], problem: str
) -> None:
    run = build(tree, **settings)
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"error: roipool is compiled from C++, and the compiler {problem}: ")
    assert ("xcode-select" if sys.platform == "darwin" else "apt install g++") in last
    assert "OpenMP" not in run.stderr
    assert "Traceback" not in run.stderr


def test_an_empty_name_of_a_compiler_is_said(tree: Path) -> None:
    """The first word of the compiler's command is a flag then."""
    run = build(tree, CC="", CXX="")
    assert run.returncode == 1
    said = "error: CC or CXX is set, but empty: unset it, or set it to a compiler"
    assert run.stderr.splitlines()[-1] == said
