"""The backend for CuPy arrays: plans and engines as CUDA kernels, launched on the current stream.

The functions are those of ``_cpu``, and take their arguments as they do, except that boxes and
images may be columns of one table and that image numbers are not checked: kernels pass over boxes
that name no image. Nothing is read back and nothing waits for the GPU, so that calls can be
captured in a graph.

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

from roipool._arrays import contiguous
from roipool._config import CUPY_EXTRAS
from roipool._cuda_work import (
    BYTES_OF_PLACE,
    CALL_TYPE,
    LABELS,
    PLANNING,
    SAMPLES,
    SLOPED_TAPS,
    TAPS,
    Cut,
    Pair,
    PlanKind,
    Sizes,
    Work,
    channel_pack,
)
from roipool._geometry import TRAITS, Geometry
from roipool._layout import channels, height_width, pooled_shape
from roipool._source import OPTIONS, kernel_source

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
    dtype: np.dtype[Any],
    boxes: Array,
    images: Array,
    geometry: Geometry | None,
    map_shape: Sequence[int],
    output_size: Pair,
    layout: str,
) -> Sizes:
    """Return what a call's preparation depends on."""
    return Sizes(
        dtype, len(boxes), boxes.strides, images.dtype, images.strides[0], geometry,
        tuple(map_shape), output_size, "NHWC" if layout == "NHWC" else "NCHW",
    )  # fmt: skip


def bins_of(pooled: Array, layout: str) -> Pair:
    """Return the grid of bins of an array of pooled values."""
    return height_width(pooled.shape, "NHWC" if layout == "NHWC" else "NCHW")


def empty_pooled(sizes: Sizes, dtype: np.dtype[Any]) -> Array:
    """Return memory for pooled values, or for their winners."""
    count = channels(sizes.map_shape, sizes.layout)
    return cupy.empty(pooled_shape(sizes.boxes, count, sizes.output_size, sizes.layout), dtype)


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
def prepare_average(sizes: Sizes, empty_value: float, aligned: bool) -> Prepared:
    """Prepare :func:`average`."""
    work = Work("average_forward", sizes)
    work.tell(empty_value=empty_value)
    pack = channel_pack(sizes.layout, work.call.channels, sizes.dtype, aligned)
    cut = work.cut_planes(pack) if sizes.layout == "NCHW" else work.cut_values(pack)
    return Prepared.of(work, TAPS, "average_forward", cut)


def average(
    features: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry,
    output_size: Pair,
    *,
    layout: str,
    empty_value: float,
    threads: int,
    out: Array | None,
) -> Array:
    """Pool by weighted averages; return the pooled values."""
    sizes = sizes_of(features.dtype, boxes, images, geometry, features.shape, output_size, layout)
    with features.device:
        if out is None:
            out = empty_pooled(sizes, features.dtype)
        if out.size:
            ready = prepare_average(sizes, empty_value, are_aligned(features, out))
            ready.engine(features, out, ready.planned(boxes, images))
    return out


@keep
def prepare_average_backward(sizes: Sizes) -> Prepared:
    """Prepare :func:`average_backward`."""
    work = Work("average_backward", sizes)
    return Prepared.of(work, TAPS, "average_backward", work.cut_maps(work.real.itemsize))


def average_backward(
    grad_output: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry,
    input_shape: Sequence[int],
    *,
    layout: str,
    threads: int,
    out: Array | None,
) -> Array:
    """Return the gradient of :func:`average` with respect to the features."""
    size = bins_of(grad_output, layout)
    sizes = sizes_of(grad_output.dtype, boxes, images, geometry, input_shape, size, layout)
    with grad_output.device:
        if out is None:
            out = cupy.empty(sizes.map_shape, grad_output.dtype)
        if out.size:
            ready = prepare_average_backward(sizes)
            ready.engine(grad_output, out, ready.planned(boxes, images))
    return out


@keep
def prepare_average_backward_boxes(sizes: Sizes) -> Prepared:
    """Prepare :func:`average_backward_boxes`."""
    work = Work("average_backward_boxes", sizes)
    return Prepared.of(work, SLOPED_TAPS, "average_backward_boxes", work.cut_boxes())


def average_backward_boxes(
    grad_output: Array,
    features: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry,
    *,
    layout: str,
    threads: int,
) -> Array:
    """Return the gradient of :func:`average` with respect to x1, y1, x2, y2 of each box."""
    size = bins_of(grad_output, layout)
    sizes = sizes_of(grad_output.dtype, boxes, images, geometry, features.shape, size, layout)
    with grad_output.device:
        if not features.size or not grad_output.size:
            return cupy.zeros((len(boxes), 4), boxes.dtype)
        out = cupy.empty((len(boxes), 4), boxes.dtype)
        ready = prepare_average_backward_boxes(sizes)
        ready.engine(grad_output, features, out, ready.planned(boxes, images))
    return out


class MaximumRules(NamedTuple):
    """What kinds of maxima differ by."""

    lowest: float
    empty_value: float
    winner_is_cell: bool
    outside_is_zero: bool
    nan_restarts: bool


@keep
def prepare_maximum(
    sizes: Sizes, rules: MaximumRules, return_argmax: bool, aligned: bool
) -> Prepared:
    """Prepare :func:`maximum`."""
    work = Work("maximum_forward", sizes)
    work.tell(
        lowest=rules.lowest,
        empty_value=rules.empty_value,
        outside_is_zero=rules.outside_is_zero,
    )
    cut = work.cut_values(channel_pack(sizes.layout, work.call.channels, sizes.dtype, aligned))
    wide = return_argmax and label_type(sizes, rules.winner_is_cell) == np.int64
    work.defines["cells"] = int(rules.winner_is_cell)
    work.defines["label"] = LABELS[wide]
    name = "maximum_forward"
    if rules.nan_restarts:
        name = "maximum_forward_nan_restarts"
    elif return_argmax:
        name = "maximum_forward_winners"
    return Prepared.of(work, SAMPLES, name, cut)


