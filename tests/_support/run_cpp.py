"""Compiles and runs a small C++ program that uses the kernel headers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("c++")


# Headers of the source tree; an installed package contains only those that are read at run time.
KERNELS = Path(__file__).parents[2] / "roipool" / "kernels"


def run_cpp(source: str, folder: Path) -> str:
    """Return the program's output; skip if there is no compiler."""
    return output_of_cpp(source, folder).decode()


def output_of_cpp(source: str, folder: Path) -> bytes:
    """Return the program's output as bytes; skip if there is no compiler."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (CXX, g++ or c++)")
    program, file = folder / "program", folder / "program.cpp"
    file.write_text(source)
    command = [COMPILER, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{KERNELS}"]
    subprocess.run([*command, str(file), "-o", str(program), "-pthread"], check=True)
    return subprocess.run([program], capture_output=True, check=False).stdout
