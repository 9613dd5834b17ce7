"""Kernels for the emulator that execute NVRTC's PTX."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

import numpy as np

from _support import nvrtc
from _support.emulator import compiler, cupy_module

from . import ptx

HostArray = compiler.HostArray
FOLDER = Path(__file__).parent
ARCHITECTURE = 90  # compute capability, times ten
FLAGS = tuple(
    "-std=c++17 -O2 -fPIC -shared -fwrapv -ffp-contract=off -fno-math-errno -x c++".split()
)
SOURCES = ("machine.cpp", "memory.cpp", "arithmetic.cpp")


class Launch(ctypes.Structure):
    """A launch of the machine; machine.cpp has the same fields."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3), ("threads", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint64) for name in ("shared_bytes", "local_bytes", "argument_bytes")),
        ("arguments", ctypes.c_void_p),
        ("regions", ctypes.c_void_p), ("number_of_regions", ctypes.c_uint64),
        ("registers", ctypes.c_void_p), ("number_of_registers", ctypes.c_uint64),
        ("program", ctypes.c_void_p), ("length", ctypes.c_uint64),
    ]  # fmt: skip


def simulated() -> AbstractContextManager[None]:
    """Run the emulator's kernels in the simulator."""
    return cupy_module.compiled_by(Kernel)


def why_not() -> str | None:
    """Return the missing requirement, or None."""
    try:
        nvrtc.library()
    except FileNotFoundError as error:
        return str(error)
    return None if compiler.COMPILER else "the simulator needs POSIX and a compiler (CXX or g++)"


@cache
def machine() -> ctypes.CDLL:
    """Return the machine's library, compiled once."""
    source = "\n".join((FOLDER / name).read_text() for name in SOURCES)
    library = compiler.library(source, FLAGS, FOLDER)
    library.run_launch.restype = ctypes.c_char_p
    library.operation_name.restype = ctypes.c_char_p
    return library


@cache
def operations() -> dict[str, int]:
    """Return the numbers of operations by name."""
    names: dict[str, int] = {}
    while (name := machine().operation_name(len(names))) is not None:
        names[name.decode()] = len(names)
    return names


@cache
def programs(text: str, options: tuple[str, ...]) -> dict[str, ptx.Program]:
    """Compile a text; return its kernels as programs for the machine."""
    # CuPy also adds -ftz=true.
    architecture = f"--gpu-architecture=compute_{ARCHITECTURE}"
    assembly = nvrtc.compile_cuda(text, architecture, "-ftz=true", *options)
    return {
        entry.name: ptx.Assembler(entry, operations().get).program()
        for entry in ptx.entries(assembly)
    }


class Kernel:
    """One kernel of a text, with the methods of the emulator's kernels."""

    def __init__(self, text: str, options: tuple[str, ...], name: str) -> None:
        self.program = programs(text, options)[name]
        self.sizes = [size for _, size in self.program.parameters]

    def launch(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        arguments: Sequence[compiler.HostArray],
        extents: Sequence[compiler.Extent],
    ) -> str | None:
        """Run the kernel; return a description of an error, or None.

        Parameters
        ----------
        grid, block : tuple of int
            Numbers of blocks and threads, in three dimensions.
        shared : int
            Bytes of shared memory.
        arguments : sequence of arrays
            The bytes of each argument.
        extents : sequence of (int, int)
            Address and bytes of each array that the kernel may access.
        """
        program = self.program
        held = np.zeros(program.parameter_bytes, np.uint8)
        for value, (offset, size) in zip(arguments, program.parameters, strict=True):
            held[offset : offset + size] = np.frombuffer(value.tobytes(), np.uint8)
        regions = np.array(extents, np.uint64).reshape(-1, 2)
        launch = Launch(
            grid,
            block,
            shared,
            program.local_bytes,
            len(held),
            held.ctypes.data,
            regions.ctypes.data,
            len(regions),
            program.registers.ctypes.data,
            len(program.registers),
            program.instructions.ctypes.data,
            len(program.instructions) - 1,
        )
        error: bytes | None = machine().run_launch(ctypes.byref(launch))
        return error.decode() if error else None
