"""A coverage-guided fuzzer of the engines, under AddressSanitizer and UBSan.

The bytes that libFuzzer invents decide, in place of a random generator, which call is drawn by
`roipool.tools.random_calls`: operation, types, layout, strides, shapes, boxes, options and
threads. Each call must end without a complaint of the sanitizers, and agree with the oracle.

    tests/faults/fuzz.sh -runs=100000      # builds all that it needs; begins with corpus.zip
    tests/faults/fuzz.sh crash-0123...     # repeats what it found

Options are libFuzzer's: https://llvm.org/docs/LibFuzzer.html#options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import atheris
import numpy as np

from roipool.systems import SEMANTICS
from roipool.verification.check import CALL, ORACLE, check, subjects
from roipool.verification.generate import draw_from

SEEDS = 1 << 16  # of the numbers in arrays
STEPS = 1 << 16  # of real numbers


class Bytes:
    """A random generator like NumPy's that consumes the fuzzer's bytes while they last."""

    def __init__(self, data: bytes) -> None:
        self.provider = atheris.FuzzedDataProvider(data)
        self.rest = np.random.default_rng(len(data))

    def _below(self, count: int) -> int:
        if self.provider.remaining_bytes() == 0:
            return int(self.rest.integers(count))
        return int(self.provider.ConsumeIntInRange(0, count - 1))

    def _numbers(self) -> np.random.Generator:
        """Return the generator of arrays, whose elements the fuzzer does not choose."""
        return np.random.default_rng(self._below(SEEDS))

    def integers(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Return whole numbers below `high`, or from 0 on below `low`."""
        low, high = (0, low) if high is None else (low, high)
        if size is not None:
            return self._numbers().integers(low, high, size)
        return int(low) + self._below(int(high) - int(low))

    def random(self, size: Any = None) -> Any:
        """Return real numbers between 0 and 1."""
        if size is not None:
            return self._numbers().random(size)
        return (self._below(STEPS) + 0.5) / STEPS

    def uniform(self, low: float, high: float, size: int | None = None) -> Any:
        """Return real numbers between `low` and `high`."""
        if size is not None:
            return np.array([self.uniform(low, high) for _ in range(size)])
        return low + (high - low) * self.random()

    def standard_normal(self, size: Any) -> Any:
        """Return normally distributed numbers."""
        return self._numbers().standard_normal(size)

    def choice(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""
        return options[self._below(len(options))]


def try_one(data: bytes) -> None:
    """Make the call that the bytes determine, and compare its results."""
    case = draw_from(Bytes(data), tuple(SEMANTICS), tiny=True)  # type: ignore[arg-type]
    with_what = [one for one in subjects(case, 0) if one in (CALL, ORACLE)]
    for finding in check(case, with_what):
        if finding.comparison.problem:
            raise AssertionError(f"{case.operation}, {finding}")


if __name__ == "__main__":
    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()
