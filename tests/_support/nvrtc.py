"""NVIDIA's run-time compiler through ctypes: compiles CUDA source without a GPU or a driver."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")  # CUDA 13 and later, CUDA 12


# The folder of the wheel (`pip install --target`) if it is not on the import path.
_folder: str | None = None


def use_wheel_in(folder: str) -> None:
    """Use the wheel in a folder; must be called before anything is compiled."""
    global _folder
    _folder = folder


def wheel() -> importlib.metadata.Distribution:
    """Return the installed wheel; raise FileNotFoundError if there is none."""
    path = sys.path if _folder is None else [_folder]
    for name in PACKAGES:
        for found in importlib.metadata.distributions(name=name, path=path):
            return found
    place = "" if _folder is None else f" in {_folder}"
    raise FileNotFoundError(f"{PACKAGES[0]} is not installed{place}")


def version() -> str:
    """Return the version, such as "13.5.37"."""
    return wheel().version


REPORT = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


class Use(NamedTuple):
    """Resources of one thread: registers, and bytes."""

    registers: int
    stack: int
    spills: int


@cache
def library() -> ctypes.CDLL:
    """Load the library from its wheel; raise FileNotFoundError if there is none."""
    files = wheel().files or []
    found = sorted(
        Path(str(file.locate())) for file in files if re.match(r"libnvrtc.*\.so", file.name)
    )
    if not found:
        raise FileNotFoundError(f"{wheel().name} has no libnvrtc")
    # The compiler finds its built-in headers by name if they are loaded first.
    for file in sorted(found, key=lambda file: "builtins" not in file.name):
        handle = ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    handle.nvrtcGetErrorString.restype = ctypes.c_char_p
    return handle


def check(code: int) -> None:
    """Raise an exception for an error code of the library."""
    if code:
        raise RuntimeError(library().nvrtcGetErrorString(code).decode())


def architectures() -> list[int]:
    """Return the supported compute capabilities, such as 90."""
    count = ctypes.c_int()
    check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    check(library().nvrtcGetSupportedArchs(numbers))
    return list(numbers)


def text_of(program: ctypes.c_void_p, what: str) -> str:
    """Return the program's "ProgramLog" or "PTX"."""
    size = ctypes.c_size_t()
    check(getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(getattr(library(), f"nvrtcGet{what}")(program, text))
    return text.value.decode()


def compile_cuda(source: str, *options: str, result: str = "PTX") -> str:
    """Return the PTX or "ProgramLog" of CUDA source; a SyntaxError contains the compiler's log."""
    program = ctypes.c_void_p()
    create = library().nvrtcCreateProgram
    check(create(ctypes.byref(program), source.encode(), b"test.cu", 0, None, None))
    try:
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library().nvrtcCompileProgram(program, len(options), texts):
            raise SyntaxError(text_of(program, "ProgramLog"))
        return text_of(program, result)
    finally:
        library().nvrtcDestroyProgram(ctypes.byref(program))


def resources(source: str, *options: str) -> Iterator[tuple[str, Use]]:
    """Yield the kernels of a text and their resources; options must name an architecture."""
    log = compile_cuda(source, *options, "--ptxas-options=-v", result="ProgramLog")
    # The assembler also lists functions called by kernels; those have no "entry".
    for block in re.split(r"(?=ptxas info\s*: Compiling entry)", log)[1:]:
        found = REPORT.search(block)
        assert found is not None, block
        kernel, *numbers = found.groups()
        stack, stores, loads, registers = map(int, numbers)
        yield kernel, Use(registers, stack, stores + loads)
