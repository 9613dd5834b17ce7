"""Runs ``benchmarks/bench.py``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import roipool
from harness import machine, output
from harness.agreement import TOLERANCES
from harness.devices import Device
from harness.measure import Plan, TimedCase, measure, rounds
from harness.workloads import WORKLOADS, Workload, changed, choose
from roipool.cli import files, stdout
from roipool.tools.libraries import InstalledLibrary

__all__ = ["run"]

_LAYOUTS = ("NCHW", "NHWC")


def run(
    arguments: argparse.Namespace,
    peers: Mapping[str, type[InstalledLibrary]],
    open_device: Callable[[str], Device],
) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : argparse.Namespace
        The parsed command line.
    peers : mapping
        The supported libraries by name.
    open_device : callable
        Returns the device of ``cpu`` or ``cuda``.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    ValueError, OSError, ImportError
        For bad input, before anything is measured or written.
    """
    if arguments.list:
        _say(output.listed(workload) for workload in WORKLOADS.values())
        return 0
    if arguments.memory and arguments.backend != "cpu":
        raise ValueError("--memory is measured with --backend cpu only")
    plan = _plan(arguments, peers)
    _check_outputs(arguments)
    device = open_device(arguments.backend)
    about = {"machine": {**machine.facts(), **device.facts()}, "options": _options(arguments)}
    to_stdout = arguments.json in files.STDOUT
    cases = []
    if not to_stdout:
        _say(f"{name:<16} {value}" for name, value in about["machine"].items())
    with _progress(rounds(plan, device)) as tick:
        for case in measure(plan, device, tick):
            cases.append(case)
            if not to_stdout:
                _say(["", *output.lines(case)])
            if files.is_replaceable(arguments.json):  # an interrupted run keeps its results
                _write_json(arguments.json, cases, about)
    if to_stdout:
        _say([output.as_json(cases, about).rstrip("\n")])
    elif arguments.json is not None and not files.is_replaceable(arguments.json):
        _write_json(arguments.json, cases, about)
    _plot(arguments, cases, about, list(peers))
    return 0


def _plan(arguments: argparse.Namespace, peers: Mapping[str, type[InstalledLibrary]]) -> Plan:
    workloads = [
        changed(workload, layout=layout, boxes=arguments.boxes, channels=arguments.channels)
        for workload, layout in product(choose(arguments.workload), _layouts(arguments.layout))
    ]
    return Plan(
        items=_items(workloads, arguments.ops),
        dtypes=_dtypes(arguments.dtype),
        threads=_threads(arguments.threads),
        peers=_chosen(arguments.peers, peers),
        pythons=_pythons(arguments.peer_python, peers),
        repeat=arguments.repeat,
        out_reuse=arguments.out_reuse,
        memory=arguments.memory,
    )


def _items(workloads: list[Workload], wanted: str) -> list[tuple[Workload, bool]]:
    patterns = [part.strip() for part in wanted.split(",") if part.strip()]
    there = {name for workload in workloads for name in workload.operations}
    if not patterns:
        raise ValueError("--ops names no operation")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in there):
            raise ValueError(
                f"--ops {pattern!r} fits none of these workloads; they have: "
                f"{', '.join(sorted(there))}"
            )
    return [
        (workload, bool(backward))
        for workload in workloads
        for backward, name in enumerate(workload.operations)
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _layouts(names: list[str] | None) -> list[str | None]:
    """Return the requested layouts; None means the workload's own."""
    if names is None:
        return [None]
    return [_one_of("--layout", name, _LAYOUTS) for name in names]


def _dtypes(names: list[str]) -> list[str]:
    if "bfloat16" in names:
        try:
            importlib.import_module("ml_dtypes")
        except ImportError:
            raise ValueError("--dtype bfloat16 needs the package ml_dtypes") from None
    return [_one_of("--dtype", name, TOLERANCES) for name in names]


def _threads(counts: list[int] | None) -> list[int]:
    if counts is None:
        return [roipool.get_num_threads()]
    before = roipool.get_num_threads()
    try:
        for count in counts:
            roipool.set_num_threads(count)
    except ValueError as error:
        raise ValueError(f"--threads: {error}") from error
    finally:
        roipool.set_num_threads(before)
    return counts


def _chosen(
    text: str, peers: Mapping[str, type[InstalledLibrary]]
) -> Mapping[str, type[InstalledLibrary]]:
    if text == "none":
        return {}
    if text == "auto":
        return peers
    names = [_one_of("--peers", name.strip(), peers) for name in text.split(",")]
    return {name: peers[name] for name in names}


def _pythons(pairs: list[tuple[str, str]], peers: Collection[str]) -> dict[str, str]:
    for name, path in pairs:
        _one_of("--peer-python", name, peers)
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise ValueError(f"--peer-python {name}: {path} is not a program")
    return dict(pairs)


def _one_of(option: str, name: str, allowed: Collection[str]) -> str:
    if name not in allowed:
        raise ValueError(f"{option} must be of {', '.join(allowed)}, got {name!r}")
    return name


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Check the output paths before the work starts."""
    files.check_outputs({"--json": arguments.json, "--plot": arguments.plot})
    files.check_figure(arguments.plot, "--plot", (".png",))


def _write_json(path: str, cases: list[TimedCase], about: dict[str, Any]) -> None:
    with files.replacing(path) as stream:
        stream.write(output.as_json(cases, about).encode("ascii"))


def _plot(
    arguments: argparse.Namespace, cases: list[TimedCase], about: dict[str, Any], peers: list[str]
) -> None:
    if arguments.plot is not None:
        from harness import plot

        with files.replacing(arguments.plot) as stream:
            plot.save(plot.draw(cases, about["machine"], peers), stream)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("repeat", "out_reuse", "boxes", "channels", "backend")
    return {name: getattr(arguments, name) for name in names}


def _say(lines: Iterable[str]) -> None:
    # A reader that stops early must not prevent writing the files.
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        if not stdout.is_broken_pipe(error):
            raise
        stdout.abandon()  # what Python would write at its end


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar if standard error is a terminal and rich is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda label: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda label: bar.update(task, advance=1, description=label)
