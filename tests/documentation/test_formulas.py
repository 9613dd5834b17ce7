"""The formulas on the pages of implementations give the engine's sample positions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _extension import calls, sampling

import roipool
from roipool.compat import (
    caffe,
    detectron2,
    megengine,
    mmcv,
    mxnet,
    openvino,
    precise_roi_pooling,
    torchvision,
)
from roipool.reference import ROI_ALIGN, ROI_POOL
from roipool.systems import RULES

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())

Line = list[Any]
SIZES = (sampling.HEIGHT, sampling.WIDTH)
BOXES = [
    sampling.BOX,
    (2.3, 0.7, 2.6, 6.4),  # narrow
    (-3.2, -1.3, 3.9, 4.1),  # over the upper left corner
    (4.2, 3.1, 14.7, 9.6),  # over the lower right one
    (6.6, 5.2, 2.1, 0.9),  # reversed
    (-9.4, -8.3, -4.1, -5.2),  # outside
    (0.5, 0.5, 2.5, 2.5),  # halves
]


def formula(page: str, name: str, folder: str = "systems") -> Callable[..., Any]:
    text = (SOURCES / "docs" / folder / f"{page}.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(block, names)
    return names[name]  # type: ignore[no-any-return]


def grid(aligned: bool, page: str = "torchvision", folder: str = "systems") -> Callable[..., Line]:
    align = formula(page, "roi_align", folder)
    return lambda low, high, size: align(low, high, 2, 1.0, 2, aligned)


def cells(page: str, name: str, folder: str = "systems") -> Callable[..., Line]:
    function = formula(page, name, folder)
    return lambda low, high, size: function(low, high, 2, 1.0, size)


def crop(page: str, folder: str) -> Callable[..., Line]:
    step = formula(page, "crop_and_resize", folder)
    return lambda low, high, size: [
        [at] for at in step(low / (size - 1), high / (size - 1), 2, size)
    ]


@pytest.mark.parametrize(("pixels", "length"), [(1, 7), (3, 7), (7, 7), (20, 7), (5, 1)])
def test_crop(pixels: int, length: int) -> None:
    """The crop of a picture with one bright pixel is that pixel's weights."""
    weights = np.array(
        [formula("crop", "crop", "operations")(p, pixels, length) for p in range(pixels)]
    )
    pictures = list(np.eye(length)[:, np.newaxis])
    crops = roipool.crop(pictures, [[[0, 0, length, 1]]] * length, (1, pixels))
    np.testing.assert_allclose(crops[:, 0].T, weights, atol=1e-12)


def centres(low: float, high: float, size: int) -> Line:
    return [[at] for at in formula("roialign_pytorch", "roi_align")(low, high, 2)]


def tenths(low: float, high: float, size: int) -> Line:
    """ChainerCV's grid, of a side of at least a tenth of a cell."""
    return grid(True)(low + 0.5, max(high, low + 0.1) + 0.5, size)


def without_reversed_sides(low: float, high: float, size: int) -> Line:
    """MegEngine's grid, of a side of at least 0 cells; samples at one place are drawn once."""
    line = grid(True)(low, max(high, low), size)
    return [list(dict.fromkeys(one)) for one in line]


