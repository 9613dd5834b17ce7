"""Values and gradients equal those of NumPy arrays, bit for bit, in all forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from _support.cases import ALL_CASES, CASES, SIZE, OperationCase, PyramidCase, maps
from _support.compare import assert_close, assert_same_bits
from _support.loops import each

from roipool import reference

from .derivatives import TYPICAL
from .front_end import (
    Contract,
    Form,
    FrontEnd,
    as_list,
    directly_and_compiled,
    dtype_named,
    over,
)

# Five images, the boxes of some apart, the last without any.
INDICES = np.array([3, 0, 2, 0, 3, 1, 2, 0, 0])
SHAPE = (5, 3, 8, 9)
# Boxes that name their image in a column, or lie in a list per image.
IN_TABLES = [case for case in ALL_CASES if case.op.boxes == "rois"]
every_form = each(form=lambda front_end, **_: front_end.tried_forms)


def given(case: OperationCase, levels: list[Any]) -> Any:
    """Return the operation's features: a map or a list of maps."""
    return levels if isinstance(case, PyramidCase) else levels[0]


def own_maps(front_end: FrontEnd, case: OperationCase, features: Any, form: Form) -> Any:
    """Convert a map or the maps of a pyramid to the front end's arrays."""
    levels = case.pyramid(features) if isinstance(case, PyramidCase) else [features]
    return given(case, [front_end.maps(level, form) for level in levels])


