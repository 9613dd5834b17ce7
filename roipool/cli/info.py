"""``roipool info``: what this installation can do, for a bug report."""

from __future__ import annotations

import argparse
import json
from typing import Any

from roipool import _system_info

__all__ = ["add_parser", "facts", "run"]

_DESCRIPTION = """\
Print versions, processor, threads, instruction sets, what CuPy finds of CUDA
and how PyTorch and JAX call the kernels: what a bug report should hold."""


def add_parser(subparsers: Any) -> None:
    """Add the ``info`` command to the program's subparsers."""
    parser = subparsers.add_parser(
        "info",
        help="say what this installation can do",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.set_defaults(run=run)


def facts() -> dict[str, Any]:
    """Return what ``roipool info --json`` prints, the front ends apart."""
    return _system_info.facts()


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command; 0 also where there is no GPU."""
    report = {**facts(), **_system_info.front_end_facts()}
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        _system_info.print_config(report)
    return 0
