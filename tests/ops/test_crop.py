"""Crops of pictures beside Pillow's, in all types, and of files that are not read whole."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import roipool

PICTURE = np.random.default_rng(0).integers(0, 256, (61, 83, 3), np.uint8)
BOXES = np.array(
    [
        [0, 0, 16, 16],  # at each corner, and beyond
        [67, 45, 83, 61],
        [-9, -5, 12, 70],
        [80, 50, 99, 62],
        [0, 0, 83, 61],
        [30, 20, 31, 21],  # one pixel
        [3, 5, 40, 6],
        [7, 3, 8, 60],
        [-30, -40, -10, -20],  # outside
        [10, 100, 50, 130],
    ]
)
SIZES = [1, 2, 5, 16, 64, (3, 40), (40, 3), (1, 9), (9, 1)]


def by_pillow(picture: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    from PIL import Image

    cut = Image.fromarray(picture).crop(tuple(map(int, box)))
    return np.asarray(cut.resize(size[::-1], Image.Resampling.BILINEAR))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_crops_are_pillows_to_a_level(size: int | tuple[int, int]) -> None:
    pytest.importorskip("PIL")
    pair = (size, size) if isinstance(size, int) else size
    rng = np.random.default_rng(1)
    ends = np.sort(rng.integers(-20, 100, (2, 200, 2)), axis=0)
    boxes = np.vstack([BOXES, np.hstack([ends[0], np.maximum(ends[1], ends[0] + 1)])])
    crops = roipool.crop(PICTURE, boxes, size)
    assert crops.dtype == np.uint8
    expected = np.stack([by_pillow(PICTURE, box, pair) for box in boxes])
    assert np.abs(crops.astype(int) - expected).max() <= 1


def test_crops_in_their_own_size_are_pixels() -> None:
    pytest.importorskip("PIL")
    crops = roipool.crop(PICTURE, BOXES)
    for crop, box in zip(crops, BOXES, strict=True):
        size = (box[3] - box[1], box[2] - box[0])
        np.testing.assert_array_equal(crop, by_pillow(PICTURE, box, size))


def test_each_crop_in_a_size() -> None:
    sizes = np.array([[5, 7], [1, 1], [30, 2]])
    crops = roipool.crop(PICTURE, BOXES[:3], sizes)
    assert [crop.shape for crop in crops] == [(5, 7, 3), (1, 1, 3), (30, 2, 3)]
    for crop, box, size in zip(crops, BOXES, sizes.tolist(), strict=False):
        np.testing.assert_array_equal(crop, roipool.crop(PICTURE, [box], size)[0])


def test_enlarging_without_antialias_is_the_same() -> None:
    crops = (roipool.crop(PICTURE, BOXES[:2], 64, antialias=each) for each in (True, False))
    np.testing.assert_array_equal(*crops)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float16", "float64"])
def test_types_are_kept(dtype: str) -> None:
    levels = PICTURE.astype(np.float64) - (128 if dtype in ("int8", "int16") else 0)
    picture = (levels * (200 if dtype in ("uint16", "int16") else 1)).astype(dtype)
    crops = roipool.crop(picture, BOXES, 9)
    assert crops.dtype == dtype
    exact = roipool.crop(picture.astype(np.float64), BOXES, 9)
    step = 1 if dtype == "float16" else 0.51  # rounded once, from float32
    assert np.abs(crops - exact).max() <= (1e-9 if dtype == "float64" else step)


def test_the_largest_values_are_kept() -> None:
    for dtype in ("uint8", "int8", "uint16", "int16"):
        for value in (np.iinfo(dtype).min, np.iinfo(dtype).max):
            picture = np.full((30, 40), value, dtype)
            for size in (7, 64):
                assert (roipool.crop(picture, [[1, 2, 29, 24]], size) == value).all()


def test_masks() -> None:
    mask = np.zeros((20, 20), bool)
    mask[:, 10:] = True
    crop = roipool.crop(mask, [[6, 0, 14, 8]], 4)
    np.testing.assert_array_equal(crop, [[[False, False, True, True]] * 4])


def test_layouts_and_grey_pictures() -> None:
    expected = roipool.crop(PICTURE, BOXES, 12)
    planes = np.ascontiguousarray(PICTURE.transpose(2, 0, 1))
    by_planes = roipool.crop(planes, BOXES, 12, layout="CHW")
    np.testing.assert_array_equal(by_planes, expected.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(roipool.crop(PICTURE[..., 1], BOXES, 12), expected[..., 1])


@pytest.mark.parametrize(
    ("box_format", "box"),
    [
        ("xyxy", [10, 20, 40, 30]),
        ("yxyx", [20, 10, 30, 40]),
        ("xywh", [10, 20, 30, 10]),
        ("cxcywh", [25, 25, 30, 10]),
        ("yolo", [25 / 83, 25 / 61, 30 / 83, 10 / 61]),
    ],
)
def test_formats(box_format: Any, box: list[float]) -> None:
    (crop,) = roipool.crop(PICTURE, [box], box_format=box_format)
    np.testing.assert_array_equal(crop, PICTURE[20:30, 10:40])


def test_boxes_are_rounded_to_pixels() -> None:
    boxes = [[9.6, 19.5, 40.4, 29.5], [5.2, 7.1, 5.4, 7.3], [5.7, 7.6, 5.9, 7.8]]
    crops = roipool.crop(PICTURE, boxes)
    np.testing.assert_array_equal(crops[0], PICTURE[20:30, 10:40])
    for narrow in crops[1:]:
        np.testing.assert_array_equal(narrow, PICTURE[7:8, 5:6])


def test_filling() -> None:
    crops = roipool.crop(PICTURE, [[-4, -4, 4, 4]], fill=7)
    assert (crops[0][:4] == 7).all()
    assert (crops[0][:, :4] == 7).all()
    np.testing.assert_array_equal(crops[0][4:, 4:], PICTURE[:4, :4])


@pytest.mark.parametrize(
    ("dtype", "ends"), [(np.uint8, (0, 255)), (np.int16, (-(2**15), 2**15 - 1))]
)
def test_a_filling_is_any_number_that_a_picture_holds(dtype: Any, ends: tuple[int, int]) -> None:
    picture = np.ones((2, 2), dtype)
    for fill in ends:
        assert roipool.crop(picture, [[2, 0, 3, 1]], fill=fill)[0] == fill
    for fill in (ends[0] - 1, ends[1] + 1):
        with pytest.raises(ValueError, match="fill must be a whole number that picture can hold"):
            roipool.crop(picture, [[2, 0, 3, 1]], fill=fill)


def test_several_pictures() -> None:
    others = [PICTURE, PICTURE[:40, :50]]
    crops = roipool.crop(others, [BOXES[:2], BOXES[2:]], 8)
    expected = [roipool.crop(others[0], BOXES[:2], 8), roipool.crop(others[1], BOXES[2:], 8)]
    np.testing.assert_array_equal(crops, np.concatenate(expected))
    batch = np.stack([PICTURE, PICTURE[::-1]])
    np.testing.assert_array_equal(
        roipool.crop(batch, np.stack([BOXES] * 2), 8), roipool.crop([*batch], [BOXES] * 2, 8)
    )


def test_no_boxes() -> None:
    assert roipool.crop(PICTURE, np.empty((0, 4)), 5).shape == (0, 5, 5, 3)
    assert roipool.crop(PICTURE, []) == []


class File:
    """A picture in a file: slices of it are read."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.dtype, self.most = shape, np.dtype(np.uint16), 0

    def __getitem__(self, where: tuple[slice, ...]) -> list[Any]:
        lengths = [each.indices(length) for each, length in zip(where, self.shape, strict=False)]
        counts = [max(0, end - begin) for begin, end, _ in lengths]
        self.most = max(self.most, int(np.prod(counts)))
        (top, _, _), (left, _, _) = lengths
        rows, columns = np.indices(counts)
        return ((rows + top) + (columns + left)).astype(np.uint16)  # type: ignore[no-any-return]


