"""NVIDIA's run-time compiler through ctypes: compiles CUDA source without CuPy, GPU or driver."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from roipool._cuda import cubins
from roipool._cuda.source import OPTIONS

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")  # CUDA 13 and later, CUDA 12
# Where there is no package: of a system, or of conda.
LIBRARIES = {13: "libnvrtc.so.13", 12: "libnvrtc.so.12"}
OPTIONS_OF_MACHINE_CODE = (*OPTIONS, "-ftz=true")  # as CuPy: equal results


def wheel(newest: int | None = None, path: Sequence[str] = ()) -> importlib.metadata.Distribution:
    """Return the installed wheel; raise FileNotFoundError if there is none.

    Parameters
    ----------
    newest : int, optional
        The newest CUDA that will do, such as 12. By default any.
    path : sequence of str, optional
        Folders to search; by default the import path.
    """
    for name in PACKAGES:
        for found in importlib.metadata.distributions(name=name, path=list(path) or sys.path):
            if newest is None or int(found.version.partition(".")[0]) <= newest:
                return found
    place = f" in {', '.join(path)}" if path else ""
    raise FileNotFoundError(f"{PACKAGES[0]} is not installed{place}")


@cache
def library(newest: int | None = None, path: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library from its wheel, or the system's; raise FileNotFoundError if there is none.

    The parameters are those of `wheel`.
    """
    try:
        handle = _of_wheel(wheel(newest, path))
    except FileNotFoundError:
        found = None if path else _of_system(newest)
        if found is None:
            raise
        handle = found
    handle.nvrtcGetErrorString.restype = ctypes.c_char_p
    return handle


def _of_wheel(own: importlib.metadata.Distribution) -> ctypes.CDLL:
    files = own.files or []
    found = [Path(str(file.locate())) for file in files if re.match(r"libnvrtc.*\.so", file.name)]
    if not found:
        raise FileNotFoundError(f"{own.name} has no libnvrtc")
    # The compiler finds its built-in headers by name if they are loaded first.
    for file in sorted(found, key=lambda file: ("builtins" not in file.name, file)):
        handle = ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    return handle


def _of_system(newest: int | None) -> ctypes.CDLL | None:
    for major, name in LIBRARIES.items():
        if newest is None or major <= newest:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    return None


def check(handle: ctypes.CDLL, code: int) -> None:
    """Raise an exception for an error code of a library."""
    if code:
        raise RuntimeError(handle.nvrtcGetErrorString(code).decode())


def version(handle: ctypes.CDLL) -> str:
    """Return the version of a library, such as "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    check(handle, handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def compile_cuda(handle: ctypes.CDLL, source: str, *options: str, result: str = "PTX") -> bytes:
    """Return the "PTX", "CUBIN" or "ProgramLog" of CUDA source.

    Raises
    ------
    SyntaxError
        With the compiler's log, if it refuses the source or the options.
    """
    program = ctypes.c_void_p()
    create = handle.nvrtcCreateProgram
    check(handle, create(ctypes.byref(program), source.encode(), b"roipool.cu", 0, None, None))
    try:
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if handle.nvrtcCompileProgram(program, len(options), texts):
            raise SyntaxError(_text_of(handle, program, "ProgramLog").decode())
        return _text_of(handle, program, result)
    finally:
        handle.nvrtcDestroyProgram(ctypes.byref(program))


def _text_of(handle: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """Return a result of a compiled program; of texts, without the 0 at their end."""
    size = ctypes.c_size_t()
    check(handle, getattr(handle, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(handle, getattr(handle, f"nvrtcGet{what}")(program, text))
    return text.raw if what == "CUBIN" else text.value


@cache
def machine_code(source: str, capability: int, newest: int) -> bytes:
    """Return the machine code of a text for a compute capability, times ten; kept, also on disk.

    Parameters
    ----------
    capability : int
        Such as 90.
    newest : int
        The newest CUDA that the driver supports.

    Raises
    ------
    SyntaxError
        If this NVRTC does not know the architecture.
    """
    architecture = f"--gpu-architecture=sm_{capability}"
    options, handle = (architecture, *OPTIONS_OF_MACHINE_CODE), library(newest)

    def compile_it() -> bytes:
        return compile_cuda(handle, source, *options, result="CUBIN")

    return cubins.compiled((version(handle), *options, source), compile_it)
