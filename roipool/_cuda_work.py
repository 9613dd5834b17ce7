"""What the CUDA kernels of a call are told, and how its work is cut, from sizes alone.

Plain arithmetic: ``_cuda`` compiles and launches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from roipool._definitions import TRAITS
from roipool._dtypes import dtype_name, real_dtype
from roipool._layout import channels, height_width
from roipool._pooling import Pooling

Pair = tuple[int, int]

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
LABELS = ("int", "wide_int")  # of winners: narrow, wide

# ---- Plans


class PlanKind(NamedTuple):
    """What a plan consists of: bytes of one bin and of one entry, by bytes of a real number."""

    kernel: str
    bin: int
    entry: dict[int, int]


TAPS = PlanKind("plan_taps", 16, {4: 8, 8: 16})
SLOPED_TAPS = PlanKind("plan_sloped_taps", 16, {4: 16, 8: 32})
SAMPLES = PlanKind("plan_samples", 32, {4: 24, 8: 40})
BYTES_OF_WINDOW = BYTES_OF_IMAGE = BYTES_OF_HITS = BYTES_OF_PLACE = 8
BYTES_OF_LANE = 4


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


# ---- How work is cut

THREADS = 256
# What a forward's thread, or for averages of NCHW maps a warp, computes one after the other: more
# amortise its set-up, fewer make more threads, which few boxes need.
PACKS_PER_THREAD = 4
PACKS_PER_WARP = 2
MANY_BOXES = 256
WARP = 32
# Shared memory of a warp of that average: the sums down its window's columns.
SUMS_PER_WARP = 2**12
# Of a backward's block: at most so many channels, about so many bytes of sums, and of what is
# staged of a box.
TILE_CHANNELS = WARP
TILE_BYTES = 2**14 + 2**9
STAGE_BYTES = 2**13 + 2**9
# Of a block whose winners may be anywhere: bytes of sums, and channels that lie side by side.
RUN_BYTES = 2**15
RUN_CHANNELS = 8


def channel_pack(layout: str, count: int, dtype: np.dtype[Any], aligned: bool) -> int:
    """Return how many channels of a bin one thread computes.

    For NHWC they are read and written as one piece of 16 bytes, where all are aligned to it.
    """
    if layout == "NCHW":
        return 4 if count >= 4 else 1
    whole = 16 // dtype.itemsize
    return whole if aligned and count % whole == 0 else 1


class Cut(NamedTuple):
    """The blocks of a launch: how many, of which threads, with how much shared memory."""

    blocks: int
    threads: tuple[int, ...]
    shared: int = 0


PLANNING = Cut(0, (WARP,), WARP * (8 + 8))  # two blocks per box


class Sizes(NamedTuple):
    """All that a call's preparation depends on; arrays come later."""

    dtype: np.dtype[Any]  # of maps and pooled values
    boxes: int
    box_strides: tuple[int, ...]  # in bytes, as of the images
    image_type: np.dtype[Any]
    image_stride: int
    pooling: Pooling
    map_shape: tuple[int, ...]


