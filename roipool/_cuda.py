"""The CUDA engine: plans and engines as kernels, launched on the current stream.

Its functions are those of ``roipool._pooling.Engine``, which says what arguments are. Boxes and
batch indices may be columns of one table and are not checked: kernels skip boxes that name no
image. Nothing is read back and nothing waits for the GPU, so that calls can be captured in a graph.

A call launches two kernels. The first writes the plan of every box into scratch memory; the second
executes the plans. Both are compiled when first needed, for one element type, layout and
definition, and CuPy keeps what was compiled on disk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from roipool._arguments import Regions
from roipool._cuda_work import (
    BYTES_OF_PLACE,
    CALL_TYPE,
    LABELS,
    PLANNING,
    SAMPLES,
    SLOPED_TAPS,
    TAPS,
    Cut,
    PlanKind,
    Sizes,
    Work,
    channel_pack,
)
from roipool._definitions import TRAITS, Definition
from roipool._layout import Layout, height_width
from roipool._pooling import Pooling
from roipool._source import OPTIONS, kernel_source
from roipool._system_info import CUPY_EXTRAS

try:
    import cupy
except ImportError as error:
    raise ImportError(
        f"roipool computes on GPUs through CuPy, which is missing: {CUPY_EXTRAS}"
    ) from error

try:
    cupy.cuda.runtime.getDeviceCount()
except Exception as error:
    raise RuntimeError(
        f"CuPy finds no CUDA device ({error}). roipool on GPUs needs an NVIDIA driver and a CuPy "
        f"made for its CUDA version: {CUPY_EXTRAS}"
    ) from error

Array = Any

# ---- Launching


@cache
def kernel(file: str, name: str, **defines: str | int) -> Any:
    """Return a kernel of one specialised file; it is compiled at its first launch."""
    return cupy.RawKernel(kernel_source(file, **defines), name, OPTIONS)


# More work than this is done by the same blocks in turn.
LARGEST_GRID = 2**31 - 1


def are_aligned(*arrays: Array) -> bool:
    """Return whether all begin at a multiple of 16 bytes."""
    return all(array.data.ptr % 16 == 0 for array in arrays)


def sizes_of(
    dtype: np.dtype[Any], regions: Regions, pooling: Pooling, map_shape: Sequence[int]
) -> Sizes:
    """Return what a call's preparation depends on."""
    boxes, indices = regions
    return Sizes(
        dtype, len(boxes), boxes.strides, indices.dtype, indices.strides[0], pooling,
        tuple(map_shape),
    )  # fmt: skip


class Launch(NamedTuple):
    """A kernel, ready but for its arrays."""

    function: Any
    cut: Cut
    call: np.ndarray[Any, Any]

    @classmethod
    def of(cls, work: Work, name: str, cut: Cut) -> Launch:
        """Return a launch of one of the kernels of a file."""
        function = kernel(work.file, name, **work.defines)
        return cls(function, cut, np.array([work.call], CALL_TYPE))

    def __call__(self, *arrays: Any) -> None:
        """Launch the kernel, unless there is nothing to do."""
        blocks, threads, shared = self.cut
        if blocks > 0:
            grid = (min(blocks, LARGEST_GRID),)
            self.function(grid, threads, (*arrays, self.call), shared_mem=shared)


class Prepared(NamedTuple):
    """The two launches of a call, and the bytes of scratch memory that hold its plans."""

    scratch: int
    plan: Launch
    engine: Launch

    @classmethod
    def of(cls, work: Work, kind: PlanKind, name: str, cut: Cut) -> Prepared:
        """Return the launches of the planning and of the engine `name`."""
        scratch = work.plan(kind)
        plan = Launch.of(work, kind.kernel, PLANNING._replace(blocks=2 * work.call.boxes))
        return cls(scratch, plan, Launch.of(work, name, cut))

    def planned(self, boxes: Array, images: Array) -> Array:
        """Launch the planning of all boxes; return the plans."""
        plans = cupy.empty(self.scratch, np.uint8)
        self.plan(boxes, images, plans)
        return plans


# A network asks the same of every batch: what was worked out is kept.
keep = lru_cache(maxsize=256)

# ---- The functions of a backend


