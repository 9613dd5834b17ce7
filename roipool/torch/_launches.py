"""Small calls on CUDA tensors: launched at once, without CuPy's arrays in between.

As ``roipool._cuda.kept`` does for arrays, on torch's current stream and with torch's memory. Each
function has the arguments of the one of the same name in ``_kernels``, and returns None for a call
that needs the general path.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from roipool._request import Pooling
from roipool.torch._cuda import CUDA
from roipool.torch._families import Family, Settings, pooling_of
from roipool.torch._memory import CHANNELS_LAST, are_channels_last, empty_maps

# NumPy's types of maps, and of the numbers beside them.
MAPS: dict[torch.dtype, Any] = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(np.int16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
NUMBERS: dict[torch.dtype, Any] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
}
ARGMAX = torch.int32  # of small calls


class BoxTensors(NamedTuple):
    """The boxes of a call: a table with batch indices, or columns of one and the indices."""

    table: Tensor  # the boxes
    # Their batch indices, if they are not in the table's first column; the number of each box's map
    # in a pyramid.
    indices: Tensor | None
    levels: Tensor | None
    cuts: bool  # whether batch indices are cut to whole numbers

    def kind(self, maps: torch.dtype, gpu: int, columns: int) -> Any:
        """Return how they lie, if kernels read them so beside maps of a type on a GPU, or None."""
        table, indices, levels, cuts = self
        shape = table.shape
        if len(shape) != 2 or shape[1] != columns + (indices is None) or not shape[0]:
            return None
        images = table if indices is None else indices
        if table.dtype not in NUMBERS or images.dtype not in NUMBERS:
            return None
        if indices is not None and indices.shape != shape[:1]:
            return None
        if levels is not None and not (
            levels.dtype is torch.int64 and levels.shape == shape[:1] and levels.is_contiguous()
        ):
            return None
        for each in (table, indices, levels):
            if each is not None and not (each.get_device() == gpu and is_readable(each)):
                return None
        return kind_of(maps, table.dtype, table.stride(), images.dtype, images.stride(0), cuts)

    def addresses(self) -> tuple[int, int, int]:
        """Return the addresses of boxes, indices and levels."""
        table, indices, levels, _ = self
        address, of_levels = table.data_ptr(), 0 if levels is None else levels.data_ptr()
        if indices is None:
            return address + table.element_size(), address, of_levels
        return address, indices.data_ptr(), of_levels


@functools.lru_cache(maxsize=1024)
def kept_verb(
    verb: str,
    family: Family,
    placing: tuple[Any, ...],
    size: tuple[int, int],
    filling: float,
    last: bool,
    argmax: torch.dtype | None = None,
) -> Any:
    """Return the launches of a verb, for a request in parts: a hash of the whole takes longer."""
    return verb_of(verb, pooling_of(family, placing, size, filling, last), argmax)


def verb_of(verb: str, pooling: Pooling, argmax: torch.dtype | None = None) -> Any:
    """Return the launches of a verb."""
    CUDA.engine()  # an error of it says what is missing
    from roipool._cuda.kept import KeptVerb

    return KeptVerb(verb, pooling, None if argmax is None else NUMBERS[argmax])


@functools.lru_cache(maxsize=1024)
def kind_of(
    maps: torch.dtype,
    boxes: torch.dtype,
    strides: tuple[int, int],
    images: torch.dtype,
    image_stride: int,
    cuts: bool,
) -> Any:
    """Return how the arrays of a call lie; strides are counted in elements."""
    from roipool._cuda.kept import BoxLayout

    own, step = NUMBERS[boxes], NUMBERS[images].itemsize * image_stride
    at = strides[0] * own.itemsize, strides[1] * own.itemsize
    return MAPS[maps], BoxLayout(own, NUMBERS[images], at, step, cuts)


def average(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *maps: Tensor,
) -> Tensor | None:
    """Pool maps by an average."""
    family, placing, size, filling, *_, cuts = settings
    last = are_channels_last(maps)
    verb = kept_verb("average", family, placing, size, filling, last)
    return pooled(verb, BoxTensors(boxes, indices, levels, cuts), maps)


def pooled(verb: Any, boxes: BoxTensors, maps: Sequence[Tensor]) -> Tensor | None:
    """Pool maps by the launches of an average, for their layout."""
    gpu = gpu_of(maps, verb.channels_last)
    if gpu is None:
        return None
    result = pooled_like(maps[0], verb, boxes.table.shape[0])
    arrays = maps[0].data_ptr(), result.data_ptr()
    several = maps if verb.pooling.scales else ()
    shapes = [each.shape for each in maps]
    return result if launched(verb, boxes, gpu, maps[0], shapes, arrays, several) else None


def maximum(
    settings: Settings, boxes: Tensor, indices: Tensor | None, levels: None, maps: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Pool maps by a maximum; return its argmax, too."""
    family, placing, size, filling, *_, cuts = settings
    last = are_channels_last((maps,))
    gpu = gpu_of((maps,), last)
    if gpu is None:
        return None
    verb = kept_verb("maximum", family, placing, size, filling, last, ARGMAX)
    result = pooled_like(maps, verb, boxes.shape[0])
    argmax = torch.empty_like(result, dtype=ARGMAX)
    arrays = maps.data_ptr(), result.data_ptr(), argmax.data_ptr()
    at = BoxTensors(boxes, indices, levels, cuts)
    return (result, argmax) if launched(verb, at, gpu, maps, [maps.shape], arrays) else None


