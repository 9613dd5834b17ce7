"""The contract of a front end for the systems of `roipool.compat`.

A guise of random calls makes a row's calls on the library's arrays and compares them bit for bit
with NumPy's, gradients by differentiation with the functions that the system publishes. A library's
test file has a class of this contract with the library's name::

    class TestContract(CompatContract):
        library = "torch"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest
from _support.compare import assert_same_bits
from front_ends.contract.calls import calls, check_guise

import roipool
from roipool._gradients import gradient_names
from roipool.systems import SYSTEMS
from roipool.systems.case import FORMS, Case, dtypes
from roipool.tools.random_calls.front_ends import DIFFERENTIATED, FRONT_END_ROWS, guises
from roipool.tools.random_calls.front_ends.adapters import (
    Adapter,
    boxes_of,
    calls_of,
    differentiable,
    given_boxes,
)
from roipool.verification.call import function_of, run
from roipool.verification.relations import differences

# Masks of the core are made like these, and have no contract of their own.
ROWS = {
    name: row for name, row in SYSTEMS.items() if row.forward.startswith("compat.") or row.masks
}
every_row = pytest.mark.parametrize("name", ROWS)


def call(name: str, dtype: str | None = None) -> Case:
    """Return a call of a row."""
    return next(calls(name, dtype))


def forward_of(name: str) -> Any:
    """Return a row's forward."""
    return inspect.unwrap(function_of(roipool, ROWS[name].forward))


def is_function(name: str) -> bool:
    """Return whether a row's forward is a public function, not a method of a layer."""
    return forward_of(name).__module__.startswith("roipool.compat.")


def as_results(results: Any) -> tuple[Any, ...]:
    """Return one or several results as several."""
    return results if isinstance(results, tuple) else (results,)


def moves_in_float64(name: str) -> bool:
    """Return whether a row has a gradient of boxes, and numbers exact enough for differences."""
    return bool(ROWS[name].box_gradient) and "float64" in ROWS[name].dtypes


def differentiable_arguments(name: str) -> set[str]:
    """Return the arguments of a row's forward that have a gradient, by roipool's names."""
    names = gradient_names(forward_of(name)) or {}
    return {ROWS[name].names.get(own, own) for own in names}


class CompatContract:
    """The contract of a library."""

    library: ClassVar[str]  # as guises name it
    usual: ClassVar[tuple[str, ...]]  # the guises that take no time; the others' tests are thorough
    # The library's adapters: as is, and by differentiation.
    adapter: ClassVar[Callable[[Case], Adapter]]
    differentiated: ClassVar[Callable[[Case], Adapter]]
    # What an error says of an argument without a gradient.
    refused: ClassVar[str] = "must not require a gradient"

    def gradient(self, pool: Callable[[Any], Any], array: Any) -> Any:
        """Return the gradient of the sum of pooled values with respect to an argument."""
        raise NotImplementedError

    def check(self, case: Case, guise: str) -> None:
        """Make a call in a guise."""
        check_guise(case, self.library, guise)

    @every_row
    def test_values_and_gradients_are_those_of_numpy(self, name: str) -> None:
        """In every type of maps and all usual guises."""
        for dtype in SYSTEMS[name].dtypes:
            if dtype in dtypes():
                for guise in self.usual:
                    self.check(call(name, dtype), guise)

    @pytest.mark.thorough
    @pytest.mark.parametrize("name", {**dict.fromkeys(FRONT_END_ROWS), **ROWS})
    def test_transformed_and_compiled(self, name: str) -> None:
        """In every guise that takes time."""
        for subject in guises(self.library):
            guise = subject.partition(": ")[2]
            if guise not in self.usual:
                self.check(call(name), guise)

    @pytest.mark.parametrize("name", [each for each in ROWS if ROWS[each].forms == FORMS])
    def test_boxes_of_each_image(self, name: str) -> None:
        """A list of tables is taken where NumPy's function takes it, and refused where not."""
        case, forward = call(name, ROWS[name].dtypes[0]), ROWS[name].forward
        arguments, own = calls_of(case)[forward].arguments, self.adapter(case)
        boxes = arguments[boxes_of(arguments)]
        tables = [boxes[case.images == image][:, 1:] for image in range(len(case.maps))]
        arguments = {**arguments, boxes_of(arguments): tables}
        given = own.converted(arguments)
        try:
            expected = own.public(forward)(**arguments)
        except (TypeError, ValueError):
            with pytest.raises((TypeError, ValueError)):
                own.public(forward)(**given)
            return
        found = own.back(own.public(forward)(**given))
        for one, other in zip(as_results(found), as_results(expected), strict=True):
            assert_same_bits(one, other)

    def test_every_gradient_is_compared(self) -> None:
        """So a test proves each cell of the table in docs/systems/index.md."""
        assert self.library in DIFFERENTIATED
        compared = {
            gradient
            for row in ROWS.values()
            for gradient in (row.backward, row.box_gradient, row.offset_gradient)
        }
        for name in filter(is_function, ROWS):
            module = ROWS[name].forward.rpartition(".")[0]
            for gradient in (gradient_names(forward_of(name)) or {}).values():
                assert f"{module}.{gradient}" in compared

    @pytest.mark.parametrize("name", [*filter(is_function, ROWS)])
    def test_a_gradient_that_does_not_exist_is_an_error(self, name: str) -> None:
        """It names the argument; boxes, offsets and indices of floats could require one."""
        case = call(name, ROWS[name].dtypes[0])
        arguments = calls_of(case)[ROWS[name].forward].arguments
        own = self.adapter(case)
        given = own.converted(arguments)
        known = differentiable_arguments(name)
        for each, value in arguments.items():
            is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
            if not is_float or each in known:
                continue

            def pool(array: Any, each: str = each) -> Any:
                pooled = own.public(ROWS[name].forward)(**{**given, each: array})
                return pooled[0] if isinstance(pooled, tuple) else pooled

            (own_name,) = own.own_names(ROWS[name].forward, {each: None})
            message = f"^{forward_of(name).__name__}: {own_name} {self.refused}"
            with pytest.raises(TypeError, match=message):
                self.gradient(pool, given[each])

    @pytest.mark.parametrize("name", [each for each in ROWS if moves_in_float64(each)])
    def test_gradients_of_boxes_are_differences(self, name: str) -> None:
        """Of boxes in pixels; for others the published functions speak."""
        for case in islice(calls(name, "float64"), 9):
            row = differentiable(case, given_boxes(case))
            got = run(replace(case, out="new"), self.differentiated(case), row)
            got["box_gradient"] = got["box_gradient"][:, -4:]  # without a batch index
            for what, comparison in differences(case, got, roipool):
                assert comparison.problem is None, f"{what}: {comparison.problem}"
