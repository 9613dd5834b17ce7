"""Whether values of CuPy arrays may be looked at."""

from __future__ import annotations

_debug = False


def set_debug(enabled: bool) -> None:
    """Choose whether calls on CuPy arrays check the values of boxes and winners.

    Reading from a GPU waits for all work that is queued on it, so by default a call checks shapes
    and types only: a box whose batch index names no image pools nothing and gets no gradient.
    With debugging on, such a box is the same ``ValueError`` as for NumPy arrays, and each call
    waits. Calls on NumPy arrays always check.

    Parameters
    ----------
    enabled : bool
        True to check.

    Raises
    ------
    TypeError
        If `enabled` is not a bool.

    Examples
    --------
    >>> import roipool
    >>> roipool.set_debug(True)
    >>> roipool.set_debug(False)
    """
    global _debug
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool, got {enabled!r}")
    _debug = enabled


def debugging() -> bool:
    """Return what :func:`set_debug` chose."""
    return _debug
