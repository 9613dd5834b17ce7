"""The planted faults and mutants: that they can be planted still, and that each is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLANT = Path(__file__).with_name("plant.py")


def test_faults_are_up_to_date() -> None:
    command = [sys.executable, str(PLANT), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
