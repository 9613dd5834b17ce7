"""The calls for an implementation: the catalogue of edge cases, and random calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roipool.systems import SEMANTICS, System, oracle_of
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.case import Array, Case, dtypes
from roipool.verification import catalogue
from roipool.verification.generate import draw

HUGE = 1e5  # cells
LARGER = 4  # one in so many random calls has larger maps


@dataclass(frozen=True)
class CasePlan:
    """The selection of calls."""

    semantics: str  # a key of `SEMANTICS`
    dtype: str = "float32"  # type of features
    box_dtype: str = "float32"  # type of boxes; coordinates are rounded to it before any comparison
    fixed: Mapping[str, Any] = field(default_factory=dict)  # options fixed to one value
    without: Collection[str] = ()  # `KINDS` of calls to leave out
    # Number of random calls, and their seed.
    random_calls: int = 300
    seed: int = 0

    def includes(self, case: Case) -> bool:
        """Return whether the plan includes a call."""
        operation = SEMANTICS[self.semantics]
        if operation.finite and not catalogue.has_finite_boxes(operation, case):
            return False
        if operation.scales != "any" and case.options.get("spatial_scale") == 0:
            return False
        if catalogue.work_of_case(case) > catalogue.MAX_WORK:
            return False
        return not any(KINDS[kind](case) for kind in self.without)

    def calls(self) -> Iterator[tuple[str, Case]]:
        """Yield the name and case of every call."""
        for name, case in self._every_call():
            own = self.as_called(case)
            if self.includes(own):
                yield name, own

    def an_ordinary_call(self) -> Case:
        """Return a small random call."""
        return self.as_called(self._drawn(0))

    def _every_call(self) -> Iterator[tuple[str, Case]]:
        for name, case in catalogue.cases(self.semantics, self.fixed):
            yield name, replace(case, dtype=self.dtype)
        for number in range(self.random_calls):
            yield f"random call {number}", self._drawn(number)

    def _drawn(self, number: int) -> Case:
        tiny = number % LARGER != LARGER - 1
        for more in range(1000):  # the first call from here on that is not too large
            case = draw(
                self.seed, number + more * 10**6, (self.semantics,), tiny=tiny, dtype=self.dtype
            )
            if not case.large:
                return case
        raise AssertionError("the generator yields large calls only")

    def as_called(self, case: Case) -> Case:
        """Return a case for implementations: with plain arrays, and boxes rounded to their type."""
        table = case.rois.copy()
        with np.errstate(over="ignore"):
            table[:, 1:] = table[:, 1:].astype(dtypes()[self.box_dtype])
        if SEMANTICS[case.operation].forms == PER_IMAGE:
            table = table[np.argsort(table[:, 0], kind="stable")]
        own = {name: case.options[name] for name in case.options if name != "scale_ratio"}
        return replace(
            case,
            rois=table,
            options={**own, **self.fixed},
            form="table",
            layout=SEMANTICS[case.operation].layouts[0],
            storage="plain",
            out="new",
            threads=1,
        )


def box_gradient_of(semantics: str) -> str:
    """Return the name of the roipool function for the gradient of boxes, "" if there is none.

    A system may lack this gradient while an implementation has it; then the function is that of the
    oracle's operation.
    """
    return SEMANTICS[semantics].box_gradient or oracle_of(semantics).operation.box_gradient


def of_box_gradient(case: Case) -> Case:
    """Return a case for the function that `box_gradient_of` names."""
    if SEMANTICS[case.operation].box_gradient:
        return case
    return oracle_of(case.operation).prepare(case)


def in_box_type(operation: System, box_dtype: str) -> System:
    """Return an operation with boxes of a given type."""
    dtype, boxes = dtypes()[box_dtype], operation.boxes

    def rounded(case: Case) -> dict[str, Any]:
        with np.errstate(over="ignore"):
            return {
                name: np.asarray(value).astype(dtype) if _is_float(value) else value
                for name, value in boxes(case).items()
            }

    return operation._replace(boxes=rounded)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


# ---- Kinds of calls


def _sides(case: Case) -> Array:
    """Return the width and height of boxes, in cells."""
    with np.errstate(all="ignore"):
        scale = np.abs(case.options.get("spatial_scale", 1.0))
        sides = (case.corners[:, 3:5] - case.corners[:, 1:3]) * scale
    return np.where(np.isfinite(sides), sides, 1.0)


def _extends_outside(case: Case) -> bool:
    with np.errstate(all="ignore"):
        table = case.corners[:, 1:] * case.options.get("spatial_scale", 1.0)
    low, high = table[:, [1, 0]], table[:, [3, 2]]
    size = np.array(case.maps.shape[2:])
    return bool((np.minimum(low, high) < 0).any() or (np.maximum(low, high) > size - 1).any())


KINDS: dict[str, Callable[[Case], bool]] = {
    "non-finite-boxes": lambda case: not np.isfinite(case.rois.astype(case.real)).all(),
    "non-finite-cells": lambda case: not np.isfinite(case.maps).all(),
    "huge-boxes": lambda case: bool((np.abs(_sides(case)) > HUGE).any()),
    "reversed-boxes": lambda case: bool((_sides(case) < 0).any()),
    "empty-boxes": lambda case: bool((_sides(case) == 0).any()),
    "empty-arrays": lambda case: 0 in (*case.maps.shape, len(case.rois)),
    "boxes-over-the-edge": _extends_outside,
    "several-images": lambda case: len(case.maps) > 1,
    "adaptive-sampling": lambda case: case.options.get("sampling_ratio") in (0, (0, 0)),
}


# Description of each kind of call.
KINDS_IN_WORDS = {
    "non-finite-boxes": "coordinates that are NaN or infinite",
    "non-finite-cells": "cells that are NaN or infinite",
    "huge-boxes": f"boxes of more than {HUGE:,.0f} cells",
    "reversed-boxes": "boxes that end before they start",
    "empty-boxes": "boxes without width or height",
    "empty-arrays": "no boxes, images, channels or cells",
    "boxes-over-the-edge": "boxes that reach beyond the centres of the outer cells",
    "several-images": "more than one image",
    "adaptive-sampling": "sampling_ratio=0",
}


# Kinds that many implementations need not support, which makes all other calls ordinary ones. Most
# random boxes reach over the edge of the map: that is unusual only where nothing else is.
EDGE = "boxes-over-the-edge"
UNUSUAL = (
    "non-finite-boxes",
    "non-finite-cells",
    "huge-boxes",
    "reversed-boxes",
    "empty-boxes",
    "empty-arrays",
)


def is_ordinary(case: Case) -> bool:
    """Return whether a call belongs to none of the unusual kinds."""
    return not any(KINDS[name](case) for name in UNUSUAL)


def covering(cases: list[Case]) -> list[str]:
    """Return a few kinds to which all of some calls belong, unusual ones if possible."""
    left, found = list(cases), list[str]()
    while left:
        counts = {name: sum(map(KINDS[name], left)) for name in UNUSUAL}
        kind = max(counts, key=lambda name: counts[name])
        kind = kind if counts[kind] else EDGE
        if not any(map(KINDS[kind], left)):
            break
        found.append(kind)
        left = [case for case in left if not KINDS[kind](case)]
    return found


def first_kind(case: Case) -> str | None:
    """Return the first kind that a call belongs to."""
    return next((name for name, is_of_kind in KINDS.items() if is_of_kind(case)), None)


def in_common(cases: list[Case], others: list[Case]) -> list[str]:
    """Return the kinds that all of `cases` belong to, and few of `others`."""
    return [
        name
        for name, is_of_kind in KINDS.items()
        if all(map(is_of_kind, cases)) and 2 * sum(map(is_of_kind, others)) < len(others)
    ]