# The formula, and the distance beyond the outermost cell centres that is inside: for all systems
# with these rules, and for each other one.
OF_RULES = (
    (ROI_POOL, (cells("caffe", "roi_pooling"), 0)),
    (ROI_ALIGN.of_boxes(False), (grid(False), 1)),
    (ROI_ALIGN.of_boxes(True), (grid(True), 1)),
)
LINES: dict[str, tuple[Callable[..., Line], float]] = {
    **{
        name: line
        for name, text in calls.CALLS.items()
        for rules, line in OF_RULES
        if RULES.get(name) == rules and not re.search("rotated|offsets", text)
    },
    "caffe.roi_align": (cells("caffe", "roi_align"), 1),
    "chainer.roi_pooling_2d": (cells("chainer", "roi_pooling_2d"), 0),
    "chainer.roi_average_pooling_2d": (cells("chainer", "roi_average_pooling_2d"), 0),
    "chainer.roi_max_align_2d": (grid(False), 1),
    "chainer.roi_max_pooling_2d": (cells("chainer", "roi_average_pooling_2d"), 0),
    "chainercv.ps_roi_average_pooling_2d": (cells("chainercv", "ps_roi_average_pooling_2d"), 0),
    "chainercv.ps_roi_max_pooling_2d": (cells("chainercv", "ps_roi_average_pooling_2d"), 0),
    "chainercv.ps_roi_average_align_2d": (tenths, 1),
    "chainercv.ps_roi_max_align_2d": (tenths, 1),
    "megengine.roi_align": (without_reversed_sides, 1),
    "megengine.roi_align[max]": (without_reversed_sides, 1),
    "megengine.roi_pooling[average]": (cells("caffe", "roi_pooling"), 0),
    "mmcv.roi_align[max]": (grid(True), 1),
    "mmcv.roi_pool": (cells("mmcv", "roi_pool"), 0),
    "mxnet.ROIAlign": (cells("caffe", "roi_align"), 1),
    "onnx.CropAndResize": (crop("crop_and_resize", "operations"), 0),
    "openvino.ROIPooling": (cells("openvino", "roi_pooling"), 0),
    "openvino.PSROIPooling": (cells("ps_roi_pool", "ps_roi_pool", "operations"), 0),
    "tensorflow.crop_and_resize": (crop("tensorflow", "systems"), 0),
    "roialign_pytorch.RoIAlign": (centres, 0),
    "roipool.roi_align": (grid(True, "roi_align", "operations"), 1),
    "roipool.roi_align[max]": (grid(True, "roi_align", "operations"), 1),
    "roipool.roi_pool": (cells("roi_pool", "roi_pool", "operations"), 0),
    "roipool.roi_average_pool": (cells("roi_average_pool", "roi_average_pool", "operations"), 0),
    "mxnet.contrib_PSROIPooling": (cells("ps_roi_pool", "ps_roi_pool", "operations"), 0),
    "paddle.psroi_pool": (cells("ps_roi_pool", "ps_roi_pool", "operations"), 0),
    "torchvision.ps_roi_pool": (cells("torchvision", "ps_roi_pool"), 0),
    "torchvision.ps_roi_align": (grid(True), 1),
    "roipool.ps_roi_pool": (cells("ps_roi_pool", "ps_roi_pool", "operations"), 0),
    "roipool.ps_roi_align": (grid(True, "roi_align", "operations"), 1),
    "roipool.crop_and_resize": (crop("crop_and_resize", "operations"), 0),
}


@pytest.mark.parametrize("name", LINES)
def test_positions(name: str) -> None:
    line, beyond = LINES[name]
    for box in BOXES:
        x1, y1, x2, y2 = (float(np.float32(number)) for number in box)
        rows, columns = line(y1, y2, SIZES[0]), line(x1, x2, SIZES[1])
        expected = [
            [
                (y, x)
                for y in row
                for x in column
                if -beyond <= y <= SIZES[0] - 1 + beyond and -beyond <= x <= SIZES[1] - 1 + beyond
            ]
            for row in rows
            for column in columns
        ]
        found = sampling.sampling(name, box).positions
        assert [len(one) for one in found] == [len(one) for one in expected], box
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_every_system_has_a_formula() -> None:
    elsewhere = {"onnx.RoiAlign[max]"}  # of its samples' corners
    elsewhere |= {*PRECISE, *ROTATED, *MOVED, *DEFORMABLE}  # tests of their own
    assert set(calls.CALLS) == {*LINES, *elsewhere}, (
        "no formula: write one on docs/systems/FRAMEWORK.md and add it to LINES or OF_RULES here"
    )


PRECISE = {
    "roipool.precise_roi_pool": roipool.precise_roi_pool,
    "mmcv.prroi_pool": mmcv.prroi_pool,
    "precise_roi_pooling.prroi_pool2d": precise_roi_pooling.PrRoIPool2D(2, 2, 1.0),
}


def test_antialiased_crops_have_these_weights() -> None:
    weigh = formula("crop_and_resize", "antialias", "operations")
    positions = formula("crop_and_resize", "crop_and_resize", "operations")
    low, high, size = 0.11, 0.87, 29
    maps = np.eye(size).reshape(1, size, size, 1)
    for bins in (1, 2, 5, 40):
        boxes = [[low, 0, high, 0]]
        weights = roipool.crop_and_resize(maps, boxes, [0], (bins, 1), antialias=True)[0, :, :, 0].T
        for one, position in zip(weights, positions(low, high, bins, size), strict=True):
            expected = weigh(position, low, high, bins, size)
            np.testing.assert_allclose(one, expected, rtol=0, atol=1e-12)


def test_a_crop_as_resized_has_its_positions() -> None:
    convert = formula("crop_and_resize", "as_resized", "operations")
    positions = formula("crop_and_resize", "crop_and_resize", "operations")
    ends = convert(3.0, 11.0, 4, 20)
    np.testing.assert_allclose(positions(*ends, 4, 20), [3.5, 5.5, 7.5, 9.5])


@pytest.mark.parametrize("name", PRECISE)
def test_precise_roi_pool_has_these_weights(name: str) -> None:
    weights = formula("precise_roi_pool", "precise_roi_pool", "operations")
    plane = np.random.default_rng(0).standard_normal(SIZES)
    for x1, y1, x2, y2 in BOXES:
        if x2 > x1 and y2 > y1:
            down, across = (
                np.array(weights(low, high, 2, 1.0, size))
                for low, high, size in ((y1, y2, SIZES[0]), (x1, x2, SIZES[1]))
            )
            size = () if name.endswith("2d") else (2,)
            found = PRECISE[name](plane[None, None], [[0, x1, y1, x2, y2]], *size)
            np.testing.assert_allclose(found[0, 0], down @ plane @ across.T, atol=1e-12)


