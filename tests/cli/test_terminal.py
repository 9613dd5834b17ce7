"""The comparison on terminals of any width, in pipes, without packages, and interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _support.cli_runs import names_here, run_program
from _support.platforms import needs_matplotlib, needs_posix
from _support.run_python import NOT_INSTALLED, run_python

pytestmark = [needs_posix, pytest.mark.thorough]

pytest.importorskip("PIL")

SMALL = ["--make", "2x9x11", "--output-size", "2", "--systems", "torchvision.*,caffe.roi_align"]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """The program with some of its streams on a terminal of so many columns."""

    def __init__(
        self, *arguments: str, columns: int = 80, on: str = "out err", **more: str
    ) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        without = {key: value for key, value in os.environ.items() if key not in _STEERING}
        streams: dict[str, Any] = {
            "stdout": theirs if "out" in on else subprocess.PIPE,
            "stderr": theirs if "err" in on else subprocess.PIPE,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "roipool", "compare", *arguments],
            env={**without, "TERM": "xterm-256color", **more},
            # A job in the background starts with Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **streams,
        )
        os.close(theirs)
        self.shown = b""

    def read_until(self, piece: bytes) -> None:
        while piece not in self.shown:
            if not self._more():
                raise AssertionError(f"ended before {piece!r}: {self.shown!r}")

    def _more(self) -> bool:
        try:
            read = os.read(self.ours, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.shown += read
        return bool(read)

    def finish(self) -> tuple[int, str, str, str]:
        """Return the status, what the terminal showed, and what came through pipes."""
        while self._more():
            pass
        out, err = self.process.communicate()
        os.close(self.ours)
        texts = (stream.decode() if stream else "" for stream in (self.shown, out, err))
        return (self.process.returncode, *texts)  # type: ignore[return-value]


_STEERING = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TTY_COMPATIBLE")


@pytest.mark.parametrize(
    ("columns", "more"),
    [(40, ["--check"]), (80, ["--gradients", "features,boxes"]), (200, [])],
)
def test_lines_fit(columns: int, more: list[str]) -> None:
    # One of them has a gradient with respect to boxes.
    systems = [*SMALL[:-1], f"{SMALL[-1]},tensorflow.*"] if "features,boxes" in more else SMALL
    status, shown, _, _ = Terminal(*systems, *more, columns=columns, on="out").finish()
    assert status == (1 if more == ["--check"] else 0)
    assert "\x1b[1m" in shown
    lines = _ESCAPES.sub("", shown).splitlines()
    assert max(map(len, lines)) <= columns
    assert any("torchvision.roi_align[aligned]" in line for line in lines)
    assert (max(map(len, lines)) > 80) == (columns == 200)


def test_pipes_have_80_columns_and_no_colours() -> None:
    run = run_program("compare", *SMALL, env={**os.environ, "COLUMNS": "80"})
    assert (run.returncode, run.stderr) == (0, "")
    assert "\x1b" not in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_progress_is_for_terminals() -> None:
    status, shown, out, _ = Terminal(*SMALL, on="err").finish()
    assert status == 0
    assert "comparing" in shown
    assert "comparing" not in out
    assert "\x1b" not in out
    _, shown, _, err = Terminal(*SMALL, on="out").finish()
    assert err == ""


@pytest.mark.parametrize("missing", [["rich"], ["rich", "matplotlib", "PIL"]])
def test_plain_text_without_packages(missing: list[str]) -> None:
    code = f"from roipool.cli import main; exit(main({['compare', *SMALL]}))"
    run = run_python(code, modules=dict.fromkeys(missing, NOT_INSTALLED))
    assert (run.returncode, run.stderr) == (0, "")
    assert "torchvision.roi_align[aligned]" in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_missing_rich_is_said_on_a_terminal() -> None:
    Path("rich.py").write_text(NOT_INSTALLED)
    path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    status, shown, _, _ = Terminal(*SMALL, PYTHONPATH=path).finish()
    assert status == 0
    assert 'rich is not installed: plain text (pip install ".[cli]"' in shown
    assert "\x1b" not in shown


@needs_matplotlib
def test_ctrl_c_leaves_nothing() -> None:
    """The oracle on a picture takes long enough to be interrupted in it."""
    files = ["--json", "out.json", "--html", "page.html", "--save", "figure.png"]
    running = Terminal("--engines", "oracle", *files, on="err")
    running.read_until(b"comparing")
    running.process.send_signal(signal.SIGINT)
    try:
        running.process.wait(10)
    except subprocess.TimeoutExpired:  # Python drops a signal in a callback, such as an import's
        running.process.send_signal(signal.SIGINT)
    status, shown, out, _ = running.finish()
    assert (status, out) == (130, "")
    assert "Traceback" not in shown
    assert names_here() == []
