"""Front end for Dask arrays: maps in chunks of images, larger than a machine's memory.

``roipool.roi_align(x, rois, 7, ...)`` of a Dask array `x` is lazy and gives a Dask array. Chunks
may cut the maps between images; each chunk's boxes go where the chunk is, one task per chunk, and
chunks without boxes are not even loaded. Boxes are NumPy arrays or lists, checked before anything
runs.

Functions are those of ``roipool``, forwards only, with one more argument:

keep_order : bool
    By default rows come in the order of the boxes, as without Dask. Unless the boxes are sorted by
    image, that is a shuffle of the results between machines; with False rows come as they are
    computed, grouped by chunk: :func:`chunk_order` says which is whose.

An argmax is int64. There are no gradients. Workers use the threads that their environment allows:
``distributed`` starts them with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

import roipool
from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._definitions import OPS, PYRAMID_OPS, Op
from roipool._layout import AXES, Layout, pooled_shape
from roipool._requests import regions_of

Array = Any  # of Dask, which has no types


def chunk_order(features: Array, batch_indices: Any) -> NDArray[np.int64]:
    """Return the numbers of the boxes in the order of results that are not put in order.

    Parameters
    ----------
    features : dask.array.Array
        The maps.
    batch_indices : array_like of int
        Shape (K,): the image of each box.

    Returns
    -------
    ndarray of int64
        Shape (K,): row i of the results is that of this box.

    Examples
    --------
    >>> import dask.array as da, roipool.dask
    >>> features = da.zeros((4, 1, 8, 8), chunks=(2, 1, 8, 8))
    >>> roipool.dask.chunk_order(features, [3, 0, 1, 2])
    array([1, 2, 0, 3])
    """
    indices = np.asarray(batch_indices, np.int64)
    return np.argsort(_chunk_of(features, indices), kind="stable")


def _chunk_of(features: Array, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = np.cumsum(features.chunks[0])
    return np.searchsorted(ends, indices, side="right")


def pool_chunk(
    name: str, boxes_name: str, indices_name: str, maps: NDArray[Any], boxes: NDArray[Any],
    indices: NDArray[np.int64], options: dict[str, Any],
) -> Any:  # fmt: skip
    """Pool the boxes of one chunk, on whatever machine holds it."""
    arrays = {boxes_name: boxes, indices_name: indices}
    return getattr(roipool, name)(np.asarray(maps), **arrays, **options)


def _regions(op: Op, given: dict[str, Any], features: Array) -> Regions:
    """Return the boxes of all chunks, checked, in the order of the operation's own columns."""
    regions = regions_of(op, given[op.boxes], given[op.indices], features.shape[0], features.dtype)
    if op.boxes == "boxes":
        return regions._replace(boxes=check.swap_xy(regions.boxes))
    return regions


def _check_maps(name: str, features: Array, layout: Layout) -> Array:
    """Return maps of which no plane is cut."""
    if not isinstance(features, da.Array):
        raise TypeError(f"{name}: features must be a Dask array, got {type(features).__name__}")
    if features.ndim != 4:
        raise ValueError(f"{name}: features must have 4 dimensions, got shape {features.shape}")
    if np.isnan(features.shape).any():
        raise ValueError(
            f"{name}: features must have chunks of known sizes, got {features.chunks}; "
            "features.compute_chunk_sizes() finds them"
        )
    check.map_shape("features", features.shape, layout)
    return features.rechunk({1: -1, 2: -1, 3: -1})


def _check_known(name: str, given: Mapping[str, Any]) -> None:
    """Check that no argument but the maps is lazy: boxes are routed before anything runs."""
    for key, value in given.items():
        parts = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(part, da.Array) for part in parts):
            raise TypeError(f"{name}: {key} must be known, got a Dask array: compute it")


def _lazy_forward(op: Op) -> Callable[..., Any]:
    """Return an operation's forward for Dask arrays."""
    core = inspect.unwrap(getattr(roipool, op.forward))
    signature = inspect.signature(core)

    @functools.wraps(core, assigned=("__name__", "__qualname__"))
    def forward(*args: Any, keep_order: bool = True, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        if given.pop("out", None) is not None:
            raise TypeError(f"{op.forward}: out must be None for a Dask array, which is lazy")
        layout, want_argmax = check.layout(given["layout"]), given.get("return_argmax", False)
        check.flag("keep_order", keep_order)
        maps = _check_maps(op.forward, given.pop("features"), layout)
        _check_known(op.forward, given)
        regions = _regions(op, given, maps)
        options = {key: one for key, one in given.items() if key not in (op.boxes, op.indices)}
        size = check.size_pair(op.size, options[op.size])
        _try_options(op, maps.dtype, options)
        channels = maps.shape[AXES[layout][0]]
        chunk = _chunk_of(maps, regions.batch_indices)
        starts = np.cumsum((0, *maps.chunks[0]))
        pool = dask.delayed(pool_chunk, nout=2 if want_argmax else None)
        types = [maps.dtype, np.dtype(np.int64)] if want_argmax else [maps.dtype]
        parts: list[list[Array]] = [[] for _ in types]
        for number, block in enumerate(maps.to_delayed().ravel()):
            rows = np.flatnonzero(chunk == number)
            if len(rows) == 0 and number > 0:
                continue  # one part stays, so that there is something to join
            own = regions.batch_indices[rows] - starts[number]
            found = pool(op.forward, op.boxes, op.indices, block, regions.boxes[rows], own, options)
            shape = pooled_shape(len(rows), channels, size, layout)
            for part, one, dtype in zip(
                parts, found if want_argmax else (found,), types, strict=True
            ):
                part.append(da.from_delayed(one, shape, dtype).astype(dtype))
        order = np.argsort(chunk, kind="stable")
        results = [_in_order(da.concatenate(part), order if keep_order else None) for part in parts]
        return tuple(results) if want_argmax else results[0]

    forward.__doc__ = f"Pool boxes from a Dask array, lazily, as :func:`roipool.{op.forward}` does."
    return forward


def _in_order(pooled: Array, order: NDArray[np.int64] | None) -> Array:
    """Return rows in the order of the boxes, given the boxes in the order of rows."""
    if order is None or (np.diff(order) > 0).all():
        return pooled
    return pooled[np.argsort(order, kind="stable")]


def _try_options(op: Op, dtype: np.dtype[Any], options: dict[str, Any]) -> None:
    """Raise now, not on a worker, what a call without images raises."""
    shape = (0, 1, 1, 1)
    boxes = {op.boxes: np.zeros((0, op.columns)), op.indices: np.zeros(0, np.int64)}
    getattr(roipool, op.forward)(np.zeros(shape, dtype), **boxes, **options)


def _refused(name: str, why: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{name} takes no Dask arrays{why}: compute them, or call it on each chunk")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raise TypeError: :func:`roipool.{name}` takes no Dask arrays."
    return function


for _op in OPS.values():
    globals()[_op.forward] = _lazy_forward(_op)
    for _name in filter(None, (_op.backward, _op.backward_boxes)):
        globals()[_name] = _refused(_name, ", which have no gradients")
for _op in PYRAMID_OPS.values():
    globals()[_op.forward] = _refused(_op.forward, ", whose maps are chunked apart")
    for _name in filter(None, (_op.backward, _op.backward_boxes)):
        globals()[_name] = _refused(_name, ", which have no gradients")
assign_levels = _refused("assign_levels", ": boxes are NumPy arrays")
