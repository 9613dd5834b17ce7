"""The CUDA engine: plans and engines as kernels, launched on the current stream.

Its functions are those of ``roipool._engines.Engine``, which documents their arguments. Boxes and
batch indices may be columns of one table and are not checked: kernels skip boxes that name no
image. Nothing is read back and nothing waits for the GPU, so that calls can be captured in a graph;
what a call allocates meanwhile stays allocated (``roipool._arrays._cupy``).

A forward launches one kernel, whose blocks plan the boxes that they pool. A backward launches two:
the first writes the plan of every box into scratch memory, the second executes the plans. Kernels
are compiled when first needed, for one element type, layout and definition, and CuPy keeps what was
compiled on disk.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool._addresses import CUPY_EXTRAS
from roipool._boxes import Regions
from roipool._cpu import rounded_up
from roipool._cuda import launch
from roipool._cuda import masks as pastes
from roipool._cuda.arguments import MAX_LEVELS, Argument
from roipool._cuda.driver import LEAST_CAPABILITY
from roipool._cuda.launch import Defines, LaunchConfig, Launches
from roipool._cuda.partition import SHARED_BYTES, Limits, Sizes
from roipool._cuda.source import OPTIONS, kernel_source
from roipool._definitions import Definition
from roipool._layout import (
    Layout,
    Shape4,
    are_channels_last,
    height_width,
    is_in_c_order,
    nchw_view,
    nhwc_view,
)
from roipool._masks.request import Pasting
from roipool._request import Pooling

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

if cupy.cuda.runtime.is_hip:
    raise RuntimeError("roipool's kernels are for NVIDIA GPUs; this CuPy is made for AMD's (ROCm)")

Array = Any
NULL = np.uintp(0)  # instead of an array
SHAPE, SIZE = operator.attrgetter("shape"), operator.attrgetter("size")
USUAL_LIMITS = Limits()
CACHE = (
    "CuPy keeps compiled kernels in the folder named by the environment variable CUPY_CACHE_DIR, "
    "by default ~/.cupy/kernel_cache; set it to a folder that can be written, or set "
    "CUPY_CACHE_IN_MEMORY=1 to compile in every process"
)


# ---- Launching


@cache
def check_device(number: int) -> None:
    """Raise a RuntimeError if a GPU is too old."""
    capability = int(cupy.cuda.Device(number).compute_capability)
    if capability < LEAST_CAPABILITY:
        raise RuntimeError(
            f"GPU {number} has compute capability {capability / 10}; roipool's kernels need "
            f"{LEAST_CAPABILITY / 10} (Volta) or later"
        )


@cache
def limits_of(number: int) -> Limits:
    """Return how work is divided on a GPU."""
    attributes = cupy.cuda.Device(number).attributes
    return Limits(
        multiprocessor_bytes=attributes["MaxSharedMemoryPerMultiprocessor"],
        block_bytes=attributes["MaxSharedMemoryPerBlockOptin"],
    )


def with_advice(error: PermissionError) -> PermissionError:
    """Return an error of CuPy's cache of kernels that says what to set."""
    return PermissionError(error.errno, f"{error.strerror}: {CACHE}")


@cache
def allow_shared_memory(function: Any, number: int) -> None:
    """Let the blocks of a kernel have all the shared memory of the current GPU, of this number.

    Each GPU keeps a limit of its own for each kernel, by default `SHARED_BYTES`.
    """
    function.max_dynamic_shared_size_bytes = limits_of(number).block_bytes


class LoadedKernel(NamedTuple):
    """A kernel, ready but for its arrays."""

    function: Any  # a cupy.RawKernel
    blocks: tuple[int]
    threads: tuple[int, ...]
    shared: int
    argument: Argument

    def launch(self, boxes: int, *arrays: Any, maps: Sequence[int] = ()) -> None:
        """Launch the kernel for a number of boxes, unless there is nothing to do.

        `maps` are the addresses of several levels' maps.
        """
        function, blocks, threads, shared, argument = self
        if blocks[0] > 0:
            if shared > SHARED_BYTES:
                allow_shared_memory(function, arrays[0].data.device_id)
            arguments = (*arrays, argument.for_boxes(boxes, maps))
            try:
                function(blocks, threads, arguments, shared_mem=shared)
            except PermissionError as error:  # from the first launch, which compiles
                raise with_advice(error) from error


