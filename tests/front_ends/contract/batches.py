"""Batches of calls by `vmap`: forward and gradients equal those of a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.cases import SMALL, OperationCase, maps

from .derivatives import FIXED, TYPICAL, close, loss_of, of_features
from .front_end import Contract, Form, FrontEnd, as_list, over, to_form

Axes = tuple[int | None, ...]
# Batched axes of maps, boxes and indices.
IN_AXES: list[Axes] = [
    (0, None, None),
    (None, 0, None),
    (0, 0, None),
    (0, 0, 0),
    (2, 1, None),
    (None, None, 0),
    (None, 0, 1),
]
USUAL_AXES = IN_AXES[2:4]
BATCHES = [
    *((case, axes, "NCHW") for case in TYPICAL for axes in IN_AXES),
    *((case, axes, "NHWC") for case in TYPICAL for axes in USUAL_AXES),
    *((case, IN_AXES[0], "NHWC") for case in FIXED),
    *((case, IN_AXES[4], "NCHW") for case in FIXED if case not in TYPICAL),
]


def rare(*row: Any, when: bool) -> Any:
    """Return parameters of a test, which is thorough for rare ones."""
    return pytest.param(*row, marks=pytest.mark.thorough if when else ())


def batch(make: Callable[[int], Any], axis: int | None, calls: int = 3) -> Any:
    """Return the values of several calls along an axis, or shared values of one call."""
    return make(0) if axis is None else np.stack([make(n) for n in range(calls)], axis)


def one_of(value: Any, axis: int | None, number: int) -> Any:
    """Return one call's values."""
    return value if axis is None else np.take(value, number, axis)


def gradient_of(
    front_end: FrontEnd, case: OperationCase, pool: Callable[..., Any]
) -> Callable[..., Any]:
    return front_end.functional.grad(loss_of(pool), (0, 1) if case.moves else 0)


class Batches(Contract):
    """`vmap` of forwards and gradients."""

    @pytest.mark.parametrize(
        ("case", "in_axes", "layout"),
        [rare(*row, when=row[1] not in USUAL_AXES or row[2] == "NHWC") for row in BATCHES],
        ids=str,
        indirect=["case"],
    )
    def test_vmap_is_a_loop(
        self, front_end: FrontEnd, case: OperationCase, in_axes: Axes, layout: str
    ) -> None:
        """Forward and gradients equal those of a loop, whichever operands are batched."""
        form = Form("float64", layout)
        arguments = (
            batch(lambda n: to_form(maps(SMALL, n), form), in_axes[0]),
            batch(lambda n: case.boxes(3, n), in_axes[1]),
            batch(lambda n: (case.indices(3) + n) % 2, in_axes[2]),
        )
        pool = functools.partial(case.pool, layout=layout)
        gradient = gradient_of(front_end, case, pool)
        both = front_end.traced(lambda *given: (pool(*given), *as_list(gradient(*given))))
        batched = front_end.traced(front_end.functional.vmap(both, in_axes))
        found = batched(*map(front_end.array, arguments))
        for number in range(3):
            alone = map(one_of, arguments, in_axes, [number] * 3)
            for mine, other in zip(found, both(*map(front_end.array, alone)), strict=True):
                close(front_end, mine[number], other)

    @pytest.mark.parametrize("sizes", [(0, 2, 8, 5), (3, 2, 8, 0), (3, 2, 0, 5)], ids=str)
    @pytest.mark.parametrize(
        "in_axes", [rare(axes, when=axes != USUAL_AXES[0]) for axes in IN_AXES[:-1]], ids=str
    )
    @over(TYPICAL)
    def test_vmap_of_nothing(
        self, front_end: FrontEnd, case: OperationCase, in_axes: Axes, sizes: tuple[int, ...]
    ) -> None:
        """Batches without calls, boxes or cells have the usual shapes."""
        calls, images, height, count = sizes
        alone = np.zeros((images, 3, height, 9)), case.boxes(count), case.indices(count)
        some = [
            value if axis is None else np.stack([value] * 3, axis).take(range(calls), axis)
            for value, axis in zip(alone, in_axes, strict=True)
        ]
        for function in (case.pool, gradient_of(front_end, case, case.pool)):
            expected = as_list(function(*map(front_end.array, alone)))
            found = as_list(
                front_end.functional.vmap(function, in_axes)(*map(front_end.array, some))
            )
            for mine, one in zip(found, expected, strict=True):
                assert mine.shape == (calls, *one.shape)
                assert (mine == one).all()

    @over(TYPICAL)
    def test_batches_of_batches_and_of_tangents(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        func, pool = front_end.functional, of_features(front_end, case)
        features = front_end.array(
            np.stack([np.stack([maps(SMALL, 3 * n + m) for m in range(2)]) for n in range(3)])
        )
        found = func.vmap(func.vmap(pool))(features)
        close(front_end, found[2, 1], pool(features[2, 1]))

        def change(x: Any, v: Any) -> Any:
            return func.jvp(func.grad(loss_of(pool)), (x,), (v,))[1]

        found = func.vmap(change)(features[:, 0], features[:, 1])
        close(front_end, found[1], change(features[1, 0], features[1, 1]))

    @over(TYPICAL[1:2])
    def test_tables_of_boxes(self, front_end: FrontEnd, case: OperationCase) -> None:
        """Boxes with batch indices in the first column."""
        func, features = front_end.functional, batch(lambda n: maps(seed=n), 0)
        column = case.indices()[:, None]
        tables = batch(lambda n: np.concatenate([column, case.boxes(seed=n)], 1), 0)
        own = front_end.array(features), front_end.array(tables)
        pool = lambda x, table: case.pool(x, table, None)  # noqa: E731
        for function in (pool, func.grad(loss_of(pool), 1)):
            found = func.vmap(function)(*own)
            for number in range(3):
                close(front_end, found[number], function(*(one[number] for one in own)))
