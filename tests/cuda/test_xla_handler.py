"""XLA's handler for GPUs under sanitizers: wrong attributes, wrong arrays, and several threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _support.run_cpp import COMPILER, KERNELS

SANITIZERS = ("address,undefined", "thread")


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_handler(sanitizer: str, tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (CXX, g++ or c++)")
    flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{KERNELS}", "-pthread"]
    sanitize = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    program, source = tmp_path / "program", Path(__file__).with_name("xla_handler.cpp")
    built = subprocess.run(
        [COMPILER, *flags, *sanitize, str(source), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr:  # a compiler without the sanitizer's library
        pytest.skip(built.stderr)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "0 problems\n"
