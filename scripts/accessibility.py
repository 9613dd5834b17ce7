"""Checks pages for what screen readers and keyboards stumble on, by axe-core in Chromium.

``npm pack axe-core && tar xzf axe-core-*.tgz`` brings ``package/axe.min.js``; ``python
scripts/accessibility.py package/axe.min.js docs/_build/html`` then prints the violations of the
site's pages and of the page of ``roipool compare``, and returns 1 if there are any.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from _support.browser import Browser, browser, find_browser  # noqa: E402

WIDTHS = (360, 1280)  # pixels, of a phone and a desktop
NOT_PAGES = ("_static", "_sources", "_modules", "playground")


def main(arguments: list[str]) -> int:
    """Print every violation; return how the program ends."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    program = find_browser()
    if program is None:
        print("needs Chromium, which is not installed", file=sys.stderr)
        return 2
    axe, site = Path(arguments[0]).read_text(encoding="utf-8"), Path(arguments[1])
    found = 0
    with tempfile.TemporaryDirectory() as folder, browser(program) as page:
        compared = Path(folder) / "compare.html"
        command = [sys.executable, "-m", "roipool", "compare", "--html", str(compared)]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        pages = [each for each in sorted(site.rglob("*.html")) if not _is_left_out(each, site)]
        for path in (*pages, compared):
            for width in WIDTHS:
                for line in violations(page, axe, path, width):
                    print(f"{path.name} at {width}: {line}")
                    found += 1
    print(f"{len(pages) + 1} pages at {len(WIDTHS)} widths: {found} violations")
    return int(found > 0)


def _is_left_out(path: Path, site: Path) -> bool:
    return path.relative_to(site).parts[0] in NOT_PAGES


def violations(page: Browser, axe: str, path: Path, width: int) -> list[str]:
    """Return the violations of a page in a window of some width."""
    page.open(path, width, 800, mobile=width < 600)
    page.run(axe + "\n;0")
    told = json.loads(page.run("axe.run().then((found) => JSON.stringify(found.violations))"))
    return [
        f"{each['id']}: {each['help']}: {len(each['nodes'])} times, first "
        f"{each['nodes'][0]['html'][:120]}"
        for each in told
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
