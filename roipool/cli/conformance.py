"""``roipool verify --implementation``: check another implementation."""

from __future__ import annotations

import argparse
import ast
import sys
from typing import Any

from roipool.cli.files import check_writable, replacing
from roipool.cli.progress import progress
from roipool.cli.text import printable, seconds

__all__ = ["add_arguments", "is_requested", "run"]

# Options that require --implementation, with their defaults.
_NAMES: dict[str, Any] = {
    "semantics": None,
    "backward": None,
    "backward_boxes": None,
    "arrays": "numpy",
    "dtype": "float32",
    "device": "cpu",
    "option": [],
    "without": "",
    "calls": 300,
    "tolerances": None,
    "junit": None,
    "strict": False,
    "python": sys.executable,
    "timeout": 20.0,
}

# Arguments whose option has another name.
_OPTIONS = {
    "backward_boxes": "--backward-boxes",
    "devices": "--device",
    "dtypes": "--dtype",
    "options": "--option",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to those of ``verify``."""
    group = parser.add_argument_group("another implementation")
    add = group.add_argument
    add(
        "--implementation",
        metavar="MODULE:FUNCTION",
        help="the function to verify, also as path/to/file.py:function, or an installed library "
        "such as mxnet; it runs in a separate process, and a crash counts as a failure",
    )
    add(
        "--semantics",
        metavar="NAME",
        help="the system that it implements, by its name in compare: torchvision.roi_align, "
        "mmcv.roi_align[max]",
    )
    add(
        "--backward",
        metavar="MODULE:FUNCTION",
        help='its gradient with respect to the features, or "autograd" (of torch or a library)',
    )
    add(
        "--backward-boxes",
        metavar="MODULE:FUNCTION",
        help='its gradient with respect to the boxes, or "autograd"; --backward autograd includes '
        "it if there is one",
    )
    add("--arrays", metavar="LIBRARY", help="its arrays: numpy (default), torch, cupy, jax")
    add("--dtype", metavar="TYPES", help="types of features, comma-separated (default float32)")
    add("--device", metavar="DEVICES", help="cpu (default), cuda, or cpu,cuda")
    add(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        help="an option fixed to one value; the function need not take it; repeatable",
    )
    add("--without", metavar="KINDS", help="kinds of calls to leave out, comma-separated")
    add("--calls", metavar="N", type=_count, help="number of random calls (default 300)")
    add("--tolerances", metavar="FILE", help="TOML file of errors allowed besides roundings")
    add(
        "--strict",
        action="store_const",
        const=True,
        help="require coordinates to be rounded exactly as in the original",
    )
    add("--junit", metavar="FILE", help="write JUnit XML with a test case for each call")
    add("--python", metavar="FILE", help="the interpreter in which it is installed")
    add("--timeout", metavar="SECONDS", type=seconds, help="time limit of a call (default 20)")
    parser.set_defaults(**dict.fromkeys(_NAMES))


def is_requested(arguments: argparse.Namespace) -> bool:
    """Return whether the arguments ask to verify another implementation.

    Raises
    ------
    ValueError
        If options contradict each other.
    """
    given = [name for name in _NAMES if getattr(arguments, name) is not None]
    if arguments.implementation is None:
        if given:
            raise ValueError(f"--{given[0].replace('_', '-')} needs --implementation")
        return False
    if arguments.backend is not None:
        raise ValueError("--backend cannot be used with --implementation: use --device")
    if arguments.everything:
        raise ValueError("--everything cannot be used with --implementation")
    if arguments.semantics is None:
        from roipool.testing import SEMANTICS

        raise ValueError(f"--semantics is missing: one of {', '.join(SEMANTICS)}")
    return True


def run(arguments: argparse.Namespace) -> int:
    """Verify the implementation; return 0 if it conforms, else 1.

    Raises ValueError or OSError for a bad option or file.
    """
    from roipool.testing import read_tolerances
    from roipool.tools.conformance.reports import BadArgument, ReportRequest, junit

    chosen = {
        name: default if getattr(arguments, name) is None else getattr(arguments, name)
        for name, default in _NAMES.items()
    }
    if chosen["junit"] is not None:
        check_writable(chosen["junit"])
    reports = []
    try:
        request = ReportRequest(
            arguments.implementation,
            chosen["semantics"],
            chosen["backward"],
            chosen["backward_boxes"],
            chosen["arrays"],
            _list(chosen["dtype"]),
            _list(chosen["device"]),
            dict(map(_option, chosen["option"])),
            _list(chosen["without"]),
            chosen["calls"],
            arguments.seed,
            read_tolerances(chosen["tolerances"]) if chosen["tolerances"] else (),
            chosen["strict"],
            {"python": chosen["python"], "seconds": chosen["timeout"]},
        )
        with progress() as tell:
            for report in request.reports(tell):
                reports.append(report)
                tell("", 0)
                for line in report.lines():
                    print(printable(line), flush=True)
    except BadArgument as error:
        raise ValueError(f"{_OPTIONS.get(error.name, '--' + error.name)}: {error.words}") from error
    if chosen["junit"] is not None:
        with replacing(chosen["junit"]) as stream:
            stream.write(junit(reports))
    return int(not all(report.conforms for report in reports))


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _option(text: str) -> tuple[str, Any]:
    name, mark, value = text.partition("=")
    if not mark or not name.isidentifier():
        raise ValueError(f"--option must be NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, value  # not a literal: a string


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 10**7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number up to 10000000")
    return int(text)
