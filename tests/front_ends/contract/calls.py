"""Random calls on a library's arrays give the bits of the same calls on NumPy arrays.

A library's guises of random calls make and compare them; a library without guises is called with
its arrays as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.cases import ALL_CASES, OperationCase
from _support.loops import each

from roipool._dtypes import INTEGERS
from roipool.systems import SYSTEMS, System
from roipool.systems.case import Case
from roipool.systems.volumes import OF_VOLUMES
from roipool.tools.random_calls.front_ends import guises, relation_of
from roipool.tools.random_calls.front_ends.adapters import Adapter, compared
from roipool.verification.check import check
from roipool.verification.generate import draw

from .front_end import Contract, Form, FrontEnd, over

COMPAT = [name for name, row in SYSTEMS.items() if row.forward.startswith("compat.")]
every_system = pytest.mark.parametrize("row", COMPAT)


def calls(row: str, dtype: str | None = None) -> Iterator[Case]:
    """Yield random calls of a row with boxes in several images."""
    for number in range(10**6):
        case = draw(0, number, (row,), tiny=True, dtype=dtype)
        has_several = len(case.maps) > 1 and len({*case.rois[:, 0]}) > 1
        if has_several and case.maps.size and case.grad.size and np.isfinite(case.rois).all():
            yield case


def calls_of_every_form(row: str, dtype: str = "") -> Iterator[Case]:
    """Yield a random call for each form of a row's boxes, by default with maps of float32."""
    allowed = SYSTEMS[row].dtypes
    dtype = dtype or ("float32" if "float32" in allowed else allowed[0])
    for form in SYSTEMS[row].forms:
        yield next(case for case in calls(row, dtype) if case.form == form)


def in_layout(case: Case, layout: str) -> Case:
    """Return a call with maps in a layout, if its row has it."""
    row = SYSTEMS[case.operation]
    own = OF_VOLUMES[layout] if row.is_volume else layout
    return replace(case, layout=own) if own in row.layouts else case


def check_guise(case: Case, library: str, guise: str) -> None:
    """Make a call in a library's guise, and compare it."""
    subject = f"{library}: {guise}"
    if case.dtype in INTEGERS and not guises(library)[subject].takes_integers:
        return
    for finding in check(case, [subject], relation_of=relation_of):
        problem = finding.comparison.problem
        assert problem is None, f"{guise}, {case.dtype}, {finding.what}: {problem}"


def check_bits(case: Case, operation: System, adapter: Adapter) -> None:
    """Make a call through an adapter, and compare it with NumPy's."""
    for what, comparison in compared(case, operation, adapter):
        assert comparison.problem is None, f"{case.dtype}, {what}: {comparison.problem}"


class OwnArrays(Adapter):
    """Functions called with a front end's arrays."""

    def __init__(self, case: Case, front_end: FrontEnd) -> None:
        super().__init__(case)
        self.front_end = front_end

    def array(self, name: str, value: Any) -> Any:
        """Return an argument's array, or nested lists, as the front end's array."""
        table = self.table(value)
        return self.front_end.array(np.array(table, table.dtype.newbyteorder("="), order="C"))

    def numpy(self, array: Any) -> Any:
        """Return an array's values."""
        return self.front_end.numpy(array)


class Calls(Contract):
    """Forwards and gradients of the core's operations."""

    def check(self, front_end: FrontEnd, case: Case) -> None:
        """Make a call in each guise that takes no time, and compare it."""
        for guise in front_end.guises:
            check_guise(case, front_end.library, guise)

    @over([case for case in ALL_CASES if not case.adaptive])
    @each(
        form=lambda front_end, **_: front_end.tried_forms,
        where=lambda case, form, **_: form.dtype in SYSTEMS[case.row].dtypes,
    )
    def test_calls_are_those_of_numpy(
        self, front_end: FrontEnd, case: OperationCase, form: Form
    ) -> None:
        """Of boxes in every form, and of any type."""
        for call in calls_of_every_form(case.row, form.dtype):
            self.check(front_end, in_layout(call, form.layout))


class CallsWithoutGuises(Calls):
    """The same, for a library that random calls do not know."""

    def check(self, front_end: FrontEnd, case: Case) -> None:
        """Make a call with the library's arrays, and compare it."""
        check_bits(case, SYSTEMS[case.operation], OwnArrays(case, front_end))

    @every_system
    def test_systems_of_compat(self, front_end: FrontEnd, row: str) -> None:
        """Forwards and gradients, with maps by name, sequences for each image, several results."""
        for call in calls_of_every_form(row):
            self.check(front_end, call)
