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
from typing import Any, NamedTuple, TypeVar

from roipool._arguments import dtype_of
from roipool._arrays import LIBRARY_OF, NUMPY, is_array

Function = Callable[..., Any]
FunctionT = TypeVar("FunctionT", bound=Function)

# Arguments that are the features where they are not the first.
_FEATURES = ("pyramid_layers",)
# Endings of the arguments of a gradient that are the shape of the features.
_SHAPES = ("_shape", "_size")
_SHAPES_OF_MAPS = ("_shapes",)
# Beginnings of the arguments of a gradient that the forward returns.
_RETURNED = ("argmax", "maxidx")
# Arguments of a forward that say whether it is a maximum, and what they are then.
_POOLERS = ("ROIAlign", "ROIAlignV2", "ROIAlignRotated", "ROIPool")
_MAXIMA = {"mode": "max", "pool_mode": "max", "pooler_type": "ROIPool"}
# The attribute of functions that are marked by `composed`.
_COMPOSED = "calls_other_functions"
# The argument of a forward that lets it return what its gradient needs.
_WITH_RESULTS = "return_argmax"


class Published(NamedTuple):
    """How the gradients of a function are called."""

    function: Function  # the forward
    # The names of its results after the first, which are arguments of the gradient.
    returns: tuple[str, ...]
    # The options for which gradients are published functions; for others they are derivatives.
    when: Mapping[str, Any]
    # Options of gradients that are not those of the forward, by the names of gradients.
    fixed: Mapping[str, Mapping[str, Any]]

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PublishedCall:
        """Return a call with these arguments."""
        bound = signature_of(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        return PublishedCall(self, dict(bound.arguments))


_published: dict[tuple[str, str], Published] = {}


def publishes_gradient(
    *returns: str,
    when: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[FunctionT], FunctionT]:
    """Mark a forward whose gradients are functions of their own, not its derivatives."""

    def marked(function: FunctionT) -> FunctionT:
        key = function.__module__, function.__name__
        _published[key] = Published(function, returns, when or {}, fixed or {})
        return function

    return marked


def composed(function: FunctionT) -> FunctionT:
    """Mark a function of other public functions, which have its gradients."""
    setattr(function, _COMPOSED, True)
    return function


def published_of(function: Function) -> Published | None:
    """Return how the published gradients of a function are called, if it has such."""
    return _published.get((function.__module__, function.__name__))


@functools.cache
def default_of(function: Function) -> Published:
    """Return how gradients are called where a library finds none: those of every function.

    A library that only has a function for custom gradients, such as Paddle's PyLayer, MLX's
    ``mx.custom_function`` or TensorFlow's ``tf.custom_gradient``, pairs with it what a
    `PublishedCall` returns: `results` in the forward, `gradients` in the backward.
    """
    module = vars(sys.modules[function.__module__])
    backward = inspect.unwrap(module[f"{function.__name__}_backward"])
    _, *others = signature_of(backward).parameters
    own = signature_of(function).parameters
    returns = [name for name in others if name.startswith(_RETURNED) and name not in own]
    return published_of(function) or Published(function, tuple(returns), {}, {})


@functools.cache
def signature_of(function: Function) -> inspect.Signature:
    """Return a function's signature."""
    return inspect.signature(function)


def named(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return the arguments of a call with their names; those that are too many have none."""
    return [*zip(signature_of(function).parameters, args, strict=False), *kwargs.items()]


@functools.cache
def features_of(function: Function) -> str:
    """Return the name of a function's argument that has the features or pooled values."""
    parameters = [*signature_of(function).parameters]
    return next((each for each in parameters if each in _FEATURES), parameters[0])


@functools.cache
def gradient_names(function: Function) -> Mapping[str, str] | None:
    """Return the gradient's name for each argument that has one.

    None for a gradient itself, and for a function of other public functions, which have them.
    """
    name, names = function.__name__, vars(sys.modules[function.__module__])
    if "_backward" in name or hasattr(function, _COMPOSED):
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
    known = gradient_names(function)
    if known is None:
        return
    for name, value in named(function, args, kwargs):
        parts = value if isinstance(value, (list, tuple)) else (value,)
        if name not in known and any(map(is_wanted, parts)):
            raise TypeError(
                f"{name} must not require a gradient: the function has none with respect to it; "
                f"detach it"
            )


def _is_equal(given: Any, value: Any) -> bool:
    """Return whether an option has a value; an array has none, which the function refuses."""
    try:
        return bool(given == value)
    except (TypeError, ValueError, RuntimeError):
        return False


class PublishedCall:
    """One call of a function with published gradients.

    Attributes
    ----------
    arrays : list
        The arrays among its arguments, and in lists among them: those with gradients first.
    """

    def __init__(self, published: Published, given: dict[str, Any]) -> None:
        self._published, self._given = published, given
        names = gradient_names(published.function)
        assert names is not None
        self._gradients = {each: name for each, name in names.items() if given[each] is not None}
        others = [each for each in given if each not in self._gradients]
        self._places: list[tuple[str, int | None]] = [
            place for name in (*self._gradients, *others) for place in _places(name, given[name])
        ]
        self.arrays = [
            given[name] if number is None else given[name][number] for name, number in self._places
        ]

    @property
    def is_derivative(self) -> bool:
        """Whether the gradients for these options are the derivatives of the forward."""
        options = self._published.when.items()
        return not all(_is_equal(self._given[name], value) for name, value in options)

    def results(self, arrays: Sequence[Any]) -> Any:
        """Return all results, of these arrays in the place of the caller's."""
        given = self._with(arrays)
        if _WITH_RESULTS in given:
            given[_WITH_RESULTS] = _is_maximum(given)
        return _called(self._published.function, given)

    def asked(self, results: Any) -> Any:
        """Return the results that the caller asked for, from all."""
        is_one = not isinstance(results, tuple)
        return results if is_one or self._given.get(_WITH_RESULTS, True) else results[0]

    def gradients(
        self, gradient: Any, arrays: Sequence[Any], results: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        """Return for each array its gradient if it is needed, else None.

        `results` are those of the forward after the first.
        """
        more = dict.fromkeys(self._published.returns)
        more.update(zip(self._published.returns, results, strict=False))
        known = {**self._with(arrays), **more}
        wanted = {
            name for (name, _), is_needed in zip(self._places, needed, strict=True) if is_needed
        }
        found = {
            name: self._gradient(function, gradient, known)
            for name, function in self._gradients.items()
            if name in wanted
        }
        return [
            _part(found[name], known[name], key) if is_needed and name in found else None
            for (name, key), is_needed in zip(self._places, needed, strict=True)
        ]

    def _with(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments with these arrays in the place of the caller's."""
        given = dict(self._given)
        for name in {name for name, key in self._places if key is not None}:
            value = given[name]
            given[name] = {**value} if isinstance(value, dict) else [*value]
        for (name, number), array in zip(self._places, arrays, strict=True):
            if number is None:
                given[name] = array
            else:
                given[name][number] = array
        return given

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
            elif each.endswith(_SHAPES_OF_MAPS):
                given[each] = _shapes(features)
            elif each == "T":  # TensorFlow's name of the gradient's dtype
                given[each] = dtype_of(features)
        return _called(function, {**given, **self._published.fixed.get(name, {})})


def _called(function: Function, given: Mapping[str, Any]) -> Any:
    """Return the result of a function of arguments by name, also of those without names."""
    bound = signature_of(inspect.unwrap(function)).bind_partial()
    bound.arguments = {name: given[name] for name in bound.signature.parameters if name in given}
    return function(*bound.args, **bound.kwargs)


def _is_maximum(given: Mapping[str, Any]) -> bool:
    """Return whether a forward has an argmax, by the option that says so, if there is one."""
    poolers = [each for each in given.get("options", ()) if each in _POOLERS]
    options = {**given, "pooler_type": poolers[0]} if poolers else given
    return all(options.get(name, value) == value for name, value in _MAXIMA.items())


def _places(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return where the arrays of an argument are: it is one, or a list or dict that holds some."""
    if isinstance(value, (list, tuple)):
        return [(name, number) for number, each in enumerate(value) if is_array(each)]
    if isinstance(value, dict):
        return [(name, key) for key, each in value.items() if is_array(each)]
    return [(name, None)] if is_array(value) else []


def _shapes(maps: Any) -> Any:
    if isinstance(maps, dict):
        return {key: tuple(each.shape) for key, each in maps.items()}
    return [tuple(each.shape) for each in maps]


def _part(gradient: Any, given: Any, key: Any) -> Any:
    """Return the gradient of an array among an argument's, in its shape and type."""
    if key is None:
        return _fitted(gradient, given)
    if isinstance(gradient, (list, tuple, dict)):  # of each map
        is_left_out = isinstance(gradient, dict) and key not in gradient
        return None if is_left_out else _fitted(gradient[key], given[key])
    first = sum(len(each) for each in given[:key])  # rows of the boxes of each image
    return _fitted(gradient[first : first + len(given[key])], given[key])


def _fitted(gradient: Any, array: Any) -> Any:
    """Return a gradient in an array's type; an index before the numbers of a box has none."""
    library = LIBRARY_OF[type(gradient)] or NUMPY
    own = library.astype(gradient, dtype_of(array))
    if array.ndim == 1:  # no boxes
        return own.reshape(array.shape)
    if own.ndim == 2 and own.shape[1] + 1 == array.shape[1]:
        xp = library.xp()
        own = xp.concatenate([xp.zeros((own.shape[0], 1), own.dtype), own], axis=1)
    return own
