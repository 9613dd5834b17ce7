"""Lists the tests that no job ran: those that every JUnit XML file given here skipped.

python scripts/skipped_everywhere.py FILE_OR_FOLDER...

A skip is right where a machine lacks something; a test that all machines skip proves nothing. Exits
with status 1 and a line for each such test, with the reason of its first skip, and with status 2
where there is no result at all. An expected failure has run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree


def result_files(arguments: Iterable[str]) -> Iterator[Path]:
    """Yield the files that are named, and all XML files in the folders that are."""
    for argument in arguments:
        path = Path(argument)
        yield from sorted(path.rglob("*.xml")) if path.is_dir() else [path]


def results(file: Path) -> Iterator[tuple[str, str | None]]:
    """Yield each test of a file with the reason why it was skipped, or None if it ran."""
    for case in ElementTree.parse(file).iter("testcase"):
        skipped = case.find("skipped")
        name = f"{case.get('classname')}::{case.get('name')}"
        if skipped is None or skipped.get("type") == "pytest.xfail":
            yield name, None
        else:
            yield name, skipped.get("message") or "no reason given"


def skipped_everywhere(files: Iterable[Path]) -> dict[str, str] | None:
    """Return the reason for each test that was always skipped; None where there is no test."""
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
    """Print what no job ran; return the exit status."""
    found = skipped_everywhere(result_files(arguments))
    if found is None:
        print("no test results were given", file=sys.stderr)
        return 2
    for name, reason in sorted(found.items()):
        print(f"skipped in every job: {name}: {reason}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
