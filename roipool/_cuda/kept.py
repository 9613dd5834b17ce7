"""Small calls on a GPU: with the options of an earlier call, launched at once.

As ``roipool._kept`` for a host. What a kernel's grid depends on is computed once, from sizes that
are rounded up; each launch sets the real ones. The driver launches what CuPy has compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from roipool._arguments import MAX_AXIS
from roipool._boxes import DEVICE_INDEX_TYPES
from roipool._cpu import CallLaunch, KeptLaunches
from roipool._cuda import driver, launch
from roipool._cuda.arguments import MAX_LEVELS, Argument
from roipool._cuda.engine import (
    allow_shared_memory,
    check_device,
    function_of,
    limits_of,
    with_advice,
)
from roipool._cuda.partition import MOST_PORTIONS, SHARED_BYTES, Sizes
from roipool._definitions import MOVED, POINTWISE, Definition
from roipool._dtypes import FLOATS, dtype_name, real_dtype
from roipool._request import Computed, Pooling, needs_no_boxes, pooled_shape
from roipool._settings import debugging

VECTOR_BYTES = 16  # that kernels read at once of NHWC maps
NO_BOXES = Definition("roi_pool")  # of a gradient that reads none: any will do


class BoxLayout(NamedTuple):
    """How boxes lie in memory: the types of numbers, and bytes between them."""

    # Types of the numbers of boxes, and of their batch indices.
    coordinates: np.dtype[Any]
    images: np.dtype[Any]
    strides: tuple[int, int]  # bytes from a box to the next, and from a number of a box to the next
    image_stride: int  # bytes from a batch index to the next
    cuts: bool = False  # whether batch indices are cut to whole numbers


def table_of(dtype: np.dtype[Any], columns: int, *, cuts: bool = False) -> BoxLayout:
    """Return how a table in C order lies: rows of a batch index and `columns` numbers."""
    step = dtype.itemsize
    return BoxLayout(dtype, dtype, (step * (columns + 1), step), step * (columns + 1), cuts)


Kind = tuple[np.dtype[Any], BoxLayout]  # of maps and of boxes
FOUR_SIZES = [int] * 4  # types of a shape


class KeptVerb:
    """The launches of a function of the engine for one request, whatever the sizes of arrays.

    `kind_of` returns the kind of arrays from what calls give as such, if that is not a `Kind`.
    """

    def __init__(
        self,
        verb: str,
        pooling: Pooling,
        argmax: np.dtype[Any] | None = None,
        kind_of: Callable[[Any], Kind] | None = None,
    ) -> None:
        self._kind_of = kind_of
        self.is_bare = verb == "maximum_backward" and needs_no_boxes(pooling)
        if self.is_bare:
            pooling = Pooling(NO_BOXES, pooling.output_size, pooling.layout)
        self.pooling, self._verb, self._argmax = pooling, verb, argmax
        self.channels_last = pooling.layout == "NHWC"
        self.columns = 5 if pooling.definition.name in POINTWISE else 4  # of boxes on maps
        self.groups = math.prod(pooling.group_size)
        # A run of cells depends on the very size of a map, a tile does not.
        kept = KeptLaunches(self._made, self.channels_last, not self.is_bare)
        self.prepared = kept.prepared

    def _made(
        self, kind: Any, gpu: int, channels: int, boxes: int, sizes: tuple[int, ...]
    ) -> CallLaunch | None:
        """Return the launches for maps of some sizes, or None if they take the general path."""
        dtype, table = kind if self._kind_of is None else self._kind_of(kind)
        real, pooling = real_dtype(dtype), self.pooling
        extents = list(zip(sizes[1::2], sizes[2::2], strict=True))
        if (
            dtype_name(dtype) not in (*FLOATS, "int16")
            or table.coordinates != real
            or dtype_name(table.images) not in DEVICE_INDEX_TYPES
            or not 0 < min(sizes) <= max(sizes[1:]) <= MAX_AXIS
            or not len(extents) == len(pooling.map_scales) <= MAX_LEVELS
            or pooling.definition.depth is not None
            or pooling.definition.name in MOVED
        ):
            return None
        images = sizes[0]
        shapes = tuple(
            (images, *size, channels) if self.channels_last else (images, channels, *size)
            for size in extents
        )
        at = table.strides, table.images, table.image_stride
        given = Sizes(dtype, boxes, *at, pooling, shapes, cuts=table.cuts)
        try:
            launches = self._launches(given, gpu)
        except ValueError:  # the general path says what is wrong
            return None
        is_vector = self.channels_last and self._verb != "maximum_backward"
        item = max(real.itemsize, 0 if self._argmax is None else self._argmax.itemsize)
        takes_regions = launches.plan is None and not self.is_bare
        takes = launches.plan_points_to_boxes, takes_regions, not self.is_bare
        return call_launch(launches, gpu, takes, VECTOR_BYTES if is_vector else item)

    def _launches(self, sizes: Sizes, gpu: int) -> launch.Launches:
        if self._verb == "average":
            return launch.average(sizes._replace(limits=limits_of(gpu)), self.channels_last)
        if self._verb == "average_backward":
            return launch.average_backward(sizes, self.channels_last)
        if self._verb == "maximum":
            if self._argmax is not None and launch.argmax_dtype(sizes) != self._argmax:
                raise ValueError("argmax of maps of this size has another type")
            return launch.maximum(sizes, self._argmax is not None, self.channels_last)
        of_verb = launch.unpool if self.is_bare else launch.maximum_backward
        return of_verb(sizes, self._argmax == np.int64)


def call_launch(
    launches: launch.Launches, gpu: int, takes: tuple[bool, bool, bool], item: int
) -> CallLaunch | None:
    """Return launches on the current GPU, or None without the driver's functions."""
    addresses = driver.functions()
    engine = kernel_of(launches.engine, gpu)
    plan = () if launches.plan is None else kernel_of(launches.plan, gpu)
    if addresses is None or engine is None or plan is None:
        return None
    call = launches.engine.call
    argument = Argument(call, launches.engine.tasks_of_box)
    work = launches.engine.tasks_of_box, 0, 0, 0, 0, 0
    if call.tiles:
        maps = call.rows.groups * call.columns.groups
        groups = call.tasks // (call.tiles + call.portions)
        most = MOST_PORTIONS if call.portions else 0
        work = 0, call.tile_rows, call.tile_columns, maps, groups, most
    structure = argument.structure
    return CallLaunch(
        addresses, engine, plan, structure, argument.places, work, takes, item, launches.scratch
    )


