"""Measures the frame times of the playground while one of ten boxes is dragged.

``python scripts/page_speed.py`` needs Pillow and Chromium. It prints, for a desktop and a phone,
the median and the 95th percentile of the time between frames and of the time to draw a frame.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from _support.browser import Browser, browser, find_browser

from roipool.tools.compare.page import playground

WINDOWS = {"desktop": (1280, 900, False), "phone": (360, 780, True)}
BINS = (3, 7, 14)
_DRAG = """(async () => {
  const boxes = Array.from({ length: 10 }, (_, k) => [8 * k, 6 * k, 90 + 9 * k, 80 + 7 * k]);
  change({ boxes, box: 4, bin: [1, 1], bins: [BINS, BINS] });
  await new Promise((resolve) => setTimeout(resolve, 500));
  const frame = () => new Promise(requestAnimationFrame);
  const between = [], drawing = [];
  let last = await frame();
  for (let i = 0; i < 300; i++) {
    setBox(boxes[4].map((x) => x + i % 40));
    const now = await frame();
    between.push(now - last);
    last = now;
  }
  for (let i = 0; i < 100; i++) {
    setBox(boxes[4].map((x) => x + i % 40));
    const begin = performance.now();
    draw();
    drawing.push(performance.now() - begin);
  }
  return [between, drawing].flatMap((list) => {
    list.sort((one, other) => one - other);
    return [0.5, 0.95].map((share) => list[Math.floor(share * list.length)]);
  });
})()"""


def main() -> int:
    """Print a line for each window and number of bins; return 2 if there is no browser."""
    program = find_browser()
    if program is None:
        print("needs Chromium, which is not installed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, browser(program) as page:
        written = Path(folder) / "playground.html"
        written.write_text(playground(), encoding="utf-8")
        for name, window in WINDOWS.items():
            for bins in BINS:
                print(f"{name}, {bins} x {bins} bins: {_measured(page, written, window, bins)}")
    return 0


def _measured(page: Browser, file: Path, window: tuple[int, int, bool], bins: int) -> str:
    page.open(file, *window)
    page.run("ready")
    frame, slow_frame, draw, slow_draw = page.run(_DRAG.replace("BINS", str(bins)))
    return (
        f"{frame:.1f} ms between frames (95 %: {slow_frame:.1f}), "
        f"{draw:.1f} ms to draw one (95 %: {slow_draw:.1f})"
    )


if __name__ == "__main__":
    sys.exit(main())
