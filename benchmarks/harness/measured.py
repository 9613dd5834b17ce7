"""The files of results, and how numbers in tables are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]
NOT_MEASURED = "not yet measured"

Row = dict[str, Any]
Values = dict[str, float]


def content(name: str) -> dict[str, Any]:
    """Return the content of a file of results, without rows if it does not exist."""
    path = BENCHMARKS / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def rows_of(name: str, **wanted: Any) -> list[Row]:
    """Return the rows of a file with the given values, without absent libraries."""
    rows = [row for row in content(name)["rows"] if not row.get("absent")]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def most_threads() -> int:
    """Return the largest number of threads measured."""
    return max((row["threads"] for row in rows_of("cpu")), default=0)


def ratios(codes: str, operation: str, libraries: Sequence[str]) -> Values:
    """Return each workload's ratio to the fastest of these libraries."""
    found = {}
    for code in codes.split():
        rows = rows_of("cpu", code=code, operation=operation, threads=most_threads())
        fastest = [row["ratio"] for row in rows if row["library"] in libraries]
        if fastest:
            found[code] = min(fastest)
    return found


def gpu_results() -> list[dict[str, Any]]:
    """Return the latest results of scripts/gpu.sh."""
    folders = sorted(BENCHMARKS.glob("results-*"), key=lambda path: path.name[-10:])  # by date
    found = folders[-1].glob("bench*.json") if folders else []
    paths = sorted(found, key=lambda path: (path.stem != "bench", path.name))
    return [json.loads(path.read_text()) for path in paths]


def gpu_rows(**wanted: Any) -> list[Row]:
    """Return their rows with the given values, without absent libraries."""
    rows = [row for found in gpu_results() for row in found["rows"] if not row.get("absent")]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def gpu_ratios(operation: str, codes: str, dtype: str) -> Values:
    """Return the ratios of torchvision's time on a GPU to roipool's, for NCHW and a cold cache."""
    rows = gpu_rows(
        operation=operation, dtype=dtype, layout="NCHW", clock="cold", library="torchvision"
    )
    return {row["code"]: row["ratio"] for row in rows if row["code"] in codes.split()}


def gpu_floors() -> Values:
    """Return the times of forwards on a GPU, relative to the memory's time."""
    wanted = {"dtype": "float32", "layout": "NCHW", "clock": "cold", "library": "roipool"}
    rows = gpu_rows(operation="roi_align", **wanted)
    return {row["code"]: row["times_floor"] for row in rows}


def growth(series: str, operation: str = "roi_align") -> list[tuple[float, float]]:
    """Return the growth of the parameter and of the time in each step of a series."""
    rows = rows_of("scaling", series=series, operation=operation)
    return [(float(row["value"]) / float(rows[0]["value"]), row["growth"]) for row in rows]


# Writing


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Format a number with about three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def time(seconds: float) -> str:
    """Format a time with its unit."""
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} us"


def where(name: str) -> str:
    """Describe the machine and software of a file's measurements in one line."""
    machine = content(name).get("machine")
    if machine is None:
        return NOT_MEASURED
    commit = machine["commit"] or "unknown"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}; "
        f"Python {machine['python']}, NumPy {machine['numpy']}; {machine['date']}, "
        f"commit {commit[:12]}{'-dirty' if commit.endswith('-dirty') else ''}"
    )