@keep
def prepare_average(sizes: Sizes, aligned: bool) -> Prepared:
    """Prepare :func:`average`."""
    work = Work("average_forward", sizes)
    work.tell(empty_value=sizes.pooling.empty_value)
    layout = sizes.pooling.layout
    pack = channel_pack(layout, work.call.channels, sizes.dtype, aligned)
    cut = work.cut_planes(pack) if layout == "NCHW" else work.cut_values(pack)
    return Prepared.of(work, TAPS, "average_forward", cut)


def average(features: Array, regions: Regions, pooling: Pooling, out: Array) -> None:
    """Pool by weighted averages."""
    if out.size:
        sizes = sizes_of(features.dtype, regions, pooling, features.shape)
        ready = prepare_average(sizes, are_aligned(features, out))
        ready.engine(features, out, ready.planned(*regions))


@keep
def prepare_average_backward(sizes: Sizes) -> Prepared:
    """Prepare :func:`average_backward`."""
    work = Work("average_backward", sizes)
    return Prepared.of(work, TAPS, "average_backward", work.cut_maps(work.real.itemsize))


def average_backward(grad_output: Array, regions: Regions, pooling: Pooling, out: Array) -> None:
    """Write the gradient of an average with respect to the features."""
    if out.size:
        ready = prepare_average_backward(sizes_of(grad_output.dtype, regions, pooling, out.shape))
        ready.engine(grad_output, out, ready.planned(*regions))


@keep
def prepare_average_backward_boxes(sizes: Sizes) -> Prepared:
    """Prepare :func:`average_backward_boxes`."""
    work = Work("average_backward_boxes", sizes)
    return Prepared.of(work, SLOPED_TAPS, "average_backward_boxes", work.cut_boxes())


def average_backward_boxes(
    grad_output: Array, features: Array, regions: Regions, pooling: Pooling
) -> Array:
    """Return the gradient of an average with respect to x1, y1, x2, y2 of each box."""
    boxes = regions.boxes
    if not features.size or not grad_output.size:
        return cupy.zeros(boxes.shape, boxes.dtype)
    out = cupy.empty(boxes.shape, boxes.dtype)
    sizes = sizes_of(grad_output.dtype, regions, pooling, features.shape)
    ready = prepare_average_backward_boxes(sizes)
    ready.engine(grad_output, features, out, ready.planned(*regions))
    return out


@keep
def prepare_maximum(sizes: Sizes, return_argmax: bool, aligned: bool) -> Prepared:
    """Prepare :func:`maximum`."""
    work, rules = Work("maximum_forward", sizes), sizes.pooling.rules
    work.tell(
        lowest=rules.lowest,
        empty_value=sizes.pooling.empty_value,
        outside_is_zero=rules.outside_is_zero,
    )
    layout = sizes.pooling.layout
    cut = work.cut_values(channel_pack(layout, work.call.channels, sizes.dtype, aligned))
    wide = return_argmax and argmax_dtype(sizes) == np.int64
    work.defines["cells"] = int(rules.argmax_is_cell)
    work.defines["label"] = LABELS[wide]
    name = "maximum_forward"
    if rules.nan_restarts:
        name = "maximum_forward_nan_restarts"
    elif return_argmax:
        name = "maximum_forward_winners"
    return Prepared.of(work, SAMPLES, name, cut)


def argmax_dtype(sizes: Sizes) -> np.dtype[Any]:
    """Return the dtype of argmax; the host does not know how many samples an adaptive grid has."""
    definition, layout = sizes.pooling.definition, sizes.pooling.layout
    height, width = height_width(sizes.map_shape, layout)
    traits = TRAITS[definition.name]
    if sizes.pooling.rules.argmax_is_cell:
        numbers = height * width
    elif traits.kind != "grid":  # samples a cell apart, one more than the map has cells at most
        numbers = (height + 2) * (width + 2)
    elif 0 in definition.sampling:
        return np.dtype(np.int64)
    else:
        numbers = math.prod(traits.samples_per_ratio * ratio for ratio in definition.sampling)
    return np.dtype(np.int32 if numbers <= np.iinfo(np.int32).max else np.int64)


