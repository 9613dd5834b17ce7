"""Launch configurations and kernel arguments, computed from sizes alone.

Pure functions of immutable values, so that ``engine`` may keep what it has made of their results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from roipool._arguments import MAX_AXIS
from roipool._cuda.arguments import (
    CUT_IMAGE_KINDS,
    FEATURE_STORAGE,
    IMAGE_KINDS,
    INTEGERS,
    STORAGE,
    AxisCall,
    CallArguments,
    Level,
    VolumeArguments,
)
from roipool._cuda.partition import (
    BYTES_OF_LISTED_SAMPLE,
    LISTED_BOXES,
    THREADS,
    WARP,
    Grid,
    Sizes,
    bytes_of_portions,
    channel_pack,
    divide_boxes,
    divide_groups,
    divide_maps,
    divide_planes,
    divide_runs,
    divide_tiles,
    divide_values,
    sums_per_warp,
    up,
)
from roipool._definitions import BY_BIN, MOVED, TRAITS
from roipool._dtypes import dtype_name
from roipool._layout import AXES

# ---- Plans


class PlanKind(NamedTuple):
    """Layout of a plan in memory: bytes per bin and per entry, for 4- and 8-byte real numbers."""

    name: str
    bin: int
    entry: dict[int, int]
    beside: int = 0  # bytes that a planning kernel keeps of a box beside its plan
    beside_bin: int = 0  # and of each of its rows and columns of bins


BYTES_OF_REACH, BYTES_OF_VOLUME_REACH = 16, 32
BYTES_OF_IMAGE = BYTES_OF_WINDOW = 8
TAPS = PlanKind("taps", 8, {4: 8, 8: 16})
BIN_TAPS = PlanKind("bin_taps", 16, {4: 8, 8: 16}, BYTES_OF_REACH)
VOLUME_BIN_TAPS = BIN_TAPS._replace(beside=BYTES_OF_VOLUME_REACH)
WINDOWS = PlanKind(
    "windows", 16, {4: 8, 8: 16}, BYTES_OF_IMAGE + 2 * BYTES_OF_WINDOW, BYTES_OF_WINDOW
)
SLOPED_TAPS = PlanKind("sloped_taps", 8, {4: 16, 8: 32})
SAMPLES = PlanKind("samples", 24, {4: 24, 8: 40})
CELLS = PlanKind("cells", 24, {4: 0, 8: 0})
# Scratch memory for plans that do not fit shared memory: fewer blocks take more boxes each.
BYTES_OF_SCRATCH = 2**28
# Bytes per box of a pointwise or moved definition.
BYTES_OF_REGION, BYTES_OF_MOVED_REGION = 160, 256


def bytes_of_head(sizes: Sizes) -> int:
    """Return the bytes of a plan apart from bins and entries: per axis, and the box's image."""
    return 48 if sizes.is_of_volumes else 32


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


# ---- Launches

Defines = tuple[tuple[str, str | int], ...]


class LaunchConfig(NamedTuple):
    """One kernel, its grid and its argument.

    A call has the number of boxes that its grid is made for; with fewer, blocks that are too many
    end.
    """

    file: str
    name: str
    defines: Defines  # macros that specialise its source
    grid: Grid
    call: CallArguments
    tasks_of_box: int = 0  # 0 where tasks are not those of boxes


class Launches(NamedTuple):
    """The kernels of a call, and how many bytes of scratch memory they need.

    `plan` fills the scratch memory; without it the engine's blocks plan their boxes themselves.
    `plan_points_to_boxes` if the planned engine needs the table of boxes, too. The first `zeros`
    bytes of the scratch memory are 0 when it begins.
    """

    engine: LaunchConfig
    scratch: int = 0
    plan: LaunchConfig | None = None
    plan_points_to_boxes: bool = False
    zeros: int = 0


