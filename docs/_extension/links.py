"""Links of files that are read both in the source tree and on the site."""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]

# Files outside `docs/` that a page of the site includes.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "performance.md",
    "tests/faults/README.md": "internals/planted-faults.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")


def led_to_pages(text: str, source: Path, page: Path) -> str:
    """Return text of a file in the folder `source` with links that are right in the folder `page`.

    A link to a file that a page includes leads to that page; one to a folder is left as its text.
    """

    def led(link: re.Match[str]) -> str:
        target = (source / link["path"]).resolve()
        name = os.path.relpath(target, DOCS.parent)
        target = DOCS / PAGES[name] if name in PAGES else target
        if target.is_dir():
            target = target / "README.md"
            target = DOCS / PAGES.get(os.path.relpath(target, DOCS.parent), target)
        return Path(os.path.relpath(target, page)).as_posix() + (link["anchor"] or "")

    return LINK.sub(led, text)
