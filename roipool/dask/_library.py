"""Dask arrays as a library of ``roipool._arrays``, whose functions are those of its `Library`.

Only maps are Dask arrays: boxes and all else that a call reads are NumPy's. One task per chunk of
images pools the chunk's boxes with NumPy's engine, where the chunk is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from roipool._arrays import NUMPY, parts_of, refuse_masks
from roipool._boxes import Regions
from roipool._dtypes import POOLED_DTYPES
from roipool._layout import AXES, Shape4
from roipool._masks.request import Pasting
from roipool._pooling import Call
from roipool._request import Pooling, pooled_shape
from roipool.dask import _namespace
from roipool.dask._windows import (
    Tile,
    are_read_by_window,
    joined_tiles,
    tiles_of_boxes,
    with_all_channels,
)

Array = Any  # of Dask, which has no types
Blocks = Sequence[Any]  # one chunk of each map, as Dask's Delayed or as NumPy arrays
ARGMAX = np.dtype(np.int64)  # of any chunk, however large its maps are

engine = None
array = "Dask array"
to_float32 = ".astype(np.float32)"


def xp() -> ModuleType:
    """Return the namespace whose functions are named as NumPy's."""
    return _namespace


def dtype(array: Any) -> np.dtype[Any]:
    """Return the dtype of an array."""
    found: np.dtype[Any] = array.dtype
    return found


