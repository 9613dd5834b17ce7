"""Values are those of the oracle; nothing is pooled to nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from _support.cases import ALL_CASES, CASES, SIZE, OperationCase, PyramidCase, maps
from _support.compare import assert_close, assert_same_bits
from _support.loops import each

from roipool import reference

from .derivatives import TYPICAL
from .front_end import Contract, Form, FrontEnd, as_list, over


def given(case: OperationCase, levels: list[Any]) -> Any:
    """Return the operation's features: a map or a list of maps."""
    return levels if isinstance(case, PyramidCase) else levels[0]


def own_maps(front_end: FrontEnd, case: OperationCase, features: Any, form: Form) -> Any:
    """Convert a map or the maps of a pyramid to the front end's arrays."""
    levels = case.pyramid(features) if isinstance(case, PyramidCase) else [features]
    return given(case, [front_end.maps(level, form) for level in levels])


def check_bits(front_end: FrontEnd, found: Any, expected: Any) -> None:
    """Compare one or several results with NumPy's."""
    for mine, other in zip(as_list(found), as_list(expected), strict=True):
        assert_same_bits(front_end.numpy(mine), other)


class Values(Contract):
    """Forwards."""

    @over(CASES)
    def test_values_are_those_of_the_oracle(self, front_end: FrontEnd, case: OperationCase) -> None:
        features, boxes, indices = maps(), case.boxes(), case.indices()
        arguments = {case.op.boxes: boxes, case.op.indices: indices, case.op.size: SIZE}
        oracle = getattr(reference, case.op.forward)
        expected = oracle(features, **arguments, **case.options(), **case.per_bin(boxes))
        own = front_end.maps(features, Form("float64"))
        found = case.pool(own, front_end.array(boxes), front_end.array(indices))
        terms = np.full_like(expected, np.abs(features).max())
        assert_close(front_end.numpy(found), expected, terms, ulps=40)

    @over(ALL_CASES, usual=TYPICAL)
    @each(shape=[(2, 0, 8, 9), (2, 3, 0, 9), (2, 3, 8, 0), (2, 3, 8, 9), (0, 3, 8, 9)])
    def test_nothing_to_pool(
        self, front_end: FrontEnd, case: OperationCase, shape: tuple[int, ...]
    ) -> None:
        """No channels, rows, columns; no boxes in images, or without images."""
        count = 0 if shape in ((2, 3, 8, 9), (0, 3, 8, 9)) else 5
        features, at = np.zeros(shape), (case.boxes(count), case.indices(count))
        own = own_maps(front_end, case, features, Form("float64"))
        there = tuple(map(front_end.array, at))
        check_bits(front_end, case.pool(own, *there), case.pool(features, *at))
        if front_end.functional is not None:
            upstream = front_end.array(np.ones(case.pool(features, *at).shape))
            gradients = front_end.vjp(case.pool, (own, *there), 1 + case.moves, upstream)[1]
            for gradient, argument in zip(gradients, [*as_list(own), there[0]], strict=False):
                check_bits(front_end, gradient, np.zeros(argument.shape))