def inputs(
    front_end: FrontEnd, case: OperationCase, form: Form
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Return maps, their NumPy copies, and boxes and indices as NumPy arrays."""
    boxes = case.boxes(len(INDICES)).astype("float64" if form.dtype == "float64" else "float32")
    own = own_maps(front_end, case, maps(SHAPE), form)
    return own, given(case, list(map(front_end.numpy, as_list(own)))), (boxes, INDICES)


def wanted(case: OperationCase) -> dict[str, bool]:
    """Return the option that requests the argmax of a maximum."""
    return {"return_argmax": True} if case.variant.has_argmax else {}


def check_bits(front_end: FrontEnd, found: Any, expected: Any) -> None:
    """Compare one or several results with NumPy's."""
    for mine, other in zip(as_list(found), as_list(expected), strict=True):
        assert_same_bits(front_end.numpy(mine), other)


class Values(Contract):
    """Forwards."""

    @over(ALL_CASES)
    @every_form
    def test_values_are_those_of_numpy(
        self, front_end: FrontEnd, case: OperationCase, form: Form
    ) -> None:
        own, plain, at = inputs(front_end, case, form)
        more = {"layout": form.layout, **wanted(case)}
        found = as_list(case.pool(own, *map(front_end.array, at), **more))
        expected = as_list(case.pool(plain, *at, **more))
        front_end.check_memory(found[0], form)
        if wanted(case):
            expected[1] = expected[1].astype(front_end.argmax_dtype)
        check_bits(front_end, found, expected)

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
    @each(dtype=lambda front_end, **_: front_end.box_dtypes)
    def test_boxes_and_indices_of_every_type(
        self, front_end: FrontEnd, case: OperationCase, dtype: str
    ) -> None:
        """They are converted like NumPy's."""
        features, kind = maps().astype("float32"), dtype_named(dtype)
        at = (case.boxes() * (1 if case.op.boxes == "boxes" else 3)).clip(0), case.indices()
        boxes, indices = (one.astype(kind) for one in at)
        own = own_maps(front_end, case, features, Form("float32"))
        pool = front_end.traced(case.pool)
        found = pool(own, front_end.array(boxes), front_end.array(indices))
        check_bits(front_end, found, case.pool(features, boxes, indices))

    @directly_and_compiled
    @over(IN_TABLES)
    def test_boxes_in_every_form(
        self, front_end: FrontEnd, case: OperationCase, compiled: bool
    ) -> None:
        """A table with a column of batch indices; a list or tuple with the boxes of each image."""
        boxes, indices = case.boxes(), np.sort(case.indices())
        own = own_maps(front_end, case, maps(), Form("float64"))
        expected = case.pool(maps(), boxes, indices)
        table = np.concatenate([indices[:, None], boxes], 1)
        per_image = [front_end.array(boxes[indices == image]) for image in range(2)]
        forms = [front_end.array(table), per_image, tuple(per_image)]
        if compiled:
            pool = front_end.compiled(lambda maps, parts: case.pool(maps, parts, None))
            for form in forms[:2]:
                check_bits(front_end, pool(own, form), expected)
            return
        if front_end.takes_numpy_boxes:
            forms += [table, table.tolist()]
        for form in forms:
            check_bits(front_end, case.pool(own, form, None), expected)

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


class Gradients(Contract):
    """Gradient functions."""

    @over(ALL_CASES)
    @every_form
    def test_functions_of_gradients(
        self, front_end: FrontEnd, case: OperationCase, form: Form
    ) -> None:
        own, plain, at = inputs(front_end, case, form)
        there, options = tuple(map(front_end.array, at)), {"layout": form.layout}
        pooled, *argmax = as_list(case.pool(plain, *at, **options, **wanted(case)))
        chosen = argmax[0] if argmax else None
        own_chosen = None if chosen is None else front_end.array(chosen)
        own_pooled, shape = front_end.array(pooled), as_list(plain)[0].shape
        found = case.gradient(own_pooled, own_chosen, *there, shape, **options)
        check_bits(front_end, found, case.gradient(pooled, chosen, *at, shape, **options))
        if case.moves:
            found = case.box_gradient(own_pooled, own, *there, **options)
            check_bits(front_end, found, case.box_gradient(pooled, plain, *at, **options))

    @over([case for case in IN_TABLES if case.moves])
    def test_gradient_of_the_boxes_of_a_table(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        own, plain, (boxes, indices) = inputs(front_end, case, Form("float64"))
        table = np.concatenate([indices[:, None], boxes], 1)
        pooled = case.pool(plain, table, None)
        found = case.box_gradient(front_end.array(pooled), own, front_end.array(table), None)
        check_bits(front_end, found, case.box_gradient(pooled, plain, table, None))


class Differentiation(Contract):
    """First derivatives by the library's own differentiation."""

    @over(ALL_CASES)
    @every_form
    def test_gradients_are_those_of_numpy(
        self, front_end: FrontEnd, case: OperationCase, form: Form
    ) -> None:
        own, plain, at = inputs(front_end, case, form)
        options = {"layout": form.layout}
        pooled, *argmax = as_list(case.pool(plain, *at, **options, **wanted(case)))
        upstream = maps(pooled.shape, seed=1).astype(pooled.dtype)
        found, gradients = front_end.vjp(
            lambda *given: case.pool(*given, **options),
            (own, *map(front_end.array, at)),
            1 + case.moves,
            front_end.array(upstream),
        )
        check_bits(front_end, found, pooled)
        shape, chosen = as_list(plain)[0].shape, argmax[0] if argmax else None
        expected = as_list(case.gradient(upstream, chosen, *at, shape, **options))
        for gradient in gradients[: len(expected)]:
            front_end.check_memory(gradient, form)
        if case.moves:
            expected.append(case.box_gradient(upstream, plain, *at, **options))
        check_bits(front_end, gradients, expected)

    @over([case for case in IN_TABLES if case.moves], usual=TYPICAL)
    def test_gradients_of_boxes_in_every_form(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        """The column of batch indices has the gradient 0."""
        boxes, indices = case.boxes(), np.sort(case.indices())
        features = front_end.maps(maps(), Form("float64"))

        def slopes(boxes: Any, indices: Any) -> list[Any]:
            pooled = case.pool(features, boxes, indices)
            pool = lambda given, features: case.pool(features, given, indices)  # noqa: E731
            found = front_end.vjp(pool, (boxes, features), 1, 2 * pooled)[1]
            return [front_end.numpy(one) for one in found]

        (expected,) = slopes(front_end.array(boxes), front_end.array(indices))
        assert expected.any()
        table = np.concatenate([indices[:, None], boxes], 1)
        (found,) = slopes(front_end.array(table), None)
        assert not found[:, 0].any()
        assert_same_bits(np.ascontiguousarray(found[:, 1:]), expected)
        per_image = [front_end.array(boxes[indices == image]) for image in range(2)]
        assert_same_bits(np.concatenate(slopes(per_image, None)), expected)
