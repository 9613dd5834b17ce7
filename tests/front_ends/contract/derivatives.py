"""Derivatives of all orders and modes by finite differences, and errors instead of zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.cases import ALL_CASES, SMALL, OperationCase, maps

import roipool

from .front_end import Contract, Form, FrontEnd, named, over

# Rules do not depend on how many samples a bin has.
FIXED = [case for case in ALL_CASES if not case.adaptive]
LINEAR = [case for case in FIXED if case.is_linear]
MOVING = [case for case in FIXED if case.moves]
SAMPLES = [case for case in FIXED if not case.is_linear]  # maxima of samples
WHOLE_CELLS = [case for case in FIXED if not case.moves and case.op.forward != "roi_align"]
# A maximum, boxes that move, boxes in another order of coordinates, several maps.
TYPICAL = named(
    FIXED,
    "roi_pool, max",
    "roi_align, avg",
    "crop_and_resize, bilinear",
    "multilevel_roi_align, avg",
)


def small_maps(front_end: FrontEnd, seed: int = 0, layout: str = "NCHW") -> Any:
    return front_end.maps(maps(SMALL, seed), Form("float64", layout))


def boxes_of(
    front_end: FrontEnd, case: OperationCase, count: int = 3, seed: int = 0
) -> tuple[Any, Any]:
    return front_end.array(case.boxes(count, seed)), front_end.array(case.indices(count))


def of_features(
    front_end: FrontEnd, case: OperationCase, layout: str = "NCHW"
) -> Callable[..., Any]:
    at = boxes_of(front_end, case)
    return front_end.traced(lambda features: case.pool(features, *at, layout=layout))


def loss_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (function(*args) ** 2).sum()


def twice(front_end: FrontEnd, loss: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradient of the sum of the gradient."""
    return front_end.gradient(lambda x: front_end.gradient(loss)(x).sum())


def close(front_end: FrontEnd, found: Any, expected: Any) -> None:
    numbers = (front_end.numpy(one) for one in (found, expected))
    np.testing.assert_allclose(*numbers, rtol=1e-12, atol=1e-12)


