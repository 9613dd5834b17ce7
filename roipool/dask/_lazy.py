"""Operations of Dask arrays, made of the tables of operations: a task for each chunk."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

import roipool
from roipool import _arguments as check
from roipool._arrays import parts_of, refuse_masks
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op
from roipool._dtypes import POOLED_DTYPES, dtype_name, numpy_dtype
from roipool._errors import with_name
from roipool._layout import volume_channels, volume_of
from roipool._pooling import pooled_shape

Array = Any  # of Dask, which has no types
Tables = dict[str, NDArray[Any]]  # by argument: what has a row for each box
ARGMAX = np.dtype(np.int64)


def chunk_order(features: Array | Sequence[Array], batch_indices: Any) -> NDArray[np.int64]:
    """Return the numbers of the boxes in the order of results that are not put in order.

    Parameters
    ----------
    features : dask.array.Array or sequence of them
        The maps; of several, the first says how images are chunked.
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
    first, *_ = parts_of(features)
    _check_known({"batch_indices": batch_indices})
    numbers = check.number_array("batch_indices", batch_indices)
    indices = check.batch_indices("batch_indices", numbers, numbers.size, first.shape[0])
    return np.argsort(_chunk_of(first, indices), kind="stable")


def _chunk_of(features: Array, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = np.cumsum(features.chunks[0])
    return np.searchsorted(ends, indices, side="right")


def pool_chunk(
    name: str, blocks: Sequence[NDArray[Any]], tables: Tables, options: dict[str, Any]
) -> Any:
    """Pool the boxes of one chunk of each map, on the machine that holds the chunk."""
    refuse_masks("features", blocks)  # which an array may have without saying so
    maps = [np.asarray(block) for block in blocks]
    features = maps if name in PYRAMID_OPS else maps[0]
    found = getattr(roipool, name)(features, **tables, **options)
    if not isinstance(found, tuple):
        return found
    pooled, argmax = found
    return pooled, argmax.astype(ARGMAX, copy=False)  # of any chunk, however large its maps are


# ---- Arguments


def _layout_of(op: Op, given: Mapping[str, Any]) -> Any:
    """Return the layout of maps or volumes."""
    checked = check.volume_layout if op.is_of_volumes else check.layout
    return checked(given["layout"])


def _pooled_shape(op: Op, maps: Array, boxes: int, size: Any, options: Mapping[str, Any]) -> Any:
    """Return the shape of values pooled from some boxes."""
    layout = _layout_of(op, options)
    if op.is_of_volumes:
        return volume_of(boxes, volume_channels(maps.shape, layout), size, layout)
    groups = check.sampling_pair("group_size", options.get("group_size", 1))
    return pooled_shape(maps.shape, boxes, size, layout, groups)


def _check_maps(op: Op, features: Any, layout: Any) -> list[Array]:
    """Return maps of which no plane is cut, all chunked alike."""
    given = (
        check.numbered("features", features)
        if op.forward in PYRAMID_OPS
        else {"features": features}
    )
    for name, maps in given.items():
        if not isinstance(maps, da.Array):
            raise TypeError(f"{name} must be a Dask array, got {type(maps).__name__}")
        refuse_masks(name, [maps._meta])
        dimensions = 5 if op.is_of_volumes else 4
        if maps.ndim != dimensions:
            raise ValueError(f"{name} must have {dimensions} dimensions, got shape {maps.shape}")
        if np.isnan(maps.shape).any():
            raise ValueError(
                f"{name} must have chunks of known sizes, got {maps.chunks}; "
                f"{name}.compute_chunk_sizes() finds them"
            )
    if op.is_of_volumes:
        check.volume_shape("features", maps.shape, layout)
    else:
        check.pyramid_shapes("features", {name: maps.shape for name, maps in given.items()}, layout)
    first, *others = given.items()
    for name, maps in others:
        check.same_dtype(name, maps, *first)
    chunks = {0: first[1].chunks[0], **dict.fromkeys(range(1, first[1].ndim), -1)}
    return [maps.rechunk(chunks) for maps in given.values()]


def _check_known(given: Mapping[str, Any]) -> None:
    """Check that no argument but the maps is lazy: boxes are routed before anything runs."""
    for name, value in given.items():
        if any(isinstance(part, da.Array) for part in parts_of(value)):
            raise TypeError(f"{name} must be known, got a Dask array: compute it")


def _tables(op: Op, given: Mapping[str, Any], maps: Sequence[Array]) -> Tables:
    """Return the arguments with a row for each box, checked, as the operation takes them."""
    images, dtype = maps[0].shape[0], maps[0].dtype
    regions = op.form.read(given[op.boxes], given[op.indices], images, dtype, op.form)
    boxes = check.swap_xy(regions.boxes) if op.form.is_normalised else regions.boxes
    tables = {op.boxes: boxes, op.indices: regions.batch_indices}
    for name in filter(None, (op.form.offsets, op.form.mask)):
        if given[name] is not None:
            tables[name] = check.number_array(name, given[name])
    if given.get("levels") is not None:
        tables["levels"] = check.levels("levels", given["levels"], len(boxes), len(maps))
    return tables


# ---- Functions


def _lazy_forward(op: Op) -> Callable[..., Any]:
    """Return an operation's forward for Dask arrays."""
    core = inspect.unwrap(getattr(roipool, op.forward))
    signature = inspect.signature(core)

    @functools.wraps(core, assigned=("__name__", "__qualname__"))
    def forward(*args: Any, keep_order: bool = True, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return _forward(op, dict(bound.arguments), check.flag("keep_order", keep_order))
        except (TypeError, ValueError) as error:
            raise with_name(error, op.forward) from None

    forward.__doc__ = f"Pool boxes from a Dask array, lazily, as :func:`roipool.{op.forward}` does."
    keep_order = inspect.Parameter("keep_order", inspect.Parameter.KEYWORD_ONLY, default=True)
    forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), keep_order]
    )
    return forward


