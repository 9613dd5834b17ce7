"""Makes the pictures of ``roipool compare`` in ``docs/``: the figure, the terminal and the page.

``python scripts/screenshots.py`` needs roipool[cli] and Chromium; it writes the pictures of
``docs/compare.md`` and of the README.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tests"))

from _support.browser import Browser, browser, find_browser  # noqa: E402

SIX = (
    "torchvision.roi_pool,torchvision.roi_align,torchvision.roi_align[aligned],"
    "mmcv.roi_align[max],tensorflow.crop_and_resize,caffe.roi_align"
)
THREE = "torchvision.roi_align,tensorflow.crop_and_resize,caffe.roi_align"
COMPARED = ["--systems", SIX, "--reference", "torchvision.roi_align[aligned]"]
WIDTH = 80  # characters

_TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #16181d; color: #e8e8ea; display: inline-block; }}
pre {{ margin: 0; padding: 18px 22px; font: 14px/1.35 "DejaVu Sans Mono", monospace; }}
</style><pre>{}</pre>"""


def main() -> int:
    """Write every picture; return 2 if there is no browser."""
    program = find_browser()
    if program is None:
        print("needs Chromium, which is not installed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, browser(program) as page:
        _compare(*COMPARED, "--save", str(DOCS / "comparison.png"))
        _compare("--volume", "--save", str(DOCS / "compare-volume.png"))
        short = ["--systems", THREE, "--reference", "torchvision.roi_align"]
        _compare(*short, "--save", str(DOCS / "comparison-short.png"))
        _terminal(page, Path(folder))
        _pages(page, Path(folder))
    return 0


def _compare(*arguments: str) -> str:
    """Run the command as on a terminal of 80 columns; return its output with colours."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "roipool", "compare", *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return run.stdout


def _terminal(page: Browser, folder: Path) -> None:
    said = f"$ roipool compare\n{_compare()}"
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(said))
    text = console.export_html(code_format="{code}", inline_styles=True)
    shown = folder / "terminal.html"
    shown.write_text(_TERMINAL.format(text), encoding="utf-8")
    page.open(shown, 1000, 500)
    width, height = page.run(
        "[Math.ceil(document.body.getBoundingClientRect().width),"
        " Math.ceil(document.body.getBoundingClientRect().height)]"
    )
    page.open(shown, width, height)
    page.screenshot(DOCS / "compare-terminal.png")


def _pages(page: Browser, folder: Path) -> None:
    """Show a small map, on which cells and samples are visible."""
    written = folder / "page.html"
    systems = "torchvision.*,roipool.roi_pool,roipool.precise_roi_pool,tensorflow.*,caffe.roi_align"
    options = ["--spatial-scale", "1/8", "--output-size", "3", "--sampling-ratio", "2"]
    options += ["--systems", systems]
    _compare(*options, "--reference", "torchvision.roi_align", "--html", str(written))
    page.open(written, 1360, 1060)
    page.run("ready")
    page.run(_STATE)
    page.screenshot(DOCS / "compare-page.png")
    page.ask(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    page.open(written, 390, 1000, mobile=True)
    page.run("ready")
    page.run(_STATE)
    page.screenshot(DOCS / "compare-phone.png")


# The first box, a system shifted by half a cell, and the bin in the middle.
_STATE = """
change({ box: data.boxes.findIndex(({ number }) => number === 1), bin: [1, 1],
         a: choiceOf("torchvision.roi_align[aligned]"), b: choiceOf("torchvision.roi_align") });
new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
"""


if __name__ == "__main__":
    sys.exit(main())
