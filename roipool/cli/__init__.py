"""The ``roipool`` command-line program.

``main`` reads the arguments, hands them to a subcommand and turns whatever goes wrong into one
line on standard error. ``import roipool`` never imports this package.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from roipool._addresses import install
from roipool.cli import stdout
from roipool.cli.text import printable

if TYPE_CHECKING:
    from roipool.tools.compare.problem import Compute

__all__ = ["main"]

# What these two log would reach the terminal; what matters to the user is said by this program.
for _library in ("PIL", "matplotlib"):
    logging.getLogger(_library).addHandler(logging.NullHandler())

_BAD_INPUT = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended
_TERMINATED = 143  # and one that SIGTERM ended
_MAX_MESSAGE = 1000  # characters: a message may repeat an argument of any length
_OPTIONAL = {
    "PIL": ("Pillow", "cli"),
    "matplotlib": ("matplotlib", "pictures"),
    "safetensors": ("safetensors", "safetensors"),
    "shtab": ("shtab", "completion"),
    "torch": ("PyTorch", "torch"),
}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors look like every other error of the program."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest what a mistyped choice may have meant."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = difflib.get_close_matches(str(value), map(str, action.choices or ()), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None

    def error(self, message: str) -> NoReturn:
        self.exit(_BAD_INPUT, f"roipool: error: {_one_line(message)} (see {self.prog} --help)\n")


class _PrintCompletion(argparse.Action):
    """Prints a script for a shell, and stops."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        import shtab

        print(shtab.complete(parser, values))
        parser.exit()


def main(
    argv: Sequence[str] | None = None,
    *,
    systems: Mapping[str, Compute] | None = None,
) -> int:
    """Run the program.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; by default those of this process.
    systems : mapping of str to Compute, optional
        What ``compare`` knows by name; by default `roipool.tools.compare.systems.SYSTEMS`.

    Returns
    -------
    int
        0 when all went well, 1 when a check failed, 2 for bad input, 130 when interrupted, 141
        when the reader of standard output stopped before the command was done, 143 when terminated.
    """
    try:
        with _cleaned_up_when_terminated():
            return _finish(_run(_parser(systems), argv))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except _Terminated:
        return _TERMINATED
    except (ValueError, OSError, ImportError, MemoryError, RecursionError) as error:
        if stdout.is_broken_pipe(error):
            stdout.abandon()
            return _BROKEN_PIPE
        return _finish(_complain(_explain(error)))
    except Exception as error:  # noqa: BLE001 - Python's own status, 1, means a failed check
        return _finish(_complain(_bug_report(error)))


class _Terminated(BaseException):
    """SIGTERM has come."""


@contextlib.contextmanager
def _cleaned_up_when_terminated() -> Iterator[None]:
    """Let SIGTERM end other processes and remove temporary files, as Ctrl-C does."""

    def stop(number: int, frame: Any) -> NoReturn:
        raise _Terminated

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(parser: _Parser, argv: Sequence[str] | None) -> int:
    from roipool._settings import check_environment

    # The next file to be opened would get its number, and whatever is printed.
    if sys.stdout is None:
        raise ValueError("standard output is closed")
    check_environment()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help()
        return 0
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # --help, --version and usage errors
        return int(stop.code or 0)
    status: int = arguments.run(arguments)
    return status


def _parser(systems: Mapping[str, Compute] | None) -> _Parser:
    from roipool import __version__
    from roipool.cli import info, verify
    from roipool.tools import compare

    parser = _Parser(
        prog="roipool",
        description="Region-of-interest pooling as every framework defines it.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"roipool {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print what completes commands and options in a shell, and stop; needs shtab",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    compare.add_parser(subparsers, systems)
    info.add_parser(subparsers)
    verify.add_parser(subparsers)
    return parser


def _explain(error: BaseException) -> str:
    """Say in words what happened, without the class names and numbers Python adds."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        module = error.name.partition(".")[0]
        if module in _OPTIONAL:
            package, extra = _OPTIONAL[module]
            return f"this needs {package}, which is not installed: {install(extra)}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return str(error) or "out of memory"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    return str(error) or type(error).__name__


def _bug_report(error: BaseException) -> str:
    """Say where a failure that nobody foresaw was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"a bug in roipool: {type(error).__name__} in {where}: {error}"


def _one_line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}..."


def _complain(message: str) -> int:
    with contextlib.suppress(OSError):
        if sys.stderr is not None:  # print() would take standard output for it
            print(f"roipool: error: {_one_line(message)}", file=sys.stderr)
    return _BAD_INPUT


def _finish(status: int) -> int:
    """Flush while a failure can still be told; Python at its exit only prints a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        stdout.abandon()
        # A reader that stops early, such as head, is no error.
        if not stdout.is_broken_pipe(error) and status != _BAD_INPUT:
            return _complain(_explain(error))
    return status
