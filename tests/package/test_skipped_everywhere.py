"""The last job of the test matrix finds the tests that all jobs skipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())

TESTS = """
import pytest
def test_runs_always(): pass
def test_never(): pytest.skip("no such machine")
def test_first_only():
    if {second}: pytest.skip("not on the second")
@pytest.mark.xfail(strict=True)
def test_expected_failure(): assert 0
@pytest.mark.parametrize("number", [1, 2])
def test_number(number):
    if number == 2: pytest.skip("two is too many")
"""


def run_pytest(folder: Path, second: bool) -> None:
    folder.mkdir()
    file = folder / "test_it.py"
    file.write_text(TESTS.format(second=second))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={folder}",
    ]
    result = subprocess.run(
        [*command, "--junit-xml=result.xml", "test_it.py"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout


def run_script(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SOURCES / "scripts" / "skipped_everywhere.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.thorough
def test_names_what_no_job_ran(tmp_path: Path) -> None:
    for second in (False, True):
        run_pytest(tmp_path / str(second), second)
    result = run_script(tmp_path)
    assert result.returncode == 1, result.stderr
    names = [line.split(": ")[1] for line in result.stdout.splitlines()]
    assert names == ["test_it::test_never", "test_it::test_number[2]"]
    assert "no such machine" in result.stdout
    result = run_script(tmp_path / "True" / "result.xml")
    assert "test_it::test_first_only" in result.stdout


@pytest.mark.parametrize("files", [{}, {"a.xml": "<testsuites/>"}])
def test_no_results_are_no_success(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert run_script(tmp_path).returncode == 2
