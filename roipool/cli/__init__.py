"""The ``roipool`` command-line program.

``main`` parses the arguments, runs a subcommand and reports any error as one line on standard
error. ``import roipool`` never imports this package.
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

# Loggers silenced on the terminal: this program reports what matters itself.
for _library in ("PIL", "matplotlib"):
    logging.getLogger(_library).addHandler(logging.NullHandler())

_BAD_INPUT = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # a shell's status of a program ended by SIGPIPE
_TERMINATED = 143  # and by SIGTERM
_MAX_MESSAGE = 1000  # characters; a message may repeat an argument of any length
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
        """Suggest a valid choice for a mistyped one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = difflib.get_close_matches(str(value), map(str, action.choices or ()), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            message += self._near(message.split()[2].partition("=")[0])
        self.exit(_BAD_INPUT, f"roipool: error: {_one_line(message)} (see {self.prog} --help)\n")

    def _near(self, option: str) -> str:
        """Return a hint at the option of this program or its commands that looks like another."""
        choices = [each.choices for each in self._actions if isinstance(each.choices, dict)]
        parsers = [self, *(parser for each in choices for parser in each.values())]
        known = {name for parser in parsers for name in parser._option_string_actions}
        near = difflib.get_close_matches(option, sorted(known), 1) if option[:1] == "-" else []
        return f"; did you mean {near[0]}?" if near else ""


class _PrintCompletion(argparse.Action):
    """Prints a shell's completion script and exits."""

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
        The arguments without the program's name; by default those of the process.
    systems : mapping of str to Compute, optional
        The systems of ``compare``; by default `roipool.tools.compare.systems.SYSTEMS`.

    Returns
    -------
    int
        0 for success, 1 if a check failed, 2 for bad input, 130 if interrupted, 141 if standard
        output was closed before the command was done, 143 if terminated.
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
    """Raised on SIGTERM."""


@contextlib.contextmanager
def _cleaned_up_when_terminated() -> Iterator[None]:
    """Make SIGTERM end child processes and remove temporary files, like Ctrl-C."""

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

    # The next file opened would get the descriptor of standard output and receive all output.
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
        description="Compare and verify region-of-interest (ROI) pooling operations.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"roipool {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print a completion script for this shell and exit; needs shtab",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    compare.add_parser(subparsers, systems)
    info.add_parser(subparsers)
    verify.add_parser(subparsers)
    return parser


def _explain(error: BaseException) -> str:
    """Describe an error in words, without Python's class names and error numbers."""
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
    """Describe an unexpected exception and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"a bug in roipool: {type(error).__name__} in {where}: {error}"


def _one_line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}..."


def _complain(message: str) -> int:
    with contextlib.suppress(OSError):
        if sys.stderr is not None:  # with None, print() would write to standard output
            print(f"roipool: error: {_one_line(message)}", file=sys.stderr)
    return _BAD_INPUT


def _finish(status: int) -> int:
    """Flush while an error can still be reported; at exit, Python would print a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        stdout.abandon()
        # A reader that stops early, such as head, is not an error.
        if not stdout.is_broken_pipe(error) and status != _BAD_INPUT:
            return _complain(_explain(error))
    return status
