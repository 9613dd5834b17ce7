"""Runs Python code in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

# Source of stand-in modules: one that appears not to be installed, and CuPy's arrays.
NOT_INSTALLED = """
raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
"""
ONLY_ARRAYS = """
import types

class ndarray:
    def __init__(self, number=0):
        self.data = types.SimpleNamespace(device_id=number)
"""


def run_python(
    code: str,
    *,
    modules: Mapping[str, str] | None = None,
    path: Path | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run `code` with variables added to the environment.

    `modules` maps names to the source of stand-in modules; `path` is a further folder to import
    from. The time limit of five minutes, ten times as long as any code needs on a busy machine, is
    for code that hangs. ``-P`` keeps the current folder, which may be a source tree, from hiding
    the installed package.
    """
    without = {key: value for key, value in os.environ.items() if not key.startswith("ROIPOOL_")}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (modules or {}).items():
            Path(folder, f"{name}.py").write_text(textwrap.dedent(text))
        places = [folder, str(path or ""), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [sys.executable, "-P", "-c", textwrap.dedent(code)],
            env={**without, "PYTHONPATH": os.pathsep.join(filter(None, places)), **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
