"""Lists the tests that no job ran: those that are skipped in all given JUnit XML files.

python scripts/skipped_everywhere.py FILE_OR_FOLDER...

A machine may lack something that a test needs, but a test that all machines skip proves nothing.
The script prints such tests, with the reason of the first skip, and exits with status 1; the status
is 2 if there are no results. Expected failures count as run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree


def result_files(arguments: Iterable[str]) -> Iterator[Path]:
    """Yield the given files, and all XML files in the given folders."""
    for argument in arguments:
        path = Path(argument)
        yield from sorted(path.rglob("*.xml")) if path.is_dir() else [path]


def results(file: Path) -> Iterator[tuple[str, str | None]]:
    """Yield each test of a file with the reason for its skip, or None if it ran."""
    for case in ElementTree.parse(file).iter("testcase"):
        skipped = case.find("skipped")
        name = f"{case.get('classname')}::{case.get('name')}"
        if skipped is None or skipped.get("type") == "pytest.xfail":
            yield name, None
        else:
            yield name, skipped.get("message") or "no reason given"


def skipped_everywhere(files: Iterable[Path]) -> dict[str, str] | None:
    """Return the reason for each test that was always skipped; None if there are no tests."""
    ran: set[str] = set()
    reasons: dict[str, str] = {}
    for file in files:
        for name, reason in results(file):
            if reason is None:
                ran.add(name)
            else:
                reasons.setdefault(name, reason)
    if not ran and not reasons:
        return None
    return {name: reason for name, reason in reasons.items() if name not in ran}


def main(arguments: list[str]) -> int:
    """Print the tests that no job ran; return the exit status."""
    skipped = skipped_everywhere(result_files(arguments))
    if skipped is None:
        print("no test results were given", file=sys.stderr)
        return 2
    for name, reason in sorted(skipped.items()):
        print(f"skipped in every job: {name}: {reason}")
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
