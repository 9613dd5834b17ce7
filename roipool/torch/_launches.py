"""Small calls on CUDA tensors: launched at once, without CuPy's arrays in between.

As ``roipool._cuda.kept`` does for arrays, on torch's current stream and with torch's memory. Each
function has the arguments of the one of the same name in ``_kernels``, and returns None for a call
that needs the general path. All calls need it before torch 2.10, which has no functions of C that
describe tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roipool._cpu import TensorCall, TensorReader
from roipool.torch._cuda import CUDA
from roipool.torch._families import Family, Settings, pooling_of
from roipool.torch._memory import ON_CUDA, PLAIN, empty_maps

ARGMAX = torch.int32  # of small calls

# Return the current GPU's number, and the driver's handle of torch's current stream on a GPU. A
# torch without CUDA has neither of them.
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)

READER = TensorReader(PLAIN, ON_CUDA, current_device)


@functools.lru_cache(maxsize=1024)
def kept_verb(
    verb: str,
    family: Family,
    placing: tuple[Any, ...],
    size: tuple[int, int],
    filling: float,
    cuts: bool,
    last: bool,
    argmax: torch.dtype | None = None,
) -> Any:
    """Return the launches of a verb, for a request in parts: a hash of the whole takes longer."""
    CUDA.engine()  # an error of it says what is missing
    from roipool._cuda.kept import KeptVerb

    pooling = pooling_of(family, placing, size, filling, last)
    own = None if argmax is None else np.dtype(str(argmax).removeprefix("torch."))
    return KeptVerb(verb, pooling, own, functools.partial(kind_of, cuts))


def kind_of(cuts: bool, kind: tuple[int, ...]) -> Any:
    """Return how the arrays of a call lie that a `TensorReader` has read."""
    from roipool._cuda.kept import BoxLayout

    maps, boxes, images = (dtype_of(*kind[at : at + 2]) for at in (0, 2, 6))
    return maps, BoxLayout(boxes, images, (kind[4], kind[5]), kind[8], cuts)


def dtype_of(code: int, bits: int) -> np.dtype[Any]:
    """Return NumPy's type for one of DLPack's; int16 for bfloat16."""
    return np.dtype(f"{'f' if code == 2 else 'i'}{bits // 8}")


def average(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *maps: Tensor,
) -> Tensor | None:
    """Pool maps by an average."""
    call = READER.read(maps, boxes, indices, levels)
    if call is None:
        return None
    family, placing, size, filling, *_, cuts = settings
    verb = kept_verb("average", family, placing, size, filling, cuts, call.channels_last)
    result = pooled_like(maps[0], verb, call)
    arrays = call.maps[0], result.data_ptr()
    several = call.maps if family.is_pyramid else ()
    return result if launched(verb, call, call.shapes, arrays, several, result) else None


def maximum(
    settings: Settings, boxes: Tensor, indices: Tensor | None, levels: None, maps: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Pool maps by a maximum; return its argmax, too."""
    call = READER.read((maps,), boxes, indices, levels)
    if call is None:
        return None
    family, placing, size, filling, *_, cuts = settings
    last = call.channels_last
    verb = kept_verb("maximum", family, placing, size, filling, cuts, last, ARGMAX)
    result = pooled_like(maps, verb, call)
    argmax = torch.empty_like(result, dtype=ARGMAX)
    arrays = call.maps[0], result.data_ptr(), argmax.data_ptr()
    return (result, argmax) if launched(verb, call, call.shapes, arrays, (), result) else None


def average_backward(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    gradient: Tensor,
) -> tuple[Tensor, ...] | None:
    """Return the gradients of an average with respect to each of the maps."""
    return gradients("average_backward", settings, boxes, indices, levels, gradient)


def maximum_backward(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: None,
    gradient: Tensor,
    argmax: Tensor,
) -> tuple[Tensor, ...] | None:
    """Return the gradient of a maximum with respect to the features."""
    return gradients("maximum_backward", settings, boxes, indices, levels, gradient, argmax)


def gradients(
    name: str,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    gradient: Tensor,
    argmax: Tensor | None = None,
) -> tuple[Tensor, ...] | None:
    """Return what a verb computes of the gradient of pooled values."""
    family, placing, _, filling, shapes, last, _, cuts = settings
    call = READER.read((gradient,), boxes, indices, levels, last, argmax)
    if call is None:
        return None
    count, channels, *size = call.shapes[0]
    kind = None if argmax is None else argmax.dtype
    verb = kept_verb(name, family, placing, tuple(size), filling, cuts, last, kind)
    known = shapes[0][0], channels * verb.groups
    if count != call.boxes:
        return None
    for shape in shapes:
        if shape[:2] != known:
            return None
    outs = tuple([empty_maps(shape, gradient, last) for shape in shapes])
    arrays = *call.maps, outs[0].data_ptr()
    several = tuple(map(Tensor.data_ptr, outs)) if family.is_pyramid else ()
    return outs if launched(verb, call, shapes, arrays, several, gradient) else None


def launched(
    verb: Any,
    call: TensorCall,
    shapes: Sequence[Any],
    arrays: tuple[int, ...],
    several: tuple[int, ...],
    like: Tensor,
) -> bool:
    """Launch the kernels of a verb for maps of some shapes; return whether it was done.

    `arrays` are the addresses of the engine's arrays, `several` those of the maps of a pyramid;
    `like` is a tensor on their GPU.
    """
    if call.columns != verb.columns:
        return False
    prepared, sizes = verb.prepared(call.kind, call.device, call.boxes, tuple(shapes), True)
    if prepared is None:
        return False
    size, work = prepared.scratch, 0
    if size:
        scratch = like.new_empty(size, dtype=torch.uint8)  # kept until the kernels are queued
        work = scratch.data_ptr()
    if verb.is_bare:
        arrays = (*arrays, call.regions[1])
    stream = current_stream(call.device)
    done: bool = prepared(stream, call.boxes, sizes, call.regions, arrays, several, work)
    return done


def pooled_like(maps: Tensor, verb: Any, call: TensorCall) -> Tensor:
    """Return a tensor for the pooled values of a verb, beside maps."""
    rows, columns = verb.pooling.output_size
    channels = call.shapes[0][1] // verb.groups
    if call.channels_last:
        return maps.new_empty(call.boxes, rows, columns, channels).permute(0, 3, 1, 2)
    return maps.new_empty(call.boxes, channels, rows, columns)  # faster than of a tuple
