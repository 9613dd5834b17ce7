"""Maps of integers: pooled to floats or integers, bit for bit as NumPy's, without gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from _support.cases import ALL_CASES, CASES, SHAPE, OperationCase
from _support.compare import assert_same_bits
from _support.loops import each

import roipool
from roipool._dtypes import FLOATS, INTEGERS, allowed_dtypes

from .front_end import Contract, Form, FrontEnd, as_list, over
from .values import given, own_maps

OF_INTEGERS = [case for case in CASES if case.op.dtypes != FLOATS]
OTHERS = [case for case in ALL_CASES if case.op.dtypes == FLOATS]
FILLINGS = ["2.5", "3.5", "300", "-1.5", "nan", "inf", "-inf"]
every_type = each(dtype=INTEGERS)


def random_integers(dtype: str) -> Any:
    """Return maps (N, C, H, W) of random integers."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    return rng.integers(limits.min, limits.max, SHAPE, dtype, endpoint=True)


def inputs(front_end: FrontEnd, case: OperationCase, form: Form) -> tuple[tuple[Any, ...], ...]:
    """Return maps, boxes and indices, in the library's arrays and in NumPy's."""
    own = own_maps(front_end, case, random_integers(form.dtype), form)
    at = case.boxes().astype("float32"), case.indices()
    plain = given(case, list(map(front_end.numpy, as_list(own))))
    return (own, *map(front_end.array, at)), (plain, *at)


class Integers(Contract):
    """Maps of integers."""

    @over(OF_INTEGERS)
    @every_type
    def test_integers_are_pooled_to_a_chosen_type(
        self, front_end: FrontEnd, case: OperationCase, dtype: str
    ) -> None:
        own, plain = inputs(front_end, case, Form(dtype))
        for name in allowed_dtypes(dtype):
            pool = functools.partial(case.pool, dtype=name)
            found, expected = pool(*own), pool(*plain)
            alike = found, front_end.traced(pool)(*own), case.pool(*own, dtype=found.dtype)
            for each_found in alike:
                assert_same_bits(front_end.numpy(each_found), expected)
        floats = front_end.maps(random_integers(dtype), Form("float32"))
        for maps, chosen, allowed in (
            (own[0], "int32", f"{dtype}, float16, .* got"),
            (floats, dtype, "float32 for float32 features, got"),
        ):
            with pytest.raises(TypeError, match=f"dtype must be None or {allowed}"):
                case.pool(maps, *own[1:], dtype=chosen)

    @every_type
    @each(filling=FILLINGS)
    def test_integers_are_rounded_as_those_of_numpy(
        self, front_end: FrontEnd, dtype: str, filling: str
    ) -> None:
        maps = np.zeros((1, 1, 4, 4), dtype)
        at = np.full((1, 4), 2.0), np.zeros(1, np.int32)
        options = {"extrapolation_value": float(filling), "dtype": dtype}
        own = front_end.maps(maps, Form(dtype)), *map(front_end.array, at)
        found = roipool.crop_and_resize(*own, 1, **options)
        assert_same_bits(front_end.numpy(found), roipool.crop_and_resize(maps, *at, 1, **options))

    @over([case for case in OF_INTEGERS if case.moves])
    @every_type
    def test_integers_give_no_gradient_of_boxes(
        self, front_end: FrontEnd, case: OperationCase, dtype: str
    ) -> None:
        if front_end.functional is None:
            return
        (features, boxes, indices), _ = inputs(front_end, case, Form(dtype))
        total = front_end.gradient(lambda boxes: case.pool(features, boxes, indices).sum())
        with pytest.raises(TypeError, match=r"features must (be|have) .*float64"):
            total(boxes)

    @over(OTHERS)
    @every_type
    def test_other_operations_take_no_integers(
        self, front_end: FrontEnd, case: OperationCase, dtype: str
    ) -> None:
        (features, *at), _ = inputs(front_end, case, Form(dtype))
        with pytest.raises(
            TypeError, match=r"features.* must have dtype .*float64, got u?int(8|16)"
        ):
            case.pool(features, *at)
