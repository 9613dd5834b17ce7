"""Formats results as text for the terminal and as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from harness.measure import Row, TimedCase
from harness.workloads import Workload
from roipool.cli.text import short

__all__ = ["as_json", "lines", "listed"]

_HEADING = f"  {'library':<12} {'median':>9}  {'quartiles':<19} {'ratio':>6}  results"


def lines(case: TimedCase) -> list[str]:
    """Return the lines of one case: a heading and a line for each library."""
    return [
        f"{case.workload.title}: {case.operation}, {_conditions(case)}",
        f"  {_shapes(case.workload)}: {_sizes(case)}",
        _HEADING,
        *(_row_line(case, row) for row in case.rows),
    ]


def listed(workload: Workload) -> str:
    """Return a line that describes a workload."""
    return f"{workload.name:<23} {workload.code:<4} {workload.about}; {_shapes(workload)}"


def as_json(cases: list[TimedCase], about: dict[str, Any]) -> str:
    """Format every row as strict JSON.

    Parameters
    ----------
    cases : list of Case
        The result.
    about : dict
        Machine, versions and options, which precede the rows.

    Returns
    -------
    str
        ASCII text that ends with a newline.
    """
    rows = [_entry(case, row) for case in cases for row in case.rows]
    return json.dumps({"format": 1, **about, "rows": rows}, indent=1, allow_nan=False) + "\n"


def _shapes(workload: Workload) -> str:
    boxes = f"{workload.boxes} box{'es' if workload.boxes > 1 else ''}"
    images = f"{workload.images} x " if workload.images > 1 else ""
    rows, columns = workload.output_size
    return f"{images}{boxes}, {workload.channels} channels, {rows} x {columns}"


def _conditions(case: TimedCase) -> str:
    threads = f"{case.threads} thread{'s' if case.threads > 1 else ''}"
    where = threads if case.clock == "wall" else case.clock
    return f"{case.dtype} {case.workload.layout}, {where}"


def _sizes(case: TimedCase) -> str:
    least = f"{_mega(case.compulsory_bytes)} must move ({_time(case.floor_seconds)})"
    if case.peak_bytes is None:
        return least
    return f"{least}; peak {_mega(case.peak_bytes)}, output {_mega(case.output_bytes)}"


def _row_line(case: TimedCase, row: Row) -> str:
    if row.absent:
        return f"  {row.library:<12} absent: {row.absent}"
    quartiles = f"{_time(row.quantile(0.25))} to {_time(row.quantile(0.75))}"
    ratio = case.ratio(row)
    return (
        f"  {row.library:<12} {_time(row.median):>9}  {quartiles:<19} {short(ratio):>6}  "
        f"{_results(case, row)}"
    )


def _results(case: TimedCase, row: Row) -> str:
    if row.agreement is None:
        return f"{short(row.median / case.floor_seconds)} x the memory's time"
    apart = short(row.agreement.greatest, 2)
    if row.agreement.holds:
        return f"equal within {apart}" if row.agreement.greatest else "equal"
    share, limit = short(100 * row.agreement.beyond), short(row.agreement.limit, 2)
    why = row.remark and f": {row.remark}"
    return f"{share} % differ by more than {limit}, up to {apart}{why}"


def _entry(case: TimedCase, row: Row) -> dict[str, Any]:
    workload = case.workload
    common = {
        "workload": workload.name,
        "code": workload.code,
        "operation": case.operation,
        "boxes": workload.boxes * workload.images,
        "channels": workload.channels,
        "dtype": case.dtype,
        "layout": workload.layout,
        "threads": case.threads,
        "clock": case.clock,
        "library": row.library,
        "version": row.version,
    }
    if row.absent:
        return {**common, "absent": row.absent}
    agreement = row.agreement and {
        "greatest_difference": _finite(row.agreement.greatest),
        "limit": row.agreement.limit,
        "share_beyond": row.agreement.beyond,
        "agrees": row.agreement.holds,
        "remark": "" if row.agreement.holds else row.remark,
    }
    return {
        **common,
        "absent": None,
        "median": row.median,
        "quartiles": [row.quantile(0.25), row.quantile(0.75)],
        "seconds": row.seconds,
        "calls_per_round": row.calls,
        "ratio": case.ratio(row),
        "agreement": agreement,
        "compulsory_bytes": case.compulsory_bytes,
        "output_bytes": case.output_bytes,
        "peak_bytes": case.peak_bytes if row is case.rows[0] else None,
        "bandwidth": case.bandwidth,
        "floor": case.floor_seconds,
        "times_floor": row.median / case.floor_seconds,
    }


def _finite(value: float) -> float | None:
    """Return None for infinity, which JSON lacks."""
    return value if math.isfinite(value) else None


def _mega(count: int) -> str:
    return f"{short(count / 1e6)} MB"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{short(seconds * 1e6)} us"
    return f"{short(seconds * 1e3)} ms" if seconds < 1 else f"{short(seconds)} s"
