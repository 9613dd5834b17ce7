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
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from roipool._arguments import channels, dtype_name, height_width, pooled_shape, real_type
from roipool._geometry import Geometry
from roipool._source import OPTIONS, kernel_source

EXTRAS = "pip install 'roipool[cuda12]' or 'roipool[cuda13]', to match the CUDA driver"

try:
    import cupy
except ImportError as error:
    raise ImportError(
        f"roipool computes on GPUs through CuPy, which is missing: {EXTRAS}"
    ) from error

try:
    cupy.cuda.runtime.getDeviceCount()
except Exception as error:
    raise RuntimeError(
        f"CuPy finds no CUDA device ({error}). roipool on GPUs needs an NVIDIA driver and a CuPy "
        f"made for its CUDA version: {EXTRAS}"
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
    unused: int = 0


_AXIS_TYPE = np.dtype([(name, np.int64) for name in AxisCall._fields])
_FIELD_TYPES = {
    **dict.fromkeys(("rows", "columns"), _AXIS_TYPE),
    **dict.fromkeys(("scale", "empty_value", "lowest"), np.dtype(np.float64)),
    **dict.fromkeys(Call._fields[-6:], np.dtype(np.int32)),
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
# What a forward's thread computes at most: more amortise its set-up, fewer make more threads.
VALUES_PER_THREAD = 4
WARP = 32
SHARED_PER_WARP_OF_PLAN = WARP * (8 + 8)
# The average of NCHW maps: how many packs of channels a warp takes, and bytes of its window's sums.
PACKS_PER_WARP = 2
SUMS_PER_WARP = 2**12
# Shared memory of a backward's block: the sums of its tile, and what is staged of a box.
TILE_BYTES = 2**14 + 2**9
STAGE_BYTES = 2**13 + 2**9


def channel_pack(layout: Layout, count: int, *arrays: Array) -> int:
    """Return how many channels of a bin one thread computes.

    For NHWC they are read and written as one piece of 16 bytes, where all are aligned to it.
    """
    if layout == "NCHW":
        return 4 if count >= 4 else 1
    whole = 16 // arrays[0].dtype.itemsize
    aligned = all(array.data.ptr % 16 == 0 for array in arrays)
    return whole if aligned and count % whole == 0 else 1


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
        cls, count: int, height: int, width: int, real: int, bins: int, staged: int
    ) -> Tiling:
        """Return tiles for `count` channels, with `staged` bytes for each value of `bins` bins."""
        lanes = min(_power_of_two(count), WARP)
        pitch = lanes + 1 if lanes > 1 else 1
        cells = TILE_BYTES // (pitch * real)
        columns = min(width, 16 if lanes > 8 else 32)
        rows = max(min(height, cells // columns), 1)
        owners = min(_power_of_two(rows), THREADS // WARP)
        threads = max(lanes * owners, WARP)
        stage = min(bins, max(STAGE_BYTES // (pitch * staged), 1))
        sums = _up(rows * columns * pitch * real, 8)
        shared = sums + threads // WARP * 8 + stage * pitch * staged
        return cls(lanes, rows, columns, threads, stage, shared)


class Work:
    """One call on a device: its sizes, its plans, and what all kernels of the call are given."""

    def __init__(
        self,
        file: str,
        dtype: np.dtype[Any],
        boxes: Array,
        images: Array,
        geometry: Geometry | None,
        map_shape: Sequence[int],
        output_size: Pair,
        layout: str,
    ) -> None:
        self.file = f"cuda/{file}.cu"
        self.layout: Layout = "NHWC" if layout == "NHWC" else "NCHW"
        self.boxes, self.images = boxes, images
        self.geometry = geometry
        self.real = real_type(dtype)
        self.defines: dict[str, str | int] = {
            "storage": STORAGE[dtype_name(dtype)],
            "definition": geometry.definition if geometry else "roi_pool",
            "channels_last": int(layout == "NHWC"),
            "pack": 1,
        }
        size = height_width(map_shape, self.layout)
        sampling = geometry.sampling if geometry else (0, 0)
        box_stride, coordinate_stride = (stride // boxes.dtype.itemsize for stride in boxes.strides)
        self.call = Call(
            images=map_shape[0],
            channels=channels(map_shape, self.layout),
            boxes=len(boxes),
            box_stride=box_stride,
            coordinate_stride=coordinate_stride,
            image_stride=images.strides[0] // images.dtype.itemsize,
            images_at=0,
            rows=AxisCall(size[0], output_size[0], sampling[0]),
            columns=AxisCall(size[1], output_size[1], sampling[1]),
            scale=geometry.scale if geometry else 0.0,
            image_kind=IMAGE_KINDS[dtype_name(images.dtype)],
            aligned=bool(geometry and geometry.aligned),
        )

    def tell(self, **fields: Any) -> None:
        """Set fields of the call."""
        self.call = self.call._replace(**fields)

    def launch(
        self,
        name: str,
        blocks: int,
        threads: tuple[int, ...],
        arrays: Sequence[Any],
        shared: int = 0,
    ) -> None:
        """Launch a kernel of this call's file with arrays, and the call as one structure."""
        if blocks > 0:
            function = kernel(self.file, name, **self.defines)
            arguments = (*arrays, np.array([self.call], CALL_TYPE))
            function((min(blocks, LARGEST_GRID),), threads, arguments, shared_mem=shared)

    def plan(self, kind: PlanKind) -> Array:
        """Launch the planning of all boxes; return the scratch memory that holds the plans."""
        assert self.geometry is not None
        scratch = _Scratch()
        placed = []
        for axis in (self.call.rows, self.call.columns):
            capacity = plan_capacity(
                kind, self.geometry.definition, axis.sampling, axis.size, axis.bins
            )
            count = self.call.boxes
            placed.append(
                axis._replace(
                    capacity=capacity,
                    bins_at=scratch.place(count * axis.bins * kind.bin),
                    entries_at=scratch.place(count * capacity * kind.entry[self.real.itemsize]),
                    windows_at=scratch.place(count * BYTES_OF_WINDOW),
                )
            )
        self.tell(rows=placed[0], columns=placed[1], images_at=scratch.place(8 * self.call.boxes))
        memory = cupy.empty(scratch.bytes, np.uint8)
        self.launch(
            kind.kernel,
            2 * self.call.boxes,
            (WARP,),
            [self.boxes, self.images, memory],
            SHARED_PER_WARP_OF_PLAN,
        )
        return memory

    def cut_values(self, pack: int) -> tuple[int, int]:
        """Share out pooled values among the threads of a forward; return the block's size."""
        self.defines["pack"] = pack
        bins = self.call.rows.bins * self.call.columns.bins
        packs = -(-self.call.channels // pack)
        inner, outer = (packs, bins) if self.layout == "NHWC" else (bins, packs)
        across = min(inner, THREADS)
        down = min(max(THREADS // across, 1), outer)
        share = min(down * VALUES_PER_THREAD, outer)
        parts = -(-outer // share)
        self.tell(tasks=self.call.boxes * parts, parts=parts, share=share)
        return across, down

    def cut_planes(self, pack: int) -> tuple[Pair, int]:
        """Share out packs of channels among warps; return the block's size and shared memory."""
        self.defines["pack"] = pack
        packs = -(-self.call.channels // pack)
        warps = min(packs, THREADS // WARP)
        share = min(warps * PACKS_PER_WARP, packs)
        parts = -(-packs // share)
        self.tell(
            tasks=self.call.boxes * parts,
            parts=parts,
            share=share,
            stage=SUMS_PER_WARP // (pack * self.real.itemsize),
        )
        return (WARP, warps), warps * SUMS_PER_WARP

    def cut_maps(self, staged: int) -> Tiling:
        """Cut the maps of a backward into tiles; it stages so many bytes for each value."""
        call = self.call
        tiling = Tiling.of_maps(
            call.channels, call.rows.size, call.columns.size, self.real.itemsize,
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


# ---- The functions of a backend


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
    work = Work(
        "average_forward",
        features.dtype,
        boxes,
        images,
        geometry,
        features.shape,
        output_size,
        layout,
    )
    with features.device:
        if out is None:
            shape = pooled_shape(len(boxes), work.call.channels, output_size, work.layout)
            out = cupy.empty(shape, features.dtype)
        if out.size == 0:
            return out
        work.tell(empty_value=empty_value)
        pack = channel_pack(work.layout, work.call.channels, features, out)
        block, shared = work.cut_values(pack), 0
        if work.layout == "NCHW":
            block, shared = work.cut_planes(pack)
        plans = work.plan(TAPS)
        work.launch("average_forward", work.call.tasks, block, [features, out, plans], shared)
    return out


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
    size = height_width(grad_output.shape, "NHWC" if layout == "NHWC" else "NCHW")
    work = Work(
        "average_backward", grad_output.dtype, boxes, images, geometry, input_shape, size, layout
    )
    with grad_output.device:
        if out is None:
            out = cupy.empty(tuple(input_shape), grad_output.dtype)
        if out.size == 0:
            return out
        tiling = work.cut_maps(work.real.itemsize)
        plans = work.plan(TAPS)
        work.launch(
            "average_backward",
            work.call.tasks,
            (tiling.threads,),
            [grad_output, out, plans],
            tiling.shared,
        )
    return out


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
    size = height_width(grad_output.shape, "NHWC" if layout == "NHWC" else "NCHW")
    work = Work(
        "average_backward_boxes",
        grad_output.dtype,
        boxes,
        images,
        geometry,
        features.shape,
        size,
        layout,
    )
    with grad_output.device:
        if not features.size or not grad_output.size:
            return cupy.zeros((len(boxes), 4), work.real)
        out = cupy.empty((len(boxes), 4), work.real)
        across, down = work.cut_values(1)
        across, down = _power_of_two(across), _power_of_two(down)
        if across * down > THREADS:
            down //= across * down // THREADS
        work.tell(parts=1, share=work.call.parts * work.call.share)
        plans = work.plan(SLOPED_TAPS)
        work.launch(
            "average_backward_boxes",
            len(boxes),
            (across, down),
            [grad_output, features, out, plans],
            8 * across * down,
        )
    return out


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
    """Pool by maxima; return the pooled values and, if asked for, the winners (else None).

    How many samples an adaptive grid has is not known on the host: its winners are int64.
    """
    work = Work(
        "maximum_forward",
        features.dtype,
        boxes,
        images,
        geometry,
        features.shape,
        output_size,
        layout,
    )
    shape = pooled_shape(len(boxes), work.call.channels, output_size, work.layout)
    with features.device:
        if out is None:
            out = cupy.empty(shape, features.dtype)
        wide = _needs_wide_labels(work, geometry, winner_is_cell)
        argmax = cupy.empty(shape, np.int64 if wide else np.int32) if return_argmax else None
        if out.size == 0:
            return out, argmax
        work.tell(
            lowest=lowest,
            empty_value=empty_value,
            outside_is_zero=outside_is_zero,
            wide_argmax=wide,
        )
        block = work.cut_values(channel_pack(work.layout, work.call.channels, features, out))
        work.defines["cells"] = int(winner_is_cell)
        work.defines["label"] = "wide_int" if wide and return_argmax else "int"
        plans = work.plan(SAMPLES)
        winners = np.uintp(0) if argmax is None else argmax
        if nan_restarts:
            name, outputs = "maximum_forward_nan_restarts", [out, winners]
        elif return_argmax:
            name, outputs = "maximum_forward_winners", [out, winners]
        else:
            name, outputs = "maximum_forward", [out]
        work.launch(name, work.call.tasks, block, [features, *outputs, plans])
    return out, argmax


def _needs_wide_labels(work: Work, geometry: Geometry, winner_is_cell: bool) -> bool:
    if winner_is_cell:
        return work.call.rows.size * work.call.columns.size > np.iinfo(np.int32).max
    factor = SAMPLES_PER_RATIO.get(geometry.definition)
    if factor is None:  # samples a cell apart, one more than the map has cells at most
        return (work.call.rows.size + 2) * (work.call.columns.size + 2) > np.iinfo(np.int32).max
    return (
        0 in geometry.sampling or math.prod(geometry.sampling) * factor**2 > np.iinfo(np.int32).max
    )


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
    size = height_width(grad_output.shape, "NHWC" if layout == "NHWC" else "NCHW")
    work = Work(
        "maximum_backward", grad_output.dtype, boxes, images, geometry, input_shape, size, layout
    )
    with grad_output.device:
        if out is None:
            out = cupy.empty(tuple(input_shape), grad_output.dtype)
        if out.size == 0:
            return out
        work.tell(winner_is_cell=winner_is_cell, wide_argmax=argmax.dtype == np.int64)
        tiling = work.cut_maps(BYTES_OF_PLACE + work.real.itemsize)
        if geometry is None:
            work.launch(
                "maximum_backward_cells",
                work.call.tasks,
                (tiling.threads,),
                [grad_output, argmax, images, out],
                tiling.shared,
            )
            return out
        plans = work.plan(SAMPLES)
        work.launch(
            "maximum_backward",
            work.call.tasks,
            (tiling.threads,),
            [grad_output, argmax, out, plans],
            tiling.shared,
        )
    return out


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
    size = (argmax.shape[2], argmax.shape[3])
    work = Work("winners", boxes.dtype, boxes, images, geometry, input_shape, size, "NCHW")
    with argmax.device:
        y, x = cupy.empty(argmax.shape, work.real), cupy.empty(argmax.shape, work.real)
        if argmax.size == 0:
            return y, x
        numbers = cupy.ascontiguousarray(argmax, np.int64)
        work.tell(tasks=argmax.size)
        plans = work.plan(SAMPLES)
        work.launch(
            "locate_winners", -(-argmax.size // THREADS), (THREADS,), [boxes, numbers, y, x, plans]
        )
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
    work = Work(
        "winners",
        boxes.dtype,
        boxes,
        images,
        geometry,
        input_shape,
        (y.shape[2], y.shape[3]),
        "NCHW",
    )
    with y.device:
        argmax = cupy.empty(y.shape, np.int64)
        if argmax.size == 0:
            return argmax
        work.tell(tasks=y.size)
        plans = work.plan(SAMPLES)
        work.launch(
            "identify_winners", -(-y.size // THREADS), (THREADS,), [boxes, y, x, argmax, plans]
        )
    return argmax