class Kernels(NamedTuple):
    """The kernels of a call, and how many bytes of scratch memory they need: as `Launches`."""

    engine: LoadedKernel
    scratch: int
    plan: LoadedKernel | None
    plan_points_to_boxes: bool
    zeros: int


@cache
def function_of(file: str, name: str, defines: Defines) -> Any:
    """Return a kernel of one specialised file; it is compiled at its first launch."""
    return cupy.RawKernel(kernel_source(file, **dict(defines)), name, OPTIONS)


def kernel_of(config: LaunchConfig) -> LoadedKernel:
    """Return the kernel of a launch."""
    blocks, threads, shared = config.grid
    function = function_of(config.file, config.name, config.defines)
    return LoadedKernel(
        function, (blocks,), threads, shared, Argument(config.call, config.tasks_of_box)
    )


def kernels_of(launches: Launches) -> Kernels:
    """Return the kernels of a call."""
    plan = None if launches.plan is None else kernel_of(launches.plan)
    engine, scratch, _, to_boxes, zeros = launches
    return Kernels(kernel_of(engine), scratch, plan, to_boxes, zeros)


SizesFields: TypeAlias = tuple[Any, ...]  # of `Sizes`, which takes longer to make


@lru_cache(maxsize=1024)
def kernels_for(launches_of: Callable[..., Launches], sizes: SizesFields, *choices: Any) -> Kernels:
    """Return the kernels of ``launches_of(sizes, *choices)``; a network calls again and again."""
    return kernels_of(launches_of(Sizes(*sizes), *choices))


def run(kernels: Kernels, regions: Regions, *arrays: Any, maps: Sequence[Array] = ()) -> None:
    """Execute a call for all boxes, with what plans them.

    Of a pyramid's `maps` the first is among `arrays`, too.
    """
    engine, scratch_bytes, plan, plan_points_to_boxes, zeros = kernels
    boxes, indices, level_numbers = regions
    levels, addresses = NULL, ()
    if level_numbers is not None:
        levels = cupy.ascontiguousarray(level_numbers)
        addresses = tuple(array.data.ptr for array in maps)
    check_device(arrays[0].data.device_id)
    scratch: Any = cupy.empty(scratch_bytes, np.uint8) if scratch_bytes else NULL
    if zeros:
        scratch.data.memset_async(0, zeros)
    if plan is None:
        engine.launch(len(boxes), boxes, indices, levels, *arrays, scratch, maps=addresses)
    else:
        plan.launch(len(boxes), boxes, indices, levels, scratch)
        table = (boxes,) if plan_points_to_boxes else ()
        engine.launch(len(boxes), *table, *arrays, scratch, maps=addresses)


def are_aligned(*arrays: Array) -> bool:
    """Return whether arrays begin at 16 bytes: vector loads may be used where layouts are NHWC."""
    return all(array.data.ptr % 16 == 0 for array in arrays)


def sizes_of(
    dtype: np.dtype[Any], regions: Regions, pooling: Pooling, *map_shapes: tuple[int, ...]
) -> SizesFields:
    """Return the sizes on which the launches of a call depend, for maps of these shapes."""
    boxes, indices, levels = regions
    if levels is not None:
        check_levels(len(map_shapes))
    return (
        dtype,
        rounded_up(len(boxes)),
        boxes.strides,
        indices.dtype,
        indices.strides[0],
        pooling,
        map_shapes,
    )


def forward_sizes(
    features: Sequence[Array],
    out: Array,
    regions: Regions,
    pooling: Pooling,
    limits: Limits = USUAL_LIMITS,
) -> SizesFields:
    """Return the sizes on which the launches of a forward depend."""
    sizes = sizes_of(out.dtype, regions, pooling, *map(SHAPE, features))
    dtype = features[0].dtype
    return (*sizes, limits, dtype if dtype != out.dtype else None)


def check_levels(number: int) -> None:
    """Raise ValueError if there are more maps than a kernel takes."""
    if number > MAX_LEVELS:
        raise ValueError(f"on a GPU there can be {MAX_LEVELS} maps at most, got {number}")


def in_order(
    pooling: Pooling, maps: Sequence[Array], *others: Array
) -> tuple[Pooling, list[Array]]:
    """Return arrays as kernels read them, maps first, and the request: not all are in C order.

    NCHW maps that lie in memory as NHWC become views that are so, and what is beside them, too.
    What is in neither order is copied; what is written to lies as the maps do.
    """
    arrays = [*maps, *others]
    if pooling.layout == "NCHW" and are_channels_last(maps):
        pooling, arrays = pooling._replace(layout="NHWC"), [nhwc_view(one) for one in arrays]
    return pooling, [cupy.ascontiguousarray(one) for one in arrays]


