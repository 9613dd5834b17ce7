"""Launch configurations and kernel arguments, computed from sizes alone.

Pure functions of immutable values, so that results are cached; ``engine`` compiles and launches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from roipool._definitions import TRAITS
from roipool._dtypes import dtype_name, real_dtype
from roipool._layout import AXES
from roipool._pooling import Pooling

# ---- Kernel arguments. The fields are those of kernels/cuda/call.h, in their order.


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
    angle_scale: float = 1.0
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
    argmax_is_cell: int = 0
    outside_is_zero: int = 0
    wide_argmax: int = 0
    skips: int = 0


_AXIS_TYPE = np.dtype([(name, np.int64) for name in AxisCall._fields])
_FIELD_TYPES = {
    **dict.fromkeys(("rows", "columns"), _AXIS_TYPE),
    **dict.fromkeys(("scale", "empty_value", "lowest", "angle_scale"), np.dtype(np.float64)),
    **dict.fromkeys(Call._fields[-6:], np.dtype(np.int32)),
}
CALL_TYPE = np.dtype(
    [(name, _FIELD_TYPES.get(name, np.dtype(np.int64))) for name in Call._fields], align=True
)
IMAGE_KINDS = {"int32": 0, "int64": 1, "float32": 2, "float64": 3}

STORAGE = {
    "float16": "Float16",
    "bfloat16": "Bfloat16",
    "int16": "Bfloat16",  # its bits, where nobody has brought NumPy that type
    "float32": "float",
    "float64": "double",
}
ARGMAX_TYPES = ("int", "wide_int")  # int32, int64

cached = lru_cache(maxsize=256)


@cached
def _argument(call: Call) -> np.ndarray[Any, Any]:
    """Return a call as the structure that kernels take."""
    return np.array([call], CALL_TYPE)


# ---- Plans


class PlanKind(NamedTuple):
    """What a plan consists of: bytes of one bin and of one entry, by bytes of a real number."""

    kernel: str
    bin: int
    entry: dict[int, int]


TAPS = PlanKind("plan_taps", 16, {4: 8, 8: 16})
SLOPED_TAPS = PlanKind("plan_sloped_taps", 16, {4: 16, 8: 32})
SAMPLES = PlanKind("plan_samples", 32, {4: 24, 8: 40})
BYTES_OF_WINDOW = BYTES_OF_IMAGE = BYTES_OF_HITS = BYTES_OF_LISTED_SAMPLE = 8
BYTES_OF_LANE = BYTES_OF_BIN_NUMBER = 4
BYTES_OF_REGION = 160  # of a box of a pointwise definition, and its image


Capacity = Callable[[PlanKind, str, int, int, int], int]


def plan_capacity(kind: PlanKind, definition: str, sampling: int, size: int, bins: int) -> int:
    """Return a bound on the entries of one box's plan along one axis.

    Bins tile their box, so the cells of neighbouring bins overlap by a few at most, and a plan has
    not many more taps than the map has cells. Where the number of samples is not fixed, a
    definition's traits bound it by cells (those of an adaptive grid are at least half a cell
    apart). The rest is for the rounding of far coordinates.
    """
    traits = TRAITS[definition]
    cells = size + 4 * bins + 8
    if traits.kind == "crop":
        samples = bins
    elif traits.kind == "grid" and sampling > 0:
        samples = traits.samples_per_ratio * sampling * bins
    else:
        samples = traits.max_per_cell * cells
    return 1 + (samples if kind is SAMPLES else min(2 * samples, 2 * cells))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


# ---- How work is divided

THREADS = 256
# What a forward's thread, or for averages of NCHW features a warp, computes one after the other:
# more amortise its set-up, fewer make more threads, which few boxes need.
PACKS_PER_THREAD = 4
PACKS_PER_WARP = 2
WARP = 32
# Shared memory of a warp of that average: the sums down its window's columns.
SUMS_PER_WARP = 2**12
# Of a backward's block: at most so many lanes of channels, about so many bytes of sums (for each
# channel of a lane), and of what is staged of a box.
TILE_LANES = WARP
TILE_BYTES = 2**14 + 2**9
STAGE_BYTES = 2**13 + 2**9
# What a block may have without being asked for more.
SHARED_BYTES = 48 * 2**10
# Of a block whose argmax may be anywhere: bytes of sums, and channels that lie side by side.
RUN_BYTES = 2**15
RUN_CHANNELS = 8


class Limits(NamedTuple):
    """Where work is divided in another way: tests lower them."""

    max_blocks: int = 2**31 - 1  # more work than this is done by the same blocks in turn
    many_boxes: int = 256  # from here on threads take several tasks


def rounded_up(boxes: int) -> int:
    """Return a number of boxes to launch for: few numbers are, so that launches are found cached.

    At most an eighth more: one of eight between powers of two.
    """
    step = max(_power_of_two(boxes + 1) // 16, 1)
    return _up(boxes, step)


class Sizes(NamedTuple):
    """All that a launch depends on; arrays come later."""

    dtype: np.dtype[Any]  # of features and pooled values
    boxes: int  # rounded up: `LaunchConfig.call_for` has the real number
    box_strides: tuple[int, ...]  # in bytes, as of the batch indices
    index_type: np.dtype[Any]
    index_stride: int
    pooling: Pooling
    map_shape: tuple[int, ...]
    skips: bool = False  # boxes of no image, which another level has
    limits: Limits = Limits()

    @property
    def channels_last(self) -> bool:
        """Whether the layout is NHWC."""
        return self.pooling.layout == "NHWC"

    @property
    def real(self) -> np.dtype[Any]:
        """The dtype of coordinates and sums."""
        return real_dtype(self.dtype)


class Grid(NamedTuple):
    """The blocks of a launch: how many, of which threads, with how much shared memory."""

    blocks: int
    threads: tuple[int, ...]
    shared: int = 0


Defines = tuple[tuple[str, str | int], ...]


class LaunchConfig(NamedTuple):
    """One kernel, ready but for its arrays."""

    file: str
    name: str
    defines: Defines  # macros that specialise its source
    grid: Grid
    call: Call
    tasks_of_box: int = 0  # 0 where tasks are not those of boxes

    def call_for(self, boxes: int) -> np.ndarray[Any, Any]:
        """Return the kernel's argument for so many boxes; blocks that are then too many end."""
        argument = _argument(self.call)
        if boxes != self.call.boxes:
            argument = argument.copy()
            argument["boxes"] = boxes
            if self.tasks_of_box:
                argument["tasks"] = boxes * self.tasks_of_box
        return argument


