"""What ``roipool bench`` does with its arguments."""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import roipool
from roipool._addresses import install
from roipool.cli import files, stdout
from roipool.cli.bench.agreement import Agreement, agreement
from roipool.cli.bench.ours import Roipool
from roipool.cli.bench.workloads import Workload, choose, task_of
from roipool.cli.info import facts
from roipool.cli.text import as_strict_json, short
from roipool.tools.libraries import Absent, Library, opened, prepared
from roipool.tools.libraries.timing import calls_per_turn, timed

__all__ = ["run"]

_MACHINE = ("roipool", "python", "numpy", "platform", "processor", "instruction_set")


@dataclass
class Row:
    """One library's part in a case: the seconds of its turns, or why there are none."""

    library: str
    absent: str = ""
    agreement: Agreement | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds of one call; NaN if it is absent."""
        return statistics.median(self.seconds) if self.seconds else math.nan


def run(
    arguments: argparse.Namespace,
    libraries: Mapping[str, type[Library]],
    workloads: Mapping[str, Workload],
) -> int:
    """Carry out the command.

    Parameters
    ----------
    arguments : argparse.Namespace
        What the parser made of the command line.
    libraries : mapping of str to type of Library
        Those that can be chosen, by name.
    workloads : mapping of str to Workload
        Those that can be timed, by name.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    ValueError, OSError
        For bad input, before anything is measured or written.
    """
    if arguments.list:
        _say(f"{name:<10} {_described(workload)}" for name, workload in workloads.items())
        installed = _installed(libraries)
        missing = [name for name in libraries if name not in installed]
        _say(["", f"installed here: {', '.join(installed) or 'none'}"])
        _say([f"not installed: {', '.join(missing) or 'none'}"])
        return 0
    cases = {name: workloads[name] for name in choose(arguments.workload, workloads)}
    others = {name: libraries[name] for name in _choose(arguments.libraries, libraries)}
    files.check_outputs({"--json": arguments.json})
    before = roipool.get_num_threads()
    try:
        threads = _set_threads(arguments.threads)
        _measure_all(arguments, cases, others, threads)
    finally:
        roipool.set_num_threads(before)
    return 0


def _choose(text: str | None, libraries: Mapping[str, type[Library]]) -> list[str]:
    """Return the names of libraries to import: those asked for, or those that are installed."""
    if text is None:
        return _installed(libraries)
    if text == "none":
        return []
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in libraries:
            raise ValueError(f"--libraries must be of {', '.join(libraries)}, got {name!r}")
    return names


def _installed(libraries: Mapping[str, type[Library]]) -> list[str]:
    find = importlib.util.find_spec
    return [name for name, library in libraries.items() if all(map(find, library.modules))]


def _set_threads(threads: int | None) -> int:
    if threads is not None:
        try:
            roipool.set_num_threads(threads)
        except ValueError as error:
            raise ValueError(f"--threads {threads}: {error}") from error
    return roipool.get_num_threads()


def _measure_all(
    arguments: argparse.Namespace,
    workloads: Mapping[str, Workload],
    libraries: Mapping[str, type[Library]],
    threads: int,
) -> None:
    ours, peers, absent = Roipool(threads), {}, {}
    for name, library in libraries.items():
        try:
            peers[name] = opened(library, threads)
        except Absent as reason:
            absent[name] = str(reason)
    machine = {key: value for key, value in facts().items() if key in _MACHINE}
    versions = {name: peer.version for name, peer in peers.items()}
    to_stdout = arguments.json in files.STDOUT
    if not to_stdout:
        _say(_heading(machine, versions, absent, threads))
    about = {"machine": machine, "threads": threads, "versions": versions, "absent": absent}
    entries: list[dict[str, Any]] = []
    notes: dict[str, None] = {}  # each once, in their order
    for name, workload in workloads.items():
        for backward in (False, True):
            operation = workload.operation + "_backward" * backward
            rows = measure(workload, backward, ours, peers, arguments.repeat)
            entries += [_entry(name, operation, rows[0], row) for row in rows]
            notes |= dict.fromkeys(_notes(name, operation, rows))
            if not to_stdout:
                _say([_line(name, operation, rows)])
            if files.is_replaceable(arguments.json):  # whatever becomes of the others
                _write(arguments.json, about, entries)
    if not to_stdout and notes:
        _say(["", *notes])
    if not files.is_replaceable(arguments.json):
        _write(arguments.json, about, entries)


def measure(
    workload: Workload, backward: bool, ours: Library, peers: dict[str, Library], repeat: int
) -> list[Row]:
    """Time one operation of a workload for every library, in turns; the first row is roipool's."""
    task = task_of(workload, backward)
    calls, rows = {"roipool": ours.prepare(task)}, {"roipool": Row("roipool")}
    expected = calls["roipool"]()
    for name, library in peers.items():
        rows[name] = Row(name)
        try:
            calls[name] = prepared(library, task)
            rows[name].agreement = agreement(expected, library.arrays(task, calls[name]()))
        except (Absent, ValueError) as reason:
            rows[name].absent = str(reason)
    taking_part = [(calls[name], row) for name, row in rows.items() if not row.absent]
    repeats = [calls_per_turn(timed(call, 1)) for call, _ in taking_part]  # warms up, too
    for _ in range(repeat):
        for (call, row), times in zip(taking_part, repeats, strict=True):
            row.seconds.append(timed(call, times))
    return list(rows.values())