# ---- The functions of an engine


def average(features: Sequence[Array], regions: Regions, pooling: Pooling, out: Array) -> None:
    """Pool each box by weighted averages, from the map of its level."""
    if out.size:
        if not all(map(is_in_c_order, features)):
            pooling, (*features, out) = in_order(pooling, features, out)
        limits = limits_of(out.data.device_id)
        sizes = forward_sizes(features, out, regions, pooling, limits)
        aligned = pooling.layout == "NHWC" and are_aligned(*features, out)
        run(kernels_for(launch.average, sizes, aligned), regions, features[0], out, maps=features)


def average_backward(
    grad_output: Array, regions: Regions, pooling: Pooling, outs: Sequence[Array]
) -> None:
    """Write the gradient of an average with respect to each of the maps."""
    if any(map(SIZE, outs)):
        if not is_in_c_order(grad_output):
            pooling, (*outs, grad_output) = in_order(pooling, outs, grad_output)
        sizes = sizes_of(grad_output.dtype, regions, pooling, *map(SHAPE, outs))
        aligned = pooling.layout == "NHWC" and are_aligned(grad_output, *outs)
        kernels = kernels_for(launch.average_backward, sizes, aligned)
        run(kernels, regions, grad_output, outs[0], maps=outs)


def average_backward_boxes(
    grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
) -> Array:
    """Return the gradient of an average with respect to each number of each box."""
    boxes = regions.boxes
    if not grad_output.size or not any(map(SIZE, features)):
        return cupy.zeros(boxes.shape, boxes.dtype)
    out = cupy.empty(boxes.shape, boxes.dtype)
    if not all(map(is_in_c_order, (grad_output, *features))):
        pooling, (*features, grad_output) = in_order(pooling, features, grad_output)
    sizes = sizes_of(grad_output.dtype, regions, pooling, *map(SHAPE, features))
    kernels = kernels_for(launch.average_backward_boxes, sizes)
    run(kernels, regions, grad_output, features[0], out, maps=features)
    return out


def maximum(
    features: Array, regions: Regions, pooling: Pooling, out: Array, *, return_argmax: bool
) -> Array | None:
    """Pool by maxima; return the argmax if it is asked for."""
    layout = pooling.layout
    if not is_in_c_order(features):
        pooling, (features, out) = in_order(pooling, [features], out)
    sizes = forward_sizes([features], out, regions, pooling)
    argmax = cupy.empty(out.shape, launch.argmax_dtype(Sizes(*sizes))) if return_argmax else None
    if out.size:
        outputs = [out]
        if return_argmax or pooling.rules.nan_restarts:
            outputs.append(NULL if argmax is None else argmax)
        aligned = pooling.layout == "NHWC" and are_aligned(features, out)
        kernels = kernels_for(launch.maximum, sizes, return_argmax, aligned)
        run(kernels, regions, features, *outputs)
    return argmax if argmax is None or pooling.layout == layout else nchw_view(argmax)


def maximum_backward(
    grad_output: Array, argmax: Array, regions: Regions, pooling: Pooling, out: Array
) -> None:
    """Write the gradient of a maximum with respect to the features."""
    if out.size:
        if not (is_in_c_order(grad_output) and is_in_c_order(argmax)):
            pooling, (out, grad_output, argmax) = in_order(pooling, [out], grad_output, argmax)
        sizes = sizes_of(grad_output.dtype, regions, pooling, out.shape)
        kernels = kernels_for(launch.maximum_backward, sizes, argmax.dtype == np.int64)
        run(kernels, regions, grad_output, argmax, out)


def unpool(
    grad_output: Array, argmax: Array, batch_indices: Array, layout: Layout, out: Array
) -> None:
    """Write the sums of all gradients at the cell of the map that their argmax names."""
    if out.size:
        # No box is read, so that any definition will do.
        size = height_width(grad_output.shape, layout)
        pooling = Pooling(Definition("roi_pool"), size, layout)
        if not (is_in_c_order(grad_output) and is_in_c_order(argmax)):
            pooling, (out, grad_output, argmax) = in_order(pooling, [out], grad_output, argmax)
        sizes = (
            grad_output.dtype,
            rounded_up(len(batch_indices)),
            (0, 0),
            batch_indices.dtype,
            batch_indices.strides[0],
            pooling,
            (out.shape,),
            limits_of(out.data.device_id),
        )
        check_device(out.data.device_id)
        kernels = kernels_for(launch.unpool, sizes, argmax.dtype == np.int64)
        kernels.engine.launch(len(batch_indices), grad_output, argmax, out, batch_indices)