def average_backward(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    gradient: Tensor,
) -> tuple[Tensor, ...] | None:
    """Return the gradients of an average with respect to each of the maps."""
    at = BoxTensors(boxes, indices, levels, settings.cuts)
    return gradients("average_backward", settings, at, gradient)


def maximum_backward(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: None,
    gradient: Tensor,
    argmax: Tensor,
) -> tuple[Tensor, ...] | None:
    """Return the gradient of a maximum with respect to the features."""
    if argmax.dtype not in (torch.int32, torch.int64) or argmax.shape != gradient.shape:
        return None
    if argmax.get_device() != gradient.get_device() or not is_readable(argmax):
        return None
    if not is_stored(argmax, settings.channels_last):
        return None
    at = BoxTensors(boxes, indices, levels, settings.cuts)
    return gradients("maximum_backward", settings, at, gradient, argmax)


def gradients(
    name: str, settings: Settings, boxes: BoxTensors, gradient: Tensor, argmax: Tensor | None = None
) -> tuple[Tensor, ...] | None:
    """Return what a verb computes of the gradient of pooled values."""
    family, placing, _, filling, shapes, last, *_ = settings
    gpu = gpu_of((gradient,), last)
    size = gradient.shape
    if gpu is None or size[0] != boxes.table.shape[0]:
        return None
    of_argmax = None if argmax is None else argmax.dtype
    verb = kept_verb(name, family, placing, tuple(size[2:]), filling, last, of_argmax)
    images, channels = shapes[0][0], size[1] * verb.groups
    for shape in shapes:
        if shape[0] != images or shape[1] != channels:
            return None
    outs = tuple([empty_maps(shape, gradient, last) for shape in shapes])
    middle = () if argmax is None else (argmax.data_ptr(),)
    arrays = gradient.data_ptr(), *middle, outs[0].data_ptr()
    several = outs if verb.pooling.scales else ()
    return outs if launched(verb, boxes, gpu, gradient, shapes, arrays, several) else None


def launched(
    verb: Any,
    boxes: BoxTensors,
    gpu: int,
    first: Tensor,
    shapes: Sequence[Any],
    arrays: tuple[int, ...],
    several: Sequence[Tensor] = (),
) -> bool:
    """Launch the kernels of a verb for maps of some shapes; return whether it was done.

    `arrays` are the addresses of the engine's arrays, `several` the maps of a pyramid.
    """
    kind = boxes.kind(first.dtype, gpu, verb.columns)
    if kind is None:
        return False
    if verb.channels_last:
        shapes = [(shape[0], shape[2], shape[3], shape[1]) for shape in shapes]
    count, at = boxes.table.shape[0], boxes.addresses()
    prepared, sizes = verb.prepared(kind, gpu, count, tuple(shapes))
    if prepared is None or at[0] % boxes.table.element_size():
        return False
    size, work = prepared.scratch, 0
    if size:
        scratch = first.new_empty(size, dtype=torch.uint8)  # kept until the kernels are queued
        work = scratch.data_ptr()
    if verb.is_bare:
        arrays = (*arrays, at[1])
    maps = tuple([each.data_ptr() for each in several])
    done: bool = prepared(current_stream(gpu), count, sizes, at, arrays, maps, work)
    return done


def gpu_of(maps: Sequence[Tensor], last: bool) -> int | None:
    """Return the current GPU's number if kernels read maps, or a gradient, on it as they lie."""
    first = maps[0]
    gpu, dtype, shape = first.get_device(), first.dtype, first.shape
    if dtype not in MAPS or len(shape) != 4 or current_device() != gpu:
        return None
    for each in maps:
        if each.dtype is not dtype or each.shape[:2] != shape[:2] or each.get_device() != gpu:
            return None
        if not (is_stored(each, last) and each.numel() and is_readable(each)):
            return None
    return gpu


def pooled_like(maps: Tensor, verb: Any, boxes: int) -> Tensor:
    """Return a tensor for the pooled values of a verb, beside maps."""
    rows, columns = verb.pooling.output_size
    channels = maps.shape[1] // verb.groups
    if verb.channels_last:
        return maps.new_empty(boxes, rows, columns, channels).permute(0, 3, 1, 2)
    return maps.new_empty(boxes, channels, rows, columns)  # faster than of a tuple


def is_stored(tensor: Tensor, last: bool) -> bool:
    """Return whether (N, C, H, W) values lie in a layout."""
    if last:
        return bool(tensor.is_contiguous(memory_format=CHANNELS_LAST))
    return bool(tensor.is_contiguous())


def current_device() -> int:
    """Return the number of the current GPU."""
    number: int = torch._C._cuda_getDevice()
    return number


def current_stream(gpu: int) -> int:
    """Return the driver's handle of torch's current stream on a GPU."""
    handle: int = torch._C._cuda_getCurrentRawStream(gpu)
    return handle


def is_readable(tensor: Tensor) -> bool:
    """Return whether a plain tensor's memory has not been freed, and is read as it is."""
    if tensor.is_neg() or tensor.is_nested:
        return False
    if tensor.is_contiguous():
        extent = tensor.numel()
    else:
        extent = 1 + sum(map(_steps, tensor.shape, tensor.stride())) if tensor.numel() else 0
    end = tensor.storage_offset() + extent
    return bool(end * tensor.element_size() <= tensor.untyped_storage().nbytes())


def _steps(size: int, stride: int) -> int:
    return (size - 1) * stride
