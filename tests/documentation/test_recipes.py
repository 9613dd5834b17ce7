"""The recipes of docs/migration.md, against the formulas of the originals, bin by bin."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from _support.migration import PAGE

import roipool
from roipool import compat

RNG = np.random.default_rng(4)
MAPS = RNG.standard_normal((2, 3, 12, 17)).astype(np.float32)
ROIS = np.float32(
    [[0, 16, 20, 100, 80], [1, 40, 3, 44, 9], [1, 0, 0, 128, 88], [0, 64, 64, 90, 70]]
)


def recipes() -> dict[str, Any]:
    """Run the page's recipes, and return their functions."""
    found: dict[str, Any] = {"np": np, "roipool": roipool, "compat": compat}
    section = PAGE.split("## Operations of other projects")[1].split("## Check before")[0]
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        exec(block, found)
    return found


RECIPES = recipes()


def corners(plane: Any, y: float, x: float) -> list[float]:
    """Return the four weighted cells around a position inside the map."""
    top, left = min(int(y), plane.shape[0] - 2), min(int(x), plane.shape[1] - 2)
    rows, columns = (1 - (y - top), y - top), (1 - (x - left), x - left)
    return [float(plane[top + i, left + j]) * rows[i] * columns[j] for i, j in np.ndindex(2, 2)]


def bilinear(plane: Any, y: float, x: float) -> float:
    """Interpolate one channel between the centres of its cells, at a position inside the map."""
    return sum(corners(plane, y, x))


def pooled(maps: Any, rois: Any, size: tuple[int, int], rows: Any, columns: Any) -> Any:
    """Return one sample per bin.

    `rows` and `columns` return its position from both ends of a box and the number of the bin.
    """
    found = np.zeros((len(rois), maps.shape[1], *size))
    for (k, channel, ph, pw), _ in np.ndenumerate(found):
        _, x1, y1, x2, y2 = rois[k].astype(np.float64)
        y, x = rows(y1, y2, ph), columns(x1, x2, pw)
        found[k, channel, ph, pw] = bilinear(maps[int(rois[k, 0]), channel], y, x)
    return found


