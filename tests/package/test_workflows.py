"""The workflows: every session of noxfile.py is used, and no input of the action is a command."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from _support.platforms import needs_posix
from _support.sources import SOURCES, nox_sessions

WORKFLOWS = SOURCES / ".github" / "workflows"

# An installed package and an sdist have none.
pytestmark = pytest.mark.skipif(not WORKFLOWS.is_dir(), reason="no workflows in this tree")


def test_every_session_exists_and_is_used() -> None:
    text = "\n".join(file.read_text() for file in WORKFLOWS.glob("*.yml"))
    direct = re.findall(r"nox -s ([a-z_ ]+?)(?: --|$)", text.replace('"$NOX"', "nox"), re.MULTILINE)
    by_matrix = re.findall(r"session: ([a-z_]+)", text)
    named = {name for group in direct for name in group.split()} | set(by_matrix)
    assert named == nox_sessions()


def action() -> tuple[dict[str, str], str]:
    """Return the inputs of the action by environment variable, and its script."""
    text = (WORKFLOWS.parent / "actions" / "conformance" / "action.yml").read_text()
    inputs = re.findall(r"^  ([a-z-]+):\n    description", text, re.MULTILINE)
    passed = dict(
        re.findall(r"^        ([A-Z_]+): \$\{\{ inputs\.([a-z-]+) \}\}", text, re.MULTILINE)
    )
    assert set(passed.values()) == set(inputs)
    return passed, textwrap.dedent(text.rpartition("run: |\n")[2])


@needs_posix
@pytest.mark.parametrize(
    "requirement", ["roipool==1.0", "--pre", "--index-url=https://example.org"]
)
def test_the_actions_requirement_is_no_option(requirement: str, tmp_path: Path) -> None:
    text = (WORKFLOWS.parent / "actions" / "conformance" / "action.yml").read_text()
    script = text.partition("run: |\n")[2].partition("    - name:")[0]
    pip = tmp_path / "python"
    pip.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    pip.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": str(pip), "REQUIREMENT": requirement},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["-m", "pip", "install"]
    assert done.stdout.splitlines()[-2:] == ["--", requirement]


@needs_posix
def test_the_action_passes_inputs_on(tmp_path: Path) -> None:
    """Inputs are passed unchanged, whatever their content."""
    passed, script = action()
    assert "${{" not in script
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    values = {name: f"$({name}) 'x'" for name in passed}
    values |= {"PYTHON": str(python), "OPTIONS": "aligned=True\nsampling_ratio=2\n", "WITHOUT": ""}
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], **values},
    )
    told = done.stdout.splitlines()
    assert told[:3] == ["-m", "roipool", "verify"]
    pairs = list(zip(told[3::2], told[4::2], strict=True))
    options = dict(pairs)
    assert options["--semantics"] == "$(SEMANTICS) 'x'"
    assert options["--backward"] == "$(BACKWARD) 'x'"
    assert options["--backward-boxes"] == "$(BACKWARD_BOXES) 'x'"
    assert "--without" not in options
    assert [value for name, value in pairs if name == "--option"] == [
        "aligned=True",
        "sampling_ratio=2",
    ]
