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
from typing import Any, Literal, NamedTuple

import numpy as np

from roipool._arrays import contiguous
from roipool._config import CUPY_EXTRAS
from roipool._geometry import Geometry
from roipool._layout import channels, dtype_name, height_width, pooled_shape, real_type
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
Pair = tuple[int, int]
Layout = Literal["NCHW", "NHWC"]

# ---- What kernels are told. The fields are those of kernels/cuda/call.h, in their order.


class AxisCall(NamedTuple):
    """One axis of a call."""

    size: int
    bins: int
    sampling: int
    capacity: int = 0
    bins_at: int = 0
    entries_at: int = 0
    windows_at: int = 0


class Call(NamedTuple):
    """One call."""

    images: int
    channels: int
    boxes: int
    box_stride: int
    coordinate_stride: int
    image_stride: int
    images_at: int
    rows: AxisCall
    columns: AxisCall
    scale: float = 0.0
    empty_value: float = 0.0
    lowest: float = 0.0
    tasks: int = 0
    parts: int = 1
    share: int = 0
    lanes: int = 1
    tile_rows: int = 0
    tile_columns: int = 0
    stage: int = 0
    stage_rows: int = 1
    stage_columns: int = 1
    image_kind: int = 0
    aligned: int = 0
    winner_is_cell: int = 0
    outside_is_zero: int = 0
    wide_argmax: int = 0


_AXIS_TYPE = np.dtype([(name, np.int64) for name in AxisCall._fields])
_FIELD_TYPES = {
    **dict.fromkeys(("rows", "columns"), _AXIS_TYPE),
    **dict.fromkeys(("scale", "empty_value", "lowest"), np.dtype(np.float64)),
    **dict.fromkeys(Call._fields[-5:], np.dtype(np.int32)),
}
CALL_TYPE = np.dtype(
    [(name, _FIELD_TYPES.get(name, np.dtype(np.int64))) for name in Call._fields], align=True
)
IMAGE_KINDS = {"int32": 0, "int64": 1, "float32": 2, "float64": 3}

STORAGE = {
    "float16": "Float16",
    "bfloat16": "Bfloat16",
    "float32": "float",
    "float64": "double",
}

# ---- Plans


class PlanKind(NamedTuple):
    """What a plan consists of: bytes of one bin and of one entry, by bytes of a real number."""

    kernel: str
    bin: int
    entry: dict[int, int]


TAPS = PlanKind("plan_taps", 16, {4: 8, 8: 16})
SLOPED_TAPS = PlanKind("plan_sloped_taps", 16, {4: 16, 8: 32})
SAMPLES = PlanKind("plan_samples", 32, {4: 24, 8: 40})
BYTES_OF_WINDOW = 8
BYTES_OF_PLACE = 8

# Samples per bin along one axis, where that does not depend on the map: a factor of sampling_ratio,
# or for crops, which have none, the number itself.
SAMPLES_PER_RATIO = {"roi_align": 1, "onnx_roi_align_max": 2}
CROPS = ("crop_bilinear", "crop_nearest", "crop_box_gradient")


def plan_capacity(kind: PlanKind, definition: str, sampling: int, size: int, bins: int) -> int:
    """Return a bound on the entries of one box's plan along one axis.

    Bins tile their box, so the cells of neighbouring bins overlap by a few at most, and a plan has
    not many more taps than the map has cells. Where the number of samples is not fixed, they are
    at least half a cell apart (ROI align: as many as the bin is long, rounded up), so that there
    are not many more than two per cell. The rest is for the rounding of far coordinates.
    """
    by_map = 2 * size + 8 * bins + 16
    if definition in CROPS:
        samples = bins
    elif sampling > 0 and definition in SAMPLES_PER_RATIO:
        samples = SAMPLES_PER_RATIO[definition] * sampling * bins
    else:
        samples = SAMPLES_PER_RATIO.get(definition, 1) * by_map
    return 1 + (samples if kind is SAMPLES else min(2 * samples, by_map))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class _Scratch:
    """Lays out the memory that holds the plans of a call."""

    def __init__(self) -> None:
        self.bytes = 0

    def place(self, size: int) -> int:
        """Return where the next `size` bytes go."""
        start = self.bytes
        self.bytes = _up(start + size, 16)
        return start


# ---- Kernels


@cache
def kernel(file: str, name: str, **defines: str | int) -> Any:
    """Return a kernel of one specialised file; it is compiled at its first launch."""
    return cupy.RawKernel(kernel_source(file, **defines), name, OPTIONS)


