"""What front ends share: requests from the arguments of public functions, and their signatures."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roipool import _arguments as check
from roipool._definitions import TRAITS, Op
from roipool._layout import Shape4
from roipool._pooling import MaxRules, Pooling
from roipool.ops.roi_align_rotated import check_sizes

Arguments = Mapping[str, Any]


class Request(NamedTuple):
    """What a call computes, besides arrays: can be hashed, so that compiled calls may hold it.

    Attributes
    ----------
    operation : str
        The public function, for messages.
    columns : int
        Numbers of a box.
    moves_with_boxes : bool
        Whether pooled values follow the boxes, rather than jump from cell to cell.
    pooling : Pooling
        What an engine is asked for.
    """

    operation: str
    columns: int
    moves_with_boxes: bool
    pooling: Pooling

    @property
    def of_tangent(self) -> Request:
        """The request for a change of the maps: bins outside them have a change of 0."""
        return self._replace(pooling=self.pooling._replace(empty_value=0.0))

    def refusal(self, what: str) -> NotImplementedError:
        """Return the error for a derivative that no kernel computes."""
        return NotImplementedError(f"{self.operation}: roipool computes no {what}")


class RequestsOf:
    """Makes the requests of one operation from the arguments of its public functions."""

    def __init__(self, op: Op) -> None:
        module = importlib.import_module(f"roipool.ops.{op.forward}")
        self.op = op
        self._definition = module.definition
        self._placing = tuple(inspect.signature(module.definition).parameters)
        self._rules: MaxRules = getattr(module, "RULES", MaxRules())
        self._by_boxes = {variant.by_boxes for variant in op.variants.values()} - {None}
        names = {name for variant in op.variants.values() for name in variant.options}
        self._allowed = {
            name: tuple(variant.options[name] for variant in op.variants.values())
            for name in sorted(names)
        }

    def has_argmax(self, given: Arguments) -> bool:
        """Return whether the arguments ask for a maximum."""
        for name, allowed in self._allowed.items():
            check.choice(name, given.get(name, allowed[0]), allowed)
        return any(
            variant.has_argmax and all(given.get(name) == value for name, value in options)
            for variant in self.op.variants.values()
            for options in [variant.options.items()]
        )

    def request(self, given: Arguments, shape: Shape4, size: tuple[int, int]) -> Request:
        """Return the request for maps of a shape, in the layout of the arguments."""
        op, layout = self.op, check.layout(given["layout"])
        # What a gradient does not take does not matter to it, or is its only choice.
        choices = {name: allowed[0] for name, allowed in self._allowed.items()}
        values = {"spatial_scale": 1.0, **choices, **given}
        definition = self._definition(*(values[name] for name in self._placing))
        has_filling = op.filling is not None and op.filling in given
        filling = check.any_float(str(op.filling), given[str(op.filling)]) if has_filling else 0.0
        pooling = Pooling(definition, size, layout, filling, self._rules)
        if TRAITS[definition.name].kind == "points":
            check_sizes("features", shape, op.size, pooling)
        return Request(op.forward, op.columns, definition.name in self._by_boxes, pooling)


def with_signature_of(
    like: Callable[..., Any], compute: Callable[[Arguments], Any], module: str, what: str
) -> Callable[..., Any]:
    """Return a function with the name and the arguments of NumPy's; `what` are its arrays."""
    signature = inspect.signature(like)
    parameters = signature.parameters.values()
    names = tuple(signature.parameters)
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    positional = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)

    def operation(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        surplus = len(args) > positional or any(name in kwargs for name in names[: len(args)])
        if surplus or len(given) != len(names) or any(name not in names for name in kwargs):
            signature.bind(*args, **kwargs)  # says what is wrong with them
        return compute(given)

    operation.__name__ = operation.__qualname__ = like.__name__
    operation.__module__ = module
    operation.__doc__ = f"Compute :func:`roipool.{like.__name__}` of {what}, with derivatives."
    operation.__signature__ = signature  # type: ignore[attr-defined]
    return operation
