"""torchvision's quantised ROI align."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import Arrays, recorded

from roipool import reference
from roipool.compat import torchvision

CODES = np.arange(24, dtype=np.uint8).reshape(1, 1, 4, 6)
CALL: dict[str, Any] = {
    "input": CODES,
    "rois": [[0, 0, 0, 4, 4]],
    "input_scale": 0.5,
    "input_zero_point": 3,
    "spatial_scale": 1.0,
    "pooled_height": 2,
    "pooled_width": 2,
    "sampling_ratio": 2,
    "aligned": True,
}


def answered(backend: Backend, case: Arrays) -> np.ndarray[Any, Any]:
    """Return the codes pooled for a recorded case."""
    arrays = {name: backend.to_device(case[name]) for name in ("input", "rois")}
    options = {name: case[name].item() for name in CALL.keys() - arrays.keys()}
    options["aligned"] = bool(options["aligned"])
    return backend.to_host(torchvision.qroi_align(**arrays, **options))


def unrounded(case: Arrays) -> np.ndarray[Any, Any]:
    """Return the codes of a recorded case before they are rounded."""
    zero = case["input_zero_point"].item()
    steps = reference.roi_align(
        case["input"].astype(np.float64) - zero,
        case["rois"],
        (case["pooled_height"].item(), case["pooled_width"].item()),
        case["spatial_scale"].item(),
        max(case["sampling_ratio"].item(), 0),
        aligned=bool(case["aligned"]),
    )
    return steps + zero


@thorough_on_the_emulator
def test_answers_the_same_but_for_ties(backend: Backend) -> None:
    equal, others = 0, 0
    for case in recorded("torchvision_quantised"):
        pooled, expected = answered(backend, case), case["pooled"]
        assert pooled.dtype == expected.dtype
        differs = pooled != expected
        from_a_tie = np.abs(unrounded(case) % 1 - 0.5)[differs]
        assert from_a_tie.max(initial=0) < 1e-4
        equal, others = equal + int((~differs).sum()), others + int(differs.sum())
    assert equal > 3000
    assert others < equal / 1000


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"input": CODES.astype(np.float32)}, TypeError, "input must have dtype uint8, int8, got"),
        ({"input": CODES > 3}, TypeError, "input must have dtype uint8, int8, got bool"),
        ({"input_scale": 0.0}, ValueError, "input_scale must be from 1e-36 to 1e+36, got 0.0"),
        ({"input_scale": -0.5}, ValueError, "input_scale must be from 1e-36 to 1e+36, got -0.5"),
        ({"input_scale": np.nan}, ValueError, "input_scale must be finite, got nan"),
        (
            {"input_zero_point": 256},
            ValueError,
            "input_zero_point must be from 0 to 255 for uint8 maps, got 256",
        ),
        (
            {"input": CODES.astype(np.int8), "input_zero_point": -129},
            ValueError,
            "input_zero_point must be from -128 to 127 for int8 maps, got -129",
        ),
        ({"input_zero_point": 3.0}, TypeError, "input_zero_point must be an int, got 3.0"),
    ],
)
def test_errors_name_the_argument(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        torchvision.qroi_align(**CALL | changed)


@pytest.mark.parametrize("input_scale", [1e-36, 1e36])
def test_the_step_does_not_change_codes(input_scale: float) -> None:
    call = CALL | {"rois": [[0, 0, 0, 3.9, 3.7]]}  # without ties
    expected = torchvision.qroi_align(**call)
    found = torchvision.qroi_align(**call | {"input_scale": input_scale})
    np.testing.assert_array_equal(found, expected)


def test_a_box_outside_is_the_zero_point() -> None:
    for box in ([50, 50, 60, 60], [np.nan, 0, 4, 4], [-np.inf, 0, np.inf, 4]):
        assert (torchvision.qroi_align(**CALL | {"rois": [[0, *box]]}) == 3).all()
