"""The interface of a library's arrays for the contract, and the contract's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from _support.cases import (
    DeformedCase,
    OperationCase,
    PyramidCase,
    is_per_image,
)


class Form(NamedTuple):
    """Form of maps: element type and layout."""

    dtype: str
    layout: str = "NCHW"

    def __str__(self) -> str:
        return f"{self.dtype}, {self.layout}"


class FrontEnd:
    """One library's arrays."""

    array_name: ClassVar[str]  # the name of an array in error messages
    forms: ClassVar[tuple[Form, ...]]  # forms of maps that are tried
    # Those tried without ``--thorough``; by default all.
    usual_forms: ClassVar[tuple[Form, ...]] = ()
    is_thorough = False  # whether pytest runs with --thorough
    # Its name among the front ends of random calls, and those of its guises that take no time.
    library: ClassVar[str] = ""
    guises: ClassVar[tuple[str, ...]] = ()
    # `grad`, `jvp`, `vmap`, `jacfwd`, `jacrev`, `hessian`, as JAX has them.
    functional: ClassVar[Any] = None
    # Errors of wrong calls of `errors.py`, by name, where this library's are others.
    errors: ClassVar[Mapping[str, tuple[type[Exception], str]]] = {}
    # What its compiler makes of errors; None where they stay.
    compiler_error: ClassVar[type[Exception] | None] = None
    # Names of wrong calls that are none, or others, within its compiler.
    not_compiled: ClassVar[frozenset[str]] = frozenset()

    @property
    def tried_forms(self) -> tuple[Form, ...]:
        """The forms that this run tries."""
        return self.forms if self.is_thorough else self.usual_forms or self.forms

    def settings(self) -> AbstractContextManager[Any]:
        """Return the context in which each test runs."""
        return nullcontext()

    def array(self, values: Any) -> Any:
        """Convert a NumPy array of boxes, indices or gradients to the library."""
        raise NotImplementedError

    def maps(self, values: Any, form: Form) -> Any:
        """Return maps in a form; `values` are (N, C, H, W)."""
        return self.array(np.ascontiguousarray(to_form(values, form)))

    def masks(self, values: Any) -> Any:
        """Convert a NumPy array of masks to the library."""
        return self.array(values)

    def numpy(self, array: Any) -> Any:
        """Convert the library's array to NumPy; raise for other libraries' arrays."""
        raise NotImplementedError

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile the function, if the library has a compiler."""
        return function

    def traced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile the function if that makes testing its derivatives faster."""
        return function

    def vjp(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], count: int, upstream: Any
    ) -> tuple[Any, list[Any]]:
        """Return a function's value, and gradients with respect to the first `count` arguments.

        The first argument is an array or a list of them, of which each has a gradient.
        """
        raise NotImplementedError

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function's gradient, which is itself differentiable."""
        raise NotImplementedError

    def check_gradients(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], order: int = 1
    ) -> None:
        """Compare with finite differences: order 1 in reverse mode, order 2 in both modes."""
        raise NotImplementedError

    def levels(self, count: int) -> Any:
        """Return levels of `count` boxes, alternating 0 and 1."""
        return self.array(np.arange(count) % 2)

    def own(self, case: OperationCase) -> OperationCase:
        """Return a case with levels, and offsets, as this library's arrays."""
        given = case.op, case.variant, case.name, case.adaptive, self
        if isinstance(case, DeformedCase):
            return OwnDeformed(*given)
        return OwnPyramid(*given) if isinstance(case, PyramidCase) else case


@dataclass(frozen=True)
class OwnDeformed(DeformedCase):
    """An operation whose bins are moved, by offsets of a library's arrays beside others of its."""

    front_end: FrontEnd | None = None

    def array_like(self, values: Any, like: Any) -> Any:
        assert self.front_end is not None
        return values if isinstance(like, (np.ndarray, list)) else self.front_end.array(values)


@dataclass(frozen=True)
class OwnPyramid(PyramidCase):
    """A pyramid of a library's arrays, derived from its first map or from a list of all maps."""

    front_end: FrontEnd | None = None

    def pyramid(self, features: Any, layout: str = "NCHW") -> list[Any]:
        return features if isinstance(features, list) else super().pyramid(features, layout)

    def levels(self, boxes: Any) -> Any:
        parts = boxes if is_per_image(boxes) else [boxes]
        count = sum(len(part) if hasattr(part, "__len__") else part.shape[0] for part in parts)
        is_numpys = all(isinstance(part, (np.ndarray, list)) for part in parts)
        assert self.front_end is not None
        return np.arange(count) % 2 if is_numpys else self.front_end.levels(count)


def to_form(values: Any, form: Form) -> Any:
    """Convert (N, C, H, W) values to a type and layout."""
    numbers = values.astype(dtype_named(form.dtype))
    return numbers.transpose(0, 2, 3, 1) if form.layout == "NHWC" else numbers


def dtype_named(name: str) -> np.dtype[Any]:
    """Return a dtype by its name, including bfloat16."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


# ---- The suite


class Contract:
    """A part of the contract; each library's test file has a subclass with its front end."""

    arrays: ClassVar[FrontEnd]

    @pytest.fixture
    def front_end(self, request: pytest.FixtureRequest) -> Iterator[FrontEnd]:
        """The front end, within its settings."""
        options = request.config.option
        self.arrays.is_thorough = options.thorough or options.everything
        with self.arrays.settings():
            yield self.arrays

    @pytest.fixture
    def case(self, request: pytest.FixtureRequest, front_end: FrontEnd) -> OperationCase:
        """An operation for the front end's arrays."""
        return front_end.own(request.param)


# Compilers take most of the time of a wrong call, and say the same.
directly_and_compiled = pytest.mark.parametrize(
    "compiled",
    [
        pytest.param(False, id="directly"),
        pytest.param(True, id="compiled", marks=pytest.mark.thorough),
    ],
)


def over(
    cases: list[OperationCase], *, usual: list[OperationCase] | None = None, **more: Any
) -> pytest.MarkDecorator:
    """Return a mark that parametrizes a test by operations and further values.

    If `usual` is given, the tests of other operations are thorough.
    """
    rows = [(case, *values) for case in cases for values in zip(*more.values(), strict=True)]
    if not more:
        rows = [(case,) for case in cases]
    parameters = [
        pytest.param(*row, marks=[] if usual is None or row[0] in usual else pytest.mark.thorough)
        for row in rows
    ]
    return pytest.mark.parametrize(("case", *more), parameters, ids=str, indirect=["case"])


def as_list(values: Any) -> list[Any]:
    """Return results as a list."""
    return [*values] if isinstance(values, (list, tuple)) else [values]


def named(cases: list[OperationCase], *names: str) -> list[OperationCase]:
    """Return cases by name."""
    found = [case for case in cases if case.name in names]
    assert len(found) == len(names)
    return found
