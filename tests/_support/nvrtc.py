"""NVIDIA's run-time compiler, as tests and measurements of kernels use it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import NamedTuple

from roipool._cuda import nvrtc

# The folder of the wheel (`pip install --target`) if it is not on the import path.
_folder: tuple[str, ...] = ()


def use_wheel_in(folder: str) -> None:
    """Use the wheel in a folder; must be called before anything is compiled."""
    global _folder
    _folder = (folder,)


def version() -> str:
    """Return the version, such as "13.5.37"."""
    return nvrtc.wheel(path=_folder).version


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


def library() -> ctypes.CDLL:
    """Load the library; raise FileNotFoundError if there is none."""
    return nvrtc.library(path=_folder)


def architectures() -> list[int]:
    """Return the supported compute capabilities, such as 90."""
    count = ctypes.c_int()
    nvrtc.check(library(), library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    nvrtc.check(library(), library().nvrtcGetSupportedArchs(numbers))
    return list(numbers)


def compile_cuda(source: str, *options: str, result: str = "PTX") -> str:
    """Return the PTX or "ProgramLog" of CUDA source; a SyntaxError contains the compiler's log."""
    return nvrtc.compile_cuda(library(), source, *options, result=result).decode()


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