def _rotated(aligned: bool, unit: float, pool: Callable[..., Any]) -> Callable[..., Any]:
    """Return what pools a box of radians by a system, with its shift undone."""
    shift = 0.0 if aligned else 0.5

    def call(maps: Any, box: list[float]) -> Any:
        moved = [box[0], box[1] - shift, box[2] - shift, *box[3:5], box[5] * unit]
        return pool(maps, [moved], (2, 3))

    return call


def _openvino(maps: Any, rois: Any, size: tuple[int, int]) -> Any:
    boxes = [box[1:] for box in rois]
    return openvino.ROIAlignRotated(maps, boxes, [0], *size, 1, 1.0, False)


DEGREES = 180 / np.pi
ROTATED = {
    "roipool.roi_align_rotated": _rotated(
        True, 1, lambda *call: roipool.roi_align_rotated(*call, 1.0, 1)
    ),
    "mmcv.roi_align_rotated": _rotated(
        True, 1, lambda *call: mmcv.roi_align_rotated(*call, 1.0, 1)
    ),
    "detectron2.ROIAlignRotated": _rotated(
        True, DEGREES, lambda maps, rois, size: detectron2.ROIAlignRotated(size, 1.0, 1)(maps, rois)
    ),
    "mxnet.contrib_RROIAlign": _rotated(
        False, DEGREES, lambda *call: mxnet.contrib_RROIAlign(*call, 1.0, 1)
    ),
    "openvino.ROIAlignRotated": _rotated(True, 1, _openvino),
}


@pytest.mark.parametrize("name", ROTATED)
def test_rotated_samples_lie_there(name: str) -> None:
    turn = formula("roi_align_rotated", "rotated", "operations")
    rows, columns = np.mgrid[: SIZES[0], : SIZES[1]].astype(float)
    for angle in (0.0, 0.4, 2.0, -1.1):
        box = [[0, 5.5, 4.5, 3.0, 2.0, angle]]  # one sample for each of 2 x 3 bins of one cell
        for plane, axis in ((rows, 0), (columns, 1)):
            found = ROTATED[name](plane[None, None], *box)[0, 0]
            grid_points = [(y, x) for y in (-0.5, 0.5) for x in (-1.0, 0.0, 1.0)]
            expected = [turn(y, x, 4.0, 5.0, angle)[axis] for y, x in grid_points]
            np.testing.assert_allclose(found.ravel(), expected, atol=1e-9)


MOVED = {
    "roipool.deform_roi_pool": roipool.deform_roi_pool,
    "mmcv.deform_roi_pool": mmcv.deform_roi_pool,
}


@pytest.mark.parametrize("name", MOVED)
def test_moved_bins_lie_there(name: str) -> None:
    moved = formula("deform_roi_pool", "moved", "operations")
    box, centres = (2.0, 1.0, 6.0, 5.0), [(2.0, 3.0), (2.0, 5.0), (4.0, 3.0), (4.0, 5.0)]
    offsets = np.random.default_rng(0).uniform(-2, 2, (1, 2, 2, 2))
    planes = np.mgrid[: SIZES[0], : SIZES[1]].astype(float)
    found = MOVED[name](planes[None], [[0, *box]], offsets, 2, sampling_ratio=1)
    by_bin = zip(centres, offsets.reshape(2, -1).T, strict=True)
    expected = [moved(y - 0.5, x - 0.5, box, offset) for (y, x), offset in by_bin]
    tolerance = 1e-12 if name.startswith("roipool") else 1e-6  # gamma is a float32
    np.testing.assert_allclose(found.reshape(2, -1).T, expected, atol=tolerance)


def in_groups(planes: Any) -> Any:
    return planes.repeat(4, axis=1)


DEFORMABLE: dict[str, Callable[..., Any]] = {
    "roipool.deformable_ps_roi_pool": lambda planes, *at: roipool.deformable_ps_roi_pool(
        in_groups(planes), *at, 2, samples=2, gamma=0.25
    ),
    "mxnet.contrib_DeformablePSROIPooling": lambda *at: mxnet.contrib_DeformablePSROIPooling(
        in_groups(at[0]), *at[1:], 1.0, 2, 2, 2, 2, 2, 0.25
    ),
    "openvino.DeformablePSROIPooling": lambda *at: openvino.DeformablePSROIPooling(
        in_groups(at[0]),
        *at[1:],
        output_dim=2,
        spatial_scale=1.0,
        group_size=2,
        spatial_bins_x=2,
        spatial_bins_y=2,
        trans_std=0.25,
        part_size=2,
    ),
    "megengine.deformable_psroi_pooling": lambda *at: megengine.deformable_psroi_pooling(
        *at, False, 2, 2, 2, 2, 1.0, 0.25
    ),
}