# More work than this is done by the same blocks in turn.
LARGEST_GRID = 2**31 - 1

# ---- How work is cut

THREADS = 256
# What a forward's thread, or for averages of NCHW maps a warp, computes one after the other: more
# amortise its set-up, fewer make more threads, which few boxes need.
PACKS_PER_THREAD = 4
PACKS_PER_WARP = 2
MANY_BOXES = 256
WARP = 32
SHARED_OF_PLANNING = WARP * (8 + 8)
# Shared memory of a warp of that average: the sums down its window's columns.
SUMS_PER_WARP = 2**12
# Shared memory of a backward's block: what is staged of a box, and the sums of its tile.
STAGE_BYTES = 2**13 + 2**9


class TileShape(NamedTuple):
    """How large tiles are: at most so many channels, and about so many bytes of sums."""

    lanes: int
    bytes: int


WINDOW_TILE = TileShape(WARP, 2**14 + 2**9)
# Where a box may reach every tile, each reads the winners of all its image's boxes: fewer tiles.
WHOLE_MAP_TILE = TileShape(8, 9 * 2**12)


def channel_pack(layout: str, count: int, dtype: np.dtype[Any], aligned: bool) -> int:
    """Return how many channels of a bin one thread computes.

    For NHWC they are read and written as one piece of 16 bytes, where all are aligned to it.
    """
    if layout == "NCHW":
        return 4 if count >= 4 else 1
    whole = 16 // dtype.itemsize
    return whole if aligned and count % whole == 0 else 1


def are_aligned(*arrays: Array) -> bool:
    """Return whether all begin at a multiple of 16 bytes."""
    return all(array.data.ptr % 16 == 0 for array in arrays)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


