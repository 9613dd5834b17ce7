"""Dask arrays whose chunks cut rows and columns: tasks read those that their boxes reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from _support.compare import assert_same_bits
from _support.loops import each

import roipool

HEIGHT, WIDTH = 60, 70
RNG = np.random.default_rng(0)
MAPS = RNG.standard_normal((3, 5, HEIGHT, WIDTH), dtype=np.float32)
ROIS = np.column_stack(
    [RNG.integers(0, 3, 60), RNG.uniform(-20, 80, (60, 2)), RNG.uniform(-20, 90, (60, 2))]
)
ROIS[:2, 1:] = np.nan
FRACTIONS, IMAGES = RNG.uniform(-0.5, 1.5, (60, 4)), ROIS[:, 0]
TILES = {  # images, channels, rows, columns of a chunk
    "tiles": (2, 5, 16, 20),
    "cut channels": (1, 2, HEIGHT, 7),
    "a last column": (3, 5, HEIGHT, WIDTH - 1),
}
CALLS: dict[str, Callable[..., Any]] = {
    "average": lambda maps, **more: roipool.roi_align(maps, ROIS, 3, 0.9, **more),
    "maximum": lambda maps, **more: roipool.roi_align(maps, ROIS, 3, 0.9, mode="max", **more),
    "cells": lambda maps, **more: roipool.roi_pool(maps, ROIS, 3, return_argmax=True, **more),
    "integral": lambda maps, **more: roipool.precise_roi_pool(maps, ROIS, 3, **more),
    "crops": lambda maps, **more: roipool.crop_and_resize(
        maps, FRACTIONS, IMAGES, 5, antialias=True, **more
    ),
    "rotated": lambda maps, **more: roipool.roi_align_rotated(
        maps, np.insert(ROIS[2:], 5, 0.3, axis=1), 3, **more
    ),
}


@each(layout=("NCHW", "NHWC"), tiles=TILES)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_whole_maps(name: str, layout: str, tiles: tuple[int, ...]) -> None:
    maps = np.ascontiguousarray(np.moveaxis(MAPS, 1, -1)) if layout == "NHWC" else MAPS
    chunks = tuple(tiles[axis] for axis in ((0, 2, 3, 1) if layout == "NHWC" else range(4)))
    lazy = CALLS[name](da.from_array(maps, chunks=chunks), layout=layout)
    expected = CALLS[name](maps, layout=layout)
    for found, whole in zip(_parts(lazy), _parts(expected), strict=True):
        assert found.shape == whole.shape
        assert_same_bits(found.compute(scheduler="sync").astype(whole.dtype), whole)


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_tasks_read_only_the_tiles_of_their_boxes() -> None:
    """Two boxes read five tiles of 1 MB of a picture of 10 GB, and one outside reads none."""
    read = []

    def tile(block_info: Any = None) -> np.ndarray[Any, Any]:
        where = block_info[None]["array-location"]
        read.append(tuple(begin for begin, _ in where[2:]))
        return np.full([end - begin for begin, end in where], len(read), np.uint8)

    side, step = 100_000, 1024
    whole, last = divmod(side, step)
    chunks = ((1,), (1,), (step,) * whole + (last,), (step,) * whole + (last,))
    slide = da.map_blocks(tile, chunks=chunks, dtype=np.uint8, meta=np.empty((0,) * 4, np.uint8))
    rois = [
        [0, 5000, 5000, 5100, 5100],
        [0, 40900, 30700, 41000, 30800],
        [0, -500, -500, -400, -400],
    ]
    read.clear()
    pooled = roipool.roi_align(slide, rois, 2).compute(scheduler="sync")
    assert pooled.shape == (3, 1, 2, 2)
    assert (pooled[:2] > 0).all()
    assert not pooled[2].any()
    corners = {(y, x) for y in (29 * step, 30 * step) for x in (39 * step, 40 * step)}
    assert sorted(read) == sorted({(4 * step, 4 * step)} | corners)


def test_a_box_over_the_whole_map_reads_all_of_it() -> None:
    rois = [[0, 0, 0, WIDTH, HEIGHT]]
    lazy = roipool.roi_align(da.from_array(MAPS, chunks=(1, 5, 16, 20)), rois, 2)
    assert_same_bits(lazy.compute(scheduler="sync"), roipool.roi_align(MAPS, rois, 2))
