"""Arrays of the strictest library of the array API standard: every operation, and errors."""

from __future__ import annotations

from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
from _support.cases import CASES, PYRAMID_CASES, Case, PyramidCase, maps
from _support.compare import assert_same_bits
from _support.patched import check_pyramid

import roipool

every_case = pytest.mark.parametrize("case", CASES, ids=str)
ALIGN = next(case for case in CASES if case.op.forward == "roi_align")


def arguments(case: Case) -> tuple[Any, list[Any]]:
    plain = [maps().astype(np.float32), case.boxes().astype(np.float32), case.indices()]
    return [xp.asarray(each) for each in plain], plain


def host(array: Any) -> Any:
    assert type(array) is type(xp.asarray(0))
    return np.from_dlpack(array)


@every_case
def test_values_and_gradients_are_those_of_numpy(case: Case) -> None:
    given, plain = arguments(case)
    more = {"return_argmax": True} if case.variant.has_argmax else {}
    got, expected = case.pool(*given, **more), case.pool(*plain, **more)
    argmax = numbers = None
    if more:
        (got, argmax), (expected, numbers) = got, expected
        assert_same_bits(host(argmax), numbers)
    assert_same_bits(host(got), expected)
    shape = plain[0].shape
    gradient = case.gradient(got, argmax, *given[1:], shape)
    assert_same_bits(host(gradient), case.gradient(expected, numbers, *plain[1:], shape))
    if case.moves:
        slopes = case.box_gradient(got, *given)
        assert_same_bits(host(slopes), case.box_gradient(expected, *plain))


@pytest.mark.parametrize("case", PYRAMID_CASES, ids=str)
def test_pyramids(case: PyramidCase) -> None:
    check_pyramid(case, xp.asarray, host)


def test_levels() -> None:
    boxes = ALIGN.boxes() * 100
    got = roipool.assign_levels(xp.asarray(boxes), 2, 5)
    assert_same_bits(host(got), roipool.assign_levels(boxes, 2, 5))


def test_memory_is_shared() -> None:
    given, plain = arguments(ALIGN)
    out = xp.zeros((5, 3, 2, 3), dtype=xp.float32)
    assert ALIGN.pool(*given, out=out) is out
    assert_same_bits(host(out), ALIGN.pool(*plain))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_devices(place: int) -> None:
    """Those of two are refused; results are where the arrays are."""
    given, plain = arguments(ALIGN)
    there = [xp.asarray(each, device=xp.Device("device1")) for each in given]
    got = ALIGN.pool(*there)
    assert got.device == there[0].device
    assert_same_bits(host(got), ALIGN.pool(*plain))
    given[place] = there[place]
    with pytest.raises(ValueError, match="roi_align: arrays must all be on one device, got"):
        ALIGN.pool(*given)


def test_mixed_with_numpy() -> None:
    given, plain = arguments(ALIGN)
    with pytest.raises(
        TypeError, match=r"one library: features is numpy.ndarray, rois is array_api"
    ):
        ALIGN.pool(plain[0], given[1], given[2])
    assert_same_bits(host(ALIGN.pool(given[0], *plain[1:])), ALIGN.pool(*plain))
