"""Conformance of functions of tensors, differentiated by torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roipool.torch
from roipool.testing import NotConforming, assert_conforms

MORE: dict[str, Any] = {"arrays": "torch", "backward": "autograd", "random_calls": 6}


def test_own_operators() -> None:
    reports = assert_conforms(
        roipool.roi_align,
        "roi_align",
        dtypes=["float32", "bfloat16"],
        without=["empty-arrays"],
        **MORE,
    )
    for report in reports:
        results = {finding.what for outcome in report.outcomes for finding in outcome.findings}
        assert results == {"pooled", "gradient", "box_gradient"}


def test_a_gradient_of_boxes_is_checked_where_there_is_one() -> None:
    def other_sign(features: Any, rois: Any, *arguments: Any, **options: Any) -> Any:
        turned = 2 * rois.detach() - rois
        return roipool.roi_align(features, turned, *arguments, **options)

    more: dict[str, Any] = {
        **MORE,
        "random_calls": 0,
        "options": {"sampling_ratio": 2, "aligned": True},
        "without": ["non-finite-boxes", "boxes-over-the-edge"],
    }
    with pytest.raises(NotConforming, match="box gradient: returns the gradient of boxes with the"):
        assert_conforms(other_sign, "roi_align", **more)

    def detached(features: Any, rois: Any, *arguments: Any, **options: Any) -> Any:
        assert not rois.requires_grad, "boxes have no gradient"
        return roipool.roi_align(features, rois, *arguments, **options)

    (report,) = assert_conforms(detached, "roi_align", **more)
    assert report.checked == ["pooled values", "gradient"]
    assert "    checked: pooled values, gradient; not checked: box gradient" in report.lines()
    with pytest.raises(NotConforming, match="box gradient: raises AssertionError: boxes have no"):
        assert_conforms(detached, "roi_align", backward_boxes="autograd", **more)


def test_a_gradient_that_is_missing() -> None:
    def detached(features: Any, *arguments: Any, **options: Any) -> Any:
        return roipool.roi_align(features.detach(), *arguments, **options)

    with pytest.raises(NotConforming) as caught:
        assert_conforms(detached, "roi_align", **{**MORE, "random_calls": 0})
    (diagnosis,) = caught.value.reports[0].diagnoses
    assert (diagnosis.result, diagnosis.subject) == ("gradient", "has no gradient")


def test_a_tensor_that_is_written_into() -> None:
    def writes(features: Any, *arguments: Any, **options: Any) -> Any:
        pooled = roipool.roi_align(features, *arguments, **options)
        with torch.no_grad():
            features += 1
        return pooled

    with pytest.raises(NotConforming, match="pooled: writes into its features"):
        assert_conforms(
            writes, "roi_align", arrays="torch", random_calls=0, without=["non-finite-cells"]
        )