class Work:
    """One call: the texts that its kernels are specialised for, and what they are told."""

    def __init__(self, file: str, sizes: Sizes) -> None:
        pooling, definition = sizes.pooling, sizes.pooling.definition
        self.file = f"cuda/{file}.cu"
        self.layout = pooling.layout
        self.definition = definition.name
        self.real = real_dtype(sizes.dtype)
        self.defines: dict[str, str | int] = {
            "storage": STORAGE[dtype_name(sizes.dtype)],
            "definition": definition.name,
            "channels_last": int(pooling.layout == "NHWC"),
            "pack": 1,
        }
        height, width = height_width(sizes.map_shape, pooling.layout)
        box_stride, coordinate_stride = (
            stride // self.real.itemsize for stride in sizes.box_strides
        )
        self.call = Call(
            images=sizes.map_shape[0],
            channels=channels(sizes.map_shape, pooling.layout),
            boxes=sizes.boxes,
            box_stride=box_stride,
            coordinate_stride=coordinate_stride,
            image_stride=sizes.image_stride // sizes.image_type.itemsize,
            images_at=0,
            rows=AxisCall(height, pooling.output_size[0], definition.sampling[0]),
            columns=AxisCall(width, pooling.output_size[1], definition.sampling[1]),
            scale=definition.scale,
            image_kind=IMAGE_KINDS[dtype_name(sizes.image_type)],
            aligned=definition.aligned,
        )

    def tell(self, **fields: Any) -> None:
        """Set fields of the call."""
        self.call = self.call._replace(**fields)

    def plan(self, kind: PlanKind) -> int:
        """Lay out the plans in scratch memory; return its size."""
        size = 0

        def place(bytes_of_box: int) -> int:
            nonlocal size
            start = size
            size = _up(start + self.call.boxes * bytes_of_box, 16)
            return start

        def placed(axis: AxisCall) -> AxisCall:
            capacity = plan_capacity(kind, self.definition, axis.sampling, axis.size, axis.bins)
            return axis._replace(
                capacity=capacity,
                bins_at=place(axis.bins * kind.bin),
                entries_at=place(capacity * kind.entry[self.real.itemsize]),
                windows_at=place(BYTES_OF_WINDOW),
            )

        self.tell(
            rows=placed(self.call.rows),
            columns=placed(self.call.columns),
            images_at=place(BYTES_OF_IMAGE),
        )
        return size

    def cut_values(self, pack: int) -> Cut:
        """Share out pooled values among the threads of a forward."""
        self.defines["pack"] = pack
        bins = self.call.rows.bins * self.call.columns.bins
        packs = -(-self.call.channels // pack)
        inner, outer = (packs, bins) if self.layout == "NHWC" else (bins, packs)
        across = min(inner, THREADS)
        down = min(max(THREADS // across, 1), outer)
        return Cut(self.share_out(outer, down, PACKS_PER_THREAD), (across, down))

    def cut_planes(self, pack: int) -> Cut:
        """Share out packs of channels among the warps of a forward."""
        self.defines["pack"] = pack
        packs = -(-self.call.channels // pack)
        warps = min(packs, THREADS // WARP)
        self.tell(stage=SUMS_PER_WARP // (pack * self.real.itemsize))
        blocks = self.share_out(packs, warps, PACKS_PER_WARP)
        return Cut(blocks, (WARP, warps), warps * SUMS_PER_WARP)

    def share_out(self, number: int, at_once: int, turns: int) -> int:
        """Cut each box's packs or bins into tasks, which take up to `turns` times `at_once`."""
        share = min(at_once * (turns if self.call.boxes >= MANY_BOXES else 1), number)
        parts = -(-number // share)
        self.tell(tasks=self.call.boxes * parts, parts=parts, share=share)
        return self.call.tasks

    def cut_boxes(self) -> Cut:
        """Give each box a block, of a power of two of threads."""
        across, down = map(_power_of_two, self.cut_values(1).threads)
        down = min(down, THREADS // across)
        self.tell(parts=1, share=self.call.parts * self.call.share)
        return Cut(self.call.boxes, (across, down), 8 * across * down)

    def cut_maps(self, staged: int) -> Cut:
        """Cut the maps of a backward into tiles; it stages so many bytes for each pooled value."""
        call, real = self.call, self.real.itemsize
        height, width, bins = call.rows.size, call.columns.size, call.rows.bins * call.columns.bins
        lanes = min(_power_of_two(call.channels), TILE_CHANNELS)
        pitch = lanes + 1 if lanes > 1 else 1
        cells = TILE_BYTES // (pitch * real)
        columns = min(width, 16 if lanes > 8 else 32)
        rows = max(min(height, cells // columns), 1)
        owners = min(_power_of_two(rows), THREADS // WARP)
        threads = max(lanes * owners, WARP)
        stage = min(bins, max(STAGE_BYTES // (pitch * staged), 1))
        tiles = -(-height // rows) * -(-width // columns)
        self.tell(
            tasks=call.images * -(-call.channels // lanes) * tiles,
            lanes=lanes,
            tile_rows=rows,
            tile_columns=columns,
            stage=stage,
            stage_rows=max(stage // call.columns.bins, 1),
            stage_columns=min(stage, call.columns.bins),
        )
        sums = _up(rows * columns * pitch * real, 8)
        shared = sums + threads // WARP * BYTES_OF_HITS + stage * pitch * staged
        return Cut(self.call.tasks, (threads,), shared)

    def cut_runs(self) -> Cut:
        """Cut the maps of a backward into runs of cells, a warp per channel."""
        call, real = self.call, self.real.itemsize
        lanes = min(_power_of_two(call.channels), RUN_CHANNELS) if self.layout == "NHWC" else 1
        cells = call.rows.size * call.columns.size
        runs = -(-cells // (RUN_BYTES // (lanes * real) - 1))
        share = -(-cells // runs)
        groups = -(-call.channels // lanes)
        self.tell(tasks=call.images * groups * runs, lanes=lanes, parts=runs, share=share)
        shared = lanes * ((share | 1) * real + WARP * BYTES_OF_LANE)
        return Cut(self.call.tasks, (lanes * WARP,), shared)

    def cut_winners(self, values: int) -> Cut:
        """Give each value a thread."""
        self.tell(tasks=values)
        return Cut(-(-values // THREADS), (THREADS,))