class Derivatives(Contract):
    """Derivatives with respect to features and boxes."""

    # ---- By features

    @over(LINEAR, usual=TYPICAL)
    def test_derivatives_by_features(self, front_end: FrontEnd, case: OperationCase) -> None:
        """Both modes, to the second order."""
        function = of_features(front_end, case)
        front_end.check_gradients(function, (small_maps(front_end),), order=2)

    @over(SAMPLES)
    def test_gradient_of_a_maximum_of_samples(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        front_end.check_gradients(of_features(front_end, case), (small_maps(front_end),))

    @pytest.mark.thorough
    @over(TYPICAL)
    def test_derivatives_of_the_last_layout(self, front_end: FrontEnd, case: OperationCase) -> None:
        function = of_features(front_end, case, "NHWC")
        features = small_maps(front_end, layout="NHWC")
        front_end.check_gradients(function, (features,), order=2)

    @over(TYPICAL)
    def test_modes_agree(self, front_end: FrontEnd, case: OperationCase) -> None:
        """Both modes give the same Jacobians and the same products with the Hessian."""
        func, pool = front_end.functional, of_features(front_end, case)
        loss, features, other = loss_of(pool), *(small_maps(front_end, n) for n in range(2))
        forward = func.jvp(func.grad(loss), (features,), (other,))[1]
        reverse = func.grad(lambda x: (func.grad(loss)(x) * other).sum())(features)
        mixed = func.grad(lambda x: func.jvp(loss, (x,), (other,))[1])(features)
        close(front_end, forward, reverse)
        close(front_end, forward, mixed)
        by_columns, by_rows = func.jacfwd(pool)(features), func.jacrev(pool)(features)
        assert by_columns.any()
        close(front_end, by_columns, by_rows)

    @over(LINEAR, usual=TYPICAL)
    def test_functional_gradient(self, front_end: FrontEnd, case: OperationCase) -> None:
        """The gradient functions agree with the library's differentiation."""
        at, features = boxes_of(front_end, case), small_maps(front_end)
        pool, count = front_end.traced(case.pool), 1 + case.moves
        gradient = front_end.functional.grad(loss_of(pool), tuple(range(count)))
        found, upstream = gradient(features, *at), 2 * pool(features, *at)
        expected = front_end.vjp(case.pool, (features, *at), count, upstream)[1]
        for mine, other in zip(found, expected, strict=True):
            close(front_end, mine, other)

    def test_tangents_of_bins_without_cells(self, front_end: FrontEnd) -> None:
        """Derivatives of empty maxima are 0, not those of a cell."""
        features, rois = small_maps(front_end), np.array([[0, 20.0, 20, 30, 30]])
        pool = lambda maps: roipool.roi_pool(maps, front_end.array(rois), 2)  # noqa: E731
        assert not front_end.functional.jvp(pool, (features,), (features,))[1].any()

    # ---- By boxes

    @over(MOVING)
    def test_gradient_by_boxes(self, front_end: FrontEnd, case: OperationCase) -> None:
        boxes, indices = boxes_of(front_end, case)
        pool = front_end.traced(lambda features, corners: case.pool(features, corners, indices))
        front_end.check_gradients(pool, (small_maps(front_end), boxes))

    @over(MOVING)
    def test_mixed_second_derivative(self, front_end: FrontEnd, case: OperationCase) -> None:
        """The gradient of the gradient with respect to features needs only first-order kernels."""
        boxes, indices = boxes_of(front_end, case)
        features, pool = small_maps(front_end), of_features(front_end, case)
        upstream = front_end.array(maps(tuple(pool(features).shape), seed=2))

        def gradient(corners: Any) -> Any:
            pooled = lambda x: (case.pool(x, corners, indices) * upstream).sum()  # noqa: E731
            return front_end.gradient(pooled)(features)

        front_end.check_gradients(gradient, (boxes,))

    @over(MOVING)
    def test_forward_mode_of_the_gradient_by_boxes(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        """The gradient of boxes is linear in the features and in grad_output."""
        at, pool = boxes_of(front_end, case), of_features(front_end, case)
        features, other = (small_maps(front_end, seed) for seed in range(2))
        upstream = front_end.array(maps(tuple(pool(features).shape), seed=2))
        slopes = lambda maps, grad: case.box_gradient(grad, maps, *at)  # noqa: E731
        value, change = front_end.functional.jvp(slopes, (features, upstream), (other, upstream))
        close(front_end, change, slopes(other, upstream) + value)

    @over(WHOLE_CELLS)
    def test_whole_cells_do_not_move_with_boxes(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        """Pooling of whole cells is constant in the boxes almost everywhere; its gradient is 0."""
        (boxes, indices), func = boxes_of(front_end, case), front_end.functional
        features = small_maps(front_end)
        pool = lambda maps, corners: case.pool(maps, corners, indices)  # noqa: E731
        assert not func.grad(loss_of(pool), 1)(features, boxes).any()
        found = func.jvp(pool, (features, boxes), (features, boxes))[1]
        expected = func.jvp(lambda maps: pool(maps, boxes), (features,), (features,))[1]
        close(front_end, found, expected)

    # ---- What no kernel computes is an error, never zero

    @over(MOVING)
    def test_derivatives_through_boxes_that_are_refused(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        (boxes, indices), func = boxes_of(front_end, case), front_end.functional
        features = small_maps(front_end)
        pool = lambda corners: case.pool(features, corners, indices)  # noqa: E731
        loss = loss_of(pool)

        def slopes(maps: Any) -> Any:
            of_boxes = lambda r: (case.pool(maps, r, indices) ** 2).sum()  # noqa: E731
            return front_end.gradient(of_boxes)(boxes).sum()

        refused = [
            lambda: func.jvp(pool, (boxes,), (boxes,)),
            lambda: func.jacfwd(pool)(boxes),
            lambda: func.hessian(loss)(boxes),
            lambda: func.grad(lambda r: func.grad(loss)(r).sum())(boxes),
            lambda: func.grad(lambda r: func.jvp(loss, (r,), (boxes,))[1])(boxes),
            lambda: twice(front_end, loss)(boxes),
            lambda: front_end.gradient(slopes)(features),
        ]
        self.check_refused(front_end, refused, f"{case.op.forward}.*(boxes|second derivatives)")

    @over(SAMPLES)
    def test_derivatives_of_a_maximum_of_samples_that_are_refused(
        self, front_end: FrontEnd, case: OperationCase
    ) -> None:
        (boxes, indices), func = boxes_of(front_end, case), front_end.functional
        features, pool = small_maps(front_end), of_features(front_end, case)
        of_boxes = lambda corners: case.pool(features, corners, indices)  # noqa: E731
        refused = [
            lambda: func.jvp(pool, (features,), (features,)),
            lambda: func.grad(lambda x: func.grad(loss_of(pool))(x).sum())(features),
            lambda: twice(front_end, loss_of(pool))(features),
            lambda: front_end.gradient(loss_of(of_boxes))(boxes),
            lambda: func.jvp(of_boxes, (boxes,), (boxes,)),
        ]
        match = "roi_align.*(mode='max'|maximum of samples|respect to boxes)"
        self.check_refused(front_end, refused, match)

    @staticmethod
    def check_refused(front_end: FrontEnd, refused: list[Callable[[], Any]], message: str) -> None:
        for number, function in enumerate(refused):
            with pytest.raises(NotImplementedError, match=message):
                front_end.traced(function)()
            if number == 0:
                with pytest.raises(NotImplementedError, match=message):
                    function()
