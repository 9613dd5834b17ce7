"""Arrays of array-api-strict: every operation, and errors."""

from __future__ import annotations

import inspect
from itertools import groupby
from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
from _support.cases import CASES, maps
from _support.compare import assert_same_bits
from _support.rows import ROWS, calls_of, converted, results_of
from front_ends import contract
from front_ends.contract import Form

from roipool._dlpack import GradientCall
from roipool.compat import paddle
from roipool.systems import SYSTEMS

FUNCTION_ROWS = [row for row in ROWS if not SYSTEMS[row].forward.endswith(".forward")]

ALIGN = next(case for case in CASES if case.op.forward == "roi_align")


class Strict(contract.FrontEnd):
    array_name = "array"
    forms = (Form("float32"), Form("float64", "NHWC"))
    box_dtypes = ("float32", "float64", "int32", "int64", "uint8")

    def array(self, values: Any) -> Any:
        return xp.asarray(values)

    def numpy(self, array: Any) -> Any:
        return host(array)


STRICT = Strict()


class TestContract(contract.Values, contract.Gradients, contract.Levels):
    arrays = STRICT


def host(array: Any) -> Any:
    assert type(array) is type(xp.asarray(0))
    return np.from_dlpack(array)


def arguments() -> tuple[Any, list[Any]]:
    plain = [maps().astype(np.float32), ALIGN.boxes().astype(np.float32), ALIGN.indices()]
    return [xp.asarray(each) for each in plain], plain


def test_memory_is_shared() -> None:
    given, plain = arguments()
    out = xp.zeros((5, 3, 2, 3), dtype=xp.float32)
    assert ALIGN.pool(*given, out=out) is out
    assert_same_bits(host(out), ALIGN.pool(*plain))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_devices(place: int) -> None:
    """Arrays on two devices are rejected; results are on the arrays' device."""
    given, plain = arguments()
    there = [xp.asarray(each, device=xp.Device("device1")) for each in given]
    got = ALIGN.pool(*there)
    assert got.device == there[0].device
    assert_same_bits(host(got), ALIGN.pool(*plain))
    given[place] = there[place]
    with pytest.raises(ValueError, match="roi_align: arrays must all be on one device, got"):
        ALIGN.pool(*given)


def test_mixed_with_numpy() -> None:
    given, plain = arguments()
    with pytest.raises(
        TypeError, match=r"one library: features is numpy.ndarray, rois is array_api"
    ):
        ALIGN.pool(plain[0], given[1], given[2])
    assert_same_bits(host(ALIGN.pool(given[0], *plain[1:])), ALIGN.pool(*plain))


def of_strict(array: Any) -> Any:
    """Return a copy, in the machine's order of bytes."""
    return xp.asarray(np.array(array, array.dtype.newbyteorder("=")))


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_compat(row: str) -> None:
    """Forwards and gradients, with maps by name, sequences for each image, and several results."""
    for call in calls_of(row, dtype="float32"):
        found = results_of(call.with_arrays(of_strict))
        for array, expected in zip(found, call.expected(), strict=True):
            assert_same_bits(host(array), expected)


def test_lists_in_tuples_come_back() -> None:
    boxes = np.array([[0, 0, 300, 300], [0, 0, 20, 20], [0, 0, 250, 250]], np.float32)
    given = [boxes, 3, 4, 4, 224]
    counts = np.array([2, 1])
    expected = results_of(paddle.distribute_fpn_proposals(*given, rois_num=counts))
    given[0] = xp.asarray(boxes)
    parts = paddle.distribute_fpn_proposals(*given, rois_num=xp.asarray(counts))
    assert [type(part) for part in parts] == [list, type(given[0]), list]
    for array, wanted in zip(results_of(parts), expected, strict=True):
        assert_same_bits(host(array), wanted)
    assert paddle.distribute_fpn_proposals(*given)[2] is None


@pytest.mark.parametrize("row", [row for row in FUNCTION_ROWS if SYSTEMS[row].backward])
def test_gradients_by_default(row: str) -> None:
    """What a library pairs that has a function for custom gradients."""
    for _, group in groupby(calls_of(row, dtype="float32"), key=lambda call: id(call.case)):
        forward, backward, *_ = group
        given = {name: converted(value, of_strict) for name, value in forward.arguments.items()}
        maps = results_of(given[forward.maps])
        call = GradientCall(inspect.unwrap(forward.function), (), given, lambda array: array)
        pooled = results_of(call.asked(call.results()))
        for array, expected in zip(pooled, forward.expected(), strict=True):
            assert_same_bits(host(array), expected)
        needed = [any(each is one for one in maps) for each in call.arrays]
        backward.arguments.pop("exact_gradient", None)  # the published one
        upstream = of_strict(backward.arguments[backward.maps])
        found = [each for each in call.gradients(upstream, needed) if each is not None]
        for array, expected in zip(found, backward.expected(), strict=True):
            assert_same_bits(host(array), expected)
