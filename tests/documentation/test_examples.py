"""The examples that need only NumPy, or Pillow, run, and print the output in their comments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())

LINES = {
    "faster_rcnn_head": ["pool5 (100, 512, 7, 7)", "bitwise equal: True", "gradients equal: True"],
    "lung_nodules": ["right: 27 of 27", "beside: 3.0 mm from", "moved: 0.7 mm from"],
    "photo_batch": [
        "batch: (100, 3, 64, 64) float32 4.9 MB",
        "Pillow's crops differ by at most 1.00",
    ],
    "picture_crops": ["means   from 64 to 64", "points  from 0 to 239", "outside: [0 0 0]"],
    "tensorflow_or_torchvision": [
        "[124. 156. 188. 220.]  off by 8 pixels",
        "[116. 148. 180. 212.]  off by 0 pixels",
        "TensorFlow and torchvision agree: True",
    ],
    "video_tubes": ["pooled: (12, 3, 8, 16, 16)", "of the same action: 12 of 12"],
    "video_boxes": ["moving: greatest change at frame 30", "a lost box pools to 0.0"],
}


def printed(name: str) -> str:
    command = [sys.executable, str(SOURCES / "examples" / f"{name}.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", LINES)
def test_it_prints(name: str) -> None:
    output = printed(name)
    missing = [line for line in LINES[name] if line not in output]
    assert not missing, output


def test_readme_has_what_the_example_prints() -> None:
    command = "$ python examples/where_is_the_box.py\n"
    assert command + printed("where_is_the_box") in (SOURCES / "README.md").read_text()
