"""More than 2^31 elements, and sizes that cannot be allocated.

Maps of many gigabytes are mapped but hardly touched: an operation reads only the cells under its
boxes. ``pytest --everything`` adds tests that really fill 9 GB.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np
import pytest
from _support.cases import CASES, PYRAMID_CASES, OperationCase
from _support.catalogue import DTYPES, Array, every_layout, in_layout, shape_in_layout
from _support.compare import assert_same_bits
from _support.loops import each

import roipool

# Coordinates up to 2^16 leave float32 fractions of 1/128, and crops divide by a power of two.
SIDE = 2**16 + 1
WINDOW = 16
# In cells of the last 16 rows and columns; eighths, so that all positions are exact.
BOXES = np.array([[1, 2, 9, 12], [7.5, 3.5, 15.5, 15.5], [10, 10, 18, 18], [15, 15, 16, 16]])

real_memory = pytest.mark.everything  # 9 GB


def untouched(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros, which take no memory until they are touched."""
    if sys.platform == "win32":
        pytest.skip("Windows sets memory aside for all of a map at once")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if sys.platform == "linux":
        flags |= getattr(mmap, "MAP_NORESERVE", 0x4000)
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except OSError as error:
        pytest.skip(f"the system does not map {size} bytes: {error}")
    return np.frombuffer(memory, dtype).reshape(shape)


