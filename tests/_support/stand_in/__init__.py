"""A stand-in for CUDA's driver, with which programs for XLA's CPU launch kernels as on a GPU.

``with active():`` lets programs of JAX for a CPU be made as those for NVIDIA's GPUs are: launches
are planned, carried by the program, and made by roipool's own handler. The driver is driver.cpp,
which runs kernels on the emulator; instead of machine code, programs carry the path of a library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import jax

from roipool import _cpu
from roipool._cuda import driver, nvrtc
from roipool.jax import _cuda, _transport

from ..emulator import compiler

FOLDER = Path(__file__).parent
FUNCTIONS = ("load", "find", "set", "fill", "launch")  # that are counted, and can fail
FLAGS = ("-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-x", "c++")
KEPT = (driver.addresses, driver.gpu)  # what is kept of a driver


@cache
def library() -> ctypes.CDLL:
    """Return the stand-in's library."""
    include = [f"-I{jax.ffi.include_dir()}", f"-I{FOLDER.parent}"]
    found = compiler.library((FOLDER / "driver.cpp").read_text(), (*FLAGS, *include))
    found.calls_of.restype = ctypes.c_long
    found.names_of_launched.restype = ctypes.c_char_p
    return found


@cache
def register() -> None:
    """Make the stand-in known to roipool's handler, and the handler by way of it to XLA."""
    handler = _cpu.xla_cuda_handler(driver.addresses(*driver.FUNCTIONS))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = pointer(handler, b"xla._CUSTOM_CALL_TARGET")
    library().begin(ctypes.c_void_p(address), compiler.runtime().run_kernel)
    capsule = jax.ffi.pycapsule(library().stand_in)
    jax.ffi.register_ffi_target(_transport.TARGET_OF_GPUS, capsule, platform="cpu")


def path_of(source: str, capability: int, newest: int) -> bytes:
    """Return the path of a compiled text, as machine code that the stand-in takes."""
    assert (capability, newest) == (90, 12)
    return compiler.library(compiler.with_exports(source))._name.encode() + b"\0"


@contextmanager
def active(gpus: Sequence[int] = (0, 1)) -> Iterator[None]:
    """Let programs for a CPU launch kernels, on GPUs of these numbers."""
    parts = [
        (driver, "library", library),
        (nvrtc, "machine_code", path_of),
        (_cuda, "gpu_numbers", lambda: gpus),
        (_transport, "why_not_on_gpus", lambda: ""),
        (_transport, "call_handler", _cuda.call_cuda),
    ]
    with ExitStack() as stack:
        for owner, name, value in parts:
            stack.enter_context(mock.patch.object(owner, name, value))
        forget()
        register()
        yield
    forget()


def forget() -> None:
    """Forget compiled programs, and what is known of a driver."""
    jax.clear_caches()
    for function in KEPT:
        function.cache_clear()


def calls() -> dict[str, int]:
    """Return how often each function was called since this was last asked."""
    counts = [library().calls_of(number) for number, _ in enumerate(FUNCTIONS)]
    return dict(zip(FUNCTIONS, counts, strict=True))


def launched() -> list[str]:
    """Return the names of the kernels that were launched since this was last asked."""
    names: bytes = library().names_of_launched()
    return names.decode().split()


@contextmanager
def failing(function: str, outcome: int) -> Iterator[None]:
    """Let a function of the driver fail."""
    library().let_fail(FUNCTIONS.index(function), outcome)
    try:
        yield
    finally:
        library().let_fail(-1, 0)
