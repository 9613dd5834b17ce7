"""Runs a piece of Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with variables added to the environment; a minute is far more than it needs.

    ``-P`` keeps the current folder, which may be a source tree, from hiding what is installed.
    """
    without = {key: value for key, value in os.environ.items() if not key.startswith("ROIPOOL_")}
    return subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code)],
        env={**without, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