def test_only_boxes_of_files_are_read() -> None:
    file = File((10**6, 10**6))
    crops = roipool.crop(file, [[100, 200, 140, 230], [10**6 - 8, 0, 10**6 + 8, 8]], 8)
    assert file.most == 40 * 30
    assert crops.dtype == np.uint16
    assert abs(int(crops[0].astype(int).mean()) - (120 + 215 - 1)) <= 1


def test_pictures_of_pillow() -> None:
    image = pytest.importorskip("PIL.Image").fromarray(PICTURE)
    np.testing.assert_array_equal(roipool.crop(image, BOXES, 6), roipool.crop(PICTURE, BOXES, 6))


def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    shown = roipool.crop(PICTURE, BOXES, 6, progress=True)
    np.testing.assert_array_equal(shown, roipool.crop(PICTURE, BOXES, 6))
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(ImportError, match="pip install rich"):
        roipool.crop(PICTURE, BOXES, 6, progress=True)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"boxes": [[9, 9, 4, 12]]}, ValueError, r"end after their beginning, got \[9, 9, 4, 12\]"),
        ({"boxes": [[0, 0, np.nan, 4]]}, ValueError, "boxes must be finite"),
        ({"boxes": [[0, 0, 1e12, 4]]}, ValueError, "within 2147483648 pixels"),
        ({"boxes": [1, 2, 3, 4]}, ValueError, r"boxes must have shape \(K, 4\), rows x1, y1"),
        ({"boxes": "all"}, TypeError, "boxes"),
        ({"size": 0}, ValueError, "size must be from 1"),
        ({"size": [[1, 2]]}, ValueError, "a row for each of 10 boxes"),
        ({"size": "64"}, TypeError, "size"),
        ({"fill": 256}, ValueError, "fill must be a whole number that picture can hold, uint8"),
        ({"fill": 0.5}, ValueError, "fill must be a whole number"),
        ({"fill": None}, TypeError, "fill"),
        ({"box_format": "tlbr"}, ValueError, "box_format must be 'xyxy' or"),
        ({"layout": "NHWC"}, ValueError, "layout must be 'HWC' or 'CHW'"),
        ({"antialias": 1}, TypeError, "antialias"),
        ({"progress": 1}, TypeError, "progress"),
        ({"picture": PICTURE.astype(np.int32)}, TypeError, "picture must be .*got int32"),
        ({"picture": 3}, TypeError, "picture must be an array or a picture, got int"),
        ({"picture": np.ones(4)}, ValueError, r"shape \(H, W\) or \(H, W, C\), got \(4,\)"),
        ({"picture": np.ones((0, 4))}, ValueError, "picture must have pixels"),
        ({"picture": [PICTURE]}, ValueError, "boxes of each of 1 pictures, got 10"),
        ({"picture": [PICTURE], "boxes": 3}, TypeError, "boxes must be a list"),
        (
            {"picture": [PICTURE, PICTURE[..., 0]], "boxes": [BOXES, BOXES]},
            ValueError,
            "one dtype and as many channels",
        ),
    ],
)
def test_errors(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"picture": PICTURE, "boxes": BOXES, "size": 5}
    with pytest.raises(error, match=message):
        roipool.crop(**{**given, **wrong})


def test_other_functions_say_how_a_picture_is_given() -> None:
    with pytest.raises(ValueError, match=r"features\[None\], of a picture .* layout='NHWC'"):
        roipool.roi_align(PICTURE, BOXES, 7)
    with pytest.raises(ValueError, match=r"for one image give \[rois\]"):
        roipool.roi_align(PICTURE[None], BOXES, 7, layout="NHWC")
    with pytest.warns(UserWarning, match="roipool.crop takes boxes in pixels"):
        roipool.crop_and_resize(
            PICTURE[None], np.abs(BOXES[4:]) * 20 + 11, [0] * 6, 7, layout="NHWC"
        )
