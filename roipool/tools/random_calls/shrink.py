"""Shrinks a failing call, and formats it as a line of Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

import roipool
from roipool._dtypes import INTEGERS
from roipool.systems import SEMANTICS, SYSTEMS
from roipool.systems.case import STORAGES, Array, Case, held_by, with_channels
from roipool.tools.random_calls.front_ends import relation_of
from roipool.verification.call import FunctionCall, run
from roipool.verification.check import ORACLE, Finding, check

SECONDS = 10.0  # time limit of shrinking


def shrink(
    case: Case,
    finding: Finding,
    failure_of: Callable[[Case], Finding | None],
    seconds: float = SECONDS,
) -> tuple[Case, Finding]:
    """Return the smallest case found that fails in the same way, and its failure.

    `failure_of` returns the failure of a case, or None.
    """
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for change in _CHANGES:
            for smaller in change(case):
                if time.monotonic() > end:
                    return case, finding
                failure = failure_of(smaller)
                if failure is not None:
                    case, finding, changed = smaller, failure, True
                    break
    return case, finding


def shrink_call(case: Case, finding: Finding, library: Any = roipool) -> tuple[Case, Finding]:
    """Return the smallest call found for which the same comparison fails, and its failure."""
    subject, result = finding.subject, finding.what.split()[0]
    return shrink(case, finding, lambda small: first_failure(small, subject, result, library))


def first_failure(case: Case, subject: str, result: str, library: Any = roipool) -> Finding | None:
    """Return the first failed comparison of a result with `subject`, or None."""
    for finding in check(case, (subject,), library, relation_of):
        if finding.comparison.problem and finding.what.startswith(result):
            return finding
    return None


# ---- Changes: each yields simpler cases, the simplest first


def _plain_arguments(case: Case) -> Iterator[Case]:
    simplest: dict[str, Any] = {
        "storage": "plain",
        "out": "new",
        "form": "table",
        "threads": 1,
        "variation": 0,
        "layout": SYSTEMS[case.operation].layouts[0],
    }
    yield from _replaced(case, simplest)
    for name, value in simplest.items():
        yield from _replaced(case, {name: value})


def _replaced(case: Case, values: dict[str, Any]) -> Iterator[Case]:
    if any(getattr(case, name) != value for name, value in values.items()):
        yield replace(case, **values)


def _usual_type(case: Case) -> Iterator[Case]:
    if case.dtype != "float32":
        yield held_by(case, "float32")


def _fewer_boxes(case: Case) -> Iterator[Case]:
    for kept in _parts(len(case.rois)):
        yield replace(case, rois=case.rois[kept], grad=case.grad[kept])


def _fewer_images(case: Case) -> Iterator[Case]:
    if len(case.maps) > 1:
        table = case.rois.copy()
        table[:, 0] = 0
        yield replace(case, rois=table, maps=case.maps[:1])
        yield replace(case, rois=table, maps=case.maps[-1:])
        used = sorted(set(case.images.tolist()))
        if 0 < len(used) < len(case.maps):
            table[:, 0] = np.searchsorted(used, case.images)
            yield replace(case, rois=table, maps=case.maps[used])


def _fewer_channels(case: Case) -> Iterator[Case]:
    for kept in _parts(case.grad.shape[1]):
        yield with_channels(case, kept)


def _parts(count: int) -> Iterator[slice]:
    """Yield parts of a range: single elements, halves, all but the first or last."""
    if count > 1:
        for first in range(min(count, 8)):
            yield slice(first, first + 1)
        yield slice(count // 2)
        yield slice(count // 2, count)
        yield slice(count - 1)
        yield slice(1, count)


def _fewer_bins(case: Case) -> Iterator[Case]:
    rows, columns = case.size
    for fewer in _less(rows):
        yield _with_gradient(case, case.grad[:, :, :fewer])
    for fewer in _less(columns):
        yield _with_gradient(case, case.grad[..., :fewer])


def _with_gradient(case: Case, grad: Array) -> Case:
    """Return a case with other bins, and of the maps the first channels that these need."""
    groups = SYSTEMS[case.operation].groups_of(case.options, grad.shape[2:])
    return replace(case, grad=grad, maps=case.maps[:, : grad.shape[1] * groups])


def _smaller_maps(case: Case) -> Iterator[Case]:
    height, width = case.maps.shape[2:]
    for fewer in _less(height):
        yield replace(case, maps=case.maps[:, :, :fewer])
    for fewer in _less(width):
        yield replace(case, maps=case.maps[..., :fewer])


def _less(size: int) -> list[int]:
    return sorted({fewer for fewer in (1, 2, size // 2, size - 1) if 0 < fewer < size})


def _simpler_options(case: Case) -> Iterator[Case]:
    scale = case.options.get("spatial_scale", 1.0)
    if scale != 1:
        table = case.rois.copy()
        table[:, 1:] *= scale
        yield replace(case, rois=table, options=case.options | {"spatial_scale": 1.0})
    for name, values in _SIMPLE_OPTIONS.items():
        for value in values:
            if name in case.options and case.options[name] == value:
                break
            if name in case.options:
                yield replace(case, options=case.options | {name: value})
    ratio = case.options.get("sampling_ratio")
    if isinstance(ratio, tuple):
        for simpler in ((1, ratio[1]), (ratio[0], 1), *((r,) * 2 for r in ratio)):
            if simpler != ratio:
                yield replace(case, options=case.options | {"sampling_ratio": simpler})
    elif ratio and ratio > max(_SIMPLE_OPTIONS["sampling_ratio"]):  # the simple values are smaller
        yield replace(case, options=case.options | {"sampling_ratio": ratio - 1})


_SIMPLE_OPTIONS: dict[str, tuple[Any, ...]] = {
    "aligned": (False,),
    "sampling_ratio": (1, 2, 0),
    "extrapolation_value": (0.0,),
}


def _simpler_numbers(case: Case) -> Iterator[Case]:
    for maps in _simpler(case.maps):
        yield replace(case, maps=maps)
    for grad in _simpler(case.grad):
        yield replace(case, grad=grad)


def _simpler(numbers: Array) -> Iterator[Array]:
    finite: Array = np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
    for simpler in (np.ones_like(numbers), finite, np.round(numbers)):
        if not np.array_equal(simpler, numbers, equal_nan=True):
            yield simpler


def _simpler_boxes(case: Case) -> Iterator[Case]:
    for k, column in np.argwhere(np.isfinite(case.rois[:, 1:])):
        value = case.rois[k, column + 1]
        simpler = (0.0, float(np.round(value)), *(float(np.round(value, n)) for n in (1, 2, 4, 7)))
        for coordinate in simpler:
            if coordinate == value:
                break
            table = case.rois.copy()
            table[k, column + 1] = coordinate + 0.0  # no negative zero
            yield replace(case, rois=table)


_CHANGES: tuple[Callable[[Case], Iterator[Case]], ...] = (
    _fewer_boxes,
    _fewer_channels,
    _fewer_images,
    _plain_arguments,
    _fewer_bins,
    _smaller_maps,
    _usual_type,
    _simpler_options,
    _simpler_numbers,
    _simpler_boxes,
)


# ---- Text


def line_of(case: Case, finding: Finding) -> str:
    """Return a line of Python that reproduces a failure.

    For a difference to the oracle the line calls the public function; otherwise it repeats the
    comparison.
    """
    if finding.subject == ORACLE and case.operation in SEMANTICS:  # a single function call
        name = finding.what.split()[0]
        calls: list[FunctionCall] = []
        run(case, roipool, calls=calls)
        matching = [call for call in calls if name in call.returns]
        if matching:
            return f"{_imports(case)}, roipool; print({_text_of_call(case, matching[-1])})"
    names = [field.name for field in fields(case)]
    values = ", ".join(f"{name}={text_of(getattr(case, name))}" for name in names)
    return (
        f"{_imports(case)}; from roipool.systems.case import Case; "
        f"from roipool.tools.random_calls.shrink import first_failure; "
        f"print(first_failure(Case({values}), {finding.subject!r}, {finding.what.split()[0]!r}))"
    )


def catalogue_row(case: Case) -> str:
    """Return the case's geometry as an `Entry` of `roipool.verification.catalogue`."""
    more = "".join(
        f", {name}=({case.options[option]!r},)"
        for name, option in (("samplings", "sampling_ratio"), ("alignments", "aligned"))
        if option in case.options
    )
    return (
        f'Entry("...", {case.rois.tolist()}, shape={case.maps.shape}, size={case.size}, '
        f"scale={case.options.get('spatial_scale', 1.0)!r}{more})"
    )


