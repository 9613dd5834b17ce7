"""The part of CuPy that roipool uses, on NumPy memory.

It rejects what CuPy rejects: arrays of other libraries and Python numbers of unknown width as
kernel arguments, and NumPy functions on its arrays. It also rejects what CuPy allows but roipool
must not do: reading values other than by ``get``, and ``get`` outside of debugging.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.lib.array_utils import byte_bounds

from . import compiler, driver, memory, streams
from .arithmetic import Arithmetic, functions
from .streams import launches

HostArray = np.ndarray[Any, Any]

__version__ = "emulator"


class Flags:
    """CuPy's flags of an array's memory."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous: bool = flags.c_contiguous
        self.f_contiguous: bool = flags.f_contiguous
        self.owndata: bool = flags.owndata


class MemoryPointer:
    """The address of an array."""

    def __init__(self, memory: HostArray) -> None:
        self.ptr, self.device_id, self.memory = memory.ctypes.data, _gpu_of_arrays, memory

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Fill the first bytes, on the current stream."""
        assert stream is None
        assert self.memory.flags.c_contiguous
        assert size <= self.memory.nbytes
        launches.append("memset")
        streams.enqueue(lambda: ctypes.memset(self.ptr, value, size) and None)


# Arrays are on the GPU of this number: all have the same memory.
_gpu_of_arrays = 0


@contextmanager
def arrays_on(number: int) -> Iterator[None]:
    """Let all arrays be on another, equal GPU."""
    global _gpu_of_arrays
    saved, _gpu_of_arrays = _gpu_of_arrays, number
    try:
        yield
    finally:
        _gpu_of_arrays = saved


class Device:
    """One of some equal devices; `entered` has the current one last."""

    entered: ClassVar[list[int]] = []
    compute_capability = "90"
    attributes: ClassVar = {
        "MaxSharedMemoryPerMultiprocessor": 228 << 10,
        "MaxSharedMemoryPerBlockOptin": 227 << 10,
    }

    def __init__(self, number: int = 0) -> None:
        self.id = number

    @classmethod
    def current(cls) -> int:
        """Return the number of the current device."""
        return cls.entered[-1] if cls.entered else 0

    def __enter__(self) -> Device:
        Device.entered.append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        assert Device.entered.pop() == self.id


def _host_read(name: str) -> Any:
    def refuse(self: object, *_: object, **__: object) -> Any:
        raise AssertionError(f"{name} of a device array waits for the GPU")

    return refuse


# Whether values may be read; within `no_reads` nothing may wait for the GPU.
_reads_allowed = True


@contextmanager
def no_reads() -> Iterator[None]:
    """Also forbid ``get``."""
    global _reads_allowed
    _reads_allowed = False
    try:
        yield
    finally:
        _reads_allowed = True


_arrays: WeakValueDictionary[int, ndarray] = WeakValueDictionary()  # all arrays


class ndarray(Arithmetic):  # noqa: N801 - CuPy's name
    """An array in device memory."""

    __module__ = "cupy"
    __array_priority__ = 100
    __array_ufunc__ = None

    dtype = property(lambda self: self._memory.dtype)
    shape = property(lambda self: self._memory.shape)
    strides = property(lambda self: self._memory.strides)
    ndim = property(lambda self: self._memory.ndim)
    size = property(lambda self: self._memory.size)
    nbytes = property(lambda self: self._memory.nbytes)
    flags = property(lambda self: Flags(self._memory.flags))
    data = property(lambda self: MemoryPointer(self._memory))
    device = property(lambda self: Device(_gpu_of_arrays))

    def __init__(
        self,
        memory: Any,
        dtype: Any = None,
        pointer: MemoryPointer | None = None,
        strides: Any = None,
    ) -> None:
        """Take NumPy's array; or as in CuPy a shape, a dtype, an address and strides."""
        if pointer is not None:
            memory = np.ndarray(memory, dtype, pointer.memory, 0, strides)
        super().__init__(memory)
        _arrays[id(self)] = self

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, place: Any) -> ndarray:
        assert not _needs_transfer(place), "indexing by a list copies it to the GPU"
        if _is_mask(place):
            assert _reads_allowed, "the result's shape waits for the GPU"
            return self._seen("getitem", lambda: self._memory[place._memory])
        result = self._memory[place]
        return ndarray(np.asarray(result))

    def __setitem__(self, place: Any, value: Any) -> None:
        assert isinstance(value, (ndarray, int, float)), "NumPy values are copied to the GPU"
        launches.append("setitem")
        place = place._memory if _is_mask(place) else place
        self._memory[place] = value._memory if isinstance(value, ndarray) else value

    def reshape(self, *shape: Any) -> ndarray:
        return self._seen("reshape", lambda: self._memory.reshape(*shape))

    def _seen(self, name: str, make: Callable[[], HostArray]) -> ndarray:
        """Count a copied result as a launch, which a graph repeats."""
        result = make()
        if result.size and not np.may_share_memory(result, self._memory):
            launches.append(name)
            result = memory.placed(result)
            streams.repeat_in_graph(result, make)
        return ndarray(result)

    def transpose(self, *axes: Any) -> ndarray:
        return ndarray(self._memory.transpose(*axes))

    def view(self, dtype: Any) -> ndarray:
        return ndarray(self._memory.view(dtype))

    def min(self) -> ndarray:
        return self._seen("min", lambda: np.asarray(self._memory.min()))

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        with np.errstate(all="ignore"):
            return self._seen("astype", lambda: self._memory.astype(dtype, copy=copy))

    def copy(self) -> ndarray:
        return self._seen("copy", self._memory.copy)

    def fill(self, value: Any) -> None:
        launches.append("fill")
        self._memory.fill(value)

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def get(self) -> HostArray:
        """Copy to the host, which waits for the GPU."""
        assert _reads_allowed, "get() of a device array waits for the GPU"
        return self._memory.copy()

    def __array__(self, *_: Any, **__: Any) -> HostArray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    __bool__ = _host_read("bool()")
    __int__ = _host_read("int()")
    __float__ = _host_read("float()")
    __index__ = _host_read("index()")
    __iter__ = _host_read("iter()")
    __contains__ = _host_read("in")
    item = _host_read("item()")
    tolist = _host_read("tolist()")


