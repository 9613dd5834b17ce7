"""ROI align of volumes under the names of other systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import Arrays, recorded

import roipool
from roipool.compat import medicaldetectiontoolkit, medvision

RNG = np.random.default_rng(0)
VOLUMES = RNG.normal(size=(2, 3, 6, 7, 9))
# In the core's order: x, y, z. Boxes of the first image come first.
ROIS = np.array([[0, 1.25, 0.5, 1, 6.5, 5.25, 4], [1, -2, 1, 2.5, 4, 7.75, 8]])
GRAD = RNG.normal(size=(2, 3, 2, 3, 4))
YXZ = ROIS[:, [0, 3, 2, 6, 5, 1, 4]]  # y along the first axis of a volume, z along the last
SIZE = (2, 3, 4)


@pytest.mark.parametrize(
    "case", [*recorded("mdt_align_3d")], ids=lambda case: str(case["boxes"].dtype)
)
def test_answers_are_those_of_medicaldetectiontoolkit(case: Arrays) -> None:
    options = float(case["spatial_scale"]), int(case["sampling_ratio"])
    rounding = 8 * np.finfo(case["input"].dtype).eps
    pooled = medicaldetectiontoolkit.roi_align_3d(
        case["input"], case["boxes"], case["output_size"].tolist(), *options
    )
    largest = np.abs(case["input"]).max()
    np.testing.assert_allclose(pooled, case["pooled"], rtol=0, atol=rounding * largest)
    gradient = medicaldetectiontoolkit.roi_align_3d_backward(
        case["grad"], case["boxes"], case["input"].shape, *options
    )
    largest = max(np.abs(case["gradient"]).max(), np.abs(case["grad"]).max())
    np.testing.assert_allclose(gradient, case["gradient"], rtol=0, atol=rounding * largest)


@thorough_on_the_emulator
@pytest.mark.parametrize("ratio", [-1, 0, 2])
def test_they_are_the_operation(backend: Backend, ratio: int) -> None:
    library: Any = backend.library
    options: dict[str, Any] = {"sampling_ratio": max(ratio, 0), "aligned": False}
    pooled = library.roi_align_3d(VOLUMES, ROIS, SIZE, 0.5, **options)
    gradient = library.roi_align_3d_backward(GRAD, ROIS, VOLUMES.shape, 0.5, **options)
    for name, boxes in (("medvision", ROIS), ("medicaldetectiontoolkit", YXZ)):
        system: Any = getattr(library.compat, name)
        same = np.testing.assert_array_equal
        same(system.roi_align_3d(VOLUMES, boxes, SIZE, 0.5, ratio), pooled)
        same(system.RoIAlign(SIZE, 0.5, ratio)(VOLUMES, boxes), pooled)
        same(system.roi_align_3d_backward(GRAD, boxes, VOLUMES.shape, 0.5, ratio), gradient)


def test_boxes_of_each_image() -> None:
    lists = [YXZ[:1, 1:], YXZ[1:, 1:]]
    pooled = medicaldetectiontoolkit.roi_align_3d(VOLUMES, lists, SIZE)
    expected = medicaldetectiontoolkit.roi_align_3d(VOLUMES, YXZ, SIZE)
    np.testing.assert_array_equal(pooled, expected)
    with pytest.raises(ValueError, match="boxes as a sequence must hold one array per image"):
        medicaldetectiontoolkit.roi_align_3d(VOLUMES, lists[:1], SIZE)


def test_older_crops_are_samples_at_the_centres_of_bins() -> None:
    """The identity of the page on migration, for bins that lie inside the volume."""
    fractions = np.array([[0.2, 0.3, 0.7, 0.8, 0.25, 0.75]])  # y1, x1, y2, x2, z1, z2
    sizes = VOLUMES.shape[2:]
    positions = []
    for (low, high), size, bins in zip(((0, 2), (1, 3), (4, 5)), sizes, SIZE, strict=True):
        step = (fractions[0, high] - fractions[0, low]) * size / bins
        positions.append(fractions[0, low] * size + (np.arange(bins) + 0.5) * step - 0.5)
    expected = VOLUMES[0]
    for axis, places in enumerate(positions):
        low = np.floor(places).astype(int)
        share = np.expand_dims(places - low, tuple(range(1, 3 - axis)))
        before, after = (np.take(expected, low + end, axis=1 + axis) for end in (0, 1))
        expected = before + (after - before) * share
    boxes = fractions * np.array([sizes[axis] for axis in (0, 1, 0, 1, 2, 2)])
    rois = np.column_stack([np.zeros(1), boxes[:, [4, 1, 0, 5, 3, 2]]])
    pooled = roipool.roi_align_3d(VOLUMES, rois, SIZE, sampling_ratio=1)
    np.testing.assert_allclose(pooled[0], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: medvision.roi_align_3d(VOLUMES, ROIS, 2, 1.0, order=0), ValueError, "order must"),
        (lambda: medvision.roi_align_3d(VOLUMES, ROIS[:, 1:], 2, 1.0), ValueError, r"rois .*z1"),
        (lambda: medvision.roi_align_3d(VOLUMES, ROIS + 7, 2, 1.0), ValueError, "rois"),
        (lambda: medvision.RoIAlign((2, 2)), ValueError, "output_size"),
        (lambda: medvision.roi_align_3d(VOLUMES[0], ROIS, 2, 1.0), ValueError, "features"),
        (
            lambda: medicaldetectiontoolkit.roi_align_3d(VOLUMES, YXZ[:, 1:], SIZE),
            ValueError,
            "boxes must have shape .*y1, x1, y2, x2, z1, z2",
        ),
        (
            lambda: medicaldetectiontoolkit.roi_align_3d(VOLUMES.astype(int), YXZ, SIZE),
            TypeError,
            "input must",
        ),
        (
            lambda: medicaldetectiontoolkit.roi_align_3d(VOLUMES, YXZ, SIZE, sampling_ratio=1.5),
            TypeError,
            "sampling_ratio",
        ),
        (lambda: medicaldetectiontoolkit.RoIAlign((7, 7)), ValueError, "output_size"),
    ],
)
def test_wrong_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