def _imports(case: Case) -> str:
    bfloat16 = ", ml_dtypes" if case.dtype == "bfloat16" else ""
    return f"from numpy import inf, nan; import numpy as np{bfloat16}"


def _text_of_call(case: Case, call: FunctionCall) -> str:
    stored = STORAGES[case.storage].text
    arguments = []
    for name, value in call.arguments.items():
        if name == "out":
            continue
        text = text_of(value)
        if isinstance(value, np.ndarray) and value.ndim == 4 and not _is_argmax(value):
            text = stored.format(text)
        arguments.append(f"{name}={text}")
    return f"roipool.{call.function}({', '.join(arguments)})"


def _is_argmax(array: Array) -> bool:
    return array.dtype.kind in "iu" and array.dtype.name not in INTEGERS


# How each library of arrays is written: its name, and the argument before a type.
_WRITTEN = {
    "numpy": ("np", ""),
    "cupy": ("cupy", ""),
    "jax": ("jnp", ""),
    "torch": ("torch", "dtype="),
}


def text_of(value: Any, library: str = "numpy") -> str:
    """Return an argument as Python text, with the arrays of a library."""
    if isinstance(value, (list, tuple)) and any(isinstance(item, np.ndarray) for item in value):
        return f"[{', '.join(text_of(item, library) for item in value)}]"
    return _text_of_array(value, library) if isinstance(value, np.ndarray) else repr(value)


def _text_of_array(array: Array, library: str) -> str:
    module, keyword = _WRITTEN[library]
    name = array.dtype.newbyteorder("=").name
    owner = "ml_dtypes" if name == "bfloat16" and library in ("numpy", "cupy") else module
    dtype = f"{keyword}{owner}.{name}"
    if array.size == 0:
        return f"{module}.zeros({array.shape}, {dtype})"
    if array.ndim == 4 and np.all(array == array.flat[0]):
        return f"{module}.full({array.shape}, {array.flat[0].item()!r}, {dtype})"
    numbers = array.astype(np.float64) if name in ("bfloat16", "float16") else array
    make = "tensor" if library == "torch" else "array"
    return f"{module}.{make}({numbers.tolist()!r}, {dtype})"
