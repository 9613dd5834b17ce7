"""``roipool bench``: time roipool beside the libraries installed with it."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roipool.cli.bench.workloads import Workload
    from roipool.tools.libraries import Library

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Time roipool on this machine, beside the libraries that are installed in the
same environment, in turns, on boxes of the sizes that a detector proposes, and
say whether their results agree."""

_EPILOG = """\
In a turn each library makes a call that returns fresh arrays of float32. The
columns of libraries say how many times as long as roipool they take; a star
marks results that differ, and a dash what a library does not have.

examples:
  roipool bench
  roipool bench --workload box-head,vgg16 --threads 1
  roipool bench --libraries torchvision --json bench.json

exit status: 0 done; 2 bad input."""


def add_parser(
    subparsers: Any,
    libraries: Mapping[str, type[Library]] | None,
    workloads: Mapping[str, Workload] | None,
) -> None:
    """Add the ``bench`` command to the program's subparsers; None stands for roipool's tables."""
    parser = subparsers.add_parser(
        "bench",
        help="time roipool beside the libraries installed here",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=functools.partial(run, libraries=libraries, workloads=workloads))
    add = parser.add_argument
    add("--list", action="store_true", help="show the workloads and the libraries, and stop")
    add(
        "--workload",
        default="*",
        metavar="A,B,...",
        help="names or patterns, such as box-head or '*-boxes' (default: all)",
    )
    add(
        "--libraries",
        metavar="A,B,...",
        help="the libraries to compare with, or none (default: all that are installed)",
    )
    add("--threads", type=_count, metavar="N", help="for each library (default: as roipool)")
    add("--repeat", type=_count, default=5, metavar="N", help="turns of each (default: 5)")
    add(
        "--json",
        metavar="FILE",
        help="write every number as JSON, after each operation; - prints it in place of tables",
    )


def run(
    arguments: argparse.Namespace,
    libraries: Mapping[str, type[Library]] | None,
    workloads: Mapping[str, Workload] | None,
) -> int:
    """Carry out the command; see `roipool.cli.bench.command`."""
    from roipool.cli.bench import command
    from roipool.cli.bench.workloads import WORKLOADS
    from roipool.tools.libraries import LIBRARIES

    return command.run(
        arguments,
        LIBRARIES if libraries is None else libraries,
        WORKLOADS if workloads is None else workloads,
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)
