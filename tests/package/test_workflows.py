"""The workflows: every job runs a session of noxfile.py, every action is pinned by its commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
WORKFLOWS = SOURCES / ".github" / "workflows"

# An installed package and an sdist have none.
pytestmark = pytest.mark.skipif(not WORKFLOWS.is_dir(), reason="no workflows in this tree")


def sessions() -> set[str]:
    text = (SOURCES / "noxfile.py").read_text()
    return set(re.findall(r"^@nox\.session.*\n(?:@.*\n)*def (\w+)\(", text, re.MULTILINE))


def test_every_session_exists_and_is_used() -> None:
    text = "\n".join(file.read_text() for file in WORKFLOWS.glob("*.yml"))
    direct = re.findall(r"nox -s ([a-z_ ]+?)(?: --|$)", text.replace('"$NOX"', "nox"), re.MULTILINE)
    by_matrix = re.findall(r"session: ([a-z_]+)", text)
    named = {name for group in direct for name in group.split()} | set(by_matrix)
    assert named == sessions()


def test_actions_are_pinned() -> None:
    for file in WORKFLOWS.glob("*.yml"):
        for use in re.findall(r"uses: (.*)", file.read_text()):
            assert re.fullmatch(r"\$/.*|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use), use