def astype(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array, of Dask or NumPy, in a dtype: the same one if it has it already."""
    if array.dtype == dtype:
        return array
    convert = partial(NUMPY.astype, dtype=dtype)
    return array.map_blocks(convert, dtype=dtype) if is_dask(array) else convert(array)


def bytes_of(array: Any) -> Any:
    """Return an array of bool as its bytes."""
    return array.map_blocks(NUMPY.bytes_of, dtype=np.uint8)


def is_dask(value: Any) -> bool:
    """Return whether a value is a Dask array."""
    return isinstance(value, da.Array)


def device(array: Any) -> None:
    """Return None: there is nothing to enter."""


def check_address(name: str, array: Any) -> None:
    """Do nothing: tasks check the arrays that they compute."""


def device_number(array: Any) -> int:
    """Return 0: there is one host."""
    return 0


def check_call(values: Mapping[str, Any]) -> None:
    """Check the arrays of a call by name: the first are maps, and no others are Dask's.

    Raises
    ------
    TypeError
        If maps are not Dask arrays, or are masked; or if another argument is one.
    ValueError
        If the sizes of chunks are not known.
    """
    (name, maps), *others = values.items()
    check_known(dict(others))
    is_sequence = isinstance(maps, (list, tuple))
    for number, each in enumerate(parts_of(maps)):
        check_maps(f"{name}[{number}]" if is_sequence else name, each)


def check_known(values: Mapping[str, Any]) -> None:
    """Check that no argument is lazy: boxes are routed before anything runs."""
    for name, value in values.items():
        if any(map(is_dask, parts_of(value))):
            raise TypeError(f"{name} must be known, got a Dask array: compute it")


def check_maps(name: str, maps: Any) -> None:
    """Check that maps are a Dask array, without a mask, whose chunks have known sizes."""
    if not is_dask(maps):
        raise TypeError(f"{name} must be a Dask array, got {type(maps).__name__}")
    refuse_masks(name, [maps._meta])
    if np.isnan(maps.shape).any():
        raise ValueError(
            f"{name} must have chunks of known sizes, got {maps.chunks}; "
            f"{name}.compute_chunk_sizes() finds them"
        )


def plain(array: Any) -> Any:
    """Return the array."""
    return array


def readable(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array in a dtype. Of maps, tasks may read some of the chunks that cut images."""
    if not is_dask(array):
        return NUMPY.readable(array, dtype)
    own = astype(array, dtype)
    return own if own.ndim == 4 else uncut(own)


def uncut(array: Any) -> Any:
    """Return an array whose chunks separate images but do not cut them."""
    # Dask reshapes maps without cells, which volumes may be, in one chunk only.
    first = 1 if array.size else 0
    return array.rechunk(dict.fromkeys(range(first, array.ndim), -1))


table = readable
owned = plain  # boxes stay NumPy's


def checked_values(array: Any) -> None:
    """Return None: the values are not known."""


# ---- What tasks compute


def chunk_of(maps: Array, indices: NDArray[Any]) -> NDArray[np.int64]:
    """Return the chunk of each box's image; -1 for an image that does not exist."""
    ends = np.cumsum(maps.chunks[0])
    is_image = (indices >= 0) & (indices < maps.shape[0])
    return np.where(is_image, np.searchsorted(ends, indices, side="right"), -1)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type in the machine's order of bytes, which all results have."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def average_of_chunk(blocks: Blocks, regions: Regions, pooling: Pooling) -> Any:
    """Return averages of the boxes of a chunk, given the chunk of each map."""
    return Call().average(_read(blocks), regions, pooling)


def maximum_of_chunk(blocks: Blocks, regions: Regions, pooling: Pooling) -> tuple[Any, Any]:
    """Return maxima of the boxes of a chunk, and their argmax."""
    (maps,) = _read(blocks)
    pooled, argmax = Call().maximum(maps, regions, pooling)
    return pooled, argmax.astype(ARGMAX, copy=False)


def pooled_from_tiles(
    blocks: Blocks,
    tiles: Sequence[Tile],
    shape: Shape4,
    dtype: np.dtype[Any],
    function: Any,
    regions: Regions,
    pooling: Pooling,
) -> Any:
    """Return what a function of a chunk returns, given the parts of it that the boxes read."""
    refuse_masks("features", blocks)
    maps = joined_tiles(_read(blocks), tiles, shape, dtype, pooling.layout)
    return function([maps], regions, pooling)


def _read(blocks: Blocks) -> list[Any]:
    """Return chunks as NumPy's engine reads them."""
    refuse_masks("features", blocks)  # which an array may have without saying so
    arrays = [np.asarray(block) for block in blocks]
    return [NUMPY.readable(each, _native(each.dtype)) for each in arrays]


def rounded_chunk(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return pooled values in another dtype."""
    out: NDArray[Any] = np.empty(values.shape, dtype)
    NUMPY.store_rounded(np.ascontiguousarray(values), out)
    return out


def positions_of_rows(argmax: NDArray[Any], *args: Any) -> tuple[Any, Any]:
    """Return the positions of the samples of some boxes."""
    return Call().argmax_positions(np.ascontiguousarray(argmax), *args)


def filled_chunk(
    function: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    arrays: Sequence[Any],
    request: Pasting,
) -> Any:
    """Return what a function of NumPy's engine fills for the rows of a chunk."""
    block, *others = arrays
    out, is_zero = NUMPY.unfilled(shape, dtype)
    own = request._replace(on_zeros=is_zero)
    getattr(NUMPY.engine, function)(*_read([block]), *others, own, out)
    return out


# ---- Tasks


def _chunks_with_boxes(
    maps: Array, regions: Regions
) -> Iterator[tuple[int, NDArray[np.int64], Regions]]:
    """Yield the number of each chunk with boxes, their rows and their regions within the chunk.

    Boxes of images that do not exist, or none at all, are on chunk -1, which has no images.
    """
    chunk = chunk_of(maps, regions.batch_indices)
    starts = np.cumsum((0, *maps.chunks[0]))
    for number in np.unique(chunk).tolist() if chunk.size else [-1]:
        rows = np.flatnonzero(chunk == number)
        boxes, indices, levels = _rows(regions, rows)
        own = np.full_like(indices, -1) if number < 0 else indices - starts[number]
        yield number, rows, Regions(boxes, own, levels)


def _rows(regions: Regions, rows: Any) -> Regions:
    """Return some of the boxes."""
    boxes, indices, levels = regions
    return Regions(boxes[rows], indices[rows], None if levels is None else levels[rows])


def _pooled(
    function: Any, maps: Sequence[Array], regions: Regions, pooling: Pooling, *more: np.dtype[Any]
) -> list[Array]:
    """Return the results of a task per chunk, in the order of the boxes.

    `more` are the dtypes of results after the pooled values.
    """
    by_window = are_read_by_window(maps, pooling)
    if by_window:
        maps = [with_all_channels(each, pooling.layout) for each in maps]
    else:
        maps = list(map(uncut, maps))
    first, *others = maps
    maps = [first, *(each.rechunk({0: first.chunks[0]}) for each in others)]
    own = _native(first.dtype)
    dtypes = [POOLED_DTYPES.get(own, own), *more]
    parts: list[list[Array]] = [[] for _ in dtypes]
    order = []
    if by_window:
        tasks = _tasks_of_tiles(function, first, regions, pooling, len(dtypes))
    else:
        tasks = _tasks_of_chunks(function, maps, regions, pooling, len(dtypes))
    for found, rows in tasks:
        groups = pooling.definition.group_size
        size, layout = pooling.output_size, pooling.layout
        shape = pooled_shape(first.shape, len(rows), size, layout, groups)
        results = found if more else (found,)
        for part, result, kind in zip(parts, results, dtypes, strict=True):
            part.append(da.from_delayed(result, shape, kind))
        order.append(rows)
    return [_in_order(da.concatenate(part), np.concatenate(order)) for part in parts]


def _tasks_of_chunks(
    function: Any, maps: Sequence[Array], regions: Regions, pooling: Pooling, results: int
) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Yield a task for each chunk of images, and the rows of its boxes."""
    task = dask.delayed(function, nout=results if results > 1 else None)
    blocks = [each.to_delayed().ravel() for each in maps]
    for number, rows, in_chunk in _chunks_with_boxes(maps[0], regions):
        own: Blocks = [np.zeros((0, *each.shape[1:]), each.dtype) for each in maps]
        yield (
            task([each[number] for each in blocks] if number >= 0 else own, in_chunk, pooling),
            rows,
        )


def _tasks_of_tiles(
    function: Any, maps: Array, regions: Regions, pooling: Pooling, results: int
) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Yield tasks that read some of the chunks of an image, and the rows of their boxes."""
    task = dask.delayed(pooled_from_tiles, nout=results if results > 1 else None)
    blocks, dtype = maps.to_delayed(), _native(maps.dtype)
    channels, *sides = AXES[pooling.layout]
    grid = np.moveaxis(blocks, (0, *sides, channels), range(4))[..., 0]
    for number, rows, in_chunk in _chunks_with_boxes(maps, regions):
        shape = (maps.chunks[0][number] if number >= 0 else 0, *maps.shape[1:])
        for own, tiles in tiles_of_boxes(
            maps, shape, in_chunk, pooling, of_maximum=function is maximum_of_chunk
        ):
            read = [grid[number, tile.row, tile.column] for tile in tiles]
            part = _rows(in_chunk, own)
            yield task(read, tiles, shape, dtype, function, part, pooling), rows[own]


def _in_order(pooled: Array, order: NDArray[np.int64]) -> Array:
    """Return rows in the order of the boxes, given the boxes in the order of rows."""
    return pooled if (np.diff(order) > 0).all() else pooled[np.argsort(order, kind="stable")]


class _DaskVerbs:
    """The functions of ``roipool._engines.Verbs``: those of forwards."""

    def average(self, features: Sequence[Any], regions: Regions, pooling: Pooling) -> Array:
        """Return pooled values: weighted averages, from the map of each box's level."""
        (pooled,) = _pooled(average_of_chunk, features, regions, pooling)
        return pooled

    def maximum(self, features: Any, regions: Regions, pooling: Pooling) -> tuple[Array, Array]:
        """Return maxima and their argmax."""
        pooled, argmax = _pooled(maximum_of_chunk, [features], regions, pooling, ARGMAX)
        return pooled, argmax

    def argmax_positions(
        self, argmax: Any, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> tuple[Array, Array]:
        """Return the positions y and x, in map cells, of samples given by index; NCHW."""
        task, parts = dask.delayed(positions_of_rows, nout=2), []
        argmax = uncut(argmax)
        ends = np.cumsum(argmax.chunks[0])
        for block, end, count in zip(
            argmax.to_delayed().ravel(), ends, argmax.chunks[0], strict=True
        ):
            own = _rows(regions, slice(end - count, end))
            shape = (count, *argmax.shape[1:])
            found = task(block, own, pooling, input_shape)
            parts.append([da.from_delayed(each, shape, regions.boxes.dtype) for each in found])
        y, x = (da.concatenate(part) for part in zip(*parts, strict=True))
        return y, x

    def filled(
        self,
        function: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        arrays: Sequence[Any],
        request: Pasting,
    ) -> Array:
        """Return an array that tasks fill: one for each chunk of rows of the first of `arrays`."""
        first, *others = arrays
        first = uncut(first)
        task, parts = dask.delayed(filled_chunk), []
        ends, counts = np.cumsum(first.chunks[0]), first.chunks[0]
        for block, end, count in zip(first.to_delayed().ravel(), ends, counts, strict=True):
            rows = slice(end - count, end)
            own = (count, *shape[1:])
            values = task(function, own, dtype, [block, *(each[rows] for each in others)], request)
            parts.append(da.from_delayed(values, own, dtype))
        return da.concatenate(parts)

    def rounded(self, values: Any, dtype: np.dtype[Any]) -> Array:
        """Return pooled values in another dtype, as ``Library.store_rounded`` does."""
        if values.dtype == dtype:
            return values
        return values.map_blocks(rounded_chunk, dtype, dtype=dtype)

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(NO_GRADIENTS)

    average_backward = average_backward_boxes = maximum_backward = argmax_at = _refuse


NO_GRADIENTS = (
    "gradients take no Dask arrays, which have none: compute them, or call it on each chunk"
)
verbs = _DaskVerbs()
