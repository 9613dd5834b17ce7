"""The core operations against goldens of other systems' releases.

Every entry of every answer is counted: bitwise identical, or within a few ulps of the sum of its
absolute terms, or neither, which would be another floor, ceil or outside decision. There are none.
``PYTHONPATH=tests python tests/ops/test_goldens.py`` prints the counts.

To add a system, add rows to `CHECKS`. (TensorFlow's crops are not the core's: `compat.tensorflow`
answers as they do, and test_crop_ends.py has what others answered for the core's.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import FOLDER, Array, Golden, goldens

import roipool

ULPS = 4  # of float32, relative to the sum of an entry's absolute terms


class Inputs:
    """A case's input arrays on a backend's device, by name, and its options as `case`."""

    def __init__(self, case: Golden, backend: Backend, absolute: bool = False) -> None:
        self.case = case
        self.backend = backend
        self.absolute = absolute

    def __getattr__(self, name: str) -> Any:
        array = getattr(self.case, name)
        signed = name not in ("rois", "boxes")
        return self.backend.to_device(np.abs(array) if self.absolute and signed else array)

    def as_they_are(self) -> Inputs:
        """Return the inputs themselves rather than their absolute values."""
        return Inputs(self.case, self.backend)


class Check(NamedTuple):
    """One answer of a system, and the call that should reproduce it.

    `kind` is "bits", "ulps", or "bits of the CPU" for sums that a GPU adds up in another order.
    `terms` gives the sums of absolute terms; None asks `call` itself, with the absolute values of
    features and gradient, which is right for every operation that is a sum with positive weights or
    a maximum of such sums. `where` chooses comparable entries.
    """

    system: str
    key: str
    call: Callable[[Inputs], Any]
    kind: str
    terms: Callable[[Golden], Array] | None = None
    where: Callable[[Golden], Array] | None = None

    def __str__(self) -> str:
        return f"{self.system}-{self.key}"


class Agreement(NamedTuple):
    """Counts of entries that agree bit for bit, agree within a few ulps, and differ."""

    bits: int = 0
    ulps: int = 0
    decision: int = 0


# ---- The calls


def pool(inputs: Inputs) -> Any:
    return roipool.roi_pool(inputs.features, inputs.rois, inputs.case.size, inputs.case.scale)


def pool_argmax(inputs: Inputs) -> Any:
    return roipool.roi_pool(
        inputs.features, inputs.rois, inputs.case.size, inputs.case.scale, return_argmax=True
    )[1]


def pool_grad(inputs: Inputs) -> Any:
    shape = inputs.case.features.shape
    return roipool.roi_pool_backward(
        inputs.grad, pool_argmax(inputs.as_they_are()), inputs.rois, shape
    )


def align(aligned: bool | None = None, mode: str = "avg") -> Callable[[Inputs], Any]:
    """Return roi_align; `aligned` is the case's own if None."""

    def call(inputs: Inputs) -> Any:
        case = inputs.case
        return roipool.roi_align(
            inputs.features,
            inputs.rois,
            case.size,
            case.scale,
            case.sampling,
            aligned=case.aligned if aligned is None else aligned,
            mode=mode,
        )

    return call


def align_grad(inputs: Inputs) -> Any:
    case = inputs.case
    return roipool.roi_align_backward(
        inputs.grad,
        inputs.rois,
        case.features.shape,
        case.scale,
        case.sampling,
        aligned=case.aligned,
    )


def align_max_argmax(inputs: Inputs) -> Any:
    case = inputs.case
    return roipool.roi_align(
        inputs.features,
        inputs.rois,
        case.size,
        case.scale,
        case.sampling,
        aligned=case.aligned,
        mode="max",
        return_argmax=True,
    )[1]


def align_max_grad(inputs: Inputs) -> Any:
    case = inputs.case
    return roipool.roi_align_backward(
        inputs.grad,
        inputs.rois,
        case.features.shape,
        case.scale,
        case.sampling,
        aligned=case.aligned,
        mode="max",
        argmax=align_max_argmax(inputs.as_they_are()),
    )


# ---- Comparable entries, if not all are


def has_samples(case: Golden) -> Array:
    """On a CPU mmcv's maximum starts at -10000 and stays there in a bin without samples."""
    return case.answers["max"] > -10000


def rotated_terms(case: Golden) -> Array:
    """Return sums of absolute terms, and what another last bit of a sine or cosine may change.

    It moves a sample by a rounding of its distance from the centre, a box's half diagonal at most.
    """
    rois, features = case.rois, np.abs(case.features)
    pooled = roipool.roi_align_rotated(
        features, rois, case.size, case.scale, case.sampling, clockwise=case.record["clockwise"]
    )
    reach = np.hypot(rois[:, 3], rois[:, 4]) / 2 * case.scale
    return pooled + reach[:, None, None, None] * features.max()


