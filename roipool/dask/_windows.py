"""Maps whose chunks cut their rows and columns: tasks read the chunks that their boxes reach."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roipool import _cpu
from roipool._boxes import Regions
from roipool._layout import AXES
from roipool._request import Pooling

Array = Any  # of Dask, which has no types
Cells = NDArray[np.int64]

LARGE = 2**24  # bytes; a new mapping of fewer takes longer than it saves
# Linux keeps no memory for a mapping with it; Python's name of it is new. macOS never does.
NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


class Tile(NamedTuple):
    """A chunk of maps by its numbers along rows and columns, and its first cell."""

    row: int
    column: int
    top: int
    left: int


class _Chunks(NamedTuple):
    """The chunks along one side of maps."""

    starts: Cells
    ends: Cells

    def number(self, cells: Cells) -> Cells:
        """Return the chunk of each cell."""
        return np.searchsorted(self.ends, cells, side="right")


def are_cut(maps: Array, layout: str) -> bool:
    """Return whether chunks cut rows or columns."""
    _, *sides = AXES[layout]
    return any(maps.numblocks[axis] > 1 for axis in sides)


def are_read_by_window(maps: Sequence[Array], pooling: Pooling) -> bool:
    """Return whether tasks read only some chunks: of one map, whose boxes have windows."""
    is_one = len(maps) == 1 and _cpu.is_kept(pooling) and maps[0].size > 0
    return is_one and are_cut(maps[0], pooling.layout)


def with_all_channels(maps: Array, layout: str) -> Array:
    """Return maps in chunks of all channels."""
    return maps.rechunk({AXES[layout][0]: -1})


def tiles_of_boxes(
    maps: Array, shape: Sequence[int], regions: Regions, pooling: Pooling, *, of_maximum: bool
) -> Iterator[tuple[Cells, list[Tile]]]:
    """Yield rows of boxes on a chunk of images of a shape, with the tiles that they read.

    Boxes whose centres are in one tile share a task: neighbours read the same tiles.
    """
    rows, columns = (_side(maps.chunks[axis]) for axis in AXES[pooling.layout][1:])
    windows = _cpu.windows(regions, pooling, shape, of_maximum=of_maximum)
    down, across = windows[:, :2], windows[:, 2:]
    is_empty = (down[:, 1] <= down[:, 0]) | (across[:, 1] <= across[:, 0])
    last = np.array([0, 1])  # the last cell of a window is before its end
    ranges = np.hstack([rows.number(down - last), columns.number(across - last)])
    home = rows.number(down.sum(1) // 2) * len(columns.ends) + columns.number(across.sum(1) // 2)
    home[is_empty] = -1
    for each in np.unique(home) if home.size else [-1]:  # the result of no boxes is a task's, too
        own = np.flatnonzero(home == each)
        read = set() if each < 0 else _tiles(np.unique(ranges[own], axis=0))
        yield (
            own,
            [Tile(y, x, int(rows.starts[y]), int(columns.starts[x])) for y, x in sorted(read)],
        )


def _side(chunks: Sequence[int]) -> _Chunks:
    ends = np.cumsum(chunks)
    return _Chunks(ends - np.asarray(chunks), ends)


def _tiles(ranges: Cells) -> set[tuple[int, int]]:
    """Return the tiles in ranges of rows and columns: first and last of each."""
    return {
        (y, x)
        for top, bottom, left, right in ranges.tolist()
        for y in range(top, bottom + 1)
        for x in range(left, right + 1)
    }


def joined_tiles(
    blocks: Sequence[Any], tiles: Sequence[Tile], shape: Sequence[int], dtype: Any, layout: str
) -> NDArray[Any]:
    """Return maps that hold some tiles, and zeros elsewhere."""
    maps = _sparse_zeros(shape, np.dtype(dtype))
    _, height, width = AXES[layout]
    at: list[Any] = [slice(None)] * 4
    for block, tile in zip(blocks, tiles, strict=True):
        at[height] = slice(tile.top, tile.top + block.shape[height])
        at[width] = slice(tile.left, tile.left + block.shape[width])
        maps[tuple(at)] = block
    return maps


def _sparse_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros, which may be more than a machine's memory: only what is written is in it."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or not sys.platform.startswith(("linux", "darwin")):
        return _cpu.zeros_array(shape, dtype)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    except (OSError, ValueError, OverflowError):
        raise MemoryError(f"maps of shape {tuple(shape)} need {size} bytes of addresses") from None
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
