"""Checks whether another implementation computes what a system defines.

``assert_conforms`` calls an implementation with roipool's catalogue of edge cases and with random
arguments, compares every result with the oracle's, and names the rule that explains wrong results:
"rounds halves to even", "leaves out the + 1". ``roipool verify --implementation`` does the same
from the shell, and the pytest plugin (``docs/testing.md``) makes a test of every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from roipool.tools.conformance.cases import KINDS
from roipool.tools.conformance.implementations import SECONDS
from roipool.tools.conformance.names import ROWS_BY_NAME
from roipool.tools.conformance.reports import Report, ReportRequest
from roipool.tools.conformance.tolerances import Tolerance, read_tolerances

__all__ = [
    "KINDS",
    "SEMANTICS",
    "NotConforming",
    "Report",
    "Tolerance",
    "assert_conforms",
    "read_tolerances",
]

SEMANTICS = tuple(ROWS_BY_NAME)


class NotConforming(AssertionError):  # noqa: N818 - it describes the implementation
    """Raised if an implementation does not conform.

    Attributes
    ----------
    reports : list of Report
        The findings for each type and device.
    """

    def __init__(self, reports: list[Report]) -> None:
        super().__init__("\n".join(line for report in reports for line in report.lines()))
        self.reports = reports


def assert_conforms(
    implementation: Callable[..., Any] | str,
    semantics: str,
    *,
    backward: Callable[..., Any] | str | None = None,
    backward_boxes: Callable[..., Any] | str | None = None,
    arrays: str = "numpy",
    dtypes: Iterable[str] = ("float32",),
    devices: Iterable[str] = ("cpu",),
    options: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
    random_calls: int = 300,
    seed: int = 0,
    tolerances: Iterable[Tolerance] = (),
    strict: bool = False,
    python: str | None = None,
    seconds: float = SECONDS,
    isolated: bool = True,
) -> list[Report]:
    """Check that an implementation computes what a system defines.

    Parameters
    ----------
    implementation : callable or str
        A function with the arguments of roipool's function of that name: those without a default
        are passed by position, options by name; ``docs/testing.md`` has a table of them. Features
        and boxes have the same floating-point type, and the shapes and order of coordinates of the
        system that `semantics` names. It returns the pooled values, in the layout of the features,
        or a tuple of the pooled values and, optionally, the argmax. A name such as
        ``"package.module:function"``, or that of an installed library such as "mxnet", is called in
        a separate process, so that a crash counts as a failure.
    semantics : str
        One of `SEMANTICS`: an operation of roipool or a system of `roipool.compat`, such as
        "torchvision.roi_align". As in ``roipool compare``, brackets contain a mode or a fixed
        option: "mmcv.roi_align[max]", "torchvision.roi_align[aligned]".
    backward : callable or str, optional
        The gradient with respect to the features, with the arguments of roipool's function
        ``..._backward``; "autograd" uses torch's autograd, or the library's own.
    backward_boxes : callable or str, optional
        The gradient with respect to the boxes, with the arguments of roipool's function
        ``..._backward_rois`` or ``..._backward_boxes``, or "autograd". If `backward` is "autograd"
        and the implementation is differentiable in the boxes, their gradient is checked by default;
        the report says what was checked.
    arrays : {"numpy", "torch", "cupy", "jax"}
        The library of the implementation's arrays.
    dtypes : iterable of str
        Types of features and boxes: "float16", "bfloat16", "float32" and "float64".
    devices : iterable of str
        Devices of the arrays: "cpu" and "cuda".
    options : mapping, optional
        Options fixed to one value; the implementation need not take them.
    without : collection of str
        `KINDS` of calls to leave out.
    random_calls, seed : int
        Number of random calls besides the catalogue, and their seed.
    tolerances : iterable of Tolerance
        Errors allowed besides a few roundings; `read_tolerances` reads them from a file.
    strict : bool
        Whether coordinates must be rounded exactly as in the original. By default an error may be
        as large as the change that rounding the coordinates can cause.
    python : str, optional
        The interpreter in which to run an implementation given by name.
    seconds : float
        Time limit of one call of an implementation in a separate process.
    isolated : bool
        Whether functions run in a separate process, so that one that crashes or hangs fails the
        call instead of ending the tests. Functions that another process cannot import by the name
        of their module or file, such as closures, run in this process in any case.

    Returns
    -------
    list of Report
        One for each type and device.

    Raises
    ------
    NotConforming
        If the implementation returns wrong numbers or something other than arrays, raises, modifies
        its input, or crashes. The message of this AssertionError says which rule is broken, how
        often, and shows the smallest such call.
    TypeError, ValueError
        If an argument has a wrong type or value.

    Examples
    --------
    >>> from roipool.compat import torchvision
    >>> from roipool.testing import assert_conforms
    >>> (report,) = assert_conforms(torchvision.roi_align, "torchvision.roi_align", random_calls=20)
    >>> report.conforms
    True
    """
    process = {"seconds": seconds, "isolated": isolated} | (
        {} if python is None else {"python": python}
    )
    request = ReportRequest(
        implementation,
        semantics,
        backward,
        backward_boxes,
        arrays,
        tuple(dtypes),
        tuple(devices),
        dict(options or {}),
        tuple(without),
        random_calls,
        seed,
        tuple(tolerances),
        strict,
        process,
    )
    reports = list(request.reports())
    if not all(report.conforms for report in reports):
        raise NotConforming(reports)
    return reports
