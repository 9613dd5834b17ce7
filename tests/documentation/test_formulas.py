"""The formulas on the pages of the implementations place samples where the engine does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _extension import calls, sampling

from roipool.compat import caffe, torchvision

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


def formula(page: str, name: str) -> Callable[..., Any]:
    text = (SOURCES / "docs" / "systems" / f"{page}.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(block, names)
    return names[name]  # type: ignore[no-any-return]


def grid(aligned: bool) -> Callable[..., Line]:
    align = formula("torchvision", "roi_align")
    return lambda low, high, size: align(low, high, 2, 1.0, 2, aligned)


def cells(page: str, name: str) -> Callable[..., Line]:
    function = formula(page, name)
    return lambda low, high, size: function(low, high, 2, 1.0, size)


def crop(low: float, high: float, size: int) -> Line:
    step = formula("tensorflow", "crop_and_resize")
    return [[at] for at in step(low / (size - 1), high / (size - 1), 2, size)]


def centres(low: float, high: float, size: int) -> Line:
    return [[at] for at in formula("roialign_pytorch", "roi_align")(low, high, 2)]


# Of each: the formula, and the distance beyond the outermost cells' centres that is inside.
LINES: dict[str, tuple[Callable[..., Line], float]] = {
    "torchvision.roi_align": (grid(False), 1),
    "torchvision.roi_align[aligned]": (grid(True), 1),
    "torchvision.roi_pool": (cells("caffe", "roi_pooling"), 0),
    "caffe.roi_pooling": (cells("caffe", "roi_pooling"), 0),
    "caffe.roi_align": (cells("caffe", "roi_align"), 1),
    "chainer.roi_average_pooling_2d": (cells("chainer", "roi_average_pooling_2d"), 0),
    "detectron2.ROIAlign": (grid(True), 1),
    "maskrcnn_benchmark.roi_align": (grid(False), 1),
    "mmcv.roi_align": (grid(True), 1),
    "mmcv.roi_align[max]": (grid(True), 1),
    "mmcv.roi_pool": (cells("mmcv", "roi_pool"), 0),
    "mxnet.ROIPooling": (cells("caffe", "roi_pooling"), 0),
    "mxnet.contrib_ROIAlign": (grid(False), 1),
    "mxnet.ROIAlign": (cells("caffe", "roi_align"), 1),
    "onnx.RoiAlign[opset 10]": (grid(False), 1),
    "onnx.RoiAlign[opset 16]": (grid(True), 1),
    "onnx.MaxRoiPool": (cells("caffe", "roi_pooling"), 0),
    "tensorflow.crop_and_resize": (crop, 0),
    "roialign_pytorch.RoIAlign": (centres, 0),
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
    assert {name for name in calls.CALLS if not name.startswith("roipool.")} == {
        *LINES,
        *elsewhere,
    }


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