def maximum(
    features: Array, regions: Regions, pooling: Pooling, out: Array, *, return_argmax: bool
) -> Array | None:
    """Pool by maxima; return the argmax if it is asked for."""
    sizes = sizes_of(features.dtype, regions, pooling, features.shape)
    argmax = cupy.empty(out.shape, argmax_dtype(sizes)) if return_argmax else None
    if out.size:
        ready = prepare_maximum(sizes, return_argmax, are_aligned(features, out))
        outputs = [out]
        if return_argmax or pooling.rules.nan_restarts:
            outputs.append(np.uintp(0) if argmax is None else argmax)
        ready.engine(features, *outputs, ready.planned(*regions))
    return argmax


@keep
def prepare_maximum_backward(sizes: Sizes, wide: bool) -> Prepared:
    """Prepare :func:`maximum_backward`."""
    work = Work("maximum_backward", sizes)
    work.tell(winner_is_cell=sizes.pooling.rules.argmax_is_cell, wide_argmax=wide)
    cut = work.cut_maps(BYTES_OF_PLACE + work.real.itemsize)
    return Prepared.of(work, SAMPLES, "maximum_backward", cut)


def maximum_backward(
    grad_output: Array, argmax: Array, regions: Regions, pooling: Pooling, out: Array
) -> None:
    """Write the gradient of a maximum with respect to the features."""
    if out.size:
        sizes = sizes_of(grad_output.dtype, regions, pooling, out.shape)
        ready = prepare_maximum_backward(sizes, argmax.dtype == np.int64)
        ready.engine(grad_output, argmax, out, ready.planned(*regions))


@keep
def prepare_unpool(sizes: Sizes, wide: bool) -> Launch:
    """Prepare :func:`unpool`."""
    work = Work("maximum_backward_cells", sizes)
    work.defines["label"] = LABELS[wide]
    return Launch.of(work, "maximum_backward_cells", work.cut_runs())


def unpool(
    grad_output: Array, argmax: Array, batch_indices: Array, layout: Layout, out: Array
) -> None:
    """Write the sums of all gradients at the cell of the map that their argmax names."""
    if out.size:
        # No box is looked at, so that any definition will do.
        bins = height_width(grad_output.shape, layout)
        pooling = Pooling(Definition("roi_pool"), bins, layout)
        no_boxes = Sizes(
            grad_output.dtype, len(batch_indices), (0, 0), batch_indices.dtype,
            batch_indices.strides[0], pooling, tuple(out.shape),
        )  # fmt: skip
        ready = prepare_unpool(no_boxes, argmax.dtype == np.int64)
        ready(grad_output, argmax, out, batch_indices)


@keep
def prepare_argmax(sizes: Sizes, name: str, values: int) -> Prepared:
    """Prepare :func:`argmax_positions` or :func:`argmax_at`."""
    work = Work("winners", sizes)
    return Prepared.of(work, SAMPLES, name, work.cut_winners(values))


def argmax_positions(
    argmax: Array, regions: Regions, pooling: Pooling, input_shape: Sequence[int]
) -> tuple[Array, Array]:
    """Return the positions y and x, in map cells, of samples given by number; NCHW."""
    boxes = regions.boxes
    y, x = cupy.empty(argmax.shape, boxes.dtype), cupy.empty(argmax.shape, boxes.dtype)
    if argmax.size:
        sizes = sizes_of(boxes.dtype, regions, pooling, input_shape)
        ready = prepare_argmax(sizes, "locate_winners", argmax.size)
        numbers = cupy.ascontiguousarray(argmax, np.int64)
        ready.engine(boxes, numbers, y, x, ready.planned(*regions))
    return y, x


def argmax_at(
    y: Array, x: Array, regions: Regions, pooling: Pooling, input_shape: Sequence[int]
) -> Array:
    """Return the numbers of the samples at positions, -1 where there is none; NCHW."""
    argmax = cupy.empty(y.shape, np.int64)
    if argmax.size:
        boxes = regions.boxes
        ready = prepare_argmax(
            sizes_of(boxes.dtype, regions, pooling, input_shape), "identify_winners", y.size
        )
        ready.engine(boxes, y, x, argmax, ready.planned(*regions))
    return argmax