def rotated(inputs: Inputs) -> Any:
    case = inputs.case
    return roipool.roi_align_rotated(
        inputs.features,
        inputs.rois,
        case.size,
        case.scale,
        case.sampling,
        clockwise=case.record["clockwise"],
    )


CHECKS = [
    Check("openvino", "rotated", rotated, "ulps", rotated_terms),
    Check("torchvision", "pool", pool, "bits"),
    Check("torchvision", "pool_argmax", pool_argmax, "bits"),
    Check("torchvision", "pool_grad", pool_grad, "bits of the CPU"),
    Check("torchvision", "align", align(), "ulps"),
    Check("torchvision", "align_grad", align_grad, "ulps"),
    Check("mmcv", "avg", align(), "ulps"),
    Check("mmcv", "avg_grad", align_grad, "ulps"),
    Check("mmcv", "max", align(mode="max"), "bits", where=has_samples),
    Check("mmcv", "max_grad", align_max_grad, "bits"),
    Check("mxnet", "pool", pool, "bits"),
    Check("mxnet", "pool_grad", pool_grad, "bits of the CPU"),
    Check("mxnet", "align", align(), "ulps"),
    Check("mxnet", "align_grad", align_grad, "ulps"),
    Check("onnxruntime", "maxroipool", pool, "bits"),
    Check("onnxruntime", "v10_avg", align(aligned=False), "ulps"),
    Check("onnxruntime", "v16_avg", align(), "ulps"),
]


# ---- Counting


def compare(check: Check, case: Golden, backend: Backend) -> Agreement:
    """Compare the entries of one case."""
    expected = case.answers[check.key]
    got = backend.to_host(check.call(Inputs(case, backend)))
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if check.terms is None:
        terms = backend.to_host(check.call(Inputs(case, backend, absolute=True)))
    else:
        terms = np.broadcast_to(check.terms(case), got.shape)
    chosen = np.ones(got.shape, bool) if check.where is None else check.where(case)
    same = chosen & (got == expected)
    error = np.abs(got.astype(np.float64) - expected)
    close = chosen & ~same & (error <= ULPS * np.finfo(np.float32).eps * terms.astype(np.float64))
    counts = [int(np.count_nonzero(entries)) for entries in (same, close, chosen & ~same & ~close)]
    return Agreement(*counts)


def agreement(check: Check, backend: Backend) -> Agreement:
    """Sum the counts of one answer over all cases."""
    result = [compare(check, case, backend) for case in goldens(check.system, check.key)]
    return Agreement(*(sum(counts) for counts in zip(*result, strict=True)))


@thorough_on_the_emulator
@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_agreement(check: Check, backend: Backend) -> None:
    result = agreement(check, backend)
    assert result.bits > 0
    assert result.decision == 0
    is_exact = check.kind == "bits" or (check.kind == "bits of the CPU" and not backend.is_gpu)
    assert result.ulps == 0 or not is_exact


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_walkthrough_of_mmcv(device: str, backend: Backend) -> None:
    text = json.loads((FOLDER / "mmcv_walkthrough.json").read_text())
    part = text[device]
    maps = np.zeros((1, 1, 10, 10), np.float32)
    maps[0, 0, :8] = part["features_channel0_rows0to7"]
    rois = backend.to_device(np.array([text["roi"]], np.float32))
    result = backend.to_host(roipool.roi_align(backend.to_device(maps), rois, 3, 0.5, 0))
    # Printed to 4 decimals, pixels and results alike.
    np.testing.assert_allclose(result[0, 0], np.array(part["output"])[0], rtol=0, atol=1.1e-4)
    ones = backend.to_device(np.ones((1, 1, 3, 3), np.float32))
    grad = backend.to_host(roipool.roi_align_backward(ones, rois, maps.shape, 0.5, 0))
    expected = part["grad_of_sum_channel0_rows0to7"]
    np.testing.assert_allclose(grad[0, 0, :8], expected, rtol=0, atol=0.6e-4)


def print_counts() -> None:
    """Print one line per answer."""
    print(f"{'system':12s} {'answer':22s} {'bits':>9s} {'ulps':>9s} {'decision':>9s}")
    for check in CHECKS:
        result = agreement(check, Backend("cpu"))
        counts = f"{result.bits:9d} {result.ulps:9d} {result.decision:9d}"
        print(f"{check.system:12s} {check.key:22s} {counts}")


if __name__ == "__main__":
    print_counts()