def pooled(maps: Array, rois: Array, layout: str) -> dict[str, Array]:
    """Return the results of every forward."""
    form: dict[str, Any] = {"layout": layout}
    height, width = maps.shape[1:3] if layout == "NHWC" else maps.shape[2:]
    pool, cells = roipool.roi_pool(maps, rois, 2, return_argmax=True, **form)
    greatest, samples = roipool.roi_align(
        maps, rois, 2, 1.0, 2, mode="max", return_argmax=True, **form
    )
    return {
        "pool": pool,
        "rows": np.where(cells < 0, -1, cells // width - height),
        "columns": np.where(cells < 0, -1, cells % width - width),
        "average": roipool.roi_align(maps, rois, 2, 1.0, 2, **form),
        "maximum": greatest,
        "samples": samples,
    }


@every_layout
@each(dtype=["float16", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 5, 16])
def test_far_corner_of_a_wide_plane(channels: int, dtype: str, layout: str) -> None:
    # An argmax is a cell of the plane, beyond 2^31 here; channels are pooled in vectors from 5 on.
    rng = np.random.default_rng(0)
    near = in_layout(
        rng.integers(1, 100, (1, channels, WINDOW, WINDOW)).astype(DTYPES[dtype]), layout
    )
    far = untouched(shape_in_layout((1, channels, SIDE, SIDE), layout), DTYPES[dtype])
    corner = (slice(None), slice(None), slice(-WINDOW, None), slice(-WINDOW, None))
    far[corner if layout == "NCHW" else (corner[0], *corner[2:], corner[1])] = near
    rois = np.column_stack([np.zeros(len(BOXES)), BOXES])
    expected = pooled(near, rois, layout)
    moved = rois + np.array([0, *[SIDE - WINDOW] * 4])
    for name, result in pooled(far, moved, layout).items():
        np.testing.assert_array_equal(result, expected[name], err_msg=name)
    wide = roipool.roi_pool(far, moved, 2, return_argmax=True, layout=layout)[1]
    assert wide.dtype == np.int64

    boxes = moved[:, [2, 1, 4, 3]] / (SIDE - 1)
    back = rois[:, [2, 1, 4, 3]] / (WINDOW - 1)
    crop, other = (
        roipool.crop_and_resize(maps, corners, [0] * len(BOXES), 2, method="nearest", layout=layout)
        for maps, corners in ((far, boxes), (near, back))
    )
    inside = [0, 3]  # the others' edges fall between cells, where 1/15 decides otherwise
    assert_same_bits(crop[inside], other[inside])


@every_layout
def test_argmax_just_beyond_32_bits(layout: str) -> None:
    side = 46342  # squared 97,316 cells more than int32 counts
    far = untouched(shape_in_layout((1, 1, side, side), layout), np.float16)
    far.reshape(side, side)[-1, -2] = 1
    box = [[0, side - 3, side - 3, side - 1, side - 1]]
    pooled, argmax = roipool.roi_pool(far, box, 1, return_argmax=True, layout=layout)
    assert (pooled.item(), argmax.item()) == (1, side * side - 2)


@every_layout
@each(dtype=["float16", "float32"])
def test_last_image_and_channel_beyond_32_bits(dtype: str, layout: str) -> None:
    shape = shape_in_layout((3, 17, 8192, 8192), layout)
    far = untouched(shape, DTYPES[dtype])
    rng = np.random.default_rng(0)
    near = rng.integers(1, 100, (1, 17, WINDOW, WINDOW)).astype(DTYPES[dtype])
    if layout == "NHWC":
        far[2, :WINDOW, :WINDOW] = in_layout(near, layout)[0]
    else:
        far[2, :, :WINDOW, :WINDOW] = near[0]
    rois = np.array([[0, 1, 2, 9, 12], [0, 7.5, 3.5, 11.5, 11.5]])
    expected = roipool.roi_align(in_layout(near, layout), rois, 2, 1.0, 2, layout=layout)
    got = roipool.roi_align(far, rois + np.array([2, 0, 0, 0, 0]), 2, 1.0, 2, layout=layout)
    assert_same_bits(got, expected)


@every_layout
def test_longest_axis(layout: str) -> None:
    # Cell numbers up to 2^31 - 2; float64 coordinates tell them apart.
    length = 2**31 - 1
    far = untouched(shape_in_layout((1, 1, 2, length), layout), np.float64)
    near = np.arange(1.0, 17.0).reshape(1, 1, 2, 8)
    if layout == "NHWC":
        far[0, :, -8:, 0] = near[0, 0]
    else:
        far[0, 0, :, -8:] = near[0, 0]
    rois = np.array([[0, 2, 0, 7, 2], [0, 5.5, 0, 9.5, 1], [0, 7, 1, 7, 1]])
    expected = pooled(in_layout(near, layout), rois, layout)
    got = pooled(far, rois + np.array([0, length - 8, 0, length - 8, 0]), layout)
    for name, result in got.items():
        np.testing.assert_array_equal(result, expected[name], err_msg=name)


@every_layout
@each(dtype=["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 5, 16])
def test_argmax_among_more_samples_than_32_bits_count(
    channels: int, dtype: str, layout: str
) -> None:
    """An adaptive grid of 2^17 by 2^17 samples, one for each cell of the map."""
    before = 2**16
    maps = np.zeros((1, channels, 7, 9), dtype)
    maps[:, :, 3, 5] = 1
    rois = np.array([[0, -before, -before, before, before]])
    options: dict[str, Any] = {"mode": "max", "layout": layout}
    pooled, argmax = roipool.roi_align(
        in_layout(maps, layout), rois, 1, return_argmax=True, **options
    )
    assert argmax.dtype == np.int64
    assert (pooled == 1).all()
    assert (argmax == (before + 3) * 2 * before + before + 5).all()
    gradient = roipool.roi_align_backward(
        pooled, rois, in_layout(maps, layout).shape, argmax=argmax, **options
    )
    assert_same_bits(gradient, in_layout(maps, layout))


# ---- Sizes that cannot be allocated


@pytest.mark.parametrize("size", [2**20, (16, 2**31 - 1), 2**31 - 1], ids=str)
@pytest.mark.parametrize(
    "case",
    # No machine has the offsets of so many bins.
    [case for case in (*CASES, *PYRAMID_CASES) if not (case.adaptive or case.op.is_deformable)],
    ids=str,
)
def test_impossible_output_is_a_memory_error(case: OperationCase, size: Any) -> None:
    """All sizes are above 2^47 bytes, which no system can allocate."""
    features = np.ones((2, 4 * case.groups, 8, 8), np.float32)
    count = 1000
    # Bins of turned boxes are numbered together, in 32 bits.
    error = ValueError if case.op.is_rotated else MemoryError
    with pytest.raises(error):
        case.pool(features, case.boxes(count), case.indices(count), size)


@pytest.mark.parametrize("boxes", [0, 1])
@pytest.mark.parametrize(
    "shape", [(2**45, 3, 6, 7), (2**62, 3, 6, 7), (1, 3, 2**31 - 1, 2**31 - 1)], ids=str
)
def test_impossible_gradient_is_a_memory_error(shape: tuple[int, ...], boxes: int) -> None:
    grad = np.ones((boxes, 3, 2, 2), np.float32)
    rois = np.array([[0, 1.0, 1, 5, 5]])[:boxes]
    with pytest.raises(MemoryError):
        roipool.roi_align_backward(grad, rois, shape)
    with pytest.raises(MemoryError):
        roipool.roi_pool_backward(grad, np.zeros(grad.shape, np.int64), rois, shape)
    with pytest.raises(MemoryError):
        roipool.crop_and_resize_backward(grad, rois[:, 1:], [0] * boxes, shape)


def test_a_size_beyond_64_bits() -> None:
    grad = np.ones((1, 3, 2, 2), np.float32)
    with pytest.raises((MemoryError, ValueError), match=r"input_shape|too large"):
        roipool.roi_align_backward(grad, [[0, 1.0, 1, 5, 5]], (2**70, 3, 6, 7))


# ---- Really large


@real_memory
@every_layout
def test_output_beyond_32_bits(layout: str) -> None:
    boxes, side = 2100, 1024
    maps = np.arange(16, dtype=np.float16).reshape(1, 1, 4, 4)
    rois = np.tile([0, 0.0, 0, 4, 4], (boxes, 1))
    rois[-1] = [0, 1, 1, 3, 3]
    for op in (roipool.roi_pool, roipool.roi_align):
        out = op(in_layout(maps, layout), rois, side, layout=layout)
        assert out.size > 2**31
        for k in (0, boxes // 2, boxes - 1):
            assert_same_bits(
                out[k : k + 1], op(in_layout(maps, layout), rois[[k]], side, layout=layout)
            )
        del out


@real_memory
def test_gradient_of_an_output_beyond_32_bits() -> None:
    boxes, side = 2100, 1024
    grad = np.zeros((boxes, 1, side, side), np.float16)
    grad[-1] = 1
    rois = np.tile([0, 0.0, 0, 4, 4], (boxes, 1))
    got = roipool.roi_align_backward(grad, rois, (1, 1, 4, 4), 1.0, 1)
    assert_same_bits(got, roipool.roi_align_backward(grad[-1:], rois[-1:], (1, 1, 4, 4), 1.0, 1))
    assert got.any()


@real_memory
@every_layout
def test_gradient_on_a_wide_plane(layout: str) -> None:
    side = 46341  # 2^31 + 4633 cells
    shape = shape_in_layout((1, 1, side, side), layout)
    rois = np.array([[0, *[side - 2] * 2, *[side - 1] * 2]])
    grad = np.ones((1, 1, 1, 1), np.float32)
    argmax = np.array([[[[side * side - 2]]]])
    got = roipool.roi_pool_backward(grad, argmax, rois, shape, layout=layout).reshape(side, side)
    assert got[-1, -2] == 1
    assert not got[:-1].any()
    del got
    got = roipool.roi_align_backward(grad, rois, shape, 1.0, 1, layout=layout).reshape(side, side)
    np.testing.assert_array_equal(got[-3:, -3:], [[0, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_bins_of_more_cells_than_float32_adds_up() -> None:
    cells = 2**22
    row, out = np.ones((1, 1, 1, 2 * cells), np.float32), np.full((1, 1, 1, 1), 5, np.float32)
    whole, half = [[0, 0, 0, 2 * cells - 1, 0.0]], [[0, 0, 0, cells - 1, 0.0]]
    for call in (
        lambda: roipool.roi_average_pool(row, whole, 1, out=out),
        lambda: roipool.roi_average_pool_backward(out, whole, row.shape),
        lambda: roipool.crop_and_resize(row, [[0, 0, 1, 1.0]], [0], 1, antialias=True),
    ):
        with pytest.raises(ValueError, match=r"must be float64 where a bin has more than 2\*\*22"):
            call()
    assert out[0, 0, 0, 0] == 5
    np.testing.assert_allclose(roipool.roi_average_pool(row, half, 1), 1, rtol=0.01)
    assert roipool.roi_pool(row, whole, 1) == 1
    exact = roipool.roi_average_pool(row.astype(np.float64), whole, 1)
    np.testing.assert_allclose(exact, 1, rtol=1e-9)


def test_a_view_larger_than_any_memory_is_named() -> None:
    view = np.lib.stride_tricks.as_strided(np.ones(1, np.float16), (1, 2**61, 1, 1), (0, 0, 0, 0))
    with pytest.raises(MemoryError, match=r"features .* is more than any memory holds"):
        roipool.roi_align(view, [[0, 0, 0, 1, 1.0]], 1)
