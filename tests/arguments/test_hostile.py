"""Arguments that once crashed, hung, or filled the memory or the screen."""

from __future__ import annotations

import inspect
import time
from typing import Any

import numpy as np
import pytest
from _support.platforms import needs_posix
from _support.public import public_functions

import roipool
from roipool.systems import functions
from roipool.verification.call import function_of

MAPS = np.ones((1, 1, 8, 8), np.float32)
BOX = [[0.0, 0, 0, 7, 7]]
POOLED = np.ones((1, 1, 7, 7), np.float32)
SELF: list[Any] = []
SELF.append(SELF)


@pytest.mark.parametrize(
    "call",
    [
        lambda: roipool.roi_align(MAPS, SELF, 7),
        lambda: roipool.roi_align(SELF, BOX, 7),
        lambda: roipool.roi_align(MAPS, BOX, SELF),
        lambda: roipool.roi_align_backward(POOLED, BOX, SELF),
        lambda: roipool.roi_align_backward(POOLED, BOX, memoryview(np.ones((2, 2), int))),
        lambda: roipool.roi_align(MAPS, BOX, "9" * 5_000_000),
        lambda: roipool.roi_align(MAPS, BOX, 10**4000),
        lambda: roipool.roi_align(MAPS, BOX, 7, layout="N" * 5_000_000),
        lambda: roipool.roi_align(MAPS, BOX, 7, spatial_scale="x" * 10**6),
        lambda: roipool.roi_align(MAPS, [["a" * 1_000_000]], 7),
        lambda: roipool.assign_levels(BOX, "9" * 10**6, 5),
        lambda: roipool.assign_levels(BOX, 2, 10**5000),
        lambda: roipool.assign_levels(BOX, -(2**31), 5),
        lambda: roipool.multilevel_roi_align([MAPS] * 2, BOX, 7, (1e-300, 1e300)),
        lambda: roipool.roi_align(MAPS, BOX, 7, layout=np.array(["NCHW", "x"])),
        lambda: roipool.roi_align(MAPS, BOX, 7, layout=np.array("NCHW")),
    ],
)
def test_an_error_in_a_few_words(call: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    assert len(str(raised.value)) < 300


class Lying(np.ndarray[Any, Any]):
    shape = property(lambda _: (1, 1, 1000, 1000))  # type: ignore[assignment]


def test_an_output_that_lies_about_its_shape() -> None:
    out = np.zeros((1, 1, 2, 2), np.float32).view(Lying)
    with pytest.raises(ValueError, match=r"out must have shape .*, got \(1, 1, 2, 2\)"):
        roipool.roi_align(MAPS, BOX, 1000, out=out)


def test_boxes_beyond_float32_pool_nothing_without_a_warning() -> None:
    rois = np.array([[0, -1e300, -1e300, 1e300, 1e300], [0, 1, 1, 2, 2]])
    for operation in (roipool.roi_align, roipool.roi_pool):
        pooled = operation(np.ones((1, 1, 4, 4), np.float32), rois, 1)
        assert pooled.ravel().tolist() == [0, 1]


def test_a_value_beyond_float16_without_images_gives_no_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    none = np.empty((0, 1, 7, 7), np.float16), np.empty((0, 4)), np.empty(0, np.int64)
    assert roipool.crop_and_resize(*none, 2, extrapolation_value=1e300).shape == (0, 1, 2, 2)
    assert not recwarn.list


@needs_posix  # the program limits memory and time
def test_every_public_function_gets_wrong_arguments() -> None:
    from faults.hostile_arguments import OTHER_CALLS

    with_arguments = {
        name
        for name in public_functions()
        if inspect.signature(function_of(roipool, name)).parameters
    }
    assert functions() | OTHER_CALLS.keys() == with_arguments, (
        "functions without wrong arguments: add a row to SYSTEMS in roipool/systems/FRAMEWORK.py, "
        "or a call to OTHER_CALLS in tests/faults/hostile_arguments.py"
    )


@pytest.mark.parametrize("shape", [(2**28, 1, 0, 1), (2**28, 0, 9, 9)])
def test_gradients_of_many_empty_images_take_no_memory(shape: tuple[int, ...]) -> None:
    grad = np.empty((0, shape[1], 7, 7), np.float32)
    assert roipool.roi_align_backward(grad, np.empty((0, 5)), shape).shape == shape
    boxes, images = np.empty((0, 4)), np.empty(0, np.int64)
    assert roipool.crop_and_resize_backward(grad, boxes, images, shape).shape == shape


def test_the_backward_of_a_mirrored_box_costs_as_much_as_of_another() -> None:
    """Its bins are in the reverse order of cells; each bin once cost as much as all bins."""
    grad = np.ones((1, 1, 1, 64_000), np.float32)
    costs = []
    for box in ([0, 0, 1, 1], [0, 1, 1, 0]):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            roipool.crop_and_resize_backward(grad, [box], [0], (1, 1, 8, 1000))
            times.append(time.perf_counter() - start)
        costs.append(min(times))
    assert costs[1] < 20 * costs[0]  # the ratio is 1.2; it was 200 when the cost was quadratic
