"""Compiles kernel texts with a C++ compiler instead of NVRTC, into one shared library per text.

The runtime that executes a kernel's threads (runtime.cpp) is a separate library, compiled once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]
Extent = tuple[int, int]  # address and bytes of an array passed to a kernel

FOLDER = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("c++")
if sys.platform == "win32":  # Windows has no ucontext.h
    COMPILER = None
FLAGS = tuple(
    "-std=c++17 -O0 -fPIC -shared -fvisibility=hidden -ffp-contract=off -fno-math-errno "
    "-Wno-unused -x c++".split()
)
# Options of a device compiler that are contained in FLAGS, or have no meaning for a C++ compiler.
KNOWN_OPTIONS = {"-std=c++17", "-fmad=false"}
KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(')


def sanitizers() -> list[str]:
    """Return flags from ROIPOOL_EMULATOR_SANITIZE, for example "address,undefined"."""
    names = os.environ.get("ROIPOOL_EMULATOR_SANITIZE", "")
    if not names:
        return []
    # -O0, since building takes longer than running, and an optimiser drops unused accesses.
    return [
        f"-fsanitize={names}",
        "-fno-sanitize-recover=all",
        "-O0",
        "-g1",
        "-fno-omit-frame-pointer",
    ]


def cache_folder() -> Path:
    """Return the folder of compiled texts: ROIPOOL_EMULATOR_CACHE, or one for this user."""
    chosen = os.environ.get("ROIPOOL_EMULATOR_CACHE")
    own = Path(tempfile.gettempdir()) / f"roipool-emulator-{os.getuid()}"
    base = Path(chosen) if chosen else own
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    return base


@cache
def compiler_version() -> str:
    """Return the compiler's version."""
    if COMPILER is None:
        raise RuntimeError("the emulator needs POSIX and a C++ compiler (CXX or g++)")
    command = [COMPILER, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def headers(folder: Path) -> str:
    """Return the text of the headers of a folder, which are part of the cache's key."""
    return "\0".join(file.read_text() for file in sorted([*folder.glob("*.h"), FOLDER / "half.h"]))


class Kernel:
    """One kernel of a text, compiled and loaded."""

    def __init__(self, text: str, options: tuple[str, ...], name: str) -> None:
        unknown = set(options) - KNOWN_OPTIONS
        if unknown:
            raise ValueError(f"the emulator does not know the options {sorted(unknown)}")
        found = ctypes.c_char.in_dll(library(with_exports(text)), f"kernel_{name}")
        self._kernel = ctypes.c_void_p(ctypes.addressof(found))
        self._run = runtime().run_kernel
        sizes = (ctypes.c_size_t * 32)()
        self.sizes = sizes[: runtime().parameters_of(self._kernel, sizes)]

    def launch(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        arguments: Sequence[HostArray],
        extents: Sequence[Extent],
    ) -> str | None:
        """Run the kernel; return a description of an error, or None.

        The extents of arrays are not used; AddressSanitizer detects accesses beyond them.
        """
        three = ctypes.c_uint * 3
        pointers = (ctypes.c_void_p * len(arguments))(*(value.ctypes.data for value in arguments))
        error: bytes | None = self._run(
            self._kernel, three(*grid), three(*block), ctypes.c_size_t(shared), pointers
        )
        return error.decode() if error else None


@cache
def runtime() -> ctypes.CDLL:
    """Return the library that runs a kernel's threads."""
    found = library((FOLDER / "runtime.cpp").read_text())
    found.run_kernel.restype = ctypes.c_char_p
    return found


def with_exports(text: str) -> str:
    """Return a kernel text as C++ that exports its kernels to the runtime."""
    names = KERNEL.findall(text)
    if len(names) != text.count("__global__ void"):
        raise ValueError("the emulator did not recognise every kernel of a text")
    exports = "\n".join(f"ROIPOOL_EMULATE({name})" for name in names)
    return f'#include "device.h"\n{text}\n{exports}\n'


@cache
def library(source: str, options: tuple[str, ...] = FLAGS, folder: Path = FOLDER) -> ctypes.CDLL:
    """Load the compiled library of a source, which may include the folder's headers."""
    flags = [*options, *sanitizers(), f"-I{folder}"]
    parts = [source, headers(folder), compiler_version(), *flags]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    file = cache_folder() / f"{key}.so"
    if not file.exists():
        with only_process(file.with_suffix(".lock")):
            if not file.exists():
                build(source, flags, file)
    return ctypes.CDLL(str(file))


@contextmanager
def only_process(lock: Path) -> Iterator[None]:
    """Lock out other processes, since tests run in several."""
    import fcntl

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def build(source: str, flags: list[str], file: Path) -> None:
    """Compile a source to a shared library."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        text, result = Path(folder) / "kernel.cu", Path(folder) / "kernel.so"
        text.write_text(source)
        command = [str(COMPILER), *flags, str(text), "-o", str(result)]
        # Preloaded sanitizers would make the compiler itself twice as slow.
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SyntaxError(done.stderr)
        result.replace(file)
