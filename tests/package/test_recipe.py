"""The conda recipe agrees with pyproject.toml and the package."""

from __future__ import annotations

import re
import tomllib

from _support.sources import SOURCES

import roipool

TEXT = (SOURCES / "conda" / "recipe.yaml").read_text(encoding="utf-8")
PROJECT = tomllib.loads((SOURCES / "pyproject.toml").read_text(encoding="utf-8"))


def asked_for(part: str) -> set[str]:
    """Return the packages with a minimum version in a part of the recipe's requirements."""
    section = re.search(rf"^  {part}:\n((?:    .*\n)+)", TEXT, re.MULTILINE)
    assert section is not None, part
    return set(re.findall(r"^    - ([a-z]+ >=[\d.]+)$", section[1], re.MULTILINE))


def as_conda(requirements: list[str]) -> set[str]:
    return {requirement.replace(">=", " >=") for requirement in requirements}


def test_the_version_is_the_packages() -> None:
    assert f'\n  version: "{roipool.__version__}"\n' in TEXT


def test_requirements_are_the_projects() -> None:
    assert asked_for("host") == as_conda(PROJECT["build-system"]["requires"])
    assert asked_for("run") == as_conda(PROJECT["project"]["dependencies"])
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f'python_min: "{oldest}"' in TEXT


def test_what_is_built_is_verified() -> None:
    assert "script: roipool verify" in TEXT
