"""The user's own function as an implementation."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.tools.libraries.functions import module_of

__all__ = ["load", "of_numpy", "of_torch"]

_FORM = "package.module:function or path/to/file.py:function"


def load(text: str) -> Any:
    """Import what ``--implementation`` names.

    Parameters
    ----------
    text : str
        ``package.module:function``, or ``path/to/file.py:function``; the function may have dots.

    Returns
    -------
    callable
        The function.

    Raises
    ------
    ValueError
        If it is not of that form, cannot be imported, or is not callable.
    """
    place, colon, name = text.rpartition(":")
    if not (colon and place and name):
        raise ValueError(f"--implementation {text}: must be {_FORM}")
    try:
        with redirect_stdout(sys.stderr):  # standard output is for results
            # An installed program, unlike `python -m`, does not look into the current folder.
            here = str(Path.cwd())
            found = _from_file(place) if place.endswith(".py") else module_of(place, here)
            for part in name.split("."):
                found = getattr(found, part)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"--implementation {text}: {reason}") from error
    if not callable(found):
        raise ValueError(f"--implementation {text}: is not a function")
    return found


def _from_file(path: str) -> Any:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"_roipool_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what dataclasses and pickles look up
    spec.loader.exec_module(module)
    return module


def of_numpy(function: Any) -> Compute:
    """Return a function of NumPy arrays as an implementation: it has no gradients."""

    def call(problem: Problem, part: str) -> Any:
        if part != "forward":
            raise Unavailable(f"has no {PARTS[part]}: NumPy arrays have no derivatives")
        given = _arguments(function, problem, problem.features.copy, problem.rois.copy)
        return _called(function, given)

    return call


def of_torch(function: Any) -> Compute:
    """Return a function of torch tensors as an implementation: gradients come from autograd."""
    import torch

    def call(problem: Problem, part: str) -> Any:
        features = torch.tensor(problem.features, requires_grad=part == "features")
        rois = torch.tensor(problem.rois, requires_grad=part == "boxes")
        pooled = _called(function, _arguments(function, problem, lambda: features, lambda: rois))
        if part == "forward":
            return pooled.detach().cpu().numpy()
        wanted = features if part == "features" else rois
        upstream = torch.tensor(problem.grad)
        (grad,) = torch.autograd.grad([pooled], [wanted], [upstream], allow_unused=True)
        if grad is None:
            raise Unavailable(f"has no {PARTS[part]}")
        array = grad.cpu().numpy()
        return array if part == "features" else array[:, 1:]

    return call


def _called(function: Any, arguments: list[Any]) -> Any:
    """Call a function that may print, or end the program."""
    try:
        with redirect_stdout(sys.stderr):
            return function(*arguments)
    except SystemExit as error:
        raise ValueError(f"ends the program: SystemExit({error.code})") from error


def _arguments(function: Any, problem: Problem, features: Any, rois: Any) -> list[Any]:
    """Return as many as the function takes: a pooling of cells has no sampling ratio."""
    options = problem.options
    scalars = [options.output_size, options.spatial_scale, options.sampling_ratio]
    arguments = [features(), rois(), *scalars]
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some of C have none
        return arguments
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return arguments
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(parameter.kind in positional for parameter in parameters)
    return arguments[: max(count, 3)]
