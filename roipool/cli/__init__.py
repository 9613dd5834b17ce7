"""The ``roipool`` command-line program.

``main`` reads the arguments, hands them to a subcommand and turns whatever goes wrong into one
line on standard error. ``import roipool`` never imports this package.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from roipool.cli.text import printable

__all__ = ["main"]

# What these two log would reach the terminal; what matters to the user is said by this program.
for _library in ("PIL", "matplotlib"):
    logging.getLogger(_library).addHandler(logging.NullHandler())

_BAD_INPUT = 2
_INTERRUPTED = 130
_OPTIONAL = {"PIL": "Pillow", "rich": "rich", "matplotlib": "matplotlib"}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors look like every other error of the program."""

    def error(self, message: str) -> NoReturn:
        self.exit(_BAD_INPUT, f"roipool: error: {_one_line(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; by default those of this process.

    Returns
    -------
    int
        0 when all went well, 1 when a check failed, 2 for bad input, 130 when interrupted.
    """
    try:
        return _finish(_run(argv))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (ValueError, OSError, ImportError, MemoryError) as error:
        return _finish(_complain(error))


def _run(argv: Sequence[str] | None) -> int:
    from roipool._settings import check_environment

    check_environment()
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # --help, --version and usage errors
        return int(stop.code or 0)
    status: int = arguments.run(arguments)
    return status


def _parser() -> _Parser:
    from roipool import __version__
    from roipool.cli import bench, compare, info, verify

    parser = _Parser(
        prog="roipool",
        description="Region-of-interest pooling as every framework defines it.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"roipool {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    compare.add_parser(subparsers)
    info.add_parser(subparsers)
    verify.add_parser(subparsers)
    bench.add_parser(subparsers)
    return parser


def _explain(error: BaseException) -> str:
    """Say in words what happened, without the class names and numbers Python adds."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = _OPTIONAL.get(error.name.partition(".")[0])
        if package is not None:
            return f'this needs {package}, which is not installed: pip install "roipool[cli]"'
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return str(error) or "out of memory"
    return str(error) or type(error).__name__


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _complain(error: BaseException) -> int:
    print(f"roipool: error: {_one_line(_explain(error))}", file=sys.stderr)
    return _BAD_INPUT


def _finish(status: int) -> int:
    """Flush while a failure can still be told; Python at its exit only prints a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _abandon_stdout()
        # A reader that stops early, such as head, is no error.
        if not isinstance(error, BrokenPipeError) and status != _BAD_INPUT:
            return _complain(error)
    return status


def _abandon_stdout() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(devnull, sys.stdout.fileno())
        finally:
            os.close(devnull)