def kernel_of(config: launch.LaunchConfig, gpu: int) -> tuple[int, ...] | None:
    """Return the driver's object for a kernel, and its grid; None if CuPy does not tell it."""
    function = function_of(config.file, config.name, config.defines)
    try:
        handle = getattr(getattr(function, "kernel", None), "ptr", None)  # compiles
    except PermissionError as error:
        raise with_advice(error) from error
    if not handle:
        return None
    check_device(gpu)
    blocks, threads, shared = config.grid
    if shared > SHARED_BYTES:
        allow_shared_memory(function, gpu)
    return handle, blocks, *threads, *(1,) * (2 - len(threads)), shared


# ---- Calls on CuPy arrays


class DeviceCall:
    """Computes calls with the options of an earlier one, for boxes in one table."""

    def __init__(self, computed: Computed) -> None:
        pooling, kind = computed.pooling, computed.kind
        self._argmax = computed.results[1].dtype if kind["returns_argmax"] else None
        verb = "maximum" if kind["is_maximum"] else "average"
        verb = verb if computed.shapes is None else f"{verb}_backward"
        self._verb = KeptVerb(verb, pooling, self._argmax)
        self._has_argument = kind["is_maximum"] and (
            kind["returns_argmax"] or pooling.rules.nan_restarts
        )
        self._is_forward, self._columns = computed.shapes is None, computed.columns + 1
        self._is_pyramid, self._has_levels = bool(pooling.scales), len(computed.given) > 2
        self._groups, self._cuts = pooling.definition.group_size, kind["cuts"]
        self._shapes = computed.shapes
        self._kinds: dict[Any, Kind] = {}

    def __call__(self, first: Any, table: Any, levels: Any, shapes: Any) -> Any:
        """Return the results, or None if the call needs the general path.

        `levels` and `shapes`, those of maps, may be None.
        """
        maps = tuple(first) if self._is_pyramid and self._is_forward else (first,)
        gpu = device_of(*maps, table) if levels is None else device_of(*maps, table, levels)
        if gpu is None or (levels is not None) != self._has_levels or debugging():
            return None
        rows = table.shape
        if len(maps[0].shape) != 4 or len(rows) != 2 or rows[1] != self._columns:
            return None
        if maps[0].dtype.kind in "iu":  # int16 is the bits of bfloat16 in launches
            return None
        if levels is not None and (levels.shape != rows[:1] or levels.dtype != np.int64):
            return None
        stream = cupy.cuda.get_current_stream(gpu)
        if stream.is_capturing():  # what a graph writes stays allocated
            return None
        key = maps[0].dtype, table.dtype
        kind = self._kinds.get(key)
        if kind is None:
            boxes = table_of(table.dtype, self._columns - 1, cuts=self._cuts)
            kind = self._kinds[key] = (maps[0].dtype, boxes)
        at = stream.ptr, kind, gpu, table, levels
        if self._is_forward:
            return self._pooled(at, maps)
        if shapes is not None and not self._is_pyramid:
            shapes = (shapes,)
        return self._gradients(at, first, self._shapes if shapes is None else shapes)

    def _pooled(self, at: tuple[Any, ...], maps: tuple[Any, ...]) -> Any:
        """Return pooled values, and the argmax if it is asked for."""
        dtype, shape, shapes = maps[0].dtype, maps[0].shape, tuple([each.shape for each in maps])
        pooling, axis = self._verb.pooling, 3 if self._verb.channels_last else 1
        for each in maps[1:]:
            other = each.shape
            if each.dtype != dtype or len(other) != 4:
                return None
            if other[0] != shape[0] or other[axis] != shape[axis]:
                return None
        boxes = at[3].shape[0]
        size = pooled_shape(shape, boxes, pooling.output_size, pooling.layout, self._groups)
        pooled = cupy.empty(size, dtype)
        argmax = None if self._argmax is None else cupy.empty(size, self._argmax)
        arrays: tuple[int, ...] = (maps[0].data.ptr, pooled.data.ptr)
        if self._has_argument:
            arrays = (*arrays, 0 if argmax is None else argmax.data.ptr)
        if not self._launched(at, shapes, arrays, maps):
            return None
        return pooled if argmax is None else (pooled, argmax)

    def _gradients(self, at: tuple[Any, ...], gradient: Any, shapes: Any) -> Any:
        """Return the gradient with respect to the maps, in a list of a pyramid."""
        pooling, channel = self._verb.pooling, 3 if self._verb.channels_last else 1
        for shape in shapes:
            if type(shape) is not tuple or list(map(type, shape)) != FOUR_SIZES or 0 in shape:
                return None
            if shape[0] != shapes[0][0] or shape[channel] != shapes[0][channel]:
                return None
        boxes = at[3].shape[0]
        size = pooled_shape(shapes[0], boxes, pooling.output_size, pooling.layout, self._groups)
        if gradient.shape != size:
            return None
        outs = [cupy.empty(shape, gradient.dtype) for shape in shapes]
        arrays = gradient.data.ptr, outs[0].data.ptr
        if not self._launched(at, shapes, arrays, outs):
            return None
        return outs if self._is_pyramid else outs[0]

    def _launched(
        self, at: tuple[Any, ...], shapes: Any, arrays: tuple[int, ...], maps: Sequence[Any]
    ) -> bool:
        """Launch the kernels on a stream, for a kind of arrays; return whether it was done."""
        stream, kind, gpu, table, levels = at
        boxes = table.shape[0]
        prepared, sizes = self._verb.prepared(kind, gpu, boxes, shapes)
        if prepared is None:
            return False
        scratch: Any = None
        if prepared.scratch:
            scratch = cupy.empty(prepared.scratch, np.uint8)
        address, step = table.data.ptr, table.dtype.itemsize
        regions = address + step, address, 0 if levels is None else levels.data.ptr
        several = tuple([each.data.ptr for each in maps]) if self._is_pyramid else ()
        work = 0 if scratch is None else scratch.data.ptr
        if address % step:
            return False
        done: bool = prepared(stream, boxes, sizes, regions, arrays, several, work)
        return done


def device_of(*arrays: Any) -> int | None:
    """Return the current GPU's number if arrays lie on it in C order, or None."""
    array, gpu = cupy.ndarray, cupy.cuda.runtime.getDevice()
    for each in arrays:
        if type(each) is not array or not each.flags.c_contiguous or not each.size:
            return None
        if each.data.device_id != gpu:
            return None
    return gpu


def small_call(computed: Computed) -> DeviceCall | None:
    """Return what computes calls on CuPy arrays, if calls like that one are small."""
    _, table, *others = computed.given
    boxes, images, levels = computed.regions
    if type(table) is not cupy.ndarray or len(others) != (levels is not None):
        return None
    address = table.data.ptr
    # Indices that are cut to whole numbers are others than the table's.
    if images.data.ptr != address and not computed.kind["cuts"]:
        return None
    if boxes.data.ptr != address + table.dtype.itemsize:
        return None
    if levels is not None:
        (own,) = others
        if type(own) is not cupy.ndarray or own.data.ptr != levels.data.ptr:
            return None
    return DeviceCall(computed)
