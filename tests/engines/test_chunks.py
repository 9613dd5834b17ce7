"""Calls whose boxes are planned in several chunks give bitwise identical results.

Each box of a small call, of one chunk, stands several times in a large one, of several chunks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from _support.catalogue import every_dtype, every_layout, shape_in_layout
from _support.compare import Array, assert_close, assert_same_bits, compute_type
from _support.platforms import needs_linux

import roipool

TAPS_OF_CHUNK = 1_000_000  # `max_taps_of_chunk` of kernels/cpu/call.h
# A box inside its map has as many taps as it covers cells, or up to three times as many.
SIDE = 120
COPIES = 4
BINS = 7
SHAPE = (3, 17, 200, 200)  # a block of channels, and a single one


def rotated_boxes(rng: np.random.Generator, count: int) -> Array:
    """Return boxes on the first and last map, not sorted by map."""
    image = rng.choice([0, 2], count)
    center = rng.uniform(86, 113, (2, count))
    side = np.full(count, SIDE)
    return np.column_stack([image, *center, side, side, rng.uniform(-3, 3, count)])


RNG = np.random.default_rng(0)
FEW = rotated_boxes(RNG, 23)
MANY = FEW.repeat(COPIES, axis=0)
MAPS = RNG.normal(size=SHAPE)
GRADIENTS = RNG.normal(size=(len(FEW), SHAPE[1], BINS, BINS))
# The same gradients, each for one of the copies of its box.
SPARSE = np.zeros((len(MANY), *GRADIENTS.shape[1:]))
SPARSE[np.arange(len(FEW)) * COPIES + RNG.integers(COPIES, size=len(FEW))] = GRADIENTS

assert len(FEW) * 3 * SIDE**2 < TAPS_OF_CHUNK
assert len(MANY) * SIDE**2 > 1.3 * TAPS_OF_CHUNK


def stored(values: Array, dtype: Any, layout: str) -> Array:
    if layout == "NHWC":
        values = values.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(values).astype(dtype)


@every_layout
@every_dtype
def test_pooled_values(dtype: Any, layout: str) -> None:
    maps = stored(MAPS, dtype, layout)
    few = roipool.roi_align_rotated(maps, FEW, BINS, layout=layout)
    many = roipool.roi_align_rotated(maps, MANY, BINS, layout=layout)
    assert_same_bits(many, few.repeat(COPIES, axis=0))


@every_layout
@every_dtype
def test_gradients_of_maps(dtype: Any, layout: str) -> None:
    """Half precision is rounded once, not per chunk; images without boxes are zero."""
    shape = shape_in_layout(SHAPE, layout)
    results = []
    for gradients, rois in ((GRADIENTS, FEW), (SPARSE, MANY)):
        out = np.full(shape, np.nan, dtype)
        given = stored(gradients, dtype, layout)
        roipool.roi_align_rotated_backward(given, rois, shape, layout=layout, out=out)
        results.append(out)
    assert_same_bits(results[1], results[0])
    assert [image.any() for image in results[0]] == [True, False, True]


def test_gradients_of_boxes() -> None:
    maps = stored(MAPS, np.float32, "NCHW")
    few, many = (
        roipool.roi_align_rotated_backward_rois(gradients.astype(np.float32), maps, rois)
        for gradients, rois in ((GRADIENTS, FEW), (GRADIENTS.repeat(COPIES, axis=0), MANY))
    )
    assert_same_bits(many, few.repeat(COPIES, axis=0))


def test_gradients_of_separable_boxes() -> None:
    """Chunks continue from one level of a pyramid to the next."""
    rng = np.random.default_rng(1)
    corners = np.sort(rng.uniform(0, 60, (300, 2, 2)), axis=1).reshape(-1, 4)
    few = np.column_stack([np.arange(300) % 3, corners])
    many = few.repeat(300, axis=0)
    gradients = rng.normal(size=(300, 1, 2, 2)).astype(np.float32)
    sparse = np.zeros((len(many), 1, 2, 2), np.float32)
    sparse[::300] = gradients
    shapes, scales = [(3, 1, 64, 64), (3, 1, 32, 32)], [1, 0.5]
    expected, got = (
        roipool.multilevel_roi_align_backward(
            values, rois, shapes, scales, 8, levels=np.arange(len(rois)) * 2 // len(rois)
        )
        for values, rois in ((gradients, few), (sparse, many))
    )
    for one, other in zip(got, expected, strict=True):
        assert_same_bits(one, other)


@every_layout
@every_dtype
def test_gradients_of_position_sensitive_maps(dtype: Any, layout: str) -> None:
    """Their chunks share planes, each of which is the sum of all chunks."""
    rng = np.random.default_rng(2)
    corners = np.sort(rng.uniform(0, 80, (600, 2, 2)), axis=1).reshape(-1, 4)
    few = np.column_stack([rng.choice([0, 2], 600), corners])
    copies = 50
    many = few.repeat(copies, axis=0)
    assert (many[:, 3:] - many[:, 1:3]).sum() > 1.3 * TAPS_OF_CHUNK
    gradients = stored(rng.normal(size=(600, 1, 2, 2)), dtype, layout)
    sparse = np.zeros((len(many), *gradients.shape[1:]), dtype)
    sparse[rng.integers(copies, size=600) + copies * np.arange(600)] = gradients
    shape, real = shape_in_layout((3, 4, 80, 80), layout), compute_type(np.dtype(dtype))
    # Within a chunk boxes are ordered by their numbers of taps, so that sums are rounded otherwise.
    expected, terms = (
        roipool.ps_roi_align_backward(values, few, shape, layout=layout)
        for values in (gradients.astype(real), np.abs(gradients).astype(real))
    )
    got = roipool.ps_roi_align_backward(sparse, many, shape, layout=layout)
    assert_close(got, expected.astype(np.float64), terms.astype(np.float64), ulps=8)
    assert [image.any() for image in got] == [True, False, True]


@needs_linux
def test_sums_of_half_types_are_freed() -> None:
    """A gradient in chunks keeps float32 sums of all maps between them."""
    gradients = stored(SPARSE, np.float16, "NCHW")
    sums = 4 * int(np.prod(SHAPE))

    def in_memory() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def call() -> None:
        roipool.roi_align_rotated_backward(gradients, MANY, SHAPE)

    call()
    before = in_memory()
    for _ in range(10):
        call()
    assert in_memory() - before < 3 * sums
