"""What a pair of implementation and semantics may differ by, from TOML."""

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
    """What is allowed besides roundings, where all patterns fit.

    Attributes
    ----------
    implementation, semantics, dtype, result : str
        Patterns, as file names have them: ``torchvision.*``. A result is "pooled", "gradient",
        "box_gradient" or "argmax".
    atol, rtol : float
        Allowed is ``atol + rtol * abs(expected)``.
    """

    implementation: str = "*"
    semantics: str = "*"
    dtype: str = "*"
    result: str = "*"
    atol: float = 0.0
    rtol: float = 0.0

    def fits(self, implementation: str, semantics: str, dtype: str, result: str) -> bool:
        """Return whether the tolerance is for such numbers."""
        return (
            fnmatchcase(implementation, self.implementation)
            and self._means(semantics)
            and fnmatchcase(dtype, self.dtype)
            and fnmatchcase(result, self.result)
        )

    def _means(self, row: str) -> bool:
        """Return whether the pattern of `semantics` fits a row, in one of its spellings."""
        names = (row, shown_name(row))
        return self.semantics in names or any(fnmatchcase(one, self.semantics) for one in names)


def chosen(
    tolerances: Sequence[Tolerance], implementation: str, semantics: str, dtype: str, result: str
) -> Tolerance:
    """Return the last tolerance that fits, or none at all."""
    fitting = [one for one in tolerances if one.fits(implementation, semantics, dtype, result)]
    return fitting[-1] if fitting else Tolerance()


def read_tolerances(path: str) -> list[Tolerance]:
    """Read the tables ``[[tolerance]]`` of a TOML file.

    Parameters
    ----------
    path : str
        The file.

    Returns
    -------
    list of Tolerance

    Raises
    ------
    ValueError
        Naming the file and what is wrong in it.
    OSError
        If it cannot be read.
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
    known = {one.name: type(one.default) for one in fields(Tolerance)}
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"{where}: {name!r} is none of {', '.join(known)}")
        number = known[name] is float and isinstance(value, (int, float))
        if isinstance(value, bool) or not (number or isinstance(value, known[name])):
            kind = "a number" if known[name] is float else "a text"
            raise ValueError(f"{where}: {name} must be {kind}, got {value!r}")
        if number and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{where}: {name} must be finite and not negative, got {value!r}")
    return Tolerance(**table)
