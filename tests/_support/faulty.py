"""A library with planted faults, which verification must find."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import roipool


class Faulty:
    """Roipool with changed results of some public functions.

    Parameters
    ----------
    spoil : callable
        Changes the result of a function.
    *names : str
        The functions.
    when : callable
        Returns whether to change the result of a call, given its keyword arguments.
    """

    def __init__(
        self,
        spoil: Callable[[Any], Any],
        *names: str,
        when: Callable[[dict[str, Any]], bool] = lambda arguments: True,
    ) -> None:
        for name in names:
            setattr(self, name, _spoiled(getattr(roipool, name), spoil, when))

    def __getattr__(self, name: str) -> Any:
        return getattr(roipool, name)


def _spoiled(
    right: Callable[..., Any],
    spoil: Callable[[Any], Any],
    when: Callable[[dict[str, Any]], bool],
) -> Callable[..., Any]:
    @wraps(right)  # verification chooses arguments by the signature
    def wrong(**arguments: Any) -> Any:
        result = right(**arguments)
        return spoil(result) if when(arguments) else result

    return wrong
