"""Somebody else's implementation: mistakes are found and named, misbehaviour is an answer."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support import toys

import roipool
from roipool.compat import torchvision
from roipool.testing import (
    KINDS,
    SEMANTICS,
    NotConforming,
    Report,
    Tolerance,
    assert_conforms,
    read_tolerances,
)
from roipool.verification.conformance.rules import RULES
from roipool.verification.differential.operations import OPERATIONS
from roipool.verification.differential.oracle import oracle_of

# The toys cut NaN to an integer, read cells times 0, and visit every sample of a huge box.
FINITE = ("non-finite-boxes", "non-finite-cells", "huge-boxes", "empty-arrays")


def found(implementation: Any, semantics: str, **more: Any) -> Report:
    """Return the report of an implementation that does not conform."""
    with pytest.raises(NotConforming) as caught:
        assert_conforms(
            implementation, semantics, **{"without": FINITE, "random_calls": 40, **more}
        )
    (report,) = caught.value.reports
    assert str(caught.value) == "\n".join(report.lines())
    return report


def own(semantics: str) -> Callable[..., Any]:
    """Return roipool's own function."""
    function: Any = roipool
    for part in OPERATIONS[semantics].forward.split("."):
        function = getattr(function, part)
    return function


# ---- Those that are right


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_own_functions_conform(semantics: str) -> None:
    (report,) = assert_conforms(own(semantics), semantics, random_calls=4, strict=True)
    assert len(report.outcomes) > 100
    assert report.rounded == 0


def test_toys_conform() -> None:
    for implementation, semantics, backward in (
        (toys.roi_pool(), "torchvision.roi_pool", None),
        (toys.roi_align(), "torchvision.roi_align", toys.roi_align_backward()),
    ):
        (report,) = assert_conforms(
            implementation, semantics, backward=backward, without=FINITE, random_calls=20
        )
        assert report.conforms
        results = {finding.what for outcome in report.outcomes for finding in outcome.findings}
        assert results >= {"pooled", "argmax" if backward is None else "gradient"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    backward = torchvision.roi_align_backward
    assert_conforms(
        torchvision.roi_align, "torchvision.roi_align", backward=backward, dtypes=[dtype],
        random_calls=20, strict=True,
    )  # fmt: skip


# ---- Mistakes are named


POOL = [
    "half to even", "halves up", "missing +1", "clamp at H - 1", "last of equals",
    "transposed argmax", "batch index ignored",
]  # fmt: skip
ALIGN = [
    "clamp at H", "count without max 1", "floor of a negative", "negative position cut",
    "swapped weights", "border at 0", "adaptive count by floor", "batch index ignored",
    "half pixel left out", "not divided",
]  # fmt: skip


@pytest.mark.parametrize("mistake", POOL)
def test_mistakes_of_pooling_are_named(mistake: str) -> None:
    report = found(toys.roi_pool(mistake), "torchvision.roi_pool")
    result = "argmax" if mistake in ("transposed argmax", "last of equals") else "pooled"
    check_named(report, mistake, result)


@pytest.mark.parametrize("mistake", ALIGN)
def test_mistakes_of_align_are_named(mistake: str) -> None:
    # In a bin without samples 0/0 warns nobody in C.
    check_named(found(toys.roi_align(mistake), "torchvision.roi_align"), mistake, "pooled")


@pytest.mark.parametrize("mistake", ["not divided", "swapped weights"])
def test_mistakes_of_a_gradient_are_named(mistake: str) -> None:
    backward = toys.roi_align_backward(mistake)
    report = found(toys.roi_align(), "torchvision.roi_align", backward=backward, random_calls=10)
    assert {diagnosis.result for diagnosis in report.diagnoses} == {"gradient"}
    check_named(report, mistake, "gradient")


def check_named(report: Report, mistake: str, result: str) -> None:
    """Check that one rule explains every wrong result of a kind, and contradicts no right one."""
    diagnoses = [one for one in report.diagnoses if one.result == result]
    assert [[rule.name for rule in one.rules] for one in diagnoses] == [[mistake]], "\n".join(
        report.lines()
    )
    (diagnosis,) = diagnoses
    assert diagnosis.explained == diagnosis.wrong > 0
    assert diagnosis.contradicted == 0
    assert diagnosis.alternatives == ()
    case = diagnosis.smallest
    assert case.grad[:, 0].size <= 4
    assert case.maps[0, 0].size <= 16
    assert any(diagnosis.words in line for line in report.lines())