def label_type(sizes: Sizes, winner_is_cell: bool) -> np.dtype[Any]:
    """Return the type of winners; the host does not know how many samples an adaptive grid has."""
    assert sizes.geometry is not None
    height, width = height_width(sizes.map_shape, sizes.layout)
    traits = TRAITS[sizes.geometry.definition]
    if winner_is_cell:
        numbers = height * width
    elif traits.kind != "grid":  # samples a cell apart, one more than the map has cells at most
        numbers = (height + 2) * (width + 2)
    elif 0 in sizes.geometry.sampling:
        return np.dtype(np.int64)
    else:
        numbers = math.prod(traits.samples_per_ratio * ratio for ratio in sizes.geometry.sampling)
    return np.dtype(np.int32 if numbers <= np.iinfo(np.int32).max else np.int64)


def maximum(
    features: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry,
    output_size: Pair,
    *,
    layout: str,
    lowest: float,
    empty_value: float,
    winner_is_cell: bool,
    outside_is_zero: bool,
    return_argmax: bool,
    threads: int,
    out: Array | None,
    nan_restarts: bool = False,
) -> tuple[Array, Array | None]:
    """Pool by maxima; return the pooled values and, if asked for, the winners (else None)."""
    sizes = sizes_of(features.dtype, boxes, images, geometry, features.shape, output_size, layout)
    rules = MaximumRules(lowest, empty_value, winner_is_cell, outside_is_zero, nan_restarts)
    argmax = None
    with features.device:
        if out is None:
            out = empty_pooled(sizes, features.dtype)
        if return_argmax:
            argmax = empty_pooled(sizes, label_type(sizes, winner_is_cell))
        if out.size:
            ready = prepare_maximum(sizes, rules, return_argmax, are_aligned(features, out))
            outputs = [out]
            if return_argmax or nan_restarts:
                outputs.append(np.uintp(0) if argmax is None else argmax)
            ready.engine(features, *outputs, ready.planned(boxes, images))
    return out, argmax


@keep
def prepare_maximum_backward(sizes: Sizes, winner_is_cell: bool, wide: bool) -> Prepared:
    """Prepare :func:`maximum_backward` for a definition."""
    work = Work("maximum_backward", sizes)
    work.tell(winner_is_cell=winner_is_cell, wide_argmax=wide)
    cut = work.cut_maps(BYTES_OF_PLACE + work.real.itemsize)
    return Prepared.of(work, SAMPLES, "maximum_backward", cut)


@keep
def prepare_maximum_backward_cells(sizes: Sizes, wide: bool) -> Launch:
    """Prepare :func:`maximum_backward` without a definition."""
    work = Work("maximum_backward_cells", sizes)
    work.defines["label"] = LABELS[wide]
    return Launch.of(work, "maximum_backward_cells", work.cut_runs())


def maximum_backward(
    grad_output: Array,
    argmax: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry | None,
    input_shape: Sequence[int],
    *,
    layout: str,
    winner_is_cell: bool,
    threads: int,
    out: Array | None,
) -> Array:
    """Return the gradient of :func:`maximum` with respect to the features.

    Without a geometry, argmax names cells anywhere in the map and each gets the whole gradient.
    Winners that a bin does not have get none.
    """
    size = bins_of(grad_output, layout)
    sizes = sizes_of(grad_output.dtype, boxes, images, geometry, input_shape, size, layout)
    with grad_output.device:
        if out is None:
            out = cupy.empty(sizes.map_shape, grad_output.dtype)
        if out.size:
            wide = argmax.dtype == np.int64
            if geometry is None:
                prepare_maximum_backward_cells(sizes, wide)(grad_output, argmax, out, images)
            else:
                ready = prepare_maximum_backward(sizes, winner_is_cell, wide)
                ready.engine(grad_output, argmax, out, ready.planned(boxes, images))
    return out


@keep
def prepare_winners(sizes: Sizes, name: str, values: int) -> Prepared:
    """Prepare :func:`locate` or :func:`identify`."""
    work = Work("winners", sizes)
    return Prepared.of(work, SAMPLES, name, work.cut_winners(values))


def locate(
    argmax: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry,
    input_shape: Sequence[int],
    *,
    threads: int,
) -> tuple[Array, Array]:
    """Return the positions y and x, in map cells, of winning samples; NCHW."""
    size = bins_of(argmax, "NCHW")
    sizes = sizes_of(boxes.dtype, boxes, images, geometry, input_shape, size, "NCHW")
    with argmax.device:
        y, x = cupy.empty(argmax.shape, boxes.dtype), cupy.empty(argmax.shape, boxes.dtype)
        if argmax.size:
            ready = prepare_winners(sizes, "locate_winners", argmax.size)
            numbers = contiguous(argmax, np.dtype(np.int64))
            ready.engine(boxes, numbers, y, x, ready.planned(boxes, images))
    return y, x


def identify(
    y: Array,
    x: Array,
    boxes: Array,
    images: Array,
    geometry: Geometry,
    input_shape: Sequence[int],
    *,
    threads: int,
) -> Array:
    """Return the numbers of the samples at the given positions, -1 where there is none; NCHW."""
    sizes = sizes_of(boxes.dtype, boxes, images, geometry, input_shape, bins_of(y, "NCHW"), "NCHW")
    with y.device:
        argmax = cupy.empty(y.shape, np.int64)
        if argmax.size:
            ready = prepare_winners(sizes, "identify_winners", y.size)
            ready.engine(boxes, y, x, argmax, ready.planned(boxes, images))
    return argmax
