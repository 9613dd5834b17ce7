"""Pooled values that a user gives, to learn which systems, options and mistakes give them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roipool.tools.compare import inputs
from roipool.tools.compare.differences import distance
from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.tools.compare.reasons import ROUNDINGS

__all__ = ["NAME", "Values", "compute_of", "read_values"]

FloatArray: TypeAlias = NDArray[np.float32]

NAME = "values"  # in reports


class Values(NamedTuple):
    """Pooled values."""

    numbers: FloatArray  # pooled values, of the problem's `pooled_shape`
    # Largest error of each, which was written with few digits.
    rounded: NDArray[np.float64] | float = 0.0

    def are(self, pooled: FloatArray, problem: Problem, *, exact: bool = False) -> bool:
        """Return whether a result is the values, except for roundings of its sums.

        Unless `exact`, also except for those of positions, which a cell's difference multiplies.
        """
        finite = np.abs(self.numbers[np.isfinite(self.numbers)])
        largest = max(problem.largest, float(finite.max(initial=0.0)))
        roundings = float(ROUNDINGS)
        if not exact:
            roundings += 4 * max(problem.features.shape[-2:])
        allowed = self.rounded + roundings * largest * float(np.finfo(np.float32).eps)
        return bool((distance(pooled, self.numbers) <= allowed).all())

    def first(self, boxes: int, channels: int) -> Values:
        """Return the values of the first boxes and channels."""
        rounded = self.rounded
        if isinstance(rounded, np.ndarray):
            rounded = rounded[:boxes, :channels]
        return Values(self.numbers[:boxes, :channels], rounded)


def read_values(given: list[str], problem: Problem) -> Values:
    """Read pooled values.

    Parameters
    ----------
    given : list of str
        The numbers, or the name of a file: an array, or a text of numbers.

    Raises
    ------
    ValueError, OSError
        If a number cannot be read, or their count is not that of the problem's bins.
    """
    source = "--values"
    if len(given) == 1 and not all(map(_is_number, _split(given[0]))):
        source = given[0]
        if Path(source).suffix.lower() in inputs.ARRAYS:
            return Values(_shaped(inputs.read_array(source, "pooled"), source, problem))
        given = [inputs.read_text(source)]
    texts = [text for part in given for text in _split(part)]
    for text in texts:
        if not _is_number(text):
            raise ValueError(f"{source}: {text!r} is not a number")
    numbers = _shaped(np.array([float(text) for text in texts]), source, problem)
    return Values(numbers, np.array([_half_a_digit(text) for text in texts]).reshape(numbers.shape))


def compute_of(values: Values) -> Compute:
    """Return the values as an implementation without gradients."""

    def compute(problem: Problem, part: str) -> Any:
        if part != "forward":
            raise Unavailable(f"has no {PARTS[part]}")
        return values.numbers

    return compute


def _split(text: str) -> list[str]:
    """Separate numbers, also as NumPy and PyTorch print arrays."""
    return re.sub(r"[\[\](),;]|tensor|array", " ", text).split()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _half_a_digit(text: str) -> float:
    """Return half a unit of a number's last digit after the point; 0 for a whole number."""
    match = re.fullmatch(r"[+-]?\d*\.(\d+)(?:[eE]([+-]?\d+))?", text)
    return 0.51 * 10.0 ** (int(match[2] or 0) - len(match[1])) if match else 0.0


def _shaped(numbers: NDArray[Any], source: str, problem: Problem) -> FloatArray:
    """Return the numbers in the shape of pooled values."""
    shape = problem.pooled_shape
    if numbers.size != math.prod(shape):
        boxes, channels, *bins = shape
        size = " x ".join(map(str, bins))
        raise ValueError(
            f"{source}: {numbers.size:,} numbers, but there are {math.prod(shape):,} pooled values:"
            f" {_counted(boxes, 'box', 'es')} x {_counted(channels, 'channel', 's')} x {size} bins "
            "(--output-size)"
        )
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float32).reshape(shape)


def _counted(count: int, noun: str, plural: str) -> str:
    return f"{count} {noun}{'' if count == 1 else plural}"
