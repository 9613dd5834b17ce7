"""``roipool info``: describe this installation, for a bug report."""

from __future__ import annotations

import argparse
import json
from typing import Any

from roipool import _system_info

__all__ = ["add_parser", "facts", "run"]

_DESCRIPTION = """\
Print versions, processor, threads, instruction sets, CUDA as CuPy sees it, and
how PyTorch and JAX call the kernels. Include the output in bug reports."""


def add_parser(subparsers: Any) -> None:
    """Add the ``info`` command to the program's subparsers."""
    parser = subparsers.add_parser(
        "info",
        help="print versions, processor and settings, as a bug report needs them",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def facts() -> dict[str, Any]:
    """Return the report of ``roipool info --json`` without the front ends."""
    return _system_info.facts()


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the status is 0 even without a GPU."""
    report = {**facts(), **_system_info.front_end_facts()}
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        _system_info.print_config(report)
    return 0