def _is_mask(place: Any) -> bool:
    return isinstance(place, ndarray) and place.dtype == bool


def _needs_transfer(place: Any) -> bool:
    places = place if isinstance(place, tuple) else (place,)
    return any(isinstance(item, (list, np.ndarray)) for item in places)


# ---- Array creation. New memory is filled with NaN, or with large negative numbers.


def empty(shape: Any, dtype: Any = np.float64) -> ndarray:
    result = memory.allocated(shape, dtype)
    result.view(np.uint8).reshape(-1)[:] = 0xFF if result.dtype.kind != "i" else 0xA5
    return ndarray(result)


def zeros(shape: Any, dtype: Any = np.float64) -> ndarray:
    launches.append("zeros")
    return ndarray(np.zeros(shape, dtype))


def full_like(array: ndarray, value: Any) -> ndarray:
    launches.append("fill")
    return ndarray(np.full_like(array._memory, value))


def from_dlpack(tensor: Any) -> ndarray:
    return ndarray(np.from_dlpack(tensor))


def asarray(values: Any) -> ndarray:
    return values if isinstance(values, ndarray) else ndarray(np.array(values))


def ascontiguousarray(array: ndarray, dtype: Any = None) -> ndarray:
    assert isinstance(array, ndarray)
    return array._seen("ascontiguousarray", lambda: np.ascontiguousarray(array._memory, dtype))


def concatenate(arrays: Any, axis: int = 0) -> ndarray:
    launches.append("concatenate")
    parts = [array._memory for array in arrays]
    result = memory.placed(np.concatenate(parts, axis))
    streams.repeat_in_graph(result, lambda: np.concatenate(parts, axis))
    return ndarray(result)


def asnumpy(array: ndarray) -> HostArray:
    return array.get()


globals().update(functions(ndarray))


def may_share_memory(first: ndarray, second: ndarray) -> bool:
    return bool(np.may_share_memory(first._memory, second._memory))


# ---- Kernels


class CompiledKernel(Protocol):
    """A kernel that can be launched; ``compiler.Kernel`` documents it."""

    sizes: list[int]  # of its arguments, in bytes

    def launch(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        arguments: Sequence[HostArray],
        extents: Sequence[compiler.Extent],
    ) -> str | None: ...


Compiler = Callable[[str, tuple[str, ...], str], CompiledKernel]  # of text, options and name
_compile: Compiler = compiler.Kernel


@contextmanager
def compiled_by(chosen: Compiler) -> Iterator[None]:
    """Use another compiler of kernels."""
    global _compile
    saved, _compile = _compile, chosen
    try:
        yield
    finally:
        _compile = saved


DEFAULT_SHARED_BYTES = 48 * 1024  # of a block, if its kernel is not told of more


class Function:
    """The driver's object for a kernel on the current GPU, which the driver can launch."""

    def __init__(self, kernel: RawKernel) -> None:
        self._kernel, self.name, self._gpu = kernel, kernel.name, Device.current()
        self.ptr = id(self)
        driver.functions[self.ptr] = self

    @property
    def sizes(self) -> list[int]:
        """The bytes of each argument."""
        return self._kernel.compiled().sizes

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        arguments: Sequence[HostArray],
    ) -> None:
        assert Device.entered[-1:] in ([], [-1], [self._gpu]), "a kernel of another device"
        assert shared <= self._kernel.most_shared_bytes(self._gpu)
        assert all(size < 2**31 for size in grid)
        assert math.prod(block) <= 1024
        launches.append(self.name)
        found: set[int] = set()
        for each in arguments:  # also those of several maps, in the structure
            found.update(each.view(np.uintp).tolist())
        extents = [_extent(array) for array in list(_arrays.values()) if array.data.ptr in found]
        error = self._kernel.compiled().launch(grid, block, shared, arguments, extents)
        if error:
            raise RuntimeError(f"{self.name}: {error}")


