"""Small calls on a GPU: averages with the options of an earlier call, launched at once.

As ``roipool._kept`` for a host. What a kernel's grid depends on is computed once, from sizes that
are rounded up; each launch sets the real ones. The driver launches what CuPy has compiled.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from roipool._cpu import AverageLaunches, KernelLaunch
from roipool._cuda import driver, launch
from roipool._cuda.arguments import Argument
from roipool._cuda.engine import (
    allow_shared_memory,
    check_device,
    function_of,
    limits_of,
    with_advice,
)
from roipool._cuda.partition import SHARED_BYTES, Sizes
from roipool._dtypes import FLOATS, dtype_name, real_dtype
from roipool._request import Computed, Pooling
from roipool._settings import debugging

AVERAGE = "cuda/average_forward.cu"
VECTOR_BYTES = 16  # that kernels read at once of NHWC maps
Kind = tuple[np.dtype[Any], np.dtype[Any]]  # of maps and of the table of boxes


def average_launches(pooling: Pooling, columns: int, *, cuts: bool) -> AverageLaunches:
    """Return the launches of an average of one map, for boxes in a table in C order.

    Its rows are a batch index, which is cut to a whole number if `cuts`, and `columns` numbers.
    """
    channels_last = pooling.layout == "NHWC"

    def make(
        kind: Kind, gpu: int, channels: int, rows: int, width: int, boxes: int
    ) -> KernelLaunch | None:
        dtype, real = kind[0], real_dtype(kind[0])
        if dtype_name(dtype) not in (*FLOATS, "int16") or kind[1] != real:
            return None
        size, step = real.itemsize, real.itemsize * (columns + 1)
        shape = (1, rows, width, channels) if channels_last else (1, channels, rows, width)
        sizes = Sizes(
            dtype, boxes, (step, size), real, step, pooling, (shape,), limits_of(gpu), cuts=cuts
        )
        try:
            launches = launch.average(sizes, vector_aligned=channels_last)
        except ValueError:  # the general path says what is wrong
            return None
        if launches.engine.file != AVERAGE or launches.plan is not None or launches.scratch:
            return None
        map_item = VECTOR_BYTES if channels_last else dtype.itemsize
        return launch_of(launches.engine, gpu, size, map_item)

    return AverageLaunches(make, channels_last)


def launch_of(
    config: launch.LaunchConfig, gpu: int, table_item: int, map_item: int
) -> KernelLaunch | None:
    """Return a launch of one kernel on the current GPU, or None without the driver's function."""
    launcher = driver.launcher()
    function = function_of(config.file, config.name, config.defines)
    try:
        handle = getattr(getattr(function, "kernel", None), "ptr", None)  # compiles
    except PermissionError as error:
        raise with_advice(error) from error
    if launcher is None or handle is None:
        return None
    check_device(gpu)
    blocks, (across, down), shared = config.grid
    if shared > SHARED_BYTES:
        allow_shared_memory(function, gpu)
    argument = Argument(config.call, config.tasks_of_box)
    grid = (blocks, across, down, shared)
    offsets = argument.offsets
    return KernelLaunch(
        launcher,
        handle,
        grid,
        argument.structure,
        offsets,
        config.tasks_of_box,
        table_item,
        map_item,
    )


class SmallAverage:
    """Computes calls of an average on one CuPy array of maps, for boxes in one table."""

    def __init__(self, computed: Computed) -> None:
        pooling, columns = computed.pooling, computed.columns
        self._launches = average_launches(pooling, columns, cuts=computed.kind["cuts"])
        self._size, self._columns = pooling.output_size, columns + 1
        self._channels_last = pooling.layout == "NHWC"

    def __call__(self, features: Any, rois: Any) -> Any:
        """Return pooled values, or None if the call needs the general path."""
        array = cupy.ndarray
        if type(features) is not array or type(rois) is not array or debugging():
            return None
        if not (features.flags.c_contiguous and rois.flags.c_contiguous and features.size):
            return None
        if features.dtype.kind in "iu":  # int16 is the bits of bfloat16 in launches
            return None
        shape, table = features.shape, rois.shape
        if len(shape) != 4 or len(table) != 2 or table[1] != self._columns or not table[0]:
            return None
        maps, boxes = features.data, rois.data
        gpu = maps.device_id
        if boxes.device_id != gpu or cupy.cuda.runtime.getDevice() != gpu:
            return None
        stream = cupy.cuda.get_current_stream(gpu)
        if stream.is_capturing():  # what a graph writes stays allocated
            return None
        rows, columns = self._size
        if self._channels_last:
            pooled = cupy.empty((table[0], rows, columns, shape[3]), features.dtype)
        else:
            pooled = cupy.empty((table[0], shape[1], rows, columns), features.dtype)
        kind = features.dtype, rois.dtype
        done = self._launches(
            kind, shape, table[0], gpu, stream.ptr, maps.ptr, boxes.ptr, pooled.data.ptr
        )
        return pooled if done else None


def small_call(computed: Computed) -> SmallAverage | None:
    """Return what computes calls on CuPy arrays, if calls like that one are small."""
    is_average = computed.shape is None and not computed.kind.get("is_maximum", False)
    return SmallAverage(computed) if is_average else None