class Tiling(NamedTuple):
    """How a backward cuts the maps, and how many of a box's bins it stages at a time."""

    lanes: int
    rows: int
    columns: int
    threads: int
    stage: int
    shared: int

    @classmethod
    def of_maps(
        cls, shape: TileShape, count: int, size: Pair, real: int, bins: int, staged: int
    ) -> Tiling:
        """Return tiles for `count` channels, with `staged` bytes for each value of `bins` bins."""
        height, width = size
        lanes = min(_power_of_two(count), shape.lanes)
        pitch = lanes + 1 if lanes > 1 else 1
        cells = shape.bytes // (pitch * real)
        columns = min(width, 16 if lanes > 8 else 32)
        rows = max(min(height, cells // columns), 1)
        owners = min(_power_of_two(rows), THREADS // WARP)
        threads = max(lanes * owners, WARP)
        stage = min(bins, max(STAGE_BYTES // (pitch * staged), 1))
        sums = _up(rows * columns * pitch * real, 8)
        shared = sums + threads // WARP * 8 + stage * pitch * staged
        return cls(lanes, rows, columns, threads, stage, shared)


class Sizes(NamedTuple):
    """All that a call's preparation depends on; arrays come later."""

    dtype: np.dtype[Any]  # of maps and pooled values
    boxes: int
    box_strides: tuple[int, ...]  # in bytes, as of the images
    image_type: np.dtype[Any]
    image_stride: int
    geometry: Geometry | None
    map_shape: tuple[int, ...]
    output_size: Pair
    layout: Layout


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
    blocks: int
    threads: tuple[int, ...]
    shared: int
    call: np.ndarray[Any, Any]

    def __call__(self, *arrays: Any) -> None:
        """Launch the kernel, unless there is nothing to do."""
        if self.blocks > 0:
            grid = (min(self.blocks, LARGEST_GRID),)
            self.function(grid, self.threads, (*arrays, self.call), shared_mem=self.shared)


class Prepared(NamedTuple):
    """The two launches of a call, and the bytes of scratch memory that hold its plans."""

    scratch: int
    plan: Launch | None
    engine: Launch

    def planned(self, boxes: Array, images: Array) -> Array:
        """Launch the planning of all boxes; return the plans."""
        plans = cupy.empty(self.scratch, np.uint8)
        if self.plan is not None:
            self.plan(boxes, images, plans)
        return plans


class Preparation:
    """Works out what the kernels of one call are told, and how the work is cut."""

    def __init__(self, file: str, sizes: Sizes) -> None:
        geometry = sizes.geometry or Geometry("roi_pool")
        self.file = f"cuda/{file}.cu"
        self.layout = sizes.layout
        self.definition = geometry.definition
        self.real = real_type(sizes.dtype)
        self.defines: dict[str, str | int] = {
            "storage": STORAGE[dtype_name(sizes.dtype)],
            "definition": geometry.definition,
            "channels_last": int(sizes.layout == "NHWC"),
            "pack": 1,
        }
        height, width = height_width(sizes.map_shape, sizes.layout)
        box_stride, coordinate_stride = (
            stride // self.real.itemsize for stride in sizes.box_strides
        )
        self.call = Call(
            images=sizes.map_shape[0],
            channels=channels(sizes.map_shape, sizes.layout),
            boxes=sizes.boxes,
            box_stride=box_stride,
            coordinate_stride=coordinate_stride,
            image_stride=sizes.image_stride // sizes.image_type.itemsize,
            images_at=0,
            rows=AxisCall(height, sizes.output_size[0], geometry.sampling[0]),
            columns=AxisCall(width, sizes.output_size[1], geometry.sampling[1]),
            scale=geometry.scale,
            image_kind=IMAGE_KINDS[dtype_name(sizes.image_type)],
            aligned=geometry.aligned,
        )

    def tell(self, **fields: Any) -> None:
        """Set fields of the call."""
        self.call = self.call._replace(**fields)

    def launch(self, name: str, blocks: int, threads: tuple[int, ...], shared: int = 0) -> Launch:
        """Return a launch of one of the file's kernels."""
        function = kernel(self.file, name, **self.defines)
        return Launch(function, blocks, threads, shared, np.array([self.call], CALL_TYPE))

    def plan(self, kind: PlanKind) -> int:
        """Lay out the plans in scratch memory; return its size."""
        scratch = _Scratch()
        placed = []
        count = self.call.boxes
        for axis in (self.call.rows, self.call.columns):
            capacity = plan_capacity(kind, self.definition, axis.sampling, axis.size, axis.bins)
            placed.append(
                axis._replace(
                    capacity=capacity,
                    bins_at=scratch.place(count * axis.bins * kind.bin),
                    entries_at=scratch.place(count * capacity * kind.entry[self.real.itemsize]),
                    windows_at=scratch.place(count * BYTES_OF_WINDOW),
                )
            )
        self.tell(rows=placed[0], columns=placed[1], images_at=scratch.place(8 * count))
        return scratch.bytes

    def prepared(
        self, kind: PlanKind, name: str, blocks: int, threads: tuple[int, ...], shared: int = 0
    ) -> Prepared:
        """Return the launches of the planning and of the engine `name`."""
        size = self.plan(kind)
        plan = self.launch(kind.kernel, 2 * self.call.boxes, (WARP,), SHARED_OF_PLANNING)
        return Prepared(size, plan, self.launch(name, blocks, threads, shared))

    def cut_values(self, pack: int) -> Pair:
        """Share out pooled values among the threads of a forward; return the block's size."""
        self.defines["pack"] = pack
        bins = self.call.rows.bins * self.call.columns.bins
        packs = -(-self.call.channels // pack)
        inner, outer = (packs, bins) if self.layout == "NHWC" else (bins, packs)
        across = min(inner, THREADS)
        down = min(max(THREADS // across, 1), outer)
        self.share_out(outer, down, PACKS_PER_THREAD)
        return across, down

    def cut_planes(self, pack: int) -> tuple[Pair, int]:
        """Share out packs of channels among warps; return the block's size and shared memory."""
        self.defines["pack"] = pack
        packs = -(-self.call.channels // pack)
        warps = min(packs, THREADS // WARP)
        self.share_out(packs, warps, PACKS_PER_WARP)
        self.tell(stage=SUMS_PER_WARP // (pack * self.real.itemsize))
        return (WARP, warps), warps * SUMS_PER_WARP

    def share_out(self, number: int, at_once: int, turns: int) -> None:
        """Cut each box's packs or bins into tasks, which take up to `turns` times `at_once`."""
        share = min(at_once * (turns if self.call.boxes >= MANY_BOXES else 1), number)
        parts = -(-number // share)
        self.tell(tasks=self.call.boxes * parts, parts=parts, share=share)

    def cut_maps(self, shape: TileShape, staged: int) -> Tiling:
        """Cut the maps of a backward into tiles; it stages so many bytes for each value."""
        call = self.call
        tiling = Tiling.of_maps(
            shape, call.channels, (call.rows.size, call.columns.size), self.real.itemsize,
            call.rows.bins * call.columns.bins, staged,
        )  # fmt: skip
        tiles = -(-call.rows.size // tiling.rows) * -(-call.columns.size // tiling.columns)
        groups = -(-call.channels // tiling.lanes)
        self.tell(
            tasks=call.images * groups * tiles,
            lanes=tiling.lanes,
            tile_rows=tiling.rows,
            tile_columns=tiling.columns,
            stage=tiling.stage,
            stage_rows=max(tiling.stage // call.columns.bins, 1),
            stage_columns=min(tiling.stage, call.columns.bins),
        )
        return tiling


# A network asks the same of every batch: what was worked out is kept.
keep = lru_cache(maxsize=256)

# ---- The functions of a backend


@keep
def prepare_average(sizes: Sizes, empty_value: float, aligned: bool) -> Prepared:
    """Prepare :func:`average`."""
    work = Preparation("average_forward", sizes)
    work.tell(empty_value=empty_value)
    pack = channel_pack(sizes.layout, work.call.channels, sizes.dtype, aligned)
    shared = 0
    if sizes.layout == "NCHW":
        block, shared = work.cut_planes(pack)
    else:
        block = work.cut_values(pack)
    return work.prepared(TAPS, "average_forward", work.call.tasks, block, shared)


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
    work = Preparation("average_backward", sizes)
    tiling = work.cut_maps(WINDOW_TILE, work.real.itemsize)
    return work.prepared(
        TAPS, "average_backward", work.call.tasks, (tiling.threads,), tiling.shared
    )


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
    """Prepare :func:`average_backward_boxes`: a block per box, of a power of two of threads."""
    work = Preparation("average_backward_boxes", sizes)
    across, down = (_power_of_two(size) for size in work.cut_values(1))
    down = min(down, THREADS // across)
    work.tell(parts=1, share=work.call.parts * work.call.share)
    return work.prepared(
        SLOPED_TAPS, "average_backward_boxes", sizes.boxes, (across, down), 8 * across * down
    )


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
    work = Preparation("maximum_forward", sizes)
    work.tell(
        lowest=rules.lowest,
        empty_value=rules.empty_value,
        outside_is_zero=rules.outside_is_zero,
    )
    block = work.cut_values(channel_pack(sizes.layout, work.call.channels, sizes.dtype, aligned))
    wide = return_argmax and label_type(sizes, rules.winner_is_cell) == np.int64
    work.defines["cells"] = int(rules.winner_is_cell)
    work.defines["label"] = "wide_int" if wide else "int"
    name = "maximum_forward"
    if rules.nan_restarts:
        name = "maximum_forward_nan_restarts"
    elif return_argmax:
        name = "maximum_forward_winners"
    return work.prepared(SAMPLES, name, work.call.tasks, block)


def label_type(sizes: Sizes, winner_is_cell: bool) -> np.dtype[Any]:
    """Return the type of winners; the host does not know how many samples an adaptive grid has."""
    assert sizes.geometry is not None
    height, width = height_width(sizes.map_shape, sizes.layout)
    factor = SAMPLES_PER_RATIO.get(sizes.geometry.definition)
    if winner_is_cell:
        numbers = height * width
    elif factor is None:  # samples a cell apart, one more than the map has cells at most
        numbers = (height + 2) * (width + 2)
    elif 0 in sizes.geometry.sampling:
        return np.dtype(np.int64)
    else:
        numbers = math.prod(factor * ratio for ratio in sizes.geometry.sampling)
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
    """Prepare :func:`maximum_backward`."""
    work = Preparation("maximum_backward", sizes)
    work.tell(winner_is_cell=winner_is_cell, wide_argmax=wide)
    shape = WHOLE_MAP_TILE if sizes.geometry is None else WINDOW_TILE
    tiling = work.cut_maps(shape, BYTES_OF_PLACE + work.real.itemsize)
    cut = (work.call.tasks, (tiling.threads,), tiling.shared)
    if sizes.geometry is None:
        return Prepared(0, None, work.launch("maximum_backward_cells", *cut))
    return work.prepared(SAMPLES, "maximum_backward", *cut)


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
            ready = prepare_maximum_backward(sizes, winner_is_cell, argmax.dtype == np.int64)
            found = images if geometry is None else ready.planned(boxes, images)
            ready.engine(grad_output, argmax, out, found)
    return out


@keep
def prepare_winners(sizes: Sizes, name: str, values: int) -> Prepared:
    """Prepare :func:`locate` or :func:`identify`."""
    work = Preparation("winners", sizes)
    work.tell(tasks=values)
    return work.prepared(SAMPLES, name, -(-values // THREADS), (THREADS,))


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