class Launches(NamedTuple):
    """The kernels of a call: planning, which fills so many bytes of scratch, and the engine."""

    scratch: int
    plan: LaunchConfig
    engine: LaunchConfig


# Kernels whose tasks are parts of boxes, rather than of maps.
FILES_BY_BOX = ("average_forward", "maximum_forward", "points_forward", "argmax_positions")


def call_of(sizes: Sizes, **fields: Any) -> Call:
    """Return the argument of every kernel of a call, with `fields` set."""
    pooling, definition = sizes.pooling, sizes.pooling.definition
    channel, row, column = AXES[pooling.layout]
    box_stride, coordinate_stride = (stride // sizes.real.itemsize for stride in sizes.box_strides)
    call = Call(
        images=sizes.map_shape[0],
        channels=sizes.map_shape[channel],
        boxes=sizes.boxes,
        box_stride=box_stride,
        coordinate_stride=coordinate_stride,
        image_stride=sizes.index_stride // sizes.index_type.itemsize,
        images_at=0,
        rows=AxisCall(sizes.map_shape[row], pooling.output_size[0], definition.sampling[0]),
        columns=AxisCall(sizes.map_shape[column], pooling.output_size[1], definition.sampling[1]),
        scale=definition.scale,
        angle_scale=definition.angle_scale,
        image_kind=IMAGE_KINDS[dtype_name(sizes.index_type)],
        aligned=definition.aligned,
        skips=sizes.skips,
    )
    return call._replace(**fields)


def config_of(
    sizes: Sizes, file: str, name: str, call: Call, grid: Grid, **defines: str | int
) -> LaunchConfig:
    """Return the launch of a kernel; more `defines` than every text has go along."""
    texts: dict[str, str | int] = {
        "storage": STORAGE[dtype_name(sizes.dtype)],
        "definition": sizes.pooling.definition.name,
        "channels_last": int(sizes.channels_last),
        "pack": 1,
        **defines,
    }
    grid = grid._replace(blocks=min(grid.blocks, sizes.limits.max_blocks))
    of_box = call.tasks // call.boxes if call.boxes and file in FILES_BY_BOX else 0
    return LaunchConfig(f"cuda/{file}.cu", name, tuple(texts.items()), grid, call, of_box)


def with_plan(
    call: Call, kind: PlanKind, sizes: Sizes, capacity: Capacity = plan_capacity
) -> tuple[Call, int]:
    """Lay out the plans in scratch memory; return the call that says where, and their size."""
    size, real = 0, sizes.real.itemsize

    def allocate(bytes_of_box: int) -> int:
        nonlocal size
        start = size
        size = _up(start + call.boxes * bytes_of_box, 16)
        return start

    def with_offsets(axis: AxisCall) -> AxisCall:
        name = sizes.pooling.definition.name
        entries = capacity(kind, name, axis.sampling, axis.size, axis.bins)
        return axis._replace(
            capacity=entries,
            bins_at=allocate(axis.bins * kind.bin),
            entries_at=allocate(entries * kind.entry[real]),
            windows_at=allocate(BYTES_OF_WINDOW),
        )

    call = call._replace(
        rows=with_offsets(call.rows),
        columns=with_offsets(call.columns),
        images_at=allocate(BYTES_OF_IMAGE),
    )
    return call, size


def planned(
    sizes: Sizes,
    kind: PlanKind,
    file: str,
    name: str,
    call: Call,
    grid: Grid,
    *,
    capacity: Capacity = plan_capacity,
    **defines: str | int,
) -> Launches:
    """Return the launches of the planning and of the engine `name`."""
    call, scratch = with_plan(call, kind, sizes, capacity)
    warps = Grid(2 * call.boxes, (WARP,), WARP * (8 + 8))  # one per axis of a box
    return Launches(
        scratch,
        config_of(sizes, file, kind.kernel, call, warps, **defines),
        config_of(sizes, file, name, call, grid, **defines),
    )


def pointwise(
    sizes: Sizes, file: str, name: str, call: Call, grid: Grid, **defines: str | int
) -> Launches:
    """Return the launches of a pointwise definition, whose engines ask it themselves.

    Only the regions of its boxes are computed before, by a thread for each.
    """
    threads = Grid(-(-call.boxes // WARP), (WARP,))
    return Launches(
        call.boxes * BYTES_OF_REGION,
        config_of(sizes, file, "plan_regions", call, threads, **defines),
        config_of(sizes, file, name, call, grid, **defines),
    )


def is_pointwise(sizes: Sizes) -> bool:
    """Return whether rows and columns cannot be planned apart."""
    return TRAITS[sizes.pooling.definition.name].kind == "points"


def channel_pack(sizes: Sizes, channels: int, vector_aligned: bool) -> int:
    """Return how many channels of a bin one thread computes.

    For NHWC they are read and written as one piece of 16 bytes, where all are aligned to it.
    """
    if not sizes.channels_last:
        return 4 if channels >= 4 else 1
    whole = 16 // sizes.dtype.itemsize
    return whole if vector_aligned and channels % whole == 0 else 1


def divide_values(call: Call, sizes: Sizes, pack: int) -> tuple[Call, Grid]:
    """Divide pooled values among the threads of a forward."""
    bins = call.rows.bins * call.columns.bins
    packs = -(-call.channels // pack)
    inner, outer = (packs, bins) if sizes.channels_last else (bins, packs)
    across = min(inner, THREADS)
    down = min(max(THREADS // across, 1), outer)
    call = _divide(call, sizes, outer, down, PACKS_PER_THREAD)
    return call, Grid(call.tasks, (across, down))


def divide_planes(call: Call, sizes: Sizes, pack: int) -> tuple[Call, Grid]:
    """Divide packs of channels among the warps of a forward."""
    packs = -(-call.channels // pack)
    warps = min(packs, THREADS // WARP)
    call = call._replace(stage=SUMS_PER_WARP // (pack * sizes.real.itemsize))
    call = _divide(call, sizes, packs, warps, PACKS_PER_WARP)
    return call, Grid(call.tasks, (WARP, warps), warps * SUMS_PER_WARP)


def _divide(call: Call, sizes: Sizes, number: int, at_once: int, turns: int) -> Call:
    """Divide each box's packs or bins into tasks, of up to `turns` times `at_once`."""
    share = min(at_once * (turns if call.boxes >= sizes.limits.many_boxes else 1), number)
    parts = -(-number // share)
    return call._replace(tasks=call.boxes * parts, parts=parts, share=share)


def divide_boxes(call: Call, sizes: Sizes) -> tuple[Call, Grid]:
    """Give each box a block, of a power of two of threads."""
    call, grid = divide_values(call, sizes, 1)
    across, down = map(_power_of_two, grid.threads)
    down = min(down, THREADS // across)
    call = call._replace(parts=1, share=call.parts * call.share)
    return call, Grid(call.boxes, (across, down), 8 * across * down)


def divide_maps(
    call: Call, sizes: Sizes, staged: int, *, pack: int = 1, inverted: bool = False
) -> tuple[Call, Grid]:
    """Divide the maps of a backward into tiles; it stages `staged` bytes for each pooled value.

    A thread has `pack` channels. `inverted`: a block also lists, for each row and column of its
    tile, the weight of each bin that is staged, and the first and the last bin that read it.
    """
    real = sizes.real.itemsize
    height, width, bins = call.rows.size, call.columns.size, call.rows.bins * call.columns.bins
    lanes = min(_power_of_two(-(-call.channels // pack)), TILE_LANES)
    pitch = (lanes + 1 if lanes > 1 else 1) * pack
    cells = TILE_BYTES * pack // (pitch * real)
    columns = min(width, 16 if lanes > 8 else 32)
    rows = max(min(height, cells // columns), 1)
    owners = min(_power_of_two(rows), THREADS // WARP)
    threads = max(lanes * owners, WARP)
    tiles = -(-height // rows) * -(-width // columns)
    call = call._replace(
        tasks=call.images * -(-call.channels // (lanes * pack)) * tiles,
        lanes=lanes,
        tile_rows=rows,
        tile_columns=columns,
    )
    sums = _up(rows * columns * pitch * real, 8) + threads // WARP * BYTES_OF_HITS

    def with_stage(stage: int) -> tuple[Call, int]:
        """Stage so many bins at a time; return the shared memory that all needs."""
        down, across = max(stage // call.columns.bins, 1), min(stage, call.columns.bins)
        lists = (rows * down + columns * across) * real + 2 * (rows + columns) * BYTES_OF_BIN_NUMBER
        shared = sums + stage * pitch * staged + lists * inverted
        return call._replace(stage=stage, stage_rows=down, stage_columns=across), shared

    stage = min(bins, max(STAGE_BYTES * (1 + pack) // 2 // (pitch * staged), 1))
    while stage > 1 and with_stage(stage)[1] > SHARED_BYTES:
        stage -= 1
    call, shared = with_stage(stage)
    return call, Grid(call.tasks, (threads,), shared)


def divide_runs(call: Call, sizes: Sizes) -> tuple[Call, Grid]:
    """Divide the maps of a backward into runs of cells, a warp per channel."""
    real = sizes.real.itemsize
    lanes = min(_power_of_two(call.channels), RUN_CHANNELS) if sizes.channels_last else 1
    cells = call.rows.size * call.columns.size
    runs = -(-cells // (RUN_BYTES // (lanes * real) - 1))
    share = -(-cells // runs)
    groups = -(-call.channels // lanes)
    call = call._replace(tasks=call.images * groups * runs, lanes=lanes, parts=runs, share=share)
    shared = lanes * ((share | 1) * real + WARP * BYTES_OF_LANE)
    return call, Grid(call.tasks, (lanes * WARP,), shared)


# ---- The launches of each function of the engine. A network makes the same call for every batch.


@cached
def average(sizes: Sizes, vector_aligned: bool) -> Launches:
    """Return the launches of an average forward; `vector_aligned`: to 16 bytes."""
    call = call_of(sizes, empty_value=sizes.pooling.empty_value)
    pack = channel_pack(sizes, call.channels, vector_aligned)
    if is_pointwise(sizes):
        call, grid = divide_values(call, sizes, pack)
        file = "points_forward"
        return pointwise(sizes, file, file, call, grid, pack=pack)
    divide = divide_values if sizes.channels_last else divide_planes
    call, grid = divide(call, sizes, pack)
    return planned(sizes, TAPS, "average_forward", "average_forward", call, grid, pack=pack)


@cached
def average_backward(sizes: Sizes) -> Launches:
    """Return the launches of an average backward."""
    call, real = call_of(sizes), sizes.real.itemsize
    if is_pointwise(sizes):
        call, grid = divide_maps(call, sizes, real)
        return pointwise(sizes, "points_backward", "points_backward", call, grid)
    pack = 2 if real == 4 and call.channels > TILE_LANES else 1
    call, grid = divide_maps(call, sizes, real, pack=pack, inverted=True)
    file = "average_backward"
    return planned(sizes, TAPS, file, file, call, grid, pack=pack)


@cached
def average_backward_boxes(sizes: Sizes) -> Launches:
    """Return the launches of an average's gradient with respect to the boxes."""
    call, grid = divide_boxes(call_of(sizes), sizes)
    if is_pointwise(sizes):
        return pointwise(sizes, "points_backward_boxes", "points_backward_boxes", call, grid)
    file = "average_backward_boxes"
    return planned(sizes, SLOPED_TAPS, file, file, call, grid)


@cached
def maximum(sizes: Sizes, return_argmax: bool, vector_aligned: bool) -> Launches:
    """Return the launches of a maximum forward; `vector_aligned`: to 16 bytes."""
    rules = sizes.pooling.rules
    call = call_of(
        sizes,
        lowest=rules.lowest,
        empty_value=sizes.pooling.empty_value,
        outside_is_zero=rules.outside_is_zero,
    )
    pack = channel_pack(sizes, call.channels, vector_aligned)
    call, grid = divide_values(call, sizes, pack)
    wide = return_argmax and argmax_dtype(sizes) == np.int64
    name = "maximum_forward"
    if rules.nan_restarts:
        name = "maximum_forward_nan_restarts"
    elif return_argmax:
        name = "maximum_forward_argmax"
    return planned(
        sizes, SAMPLES, "maximum_forward", name, call, grid,
        pack=pack, argmax_is_cell=int(rules.argmax_is_cell), argmax_type=ARGMAX_TYPES[wide],
    )  # fmt: skip


@cached
def argmax_dtype(sizes: Sizes) -> np.dtype[Any]:
    """Return the dtype of argmax; the host does not know how many samples an adaptive grid has."""
    definition = sizes.pooling.definition
    _, row, column = AXES[sizes.pooling.layout]
    height, width = sizes.map_shape[row], sizes.map_shape[column]
    traits = TRAITS[definition.name]
    if sizes.pooling.rules.argmax_is_cell:
        numbers = height * width
    elif traits.kind != "grid":  # samples a cell apart, one more than the map has cells at most
        numbers = (height + 2) * (width + 2)
    elif 0 in definition.sampling:
        return np.dtype(np.int64)
    else:
        rows, columns = (traits.samples_per_ratio * ratio for ratio in definition.sampling)
        numbers = rows * columns
    return np.dtype(np.int32 if numbers <= np.iinfo(np.int32).max else np.int64)


@cached
def maximum_backward(sizes: Sizes, wide: bool) -> Launches:
    """Return the launches of a maximum backward; `wide`: argmax is int64."""
    is_cell = sizes.pooling.rules.argmax_is_cell
    call = call_of(sizes, argmax_is_cell=is_cell, wide_argmax=wide)
    call, grid = divide_maps(call, sizes, BYTES_OF_LISTED_SAMPLE + sizes.real.itemsize)
    return planned(sizes, SAMPLES, "maximum_backward", "maximum_backward", call, grid)


@cached
def unpool(sizes: Sizes, wide: bool) -> LaunchConfig:
    """Return the launch that adds gradients to cells that argmax names; nothing is planned."""
    call, grid = divide_runs(call_of(sizes), sizes)
    file = "unpool"
    return config_of(sizes, file, file, call, grid, argmax_type=ARGMAX_TYPES[wide])


@cached
def argmax_kernel(sizes: Sizes, name: str) -> Launches:
    """Return the launches that turn an argmax into positions, or back: a thread for each value."""
    call = call_of(sizes)
    values = call.boxes * call.channels * call.rows.bins * call.columns.bins
    call = call._replace(tasks=values)
    grid = Grid(-(-values // THREADS), (THREADS,))
    return planned(sizes, SAMPLES, "argmax_positions", name, call, grid)
