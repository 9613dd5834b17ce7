"""Kernels for the emulator that execute NVRTC's PTX, and count their work."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class Counts(ctypes.Structure):
    """Counts of a launch; machine.h has the same fields."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in (
            "warp_instructions",  # of PTX
            "thread_instructions",  # summed over active lanes
            "branches", "divergent_branches",
            "barriers",  # block-wide, counted once per warp
            "warp_barriers",
            "collectives",
            # Global memory: a request is one instruction of a warp, a sector has 32 bytes.
            "load_requests", "load_sectors", "load_bytes",
            "store_requests", "store_sectors", "store_bytes",
            "atomic_requests", "atomic_sectors",
            "atomic_conflicts",  # lanes that add to the address of a lower lane
            "block_load_sectors",  # distinct sectors of each block, summed over blocks
            "unique_load_sectors",  # distinct sectors of the launch
            "unique_store_sectors",
            "shared_requests",
            "shared_wavefronts",  # cycles in which the banks served them
            "shared_least_wavefronts",  # without bank conflicts
            "local_requests",
        )
    ]  # fmt: skip

    def as_dict(self) -> dict[str, int]:
        """Return all counts by name."""
        return {name: getattr(self, name) for name, *_ in self._fields_}


class Launch(ctypes.Structure):
    """A launch of the machine; machine.cpp has the same fields."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3), ("threads", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint64) for name in ("shared_bytes", "local_bytes", "argument_bytes")),
        ("arguments", ctypes.c_void_p),
        ("regions", ctypes.c_void_p), ("number_of_regions", ctypes.c_uint64),
        ("registers", ctypes.c_void_p), ("number_of_registers", ctypes.c_uint64),
        ("program", ctypes.c_void_p), ("length", ctypes.c_uint64),
        ("blocks", ctypes.c_void_p), ("number_of_blocks", ctypes.c_uint64),
        ("costs", ctypes.c_void_p), ("miss_latency", ctypes.c_double),
        ("counts_after", ctypes.c_void_p), ("timings", ctypes.c_void_p),
    ]  # fmt: skip


# The cost of an instruction; machine.h has the same fields and documents them.
COST = np.dtype(
    [
        ("slots", np.float32),
        ("latency", np.float32),
        ("results", np.int32),
        ("starts_block", np.int32),
    ]
)
TIMING = np.dtype([("slots", np.float64), ("cycles", np.float64)])


class Profiling(NamedTuple):
    """Options of profiles."""

    choose: Callable[[str, int], HostArray]  # kernel, number of blocks -> blocks to run
    costs: Callable[[ptx.Entry], HostArray]  # cost of each instruction
    miss_latency: float  # cycles of a load of a sector that the block has not loaded before


class Profile(NamedTuple):
    """The profile of a launch, by block."""

    text: str  # the compiled text
    options: tuple[str, ...]
    timings: HostArray  # of each block that ran
    counts: dict[str, HostArray]  # `Counts` of each block


class Record(NamedTuple):
    """A finished launch."""

    kernel: str
    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int
    counts: Counts
    profile: Profile | None = None  # if requested


_records: list[Record] | None = None
_profiling: Profiling | None = None


@contextmanager
def recorded(profiling: Profiling | None = None) -> Iterator[list[Record]]:
    """Record the launches within a block of code, with profiles if `profiling` is given."""
    global _records, _profiling
    saved = _records, _profiling
    _records, _profiling = [], profiling
    try:
        yield _records
    finally:
        _records, _profiling = saved


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
def programs(text: str, options: tuple[str, ...]) -> dict[str, tuple[ptx.Entry, ptx.Program]]:
    """Compile a text; return its kernels as entries and as programs for the machine."""
    # CuPy also adds -ftz=true.
    architecture = f"--gpu-architecture=compute_{ARCHITECTURE}"
    assembly = nvrtc.compile_cuda(text, architecture, "-ftz=true", *options)
    return {
        entry.name: (entry, ptx.Assembler(entry, operations().get).program())
        for entry in ptx.entries(assembly)
    }


class Measures:
    """Buffers into which the machine writes a profile, if requested."""

    def __init__(self, profiling: Profiling | None, entry: ptx.Entry, blocks: int) -> None:
        self.is_asked = profiling is not None
        self.miss_latency = 0.0
        if profiling is not None:
            self.miss_latency = profiling.miss_latency
            self.costs = profiling.costs(entry)
            self.after = np.zeros((blocks, len(Counts._fields_)), np.int64)
            self.timings = np.zeros(blocks, TIMING)

    def pointers(self) -> tuple[int | None, float, int | None, int | None]:
        """Return the last fields of a launch."""
        if not self.is_asked:
            return None, 0.0, None, None
        costs, after, timings = self.costs, self.after, self.timings
        return costs.ctypes.data, self.miss_latency, after.ctypes.data, timings.ctypes.data

    def profile(self, text: str, options: tuple[str, ...]) -> Profile | None:
        """Return the profile that the machine has written."""
        if not self.is_asked:
            return None
        counts = np.diff(self.after, axis=0, prepend=0)
        names = [name for name, *_ in Counts._fields_]
        by_name = {name: counts[:, place] for place, name in enumerate(names)}
        return Profile(text, options, self.timings, by_name)


class Kernel:
    """One kernel of a text, with the methods of the emulator's kernels."""

    def __init__(self, text: str, options: tuple[str, ...], name: str) -> None:
        self.name, self.text, self.options = name, text, options
        self.entry, self.program = programs(text, options)[name]
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
        number = int(np.prod(grid))
        blocks = np.arange(number) if _profiling is None else _profiling.choose(self.name, number)
        asked = Measures(_profiling, self.entry, len(blocks))
        blocks, counts = blocks.astype(np.uint64), Counts()
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
            blocks.ctypes.data,
            len(blocks),
            *asked.pointers(),
        )
        error = machine().run_launch(ctypes.byref(launch), ctypes.byref(counts))
        if _records is not None:
            profile = asked.profile(self.text, self.options)
            _records.append(Record(self.name, grid, block, shared, counts, profile))
        return error.decode() if error else None
