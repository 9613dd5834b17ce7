"""Arrays of array-api-strict: every operation, and errors."""

from __future__ import annotations

import inspect
from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
from _support.cases import CASES, maps
from _support.compare import assert_same_bits
from front_ends import contract
from front_ends.contract import Form
from front_ends.contract.calls import COMPAT, OwnArrays, calls_of_every_form, check_bits

import roipool
from roipool._dlpack import GradientCall
from roipool.compat import paddle
from roipool.systems import SYSTEMS
from roipool.tools.random_calls.front_ends.adapters import (
    Arguments,
    differentiable,
    given_boxes,
    kind_of,
    parts_of,
)
from roipool.verification.call import function_of

FUNCTIONS = [row for row in COMPAT if not SYSTEMS[row].forward.endswith(".forward")]

ALIGN = next(case for case in CASES if case.op.forward == "roi_align")


class Strict(contract.FrontEnd):
    array_name = "array"
    forms = (Form("float32"), Form("float64", "NHWC"))

    def array(self, values: Any) -> Any:
        return xp.asarray(values)

    def numpy(self, array: Any) -> Any:
        return host(array)


STRICT = Strict()


class TestContract(contract.CallsWithoutGuises, contract.Values, contract.Levels):
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


def flattened(results: tuple[Any, Any, Any]) -> list[Any]:
    """Return the arrays of each level, the order and the counts."""
    return [*results[0], results[1], *results[2]]


def test_lists_in_tuples_come_back() -> None:
    boxes = np.array([[0, 0, 300, 300], [0, 0, 20, 20], [0, 0, 250, 250]], np.float32)
    given = [boxes, 3, 4, 4, 224]
    counts = np.array([2, 1])
    expected = paddle.distribute_fpn_proposals(*given, rois_num=counts)
    given[0] = xp.asarray(boxes)
    parts = paddle.distribute_fpn_proposals(*given, rois_num=xp.asarray(counts))
    assert [type(part) for part in parts] == [list, type(given[0]), list]
    for array, wanted in zip(flattened(parts), flattened(expected), strict=True):
        assert_same_bits(host(array), wanted)
    assert paddle.distribute_fpn_proposals(*given)[2] is None


class ByDefault(OwnArrays):
    """Forwards with the gradients that a library pairs that has a function for custom gradients."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a forward, or return the gradients of the last one."""
        if kind_of(self.case, name) == "forward":
            given = self.converted(arguments)
            self.maps = parts_of(given["features"])
            function = inspect.unwrap(function_of(roipool, name))
            self.pair = GradientCall(function, (), self.own_names(name, given), lambda array: array)
            return self.pair.asked(self.pair.results())
        needed = [any(each is one for one in self.maps) for each in self.pair.arrays]
        grad = self.array("grad_output", arguments["grad_output"])
        found = [each for each in self.pair.gradients(grad, needed) if each is not None]
        return found if SYSTEMS[self.case.operation].pyramid else found[0]


@pytest.mark.parametrize("row", [row for row in FUNCTIONS if SYSTEMS[row].backward])
def test_gradients_by_default(row: str) -> None:
    """They are the published ones."""
    for case in calls_of_every_form(row):
        of_maps = differentiable(case, given_boxes(case))._replace(
            box_gradient="", offset_gradient=""
        )
        check_bits(case, of_maps, ByDefault(case, STRICT))
