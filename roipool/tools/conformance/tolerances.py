"""Additional tolerances for pairs of implementation and semantics, read from TOML."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from roipool.systems import shown_name

MAX_BYTES = 2**20


@dataclass(frozen=True)
class Tolerance:
    """An error allowed besides roundings, for results that match all patterns."""

    # Patterns like those of file names: ``torchvision.*``. A result is "pooled", "gradient",
    # "box_gradient" or "argmax".
    implementation: str = "*"
    semantics: str = "*"
    dtype: str = "*"
    result: str = "*"
    # The error allowed is ``atol + rtol * abs(expected)``.
    atol: float = 0.0
    rtol: float = 0.0

    def fits(self, implementation: str, semantics: str, dtype: str, result: str) -> bool:
        """Return whether the tolerance applies to a result."""
        return (
            fnmatchcase(implementation, self.implementation)
            and self._means(semantics)
            and fnmatchcase(dtype, self.dtype)
            and fnmatchcase(result, self.result)
        )

    def _means(self, row: str) -> bool:
        """Return whether the pattern of `semantics` matches one of a system's names."""
        names = (row, shown_name(row))
        return self.semantics in names or any(fnmatchcase(name, self.semantics) for name in names)


def chosen(
    tolerances: Sequence[Tolerance], implementation: str, semantics: str, dtype: str, result: str
) -> Tolerance:
    """Return the last tolerance that applies, or a tolerance of 0."""
    applied = (implementation, semantics, dtype, result)
    fitting = [tolerance for tolerance in tolerances if tolerance.fits(*applied)]
    return fitting[-1] if fitting else Tolerance()


def read_tolerances(path: str) -> list[Tolerance]:
    """Read the tables ``[[tolerance]]`` of a TOML file.

    Raises
    ------
    ValueError
        If the file is invalid; the message names the file and the problem.
    """
    with Path(path).open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: is larger than {MAX_BYTES} bytes")
    try:
        content = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is not TOML: {error}") from None
    tables = content.pop("tolerance", [])
    if content or not isinstance(tables, list):
        name = next(iter(content), "tolerance")
        raise ValueError(f"{path}: {name!r} is unknown; tolerances are tables [[tolerance]]")
    return [_tolerance(f"{path}: tolerance {k + 1}", table) for k, table in enumerate(tables)]


def _tolerance(where: str, table: Any) -> Tolerance:
    if not isinstance(table, dict):
        raise ValueError(f"{where}: is not a table")
    known = {field.name: type(field.default) for field in fields(Tolerance)}
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"{where}: {name!r} is not one of {', '.join(known)}")
        number = known[name] is float and isinstance(value, (int, float))
        if isinstance(value, bool) or not (number or isinstance(value, known[name])):
            kind = "a number" if known[name] is float else "a string"
            raise ValueError(f"{where}: {name} must be {kind}, got {value!r}")
        if number and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{where}: {name} must be finite and not negative, got {value!r}")
    return Tolerance(**table)