class RawKernel:
    """A kernel, compiled at its first launch."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        assert isinstance(options, tuple)
        self.code, self.name, self.options = code, name, options
        self._compiled: dict[Compiler, CompiledKernel] = {}
        self._shared_bytes: dict[int, int] = {}  # by GPU, as functions
        self._functions: dict[int, Function] = {}

    @property
    def kernel(self) -> Function:
        """The kernel on the current GPU."""
        number = Device.current()
        if number not in self._functions:
            self._functions[number] = Function(self)
        return self._functions[number]

    def most_shared_bytes(self, gpu: int) -> int:
        """Return the most shared memory of a block on a GPU, in bytes."""
        return self._shared_bytes.get(gpu, DEFAULT_SHARED_BYTES)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The most shared memory of a block on the current GPU, in bytes."""
        return self.most_shared_bytes(Device.current())

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        assert size <= Device.attributes["MaxSharedMemoryPerBlockOptin"]
        self._shared_bytes[Device.current()] = size

    def compiled(self) -> CompiledKernel:
        """Return the kernel, compiled by the current compiler."""
        if _compile not in self._compiled:
            self._compiled[_compile] = _compile(self.code, self.options, self.name)
        return self._compiled[_compile]

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        assert isinstance(grid, tuple)
        assert isinstance(block, tuple)
        assert Device.entered, "a launch must choose the arrays' device"
        # -1 is the host, where the tensors of torch are that tests let it take for CUDA tensors.
        is_theirs = Device.entered[-1] in (-1, _gpu_of_arrays)
        assert is_theirs, "a launch on another device than its arrays'"
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        launches.append(self.name)
        kernel = self.compiled()
        assert len(args) == len(kernel.sizes), f"{self.name} takes {len(kernel.sizes)} arguments"
        held = [_argument(value, size) for value, size in zip(args, kernel.sizes, strict=True)]
        extents = [_extent(value) for value in args if isinstance(value, ndarray)]
        extents += [_extent(value) for value in _arrays_within(args)]
        sizes = _three(grid), _three(block), shared_mem

        def work() -> None:
            error = kernel.launch(*sizes, held, extents)
            if error:
                raise RuntimeError(f"{self.name}: {error}")

        streams.enqueue(work)


def _three(sizes: tuple[int, ...]) -> tuple[int, ...]:
    assert 1 <= len(sizes) <= 3
    assert all(type(size) is int and size > 0 for size in sizes), f"sizes of a launch: {sizes}"
    assert sizes[0] < 2**31
    assert math.prod(sizes[1:]) < 2**16
    return (*sizes, 1, 1)[:3]


def _arrays_within(args: tuple[Any, ...]) -> list[ndarray]:
    """Return the arrays whose addresses are contained in structures."""
    found: set[int] = set()
    for value in args:
        if isinstance(value, np.ndarray) and value.nbytes % np.uintp(0).nbytes == 0:
            found.update(np.frombuffer(value.tobytes(), np.uintp).tolist())
    return [array for array in list(_arrays.values()) if array.size and array.data.ptr in found]


def _extent(array: ndarray) -> compiler.Extent:
    """Return the first address of an array, and the bytes to its last."""
    low, high = byte_bounds(array._memory)
    return low, high - low


def _argument(value: Any, size: int) -> HostArray:
    """Return an argument's bytes, which a launch copies."""
    if isinstance(value, ndarray):
        held = np.array(value._memory.ctypes.data, np.uintp)
    elif isinstance(value, np.ndarray):
        assert value.size == 1, "an array in host memory was passed to a kernel"
        held = np.ascontiguousarray(value)
    elif isinstance(value, np.generic):
        held = np.array(value)
    else:
        raise TypeError(f"a kernel argument of type {type(value).__name__} has no certain width")
    assert held.nbytes == size, f"an argument of {held.nbytes} bytes where {size} are taken"
    return held


# ---- CuPy's modules


class runtime:  # noqa: N801
    """``cupy.cuda.runtime``."""

    is_hip = False

    @staticmethod
    def getDevice() -> int:  # noqa: N802
        return Device.current()

    @staticmethod
    def getDeviceCount() -> int:  # noqa: N802
        return 1

    @staticmethod
    def getDeviceProperties(number: int) -> dict[str, Any]:  # noqa: N802
        assert number == 0
        return {"name": b"emulator", "major": 0, "minor": 0, "totalGlobalMem": 0}

    @staticmethod
    def runtimeGetVersion() -> int:  # noqa: N802
        return 0

    driverGetVersion = runtimeGetVersion  # noqa: N815


class cuda:  # noqa: N801
    """``cupy.cuda``."""

    Device = Device
    runtime = runtime
    Stream = streams.Stream
    ExternalStream = staticmethod(streams.external_stream)
    get_current_stream = staticmethod(streams.get_current_stream)
    UnownedMemory = memory.UnownedMemory
    MemoryPointer = memory.MemoryInside
    get_allocator = staticmethod(memory.get_allocator)
    using_allocator = staticmethod(memory.using_allocator)
