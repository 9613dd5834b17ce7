"""The harness's workloads, its timed calls of roipool, and its comparison of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import floor, ours
from harness.agreement import agreement
from harness.proposals import iou, scene
from harness.workloads import WORKLOADS, changed, choose, task_of

import roipool
from roipool import reference
from roipool.tools.libraries import LevelTask, Task, prepared

CODES = [f"W{number}{letter}" for number in range(1, 7) for letter in "ab"]


def test_every_named_workload_is_there() -> None:
    assert [w.code for w in choose("W*")] == CODES
    assert choose("w1A, fpn-box") == [WORKLOADS["fpn-box"]]
    assert {w.name for w in choose("stress-*")} == {n for n in WORKLOADS if "stress" in n}
    assert len(choose("*")) == len(WORKLOADS)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
def test_workloads_run(name: str, backward: bool, reuse: bool) -> None:
    reuse = reuse and name != "rfcn-pool"  # the functions of systems take no `out`
    workload = changed(WORKLOADS[name], boxes=3, channels=2)
    task = task_of(workload, "float32", backward)
    assert sum(len(level.rois) for level in task.levels) == 3 * workload.images
    call = ours.prepare(task, reuse)
    first, again = call(), call()
    for level, one, other in zip(task.levels, first, again, strict=True):
        pooled = (len(level.rois), 2, *task.output_size)
        if task.layout == "NHWC":
            pooled = (pooled[0], *pooled[2:], pooled[1])
        assert one.shape == (level.features.shape if backward else pooled)
        assert (one is other) == reuse
        assert np.array_equal(one, other)
    assert floor.output_bytes(task) == sum(result.nbytes for result in first)
    assert floor.compulsory_bytes(task) >= floor.output_bytes(task)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_types_of_arrays(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    task = task_of(changed(WORKLOADS["c4"], boxes=2, channels=1), dtype, True)
    (level,) = task.levels
    assert {level.features.dtype.name, level.grad.dtype.name} == {dtype}
    assert level.rois.dtype.name == ("float64" if dtype == "float64" else "float32")
    # Libraries that require boxes in the features' type must get the same boxes.
    assert (level.rois.astype(np.float16) == level.rois).all() == (dtype == "float16")


@pytest.mark.parametrize("number", [0, 4])
def test_training_boxes(number: int) -> None:
    """At most a quarter of an image's boxes are on objects; the mask head only gets those."""
    drawn = scene(np.random.default_rng([0, number]), 800, 1333)

    def on_object(boxes: Any) -> int:
        return int((iou(boxes, drawn.objects).max(axis=1) >= 0.5).sum())

    there = on_object(drawn.proposals) + len(drawn.objects)
    assert (there > 128) == (number == 4)
    for code, expected in (("W2a", min(there, 128)), ("W3b", 128)):
        (workload,) = choose(code)
        boxes = workload.sampler(np.random.default_rng(0), drawn, workload)
        assert len(boxes) == workload.boxes
        assert on_object(boxes) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("operation", "backward", "argmax", "expected"),
    [
        # Two channels of four bytes. Rows 0 to 2 and columns 1 to 2 are covered: 6 cells.
        ("roi_pool", False, False, 6 * 8 + 4 * 8),
        ("roi_pool", False, True, 6 * 8 + 4 * 16),
        ("roi_pool", True, True, 30 * 8 + 4 * 16),
        # Samples at rows 0.5 and 1.5 and columns 1.25 and 1.75: rows 0 to 2, columns 1 to 2.
        ("roi_align", False, False, 6 * 8 + 4 * 8),
        ("roi_align", True, False, 30 * 8 + 4 * 8),
    ],
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_compulsory_bytes_by_hand(
    operation: str, backward: bool, argmax: bool, expected: int, layout: str
) -> None:
    features = np.zeros((1, 2, 5, 6) if layout == "NCHW" else (1, 5, 6, 2), np.float32)
    rois = np.array([[0, 2, 0, 4, 4]], np.float32)
    levels = [LevelTask(features, rois, None, 0.5)]
    task = Task(operation, backward, "avg", argmax, (2, 2), 1, False, layout, levels)
    assert floor.compulsory_bytes(task) == expected


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("operation", "mode", "sampling", "aligned"),
    [
        ("roi_align", "avg", 0, True),
        ("roi_align", "avg", 3, False),
        ("roi_align", "max", 2, True),
        ("roi_pool", "avg", 0, True),
        ("crop_and_resize", "avg", 0, True),
        ("deform_roi_pool", "avg", 2, True),
    ],
)
def test_our_call_is_what_the_task_says(
    operation: str, mode: str, sampling: int, aligned: bool, backward: bool, layout: str
) -> None:
    """The oracle, called with explicit arguments, gives the same."""
    rng = np.random.default_rng(0)
    shape = (2, 9, 11, 3) if layout == "NHWC" else (2, 3, 9, 11)
    pooled = (4, 2, 4, 3) if layout == "NHWC" else (4, 3, 2, 4)
    x = rng.standard_normal(shape, np.float32)
    grad = rng.standard_normal(pooled, np.float32)
    corners = np.sort(rng.uniform(0, 18, (4, 2, 2)), axis=1).reshape(4, 4)
    if operation == "crop_and_resize":
        corners /= 20
    rois = np.concatenate([[[0], [0], [1], [1]], corners], axis=1).astype(np.float32)
    offsets = rng.standard_normal((4, 2, 2, 4), np.float32)
    levels = [LevelTask(x, rois, grad, 0.5, offsets)]
    task = Task(operation, backward, mode, False, (2, 4), sampling, aligned, layout, levels)
    (found,) = prepared(ours.Roipool(roipool.get_num_threads()), task)()

    more: dict[str, Any] = {"layout": layout}
    if operation == "crop_and_resize":
        boxes, images = rois[:, 1:], rois[:, 0].astype(int)
        expected = reference.crop_and_resize(x, boxes, images, (2, 4), **more)
        if backward:
            expected = reference.crop_and_resize_backward(grad, boxes, images, shape, **more)
    elif operation == "deform_roi_pool":
        moved = offsets.transpose(0, 2, 3, 1) if layout == "NHWC" else offsets
        place = moved, (2, 4) if not backward else shape
        function = reference.deform_roi_pool_backward if backward else reference.deform_roi_pool
        expected = function(grad if backward else x, rois, *place, 0.5, sampling, **more)
    elif operation == "roi_pool":
        expected, argmax = reference.roi_pool(x, rois, (2, 4), 0.5, return_argmax=True, **more)
        if backward:
            expected = reference.roi_pool_backward(grad, argmax, rois, shape, **more)
    else:
        more |= {"mode": mode, "aligned": aligned}
        expected = reference.roi_align(x, rois, (2, 4), 0.5, sampling, **more)
        if backward:
            if mode == "max":
                argmax = {"return_argmax": True}
                more["argmax"] = reference.roi_align(
                    x, rois, (2, 4), 0.5, sampling, **more, **argmax
                )[1]
            expected = reference.roi_align_backward(grad, rois, shape, 0.5, sampling, **more)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_comparison_of_awkward_values() -> None:
    nan, inf = np.nan, np.inf
    one = [np.array([1.0, nan, 4.0, 0.0]), np.zeros(0)]
    same = agreement(one, one)
    assert (same.greatest, same.holds, same.limit) == (0, True, 4e-12)
    other = [np.array([1.0, nan, nan, 0.0]), np.zeros(0)]
    apart = agreement(one, other)
    assert (apart.greatest, apart.beyond, apart.holds) == (inf, 0.25, False)
    half = [np.array([1, 2], np.float16)]
    assert agreement(half, [np.array([1, 2.001], np.float32)]).holds
    with pytest.raises(ValueError, match=r"shape \(1,\), not \(2,\)"):
        agreement(half, [np.zeros(1, np.float32)])
