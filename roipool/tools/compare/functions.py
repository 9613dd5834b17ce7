"""A user's function as an implementation, called in a separate process."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from roipool.compat import torchvision
from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.tools.conformance.implementations import check_not_raw
from roipool.tools.libraries.client import Functions
from roipool.tools.libraries.functions import AUTOGRAD, Misbehaviour

__all__ = ["compute_of", "opened"]

# The names in `Functions` of the functions that compute the gradients of `PARTS`.
_GRADIENTS = {"features": "backward", "boxes": "backward_boxes"}


def opened(text: str, arrays: str, python: str, seconds: float, gradients: bool) -> Functions:
    """Load the function that ``--implementation`` names.

    Parameters
    ----------
    text : str
        ``package.module:function`` or ``path/to/file.py:function``.
    gradients : bool
        Whether to differentiate the function with torch.

    Returns
    -------
    Functions
        The caller must close it.

    Raises
    ------
    ValueError
        If it is a raw operator, with a wrapper that has the arguments of torchvision's function.
    """
    backward = AUTOGRAD if gradients and arrays == "torch" else None
    device = "cuda" if arrays == "cupy" else "cpu"
    own = Functions(text, backward, backward, arrays, device, python, seconds, lenient=True)
    usual = inspect.signature(torchvision.roi_align)
    try:
        check_not_raw(own.parameters("forward") or (), usual, ("input", "boxes", "output_size"))
    except ValueError:
        own.close()
        raise
    return own


def compute_of(functions: Functions, arrays: str) -> Compute:
    """Return the function as an implementation; only torch functions have gradients."""

    def call(problem: Problem, part: str) -> Any:
        if part != "forward" and arrays != "torch":
            raise Unavailable(f"has no {PARTS[part]}: autograd needs --arrays torch")
        try:
            pooled = functions.call("forward", *_arguments(functions, problem))
            if part == "forward":  # one array, or one per image
                return pooled[0] if pooled[0].ndim == problem.features.ndim else np.stack(pooled)
            (gradient,) = functions.call(_GRADIENTS[part], [("grad_output", problem.grad)], {})
        except Misbehaviour as error:
            if error.kind == "has no gradient":
                raise Unavailable(f"has no {PARTS[part]}") from None
            raise ValueError(str(error)) from None
        return gradient if part == "features" else gradient[:, 1:]

    return call


def _arguments(
    functions: Functions, problem: Problem
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Return the positional and keyword arguments that the function takes.

    Scale and sampling ratio are the fourth and fifth positional arguments, unless the function has
    parameters of these names.
    """
    options = problem.options
    maps, rois = ("features", problem.features), ("rois", problem.rois)
    given = [maps, rois, ("output_size", options.output_size)]
    scalars = {"spatial_scale": options.spatial_scale, "sampling_ratio": options.sampling_ratio}
    slots, names = functions.positions, functions.parameters("forward") or ()
    if slots is None:
        return [*given, *scalars.items()], {}
    if not scalars.keys() & set(names):
        return [*given, *scalars.items()][: max(len(slots), 3)], {}
    placed = dict(zip(slots[3:], scalars.values(), strict=False))
    by_name = {**placed, **scalars}
    return given, {name: by_name[name] for name in names if name in by_name}