def _forward(op: Op, given: dict[str, Any], keep_order: bool) -> Any:
    """Pool boxes lazily, given all arguments by name."""
    if given.pop("out", None) is not None:
        raise TypeError("out must be None for a Dask array, which is lazy")
    layout = _layout_of(op, given)
    maps = _check_maps(op, given.pop("features"), layout)
    _check_known(given)
    tables = _tables(op, given, maps)
    options = {name: value for name, value in given.items() if name not in tables}
    _try_options(op, maps, tables, options)
    chunk = _chunk_of(maps[0], tables[op.indices])
    order = np.argsort(chunk, kind="stable") if keep_order else None
    parts = _pooled_chunks(op, maps, tables, options, chunk)
    results = [_in_order(da.concatenate(part), order) for part in parts]
    return tuple(results) if len(results) > 1 else results[0]


def _pooled_chunks(
    op: Op, maps: Sequence[Array], tables: Tables, options: dict[str, Any], chunk: NDArray[np.int64]
) -> list[list[Array]]:
    """Return for each result its parts: what one task per chunk with boxes gives."""
    checked = check.size_triple if op.is_of_volumes else check.size_pair
    size = checked(op.size, options[op.size])
    dtypes = [_pooled_dtype(_native(maps[0].dtype), options.get("dtype"))]
    if options.get("return_argmax", False):
        dtypes.append(ARGMAX)
    pool = dask.delayed(pool_chunk, nout=len(dtypes))
    starts = np.cumsum((0, *maps[0].chunks[0]))
    parts: list[list[Array]] = [[] for _ in dtypes]
    for number, blocks in enumerate(
        zip(*(each.to_delayed().ravel() for each in maps), strict=True)
    ):
        rows = np.flatnonzero(chunk == number)
        if len(rows) == 0 and number > 0:
            continue  # one part stays, so that there is something to join
        own = {name: table[rows] for name, table in tables.items()}
        own[op.indices] = own[op.indices] - starts[number]
        found = pool(op.forward, list(blocks), own, options)
        shape = _pooled_shape(op, maps[0], len(rows), size, options)
        each_found = found if len(dtypes) > 1 else (found,)
        for part, one, dtype in zip(parts, each_found, dtypes, strict=True):
            part.append(da.from_delayed(one, shape, dtype))
    return parts


def _pooled_dtype(features: np.dtype[Any], chosen: Any) -> np.dtype[Any]:
    """Return the type of pooled values, which the caller may choose."""
    if chosen is None:
        return POOLED_DTYPES.get(features, features)
    return numpy_dtype(check.pooled_dtype(chosen, dtype_name(features)))


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type in the machine's order of bytes, which all results have."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def _in_order(pooled: Array, order: NDArray[np.int64] | None) -> Array:
    """Return rows in the order of the boxes, given the boxes in the order of rows."""
    if order is None or (np.diff(order) > 0).all():
        return pooled
    return pooled[np.argsort(order, kind="stable")]


def _try_options(op: Op, maps: Sequence[Array], tables: Tables, options: dict[str, Any]) -> None:
    """Raise now, not on a worker, what a call without images raises."""
    size = (1, 1, 1) if op.is_of_volumes else (1, 1)
    shape = _pooled_shape(op, maps[0], 0, size, {"layout": options["layout"]})
    blocks = [np.zeros(shape, each.dtype) for each in maps]
    pool_chunk(op.forward, blocks, {name: table[:0] for name, table in tables.items()}, options)


def _refused(name: str, why: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{name} takes no Dask arrays{why}: compute them, or call it on each chunk")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raise TypeError: :func:`roipool.{name}` takes no Dask arrays."
    return function


_EVERY = (OPS | PYRAMID_OPS | VOLUME_OPS).values()
FORWARDS = {op.forward: _lazy_forward(op) for op in _EVERY}
REFUSED = {
    name: _refused(name, ", which have no gradients")
    for op in _EVERY
    for name in op.functions.values()
    if name != op.forward
} | {"assign_levels": _refused("assign_levels", ": boxes are NumPy arrays")}
