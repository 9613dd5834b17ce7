"""Gradients of functions of ``roipool.compat``: which there are, and those that are published.

A function ``f`` has a gradient with respect to its features if its module has ``f_backward``, and
with respect to another argument ``a`` if it has ``f_backward_a``. Most are the derivatives of the
forward, which libraries that differentiate find by themselves. Those that are not are marked by
:func:`publishes_gradient`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Function = Callable[..., Any]

# Arguments that are the features where they are not the first.
_FEATURES = ("pyramid_layers",)
# Endings of the arguments of a gradient that are the shape of the features.
_SHAPES = ("_shape", "_size")


class Published(NamedTuple):
    """How the gradients of a function are called.

    Attributes
    ----------
    function : callable
        The forward.
    returns : tuple of str
        The names of its results after the first, which are arguments of the gradient.
    options : mapping
        Options that let the forward return them.
    when : mapping
        The options for which gradients are published functions, for others they are derivatives.
    """

    function: Function
    returns: tuple[str, ...]
    options: Mapping[str, Any]
    when: Mapping[str, Any]

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PublishedCall:
        """Return a call with these arguments."""
        bound = signature_of(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        return PublishedCall(self, dict(bound.arguments))


_published: dict[tuple[str, str], Published] = {}


def publishes_gradient(
    *returns: str, options: Mapping[str, Any] | None = None, when: Mapping[str, Any] | None = None
) -> Callable[[Function], Function]:
    """Mark a forward whose gradients are functions of their own, not its derivatives."""

    def marked(function: Function) -> Function:
        key = function.__module__, function.__name__
        _published[key] = Published(function, returns, options or {}, when or {})
        return function

    return marked


def published_of(function: Function) -> Published | None:
    """Return how the published gradients of a function are called, if it has such."""
    return _published.get((function.__module__, function.__name__))


@functools.cache
def signature_of(function: Function) -> inspect.Signature:
    """Return a function's signature."""
    return inspect.signature(function)


@functools.cache
def features_of(function: Function) -> str:
    """Return the name of a function's argument that has the features or pooled values."""
    parameters = [*signature_of(function).parameters]
    return next((each for each in parameters if each in _FEATURES), parameters[0])


@functools.cache
def gradient_names(function: Function) -> Mapping[str, str] | None:
    """Return the gradient's name for each argument that has one; None for a gradient itself."""
    name, names = function.__name__, vars(sys.modules[function.__module__])
    if "_backward" in name:
        return None
    found = {each: f"{name}_backward_{each}" for each in signature_of(function).parameters}
    found[features_of(function)] = f"{name}_backward"
    return {each: gradient for each, gradient in found.items() if gradient in names}


def refuse_gradients(
    function: Function,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_wanted: Callable[[Any], bool],
) -> None:
    """Raise TypeError if a gradient is wanted with respect to an argument that has none."""
    parameters, known = signature_of(function).parameters, gradient_names(function)
    for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
        if known is None or name in known:
            continue
        parts = value if isinstance(value, (list, tuple)) else (value,)
        if any(map(is_wanted, parts)):
            raise TypeError(
                f"{name} must not require a gradient: the function has none with respect to it; "
                f"detach it"
            )


class PublishedCall:
    """One call of a function with published gradients.

    Attributes
    ----------
    arrays : list
        The arguments with gradients.
    """

    def __init__(self, published: Published, given: dict[str, Any]) -> None:
        self._published, self._given = published, given
        names = gradient_names(published.function)
        assert names is not None
        self._gradients = {each: name for each, name in names.items() if given[each] is not None}
        self.arrays = [given[each] for each in self._gradients]

    @property
    def is_derivative(self) -> bool:
        """Whether the gradients for these options are the derivatives of the forward."""
        return any(self._given[name] != value for name, value in self._published.when.items())

    def forward(self, arrays: Sequence[Any]) -> Any:
        """Return the results that the caller asked for."""
        return self._published.function(**self._given)

    def all_results(self, arrays: Sequence[Any]) -> Any:
        """Return all results, of the arguments with gradients in the place of the caller's."""
        own = dict(zip(self._gradients, arrays, strict=True))
        return self._published.function(**{**self._given, **own, **self._published.options})

    def finish(self, results: Any) -> Any:
        """Return the results that the caller asked for, from all."""
        asks = self._published.options
        wanted = all(self._given[name] == value for name, value in asks.items())
        return results if wanted or not isinstance(results, tuple) else results[0]

    def gradients(
        self, gradient: Any, arrays: Sequence[Any], results: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        """Return the gradients that are needed, and None for others."""
        own = dict(zip(self._gradients, arrays, strict=True))
        more = dict(zip(self._published.returns, results, strict=True))
        known, found = {**self._given, **own, **more}, []
        for (name, function), is_needed in zip(self._gradients.items(), needed, strict=True):
            value = self._gradient(function, gradient, known) if is_needed else None
            found.append(value)
        return found

    def _gradient(self, name: str, gradient: Any, known: Mapping[str, Any]) -> Any:
        function = getattr(sys.modules[self._published.function.__module__], name)
        first, *others = inspect.signature(function).parameters
        features = known[next(iter(self._gradients))]
        given = {first: gradient}
        for each in others:
            if each in known:
                given[each] = known[each]
            elif each.endswith(_SHAPES):
                given[each] = tuple(features.shape)
        return function(**given)