def call_of(sizes: Sizes, **fields: Any) -> CallArguments:
    """Return the argument of every kernel of a call, with `fields` set."""
    pooling, definition = sizes.pooling, sizes.pooling.definition
    channel, row, column = AXES[pooling.layout]
    for shape in sizes.map_shapes:  # from front ends: other calls are checked earlier
        if max(shape[row], shape[column]) > MAX_AXIS:
            raise ValueError(f"maps must have at most {MAX_AXIS} rows and columns, got {shape}")
    box_stride, coordinate_stride = (stride // sizes.real.itemsize for stride in sizes.box_strides)
    group_rows, group_columns = pooling.group_size
    call = CallArguments(
        images=sizes.map_shapes[0][0],
        channels=sizes.map_shapes[0][channel] // (group_rows * group_columns),
        boxes=sizes.boxes,
        box_stride=box_stride,
        coordinate_stride=coordinate_stride,
        image_stride=sizes.index_stride // sizes.index_type.itemsize,
        rows=AxisCall(pooling.output_size[0], definition.sampling[0], groups=group_rows),
        columns=AxisCall(pooling.output_size[1], definition.sampling[1], groups=group_columns),
        volume=volume_call(sizes),
        angle_scale=definition.angle_scale,
        offset_factor=definition.offset_factor,
        image_kind=(CUT_IMAGE_KINDS if sizes.cuts else IMAGE_KINDS)[dtype_name(sizes.index_type)],
        aligned=definition.aligned,
        levels=tuple(
            Level(shape[row], shape[column], scale)
            for shape, scale in zip(sizes.map_shapes, pooling.map_scales, strict=True)
        ),
    )
    return call._replace(**fields)


def volume_call(sizes: Sizes) -> VolumeArguments:
    """Return what kernels need of volumes beside their maps."""
    definition, depth = sizes.pooling.definition, sizes.pooling.definition.depth
    if depth is None:
        return VolumeArguments()
    _, row, _ = AXES[sizes.pooling.layout]
    return VolumeArguments(
        AxisCall(depth.bins, depth.sampling),
        AxisCall(sizes.pooling.output_size[0] // depth.bins, definition.sampling[0]),
        depth.planes,
        sizes.map_shapes[0][row] // max(depth.planes, 1),
        depth.scale,
        depth.row_scale,
    )


# Offsets up to this are int32: a little less than it holds, as loops step beyond their end.
MAX_OFFSET = np.iinfo(np.int32).max - 2**12


def _largest_offset(sizes: Sizes, call: CallArguments) -> int:
    """Return the elements of an image of the largest map, or a box's pooled values if more."""
    pooled = call.channels * math.prod(sizes.pooling.output_size)
    return max(pooled, *(math.prod(shape[1:]) for shape in sizes.map_shapes))


# Kernels whose tasks are parts of boxes, rather than of maps.
FILES_BY_BOX = ("average_forward", "maximum_forward", "points_forward", "argmax_positions")


def config_of(
    sizes: Sizes, file: str, name: str, call: CallArguments, grid: Grid, **defines: str | int
) -> LaunchConfig:
    """Return the launch of a kernel, whose text also gets these `defines`."""
    texts: dict[str, str | int] = {
        "storage": STORAGE[dtype_name(sizes.dtype)],
        "definition": sizes.pooling.definition.name,
        "channels_last": int(sizes.channels_last),
        "pack": 1,
        "position_sensitive": int(sizes.is_position_sensitive),
        "moved_bins": int(has_moved_bins(sizes)),
        "of_volumes": int(sizes.is_of_volumes),
        "plan_is_shared": 1,
        "levels": len(sizes.map_shapes),
        "offset": INTEGERS[_largest_offset(sizes, call) > MAX_OFFSET],
        **defines,
    }
    if sizes.feature_dtype is not None:
        texts["feature_storage"] = FEATURE_STORAGE[dtype_name(sizes.feature_dtype)]
    if sizes.has_narrow_levels:
        texts["narrow_levels"] = 1
    grid = grid._replace(blocks=min(grid.blocks, sizes.limits.max_blocks))
    of_box = call.tasks // call.boxes if call.boxes and file in FILES_BY_BOX else 0
    return LaunchConfig(f"cuda/{file}.cu", name, tuple(texts.items()), grid, call, of_box)


def with_plan(
    call: CallArguments, kind: PlanKind, sizes: Sizes, capacity: Capacity = plan_capacity
) -> CallArguments:
    """Return the call with the size of a box's plan, and where its entries begin."""

    def with_capacity(axis: AxisCall, size: int) -> AxisCall:
        name = sizes.pooling.definition.name
        return axis._replace(capacity=capacity(kind, name, axis.sampling, size, axis.bins))

    columns = with_capacity(call.columns, call.width)
    if sizes.is_of_volumes:
        depth = with_capacity(call.volume.depth, call.volume.planes)
        rows = with_capacity(call.volume.rows, call.volume.plane_rows)
        axes: tuple[AxisCall, ...] = (depth, rows, columns)
        call = call._replace(volume=call.volume._replace(depth=depth, rows=rows))
    else:
        axes = (with_capacity(call.rows, call.height), columns)
        call = call._replace(rows=axes[0])
    entries_at = up(sum(axis.bins for axis in axes) * kind.bin, 16)
    entries = sum(axis.capacity for axis in axes) * kind.entry[sizes.real.itemsize]
    return call._replace(
        columns=columns, entries_at=entries_at, plan_bytes=up(entries_at + entries, 16)
    )


def planned_by_blocks(
    sizes: Sizes,
    kind: PlanKind,
    file: str,
    name: str,
    call: CallArguments,
    grid: Grid,
    **defines: str | int,
) -> Launches:
    """Return the launch of an engine whose blocks plan their boxes."""
    call = with_plan(call, kind, sizes)
    head = bytes_of_head(sizes) + grid.shared
    if head + call.plan_bytes <= sizes.limits.shared_bytes:
        grid = grid._replace(shared=head + call.plan_bytes)
        return Launches(config_of(sizes, file, name, call, grid, **defines))
    blocks = min(grid.blocks, max(BYTES_OF_SCRATCH // call.plan_bytes, 1))
    grid = grid._replace(shared=head, blocks=blocks)
    engine = config_of(sizes, file, name, call, grid, plan_is_shared=0, **defines)
    return Launches(engine, grid.blocks * call.plan_bytes)


def planned_before(
    sizes: Sizes,
    kind: PlanKind,
    file: str,
    call: CallArguments,
    grid: Grid,
    *,
    capacity: Capacity = plan_capacity,
    **defines: str | int,
) -> Launches:
    """Return the launch that plans all boxes, one per block, and that of the engine."""
    call = with_plan(call, kind, sizes, capacity)
    # One thread plans a bin; its entries, of which there are more, are copied by all threads.
    threads = min(up(2 * (call.rows.bins + call.columns.bins), WARP), THREADS)
    head = bytes_of_head(sizes)
    shared = head + call.plan_bytes
    beside = kind.beside + kind.beside_bin * (call.rows.bins + call.columns.bins)
    if shared > sizes.limits.shared_bytes:
        shared, defines = head, {"plan_is_shared": 0, **defines}
    plans = Grid(call.boxes, (threads,), shared)
    return Launches(
        config_of(sizes, file, file, call, grid, **defines),
        call.boxes * (head + call.plan_bytes + beside),
        config_of(sizes, file, f"plan_{kind.name}", call, plans, **defines),
    )


def with_regions(
    sizes: Sizes, file: str, call: CallArguments, grid: Grid, **defines: str | int
) -> Launches:
    """Return the launch of an engine whose blocks compute the regions of their boxes."""
    grid = grid._replace(shared=grid.shared + bytes_of_region(sizes))
    return Launches(config_of(sizes, file, file, call, grid, **defines))


def has_moved_bins(sizes: Sizes) -> bool:
    """Return whether bins are moved, each by offsets of its own."""
    return sizes.pooling.definition.name in MOVED


def is_planned_by_bin(sizes: Sizes) -> bool:
    """Return whether bins share no rows and columns."""
    return sizes.pooling.definition.name in BY_BIN


def bytes_of_region(sizes: Sizes) -> int:
    """Return the bytes of a box's region, and its image."""
    return BYTES_OF_MOVED_REGION if has_moved_bins(sizes) else BYTES_OF_REGION


# ---- The launches of each function of the engine

# `unpool` numbers the values of a box's channel in 32 bits, and steps beyond the last.
MAX_UNPOOLED_BINS = 2**30


def average(sizes: Sizes, vector_aligned: bool) -> Launches:
    """Return the launches of an average forward; `vector_aligned`: to 16 bytes."""
    call = call_of(sizes, empty_value=sizes.pooling.empty_value)
    pack = channel_pack(sizes, call.channels, vector_aligned)
    if is_planned_by_bin(sizes):
        call, grid = divide_values(call, sizes, pack)
        return with_regions(sizes, "points_forward", call, grid, pack=pack)
    if sizes.channels_last or sizes.is_position_sensitive:
        call, grid = divide_values(call, sizes, pack)
    else:
        most_columns = min(call.width, 2 * with_plan(call, TAPS, sizes).columns.capacity)
        sums = sums_per_warp(sizes, most_columns * pack * sizes.real.itemsize)
        call, grid = divide_planes(call, sizes, pack, sums)
    file = "average_forward"
    return planned_by_blocks(sizes, TAPS, file, file, call, grid, pack=pack)


def average_backward(sizes: Sizes, vector_aligned: bool) -> Launches:
    """Return the launches of an average backward; `vector_aligned`: to 16 bytes."""
    call = call_of(sizes)
    if has_moved_bins(sizes) or sizes.is_position_sensitive:
        return listed_bins_backward(sizes, *divide_groups(call, sizes))
    if is_planned_by_bin(sizes):
        call, grid = divide_maps(call, sizes, sizes.real.itemsize)
        file, threads = "points_backward", Grid(-(-call.boxes // WARP), (WARP,))
        return Launches(
            config_of(sizes, file, file, call, grid),
            call.boxes * bytes_of_region(sizes),
            config_of(sizes, file, "plan_regions", call, threads),
        )
    call, grid, pack = divide_tiles(call, sizes, vector_aligned)
    kind = VOLUME_BIN_TAPS if sizes.is_of_volumes else BIN_TAPS
    launches = planned_before(sizes, kind, "average_backward", call, grid, pack=pack)
    sums = bytes_of_portions(call, sizes.real.itemsize, pack)
    return launches._replace(
        scratch=call.tally_bytes + launches.scratch + sums, zeros=call.tally_bytes
    )


def listed_bins_backward(sizes: Sizes, call: CallArguments, grid: Grid) -> Launches:
    """Return the launches of a backward whose blocks list the bins that reach their tile."""
    file = "listed_bins_backward"
    if not has_moved_bins(sizes):
        launches = planned_before(sizes, WINDOWS, file, call, grid)
        return launches._replace(plan_points_to_boxes=True)
    head, region = bytes_of_head(sizes), bytes_of_region(sizes)
    call = call._replace(plan_bytes=region - head)
    windows = BYTES_OF_IMAGE + (2 * call.rows.bins * call.columns.bins + 2) * BYTES_OF_WINDOW
    plans = Grid(call.boxes, (WARP,), region)
    return Launches(
        config_of(sizes, file, file, call, grid),
        call.boxes * (region + windows),
        config_of(sizes, file, "plan_windows", call, plans),
        plan_points_to_boxes=True,
    )


def average_backward_boxes(sizes: Sizes) -> Launches:
    """Return the launches of an average's gradient with respect to the boxes."""
    call, grid = divide_boxes(call_of(sizes), sizes)
    if is_planned_by_bin(sizes):
        file = "moved_backward_boxes" if has_moved_bins(sizes) else "points_backward_boxes"
        return with_regions(sizes, file, call, grid)
    file = "average_backward_boxes"
    return planned_by_blocks(sizes, SLOPED_TAPS, file, file, call, grid)


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
    kind = CELLS if rules.argmax_is_cell else SAMPLES
    return planned_by_blocks(
        sizes,
        kind,
        "maximum_forward",
        name,
        call,
        grid,
        pack=pack,
        argmax_is_cell=int(rules.argmax_is_cell),
        argmax_type=INTEGERS[wide],
    )


@lru_cache(maxsize=256)
def argmax_dtype(sizes: Sizes) -> np.dtype[Any]:
    """Return the dtype of argmax; the host does not know how many samples an adaptive grid has."""
    definition = sizes.pooling.definition
    _, row, column = AXES[sizes.pooling.layout]
    height, width = sizes.map_shapes[0][row], sizes.map_shapes[0][column]
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


def maximum_backward(sizes: Sizes, wide: bool) -> Launches:
    """Return the launches of a maximum backward; `wide`: argmax is int64."""
    is_cell = sizes.pooling.rules.argmax_is_cell
    call = call_of(sizes, argmax_is_cell=is_cell, wide_argmax=wide)
    call, grid = divide_maps(call, sizes, BYTES_OF_LISTED_SAMPLE + sizes.real.itemsize)
    return planned_before(sizes, SAMPLES, "maximum_backward", call, grid)


def unpool(sizes: Sizes, wide: bool) -> Launches:
    """Return the launch that adds gradients to cells that argmax names; nothing is planned."""
    bins = math.prod(sizes.pooling.output_size)
    if bins > MAX_UNPOOLED_BINS:
        raise ValueError(
            f"on a GPU this gradient may have {MAX_UNPOOLED_BINS} bins at most, got {bins}"
        )
    call, grid, pack = divide_runs(call_of(sizes), sizes)
    # Offsets are those of the values of all boxes that are listed at once.
    values = LISTED_BOXES * bins * call.channels
    return Launches(
        config_of(
            sizes,
            "unpool",
            "unpool",
            call,
            grid,
            pack=pack,
            argmax_type=INTEGERS[wide],
            offset=INTEGERS[values > np.iinfo(np.int32).max],
        )
    )


def argmax_kernel(sizes: Sizes, name: str) -> Launches:
    """Return the launch that turns an argmax into positions, or back."""
    # A few values take less time than the plan of their box: few blocks take many values.
    limits = sizes.limits._replace(enough_blocks=1)
    call, grid = divide_values(call_of(sizes), sizes._replace(limits=limits), 1)
    return planned_by_blocks(sizes, SAMPLES, "argmax_positions", name, call, grid)


def assign_levels(sizes: Sizes) -> Launches:
    """Return the launch that finds the level of each box; scales are areas."""
    call = call_of(sizes)
    file = "assign_levels"
    return Launches(config_of(sizes, file, file, call, Grid(-(-call.boxes // THREADS), (THREADS,))))
