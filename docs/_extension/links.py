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
LINK = re.compile(
    r"\[(?P<text>[^]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)",
)


def led_to_pages(text: str, source: Path, page: Path) -> str:
    """Return text of a file in the folder `source` with links that are right in the folder `page`.

    A link to a file that a page includes leads to that page; other files are downloads.
    """

    def led(link: re.Match[str]) -> str:
        target = (source / link["path"]).resolve()
        if target.is_dir():
            target = target / "README.md"
        name = target.relative_to(DOCS.parent).as_posix()
        target = DOCS / PAGES.get(name, target)
        path = Path(os.path.relpath(target, page)).as_posix()
        if target.suffix == ".md" and not target.is_relative_to(DOCS):  # MyST looks for a page
            return f"{{download}}`{link['text'].replace('`', '')} <{path}>`"
        return f"[{link['text']}]({path}{link['anchor'] or ''})"

    return LINK.sub(led, text)
