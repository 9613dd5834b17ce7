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

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")  # of CUDA 13 and later, of CUDA 12


# Where else than on the import path its wheel is, if anywhere: a folder of `pip install --target`.
_folder: str | None = None


def use_wheel_in(folder: str) -> None:
    """Take the wheel from a folder; to be called before anything is compiled."""
    global _folder
    _folder = folder


def wheel() -> importlib.metadata.Distribution:
    """Return the wheel that holds it; FileNotFoundError without one."""
    path = sys.path if _folder is None else [_folder]
    for name in PACKAGES:
        for found in importlib.metadata.distributions(name=name, path=path):
            return found
    place = "" if _folder is None else f" in {_folder}"
    raise FileNotFoundError(f"{PACKAGES[0]} is not installed{place}")


def version() -> str:
    """Return its version, such as "13.5.37"."""
    return wheel().version


REPORT = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


class Use(NamedTuple):
    """What one thread needs: registers, and bytes."""

    registers: int
    stack: int
    spills: int


@cache
def library() -> ctypes.CDLL:
    """Return the library from its wheel; FileNotFoundError without one."""
    files = wheel().files or []
    found = sorted(
        Path(str(file.locate())) for file in files if re.match(r"libnvrtc.*\.so", file.name)
    )
    if not found:
        raise FileNotFoundError(f"{wheel().name} has no libnvrtc")
    # The compiler looks for its built-in headers by name: load them first.
    for file in sorted(found, key=lambda file: "builtins" not in file.name):
        handle = ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    handle.nvrtcGetErrorString.restype = ctypes.c_char_p
    return handle


def check(code: int) -> None:
    """Raise an error that the library returned."""
    if code:
        raise RuntimeError(library().nvrtcGetErrorString(code).decode())


def architectures() -> list[int]:
    """Return the compute capabilities that this version compiles for, such as 90."""
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
    """Return the PTX of CUDA source, or "ProgramLog"; a SyntaxError holds the compiler's log."""
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
    """Yield the kernels of a text and what they use; the options name an architecture, as sm_90."""
    log = compile_cuda(source, *options, "--ptxas-options=-v", result="ProgramLog")
    # The assembler also lists functions that kernels call; those have no "entry".
    for block in re.split(r"(?=ptxas info\s*: Compiling entry)", log)[1:]:
        found = REPORT.search(block)
        assert found is not None, block
        kernel, *numbers = found.groups()
        stack, stores, loads, registers = map(int, numbers)
        yield kernel, Use(registers, stack, stores + loads)
