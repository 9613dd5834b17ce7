"""Whether somebody else's implementation computes what a system defines.

``assert_conforms`` calls an implementation with roipool's catalogue of awkward input and with
random calls, compares every answer with the oracle's, and says which rule a wrong one follows:
"rounds halves to even", "leaves out the + 1". ``roipool verify --implementation`` does the same
from the shell, and the plugin of pytest (``docs/testing.md``) makes a test of every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from roipool.tools.conformance.cases import KINDS
from roipool.tools.conformance.implementations import SECONDS
from roipool.tools.conformance.names import ROWS_BY_NAME
from roipool.tools.conformance.reports import Report, Request
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


class NotConforming(AssertionError):  # noqa: N818 - of the implementation
    """An implementation computes something else.

    Attributes
    ----------
    reports : list of Report
        What it was found to do, for each type and device.
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
) -> list[Report]:
    """Check that an implementation computes what a system defines.

    Parameters
    ----------
    implementation : callable or str
        Has the arguments of roipool's function of that name: those without a default are passed by
        position, options by name; ``docs/testing.md`` has a table of them. Features and boxes have
        one floating-point type, and the shapes and the order of coordinates that the system named
        by `semantics` gives them. It returns the pooled values, in the layout of the features, or a
        tuple that begins with them, which may go on with the argmax. As
        ``"package.module:function"`` it is called in a process of its own, whose crash is an answer
        like others; so is an installed library, such as "mxnet".
    semantics : str
        One of `SEMANTICS`: an operation of roipool, or of one of the systems of `roipool.compat`,
        such as "torchvision.roi_align". As in ``roipool compare``, brackets name a mode or an
        option that has one value: "mmcv.roi_align[max]", "torchvision.roi_align[aligned]".
    backward : callable or str, optional
        The gradient with respect to the features, with the arguments of roipool's function
        ``..._backward``; "autograd" differentiates an implementation for torch, or is a library's.
    backward_boxes : callable or str, optional
        The gradient with respect to the boxes, with the arguments of roipool's function
        ``..._backward_rois`` or ``..._backward_boxes``, or "autograd". Where `backward` is
        "autograd", it is checked without being asked for if the implementation can be
        differentiated by boxes; the report says what was checked.
    arrays : {"numpy", "torch", "cupy", "jax"}
        What the implementation takes.
    dtypes : iterable of str
        Of "float16", "bfloat16", "float32" and "float64": types of features and boxes.
    devices : iterable of str
        Of "cpu" and "cuda": where arrays lie.
    options : mapping, optional
        Options that always have one value; the implementation need not have them.
    without : collection of str
        `KINDS` of calls that are left out.
    random_calls, seed : int
        How many random calls to make besides the catalogue, of which seed.
    tolerances : iterable of Tolerance
        What is allowed besides a few roundings; `read_tolerances` reads a file of them.
    strict : bool
        Whether positions must be rounded as in the original, too. By default a number may be off
        by as much as the rounding of coordinates may change it.
    python : str, optional
        The interpreter for an implementation that is named.
    seconds : float
        That one call of an implementation that is named may take.

    Returns
    -------
    list of Report
        One for each type and device.

    Raises
    ------
    NotConforming
        If it computes something else, raises, writes into its input, crashes, or returns something
        other than arrays. It is an AssertionError, whose text says which rule is broken, how often,
        and by which smallest call.
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> from roipool.compat import torchvision
    >>> from roipool.testing import assert_conforms
    >>> (report,) = assert_conforms(torchvision.roi_align, "torchvision.roi_align", random_calls=20)
    >>> report.conforms
    True
    """
    process = {"seconds": seconds} | ({} if python is None else {"python": python})
    request = Request(
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