@pytest.mark.parametrize("name", DEFORMABLE)
def test_samples_of_deformable_bins_lie_there(name: str) -> None:
    positions = formula("deformable_ps_roi_pool", "positions", "operations")
    box, offsets = (2.5, 1.4, 5.0, 4.6), np.random.default_rng(0).uniform(-1, 1, (1, 2, 2, 2))
    planes = np.mgrid[: SIZES[0], : SIZES[1]].astype(float)
    found = DEFORMABLE[name](planes[None], [[0, *box]], offsets)[0]
    for i, j in np.ndindex(2, 2):
        dx, dy = offsets[0, :, i, j]
        for axis, (ends, number, offset) in enumerate(((box[1::2], i, dy), (box[::2], j, dx))):
            expected = np.mean(positions(*ends, number, 2, offset, samples=2, gamma=0.25))
            np.testing.assert_allclose(found[axis, i, j], expected, atol=1e-12)


def test_levels_are_those_of_the_formula() -> None:
    level = formula("multilevel_roi_align", "level", "operations")
    boxes = np.sort(np.random.default_rng(0).uniform(0, 900, (500, 2, 2)), axis=1).reshape(-1, 4)
    found = roipool.assign_levels(boxes, 2, 5)
    assert [level(*box, 2, 5) for box in boxes] == found.tolist()


PASTED: dict[str, Callable[..., Any]] = {
    "operations/paste_masks": roipool.paste_masks,
    "systems/torchvision": torchvision.paste_masks_in_image,
}


@pytest.mark.parametrize("page", PASTED)
def test_pixels_of_pasted_masks_have_these_weights(page: str) -> None:
    folder, name = page.split("/")
    weights = formula(name, "paste", folder)
    mask = np.random.default_rng(0).standard_normal((5, 5))
    for x1, y1, x2, y2 in BOXES:
        if x2 > x1 and y2 > y1:
            expected = np.zeros(SIZES)
            for y, x in np.ndindex(SIZES):
                rows, columns = weights(y, y1, y2, 5), weights(x, x1, x2, 5)
                terms = [mask[i, j] * down * across for i, down in rows for j, across in columns]
                expected[y, x] = sum(terms)
            found = PASTED[page](mask[None, None], [[x1, y1, x2, y2]], SIZES)
            np.testing.assert_allclose(found[0, 0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align_is_the_mean_of_these_samples(ratio: int, aligned: bool) -> None:
    align, bilinear = formula("torchvision", "roi_align"), formula("torchvision", "bilinear")
    rng = np.random.default_rng(0)
    plane = rng.standard_normal(SIZES)
    for box in rng.uniform(-20, 40, (40, 4)):
        columns, rows = (align(box[i], box[i + 2], 3, 0.3, ratio, aligned) for i in (0, 1))
        expected = np.zeros((3, 3))
        for bin_number in np.ndindex(3, 3):
            ys, xs = rows[bin_number[0]], columns[bin_number[1]]
            total = 0.0
            for y in ys:
                for x in xs:
                    corners = [
                        plane[row, column] * down * across
                        for row, down in bilinear(y, SIZES[0])
                        for column, across in bilinear(x, SIZES[1])
                    ]
                    total += sum(corners)
            expected[bin_number] = total / max(len(ys) * len(xs), 1)
        rois = np.array([[0, *box]])
        found = torchvision.roi_align(plane[None, None], rois, 3, 0.3, ratio, aligned)
        np.testing.assert_allclose(found[0, 0], expected, rtol=1e-9, atol=1e-12)


def test_the_steps_of_caffe_have_these_weights() -> None:
    align, weights = formula("caffe", "roi_align"), formula("caffe", "step_weights")
    rng = np.random.default_rng(0)
    plane = rng.standard_normal(SIZES)
    for box in [*rng.uniform(-2, 9, (40, 4)), *rng.integers(0, 7, (20, 4)).astype(float)]:
        columns, rows = (align(box[i], box[i + 2], 2, 1.0, SIZES[1 - i]) for i in (0, 1))
        top = caffe.roi_align(plane[None, None], [[0, *box]], 2, 2, 1.0)[0][0, 0]
        for (p, q), value in np.ndenumerate(top):
            samples = [
                sum(
                    plane[row, column] * down * across
                    for row, down in weights(y, SIZES[0])
                    for column, across in weights(x, SIZES[1])
                )
                for y in rows[p]
                for x in columns[q]
            ]
            np.testing.assert_allclose(value, max(samples, default=0.0), rtol=1e-9, atol=1e-12)