def argmax_positions(
    argmax: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
) -> tuple[Array, Array]:
    """Return the positions y and x, in map cells, of samples given by index; NCHW."""
    boxes = regions.boxes
    y, x = cupy.empty(argmax.shape, boxes.dtype), cupy.empty(argmax.shape, boxes.dtype)
    if argmax.size:
        sizes = sizes_of(boxes.dtype, regions, pooling, input_shape)
        indices = cupy.ascontiguousarray(argmax, np.int64)
        kernels = kernels_for(launch.argmax_kernel, sizes, "locate_argmax")
        run(kernels, regions, indices, y, x)
    return y, x


def argmax_at(y: Array, x: Array, regions: Regions, pooling: Pooling, input_shape: Shape4) -> Array:
    """Return the indices of the samples at positions, -1 where there is none; NCHW."""
    argmax = cupy.empty(y.shape, np.int64)
    if argmax.size:
        sizes = sizes_of(regions.boxes.dtype, regions, pooling, input_shape)
        kernels = kernels_for(launch.argmax_kernel, sizes, "identify_argmax")
        run(kernels, regions, cupy.ascontiguousarray(y), cupy.ascontiguousarray(x), argmax)
    return argmax


def paste(masks: Array, boxes: Array, pasting: Pasting, out: Array) -> None:
    """Paste masks, (K, h, w), into a picture each."""
    if out.size:
        kinds = pastes.name_of(masks), pastes.name_of(out)
        grid = pastes.lines(masks.shape, pasting)
        run_paste("paste", kinds, grid, (masks, boxes, out), masks.shape, pasting)


def paste_backward(grad_output: Array, boxes: Array, pasting: Pasting, out: Array) -> None:
    """Write the gradient of pasted masks with respect to the masks."""
    if out.size:
        kinds = pastes.name_of(out), pastes.name_of(out)
        grid = pastes.blocks_of_threads(out.size)
        run_paste("paste_backward", kinds, grid, (grad_output, boxes, out), out.shape, pasting)


def paste_backward_boxes(
    grad_output: Array, masks: Array, boxes: Array, pasting: Pasting, out: Array
) -> None:
    """Write the gradient of pasted masks with respect to the numbers of their boxes."""
    if not (masks.size and grad_output.size):
        out[...] = 0
    elif out.size:
        kinds = pastes.name_of(masks), pastes.name_of(masks)
        arrays = grad_output, masks, boxes, out
        grid = pastes.blocks(len(masks))
        run_paste("paste_backward_boxes", kinds, grid, arrays, masks.shape, pasting)


def run_paste(
    name: str,
    kinds: tuple[str, str],
    grid: tuple[int],
    arrays: Sequence[Array],
    shape: tuple[int, ...],
    pasting: Pasting,
) -> None:
    """Launch a kernel that pastes masks of a shape, for the types of masks and pictures."""
    check_device(arrays[0].data.device_id)
    function = function_of(pastes.FILE, name, tuple(pastes.defines(*kinds).items()))
    *inputs, out = arrays
    held = [cupy.ascontiguousarray(each) for each in inputs]
    given = (*held, out, pastes.argument(tuple(shape), pasting))
    function(grid, (pastes.THREADS,), given, shared_mem=pastes.SHARED_BYTES)


# ---- Beside an engine


def assign_levels(boxes: Array, areas: Sequence[float]) -> Array:
    """Return the level of each box, (K,) int64, given (K, 4) corners: ``roipool.assign_levels``.

    `areas` are those from which on a box is on each level above the first.
    """
    check_levels(len(areas) + 1)
    levels = cupy.empty(len(boxes), np.int64)
    if levels.size:
        check_device(levels.data.device_id)
        # Nothing is pooled, and no map is read: any will do. Areas stand where scales do.
        nothing = Pooling(Definition("roi_align"), (1, 1), scales=(0.0, *areas))
        sizes = (
            boxes.dtype,
            rounded_up(len(boxes)),
            boxes.strides,
            levels.dtype,
            0,
            nothing,
            ((1, 1, 1, 1),) * len(nothing.scales),
        )
        kernels_for(launch.assign_levels, sizes).engine.launch(len(boxes), boxes, levels)
    return levels