def _heading(
    machine: dict[str, Any], versions: dict[str, str], absent: dict[str, str], threads: int
) -> Iterable[str]:
    yield f"roipool {machine['roipool']}: {machine['processor']}, {machine['instruction_set']}"
    yield f"{threads} thread{'' if threads == 1 else 's'} each, float32, fresh outputs"
    yield from versions.values()
    for name, reason in absent.items():
        yield f"{name} {reason}"
    if not versions:
        yield f"no other library takes part: {install('peers')} brings some"
    columns = "".join(f" {name:>12}" for name in versions)
    yield f"\n{'workload':<10} {'operation':<24} {'roipool':>9}{columns}"


def _line(name: str, operation: str, rows: list[Row]) -> str:
    cells = "".join(f" {_ratio(rows[0], row):>12}" for row in rows[1:])
    return f"{name:<10} {operation:<24} {_time(rows[0].median):>9}{cells}"


def _ratio(ours: Row, row: Row) -> str:
    if row.absent:
        return "-"
    star = "" if row.agreement is None or row.agreement.holds else "*"
    return f"{short(row.median / ours.median)}x{star}"


def _notes(name: str, operation: str, rows: list[Row]) -> Iterator[str]:
    """Say of each dash what is missing, and of each star how far the results lie apart."""
    for row in rows:
        if row.absent:
            yield f"- {row.library} {row.absent}"
        elif row.agreement is not None and not row.agreement.holds:
            apart = row.agreement
            yield (
                f"* {row.library}, {name}, {operation}: "
                f"{short(100 * apart.beyond)} % of the values differ by more than "
                f"{short(apart.limit, 2)}, up to {short(apart.greatest, 2)}"
            )


def _entry(name: str, operation: str, ours: Row, row: Row) -> dict[str, Any]:
    apart = row.agreement
    return {
        "workload": name,
        "operation": operation,
        "library": row.library,
        "absent": row.absent or None,
        "median": row.median,
        "seconds": row.seconds,
        "ratio": row.median / ours.median,
        "agrees": None if apart is None else apart.holds,
        "greatest_difference": None if apart is None else apart.greatest,
    }


def _described(workload: Workload) -> str:
    rows, columns = workload.size
    boxes = f"{workload.boxes} box{'' if workload.boxes == 1 else 'es'}"
    return (
        f"{workload.about}: {workload.operation}, {boxes}, {workload.output_size} x "
        f"{workload.output_size} bins, {workload.layout}, {workload.channels} x {rows} x {columns}"
    )


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{short(seconds * 1e6)} us"
    return f"{short(seconds * 1e3)} ms" if seconds < 1 else f"{short(seconds)} s"


def _say(lines: Iterable[str]) -> None:
    # A reader that stops early must not keep the file from being written.
    with stdout.reader_may_stop():
        print(*lines, sep="\n", flush=True)


def _write(path: str | None, about: Mapping[str, Any], entries: list[dict[str, Any]]) -> None:
    content = as_strict_json({"format": 2, **about, "rows": entries})
    if path in files.STDOUT:
        with stdout.reader_may_stop():
            sys.stdout.write(content)
    elif path is not None:
        with files.replacing(path) as stream:
            stream.write(content.encode("ascii"))
