"""What every operation is given beside maps and gradients, and the public functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np

from roipool.reference._inputs import Array, DType, Rois

Oracle: TypeAlias = Callable[..., Any]
_BOXES = {"rois", "boxes", "box_indices", "offsets"}
_SIZES = {"output_size", "crop_size", "input_shape", "input_shapes"}


@dataclass(frozen=True)
class BoxPooling:
    """The boxes and options of a call.

    Each operation is a subclass with its own options. Its method `forward` pools boxes from maps,
    `backward` is the transpose, `backward_boxes` and `backward_offsets` are the gradients with
    respect to boxes and offsets.
    """

    rois: Rois
    _: KW_ONLY
    batch_indices: Array | None = None
    layout: str = "NCHW"
    coordinate_dtype: DType = np.float64

    @property
    def place(self) -> tuple[Rois, Array | None, str]:
        """The boxes and the layout, as the loops take them."""
        return self.rois, self.batch_indices, self.layout


def function(operation: type, name: str, method: str = "forward") -> Oracle:
    """Return a function `name` that makes an operation from its arguments and calls a method.

    It takes arrays, boxes and sizes first, then the options, which are the operation's fields.
    """
    fields = inspect.signature(operation).parameters
    _, *own = inspect.signature(getattr(operation, method)).parameters.values()
    every = sorted([*fields.values(), *own], key=_order)
    signature = inspect.Signature(every)

    def answer(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options).arguments
        made = operation(**{key: given.pop(key) for key in fields if key in given})
        return getattr(made, method)(**given)

    answer.__name__ = answer.__qualname__ = name
    answer.__module__ = "roipool.reference"
    answer.__doc__ = _description(operation, method)
    answer.__signature__ = signature  # type: ignore[attr-defined]
    return answer


def _order(parameter: inspect.Parameter) -> int:
    """Return the place of a parameter among others: arrays, boxes, sizes, options."""
    if parameter.kind is parameter.KEYWORD_ONLY:
        return 4
    if parameter.name in _BOXES:
        return 1
    if parameter.name in _SIZES:
        return 2
    return 0 if parameter.name in ("features", "grad_output", "argmax") else 3


def _description(operation: type, method: str) -> str:
    """Return the docstring of an operation; before it, what another method than forward returns."""
    description = inspect.getdoc(operation) or ""
    if method == "forward":
        return description
    return f"{inspect.getdoc(getattr(operation, method))}\n\n{description}"