def grids(
    rois: Any, bins: int, ratio: int, scales: tuple[float, float], offset: float, of_sample: Any
) -> Any:
    """Return values of the samples of each bin of `MAPS`: box, channel, row, column, sample."""
    found = np.zeros((len(rois), MAPS.shape[1], bins, bins, ratio**2))
    for (k, channel, ph, pw, sample), _ in np.ndenumerate(found):
        _, *box = rois[k].astype(np.float64)
        at = []
        for axis, number, inside in ((1, ph, sample // ratio), (0, pw, sample % ratio)):
            first, last = (end * scales[1 - axis] for end in (box[axis], box[axis + 2]))
            step = (last - first) / (bins * ratio)
            at.append(first - offset + (number * ratio + inside + 0.5) * step)
        found[k, channel, ph, pw, sample] = of_sample(MAPS[int(rois[k, 0]), channel], *at)
    return found


def test_the_old_roi_align() -> None:
    rois, size = ROIS[:2], 5

    def at(first: float, last: float, number: int) -> float:
        first, last = first / 8, last / 8
        return first + number * max(last - first + 1, 0) / (size - 1)

    expected = pooled(MAPS, rois, (size, size), at, at)
    got = RECIPES["old_roi_align"](MAPS, rois, size, 1 / 8)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    averages = RECIPES["old_roi_align_avg"](MAPS, rois, size - 1, 1 / 8)
    corners = np.stack([expected[:, :, i : i + 4, j : j + 4] for i in (0, 1) for j in (0, 1)])
    np.testing.assert_allclose(averages, corners.mean(axis=0), atol=1e-5)


def test_the_old_roi_align_of_a_report() -> None:
    """faster-rcnn.pytorch#312: the last sample is outside."""
    ramp = np.tile(np.arange(5, dtype=np.float32), (1, 1, 5, 1))
    got = RECIPES["old_roi_align"](ramp, np.float32([[0, 0, 0, 4, 4]]), 5, 1.0)
    assert got[0, 0, 0].tolist() == [0, 1.25, 2.5, 3.75, 0]


def test_crops_of_matterport() -> None:
    sides = (64, 32, 16, 8)
    maps = [RNG.standard_normal((2, n, n, 3)).astype(np.float32) for n in sides]
    corner = RNG.uniform(0, 0.3, (2, 20, 2))
    extent = RNG.uniform(0.02, 0.7, (2, 20, 1)) * [[1, 0.9]]
    boxes = np.concatenate([corner, corner + extent], axis=2).astype(np.float32)
    boxes[0, 0] = 0  # padding, without area
    got = RECIPES["pyramid_roi_align"](maps, boxes, (256, 256, 3), (3, 4))
    assert got.shape == (2, 20, 3, 4, 3)
    used = set()
    for n, k in np.ndindex(2, 20):
        y1, x1, y2, x2 = map(float, boxes[n, k])
        area = (y2 - y1) * (x2 - x1)
        level = 4 + round(math.log2(math.sqrt(area) / (224 / 256))) if area else 2
        level = min(max(level, 2), 5)
        used.add(level)
        last = sides[level - 2] - 1
        for ph, pw, channel in np.ndindex(3, 4, 3):
            y, x = (y1 + ph * (y2 - y1) / 2) * last, (x1 + pw * (x2 - x1) / 3) * last
            expected = bilinear(maps[level - 2][n, :, :, channel], y, x)
            assert got[n, k, ph, pw, channel] == pytest.approx(expected, abs=2e-5)
    assert used >= {2, 3, 4}


def test_a_crop_then_a_maximum() -> None:
    rois, size = ROIS[:2], 3
    got = RECIPES["crop_then_max"](MAPS.transpose(0, 2, 3, 1), rois, size, 8)

    def at(first: float, last: float, number: int) -> float:
        return first / 8 + number * (last - first) / 8 / (2 * size - 1)

    fine = pooled(MAPS, rois, (6, 6), at, at)
    quarters = [fine[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), np.max(quarters, axis=0), atol=1e-5)


def test_bitmap_masks() -> None:
    """The recipe in the table pools masks of bytes without a copy for each box."""
    masks = (RNG.random((3, 20, 30)) < 0.5).astype(np.uint8)
    boxes, inds = np.float32([[2, 3, 20, 15], [0, 0, 30, 20], [5, 5, 9, 8]]), np.array([2, 0, 2])
    names = {"roipool": roipool, "np": np, "masks": masks, "boxes": boxes, "inds": inds, "size": 7}
    (call,) = re.findall(r"\| `(roipool\.roi_align\(masks.*?)`", PAGE)
    got = eval(call, names)
    floats = roipool.reference.roi_align(
        masks[inds][:, None].astype(np.float64),
        np.column_stack([np.arange(3), boxes]),
        7,
        aligned=True,
    )
    assert got.shape == (3, 7, 7)
    assert got.dtype == bool
    clear = np.abs(floats[:, 0] - 0.5) > 1e-5
    assert (got == (floats[:, 0] >= 0.5))[clear].all()


def test_the_extractor_of_videos() -> None:
    clip = RNG.standard_normal((2, 3, 4, 12, 17)).astype(np.float32)
    got = RECIPES["extract"](clip, ROIS)
    assert got.shape == (4, 3, 4, 16, 16)
    for frame in range(4):
        alone = roipool.reference.roi_align(clip[:, :, frame], ROIS, 16, 1 / 16, aligned=True)
        np.testing.assert_allclose(got[:, :, frame], alone, atol=1e-5)


def test_prompts_of_sam_3() -> None:
    """Prompts of bins that are from one to two cells long, and so have two samples."""
    prompts = RNG.uniform([0.3, 0.3, 0.13, 0.18], [0.7, 0.7, 0.23, 0.32], (2, 3, 4))
    centre, half = prompts[..., :2], prompts[..., 2:] / 2
    rois = np.concatenate([[[[0]] * 3, [[1]] * 3], centre - half, centre + half], axis=2)
    got = RECIPES["pool_prompts"](MAPS, prompts, 2)
    expected = grids(rois.reshape(6, 5), 2, 2, (12, 17), 0.0, bilinear).mean(axis=-1)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("offset", [0.5, 0.0])
def test_plugins_of_tensorrt(offset: float) -> None:
    sizes = {"output_height": 3, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 1 / 8}
    rois, images = ROIS[:, 1:], ROIS[:, 0].astype(np.int64)
    options = {"coordinate_transformation_mode": int(offset > 0), **sizes}
    longer = [0, 2]  # whose sides are a cell at least, and not held at that
    given = ROIS[longer], 3, 2, (1 / 8, 1 / 8), offset
    maximum = grids(*given, lambda *at: max(corners(*at))).max(axis=-1)
    for mode, expected in ((1, grids(*given, bilinear).mean(axis=-1)), (0, maximum)):
        got = RECIPES["roi_align_trt"](MAPS, rois, images, mode=mode, **options)
        np.testing.assert_allclose(got[longer], expected, atol=1e-5)


@pytest.mark.parametrize("offset", [0.5, 0.0])
def test_operators_of_directml(offset: float) -> None:
    boxes = ROIS[[0, 2, 3]]  # whose samples are inside the map, the last shorter than a cell
    images, given = boxes[:, 0].astype(np.int64), (3, 1 / 8, 1 / 10, 2, offset)
    samples = grids(boxes, 3, 2, (1 / 10, 1 / 8), offset, bilinear)
    for mode, expected in (("avg", samples.mean(axis=-1)), ("max", samples.max(axis=-1))):
        got = RECIPES["roi_align1"](MAPS, boxes[:, 1:], images, *given, mode)
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_crops_of_core_ml() -> None:
    rois = np.float32([[0, 2, 1, 9, 10], [1, 0, 0, 16, 11]])

    def aligned(first: float, last: float, number: int, bins: int = 4) -> float:
        return first + number * (last - first) / (bins - 1)

    def unaligned(first: float, last: float, number: int, bins: int = 4) -> float:
        length = last - first + 1
        spacing = length / bins
        return first + min(length - 1, max(0, number * spacing + 0.5 * spacing - 0.5))

    for mode, at in (("ALIGN_CORNERS", aligned), ("UNALIGN_CORNERS", unaligned)):
        got = RECIPES["crop_resize"](MAPS, rois, (4, 4), mode)
        np.testing.assert_allclose(got, pooled(MAPS, rois, (4, 4), at, at), atol=1e-5)
    one = RECIPES["crop_resize"](MAPS, rois, (1, 1), "ALIGN_CORNERS")
    middle = pooled(MAPS, rois, (1, 1), *[lambda a, b, _: (a + b) / 2] * 2)
    np.testing.assert_allclose(one, middle, atol=1e-5)
