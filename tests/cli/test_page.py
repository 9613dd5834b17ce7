"""The page: one file, safe with any text, moved by mouse, touch and keyboard in a real browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.browser import Browser, browser, find_browser
from _support.cli_runs import fails, save_map
from _support.platforms import needs_posix
from _support.run_python import NOT_INSTALLED, run_python

from roipool.cli import main
from roipool.cli.compare.problem import Problem

pytest.importorskip("PIL")

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="alert(1)">{{data}}'


def data_of(path: str) -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    content: dict[str, Any] = json.loads(found)
    return content


def hostile_page() -> Path:
    """Write a page whose file, system and reason are somebody's who wishes no good."""
    name = "<img src=x onerror=alert(1)>&'\"{{data}}.npy"
    save_map(name, (2, 10, 12))

    def ones(problem: Problem, part: str) -> Any:
        return np.ones(problem.pooled_shape, np.float32)

    def twos(problem: Problem, part: str) -> Any:
        return 2 * ones(problem, part)

    systems = {HOSTILE: ones, f"{HOSTILE}2": twos}
    assert main(["compare", name, "--html", "page.html"], systems=systems) == 0
    return Path("page.html")


def test_the_page_holds_what_was_found() -> None:
    arguments = ["--systems", "roipool.roi_pool,roipool.roi_align", "--output-size", "2x3"]
    assert main(["compare", *arguments, "--html", "page.html"]) == 0
    content = data_of("page.html")
    assert len(content["boxes"]) == 8
    assert content["bins"] == [2, 3]
    reference, other = content["groups"]
    assert reference["reference"]
    assert np.shape(other["values"]) == (8, 2, 3, 3)
    assert np.shape(other["apart"]) == (8, 2, 3)
    assert other["reasons"]
    assert {one["kind"] for boxes in content["samples"] for one in boxes} == {"grid", "cells"}


def test_samples_lie_where_the_definition_says() -> None:
    """A box of 2 x 2 cells, aligned: centres of its bins, half a cell on in the picture."""
    np.save("map.npy", np.arange(36.0).reshape(6, 6))
    Path("boxes.csv").write_text("4,4,8,8\n")
    arguments = ["map.npy", "--boxes", "boxes.csv", "--spatial-scale", "0.5", "--output-size", "2"]
    systems = ["--systems", "torchvision.roi_align*", "--sampling-ratio", "1"]
    assert main(["compare", *arguments, *systems, "--html", "page.html"]) == 0
    content = data_of("page.html")
    points = {
        group["members"][0]: points_of(content["samples"][group["rules"]][0])
        for group in content["groups"]
    }
    assert points["torchvision.roi_align[aligned]"] == [(5, 5), (7, 5), (5, 7), (7, 7)]
    assert points["torchvision.roi_align"] == [(6, 6), (8, 6), (6, 8), (8, 8)]


def test_samples_of_a_box_turned_by_a_right_angle() -> None:
    """Counter-clockwise, the first bin is at the bottom left, and the next above it."""
    np.save("map.npy", np.arange(100.0).reshape(10, 10))
    Path("boxes.csv").write_text(f"5,5,4,2,{np.pi / 2}\n")
    arguments = ["map.npy", "--boxes", "boxes.csv", "--box-format", "cxcywha", "--output-size", "2"]
    assert main(["compare", *arguments, "--sampling-ratio", "1", "--html", "page.html"]) == 0
    assert points_of(data_of("page.html")["samples"][0][0]) == pytest.approx(
        np.array([(4.5, 6), (4.5, 4), (5.5, 6), (5.5, 4)])
    )


def points_of(samples: dict[str, Any]) -> list[tuple[float, float]]:
    """Return x and y of the samples as the page's script draws them."""
    cosine, sine, down, across = samples["turn"]
    return [
        (y * sine + x * cosine + across, y * cosine - x * sine + down)
        for row in samples["y"]
        for y in row
        for column in samples["x"]
        for x in column
    ]


@pytest.mark.parametrize("rotated", [False, True])
def test_pages_of_odd_maps(rotated: bool) -> None:
    values = np.full((2, 1, 5, 5), np.nan)
    values[1] = np.inf
    np.save("map.npy", values)
    Path("boxes.csv").write_text("1,1,1,4,4,1\n0,nan,1,4,4,1\n" if rotated else "1,4,4,1,1\n")
    form = ["--box-format", "cxcywha"] if rotated else []
    arguments = ["compare", "map.npy", "--boxes", "boxes.csv", *form, "--html", "page.html"]
    assert main(arguments) == 0
    assert len(data_of("page.html")["boxes"]) == 1


def test_bad_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to draw" in fails(capsys, save_map(shape=(1, 0, 4)), "--html", "page.html")
    assert "--html writes .html" in fails(capsys, "--html", "page.txt")


def test_the_page_needs_pillow() -> None:
    code = "from roipool.cli import main; exit(main('compare --make 1x8x8 --html a.html'.split()))"
    run = run_python(code, modules={"PIL": NOT_INSTALLED})
    assert (run.returncode, run.stdout) == (2, "")
    assert "this needs Pillow" in run.stderr


class Elements(HTMLParser):
    """Counts elements and collects what would load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href") or name[:2] == "on"]


@needs_posix
def test_no_text_becomes_an_element() -> None:
    elements = Elements(hostile_page().read_text(encoding="utf-8"))
    assert elements.tags.count("script") == 2
    assert "img" not in elements.tags
    assert elements.loads == []
    names = [group["members"][0] for group in data_of("page.html")["groups"]]
    assert names == [HOSTILE, f"{HOSTILE}2"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = find_browser()
    if program is None or os.name == "nt":
        pytest.skip("no Chromium here, or no pipes to it")
    with browser(program) as opened:
        yield opened


def texts(page: Browser) -> tuple[str, str]:
    return page.run("find('box').textContent"), page.run("find('system').textContent")


def middle(page: Browser, selector: str) -> tuple[float, float, float]:
    x, y, width = page.run(
        f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2, r.width]; })()"
    )
    return x, y, width


def test_keys_and_mouse(chromium: Browser) -> None:
    assert main(["compare", "--systems", "torchvision.*", "--html", "page.html"]) == 0
    chromium.open(Path("page.html"), 1300, 900)
    first = texts(chromium)
    assert "(1 of 8)" in first[0]
    chromium.press("ArrowRight")
    chromium.press("ArrowDown")
    second = texts(chromium)
    assert "(2 of 8)" in second[0]
    assert second[1] != first[1]
    assert "Differs most" in chromium.run("find('why').textContent")
    said = chromium.run("find('samples').textContent")
    assert re.search("samples of|whole cells of", said)
    chromium.press("ArrowLeft")
    chromium.press("ArrowUp")
    assert texts(chromium) == first
    x, y, _ = middle(chromium, "#next-box")
    chromium.click(x, y)
    assert "(2 of 8)" in texts(chromium)[0]
    x, y, _ = middle(chromium, ".group:last-child")
    chromium.click(x, y)
    assert chromium.run("state.group") == 2
    x, y, _ = middle(chromium, "#zoom")
    chromium.move(x, y)
    assert re.match(r"bin \(\d, \d\): .*; reference ", chromium.run("find('bin').textContent"))
    # The smallest of the boxes that lie there: a glint on the spoon, in the middle of others.
    inside = (
        "(() => { const r = find('picture').getBoundingClientRect();"
        " return [r.x + pictureView.x(148), r.y + pictureView.y(115)]; })()"
    )
    chromium.click(*chromium.run(inside))
    assert texts(chromium)[0].startswith("box 6 ")
    chromium.click(*middle(chromium, "#theme")[:2])
    assert chromium.run("document.documentElement.dataset.theme") in ("dark", "light")
    assert chromium.complaints == []


def test_a_phone(chromium: Browser) -> None:
    assert main(["compare", "--make", "2x12x16", "--output-size", "3", "--html", "page.html"]) == 0
    chromium.open(Path("page.html"), 390, 844, mobile=True)
    assert chromium.run("document.documentElement.scrollWidth") == 390
    chromium.run("find('zoom').scrollIntoView({ block: 'center' })")
    before = chromium.run("state.box")
    x, y, width = middle(chromium, "#zoom")
    chromium.swipe(x + width / 3, x - width / 3, y)
    assert chromium.run("state.box") == before + 1
    chromium.swipe(x - width / 3, x + width / 3, y)
    assert chromium.run("state.box") == before
    assert chromium.complaints == []


def test_a_map_of_nan(chromium: Browser) -> None:
    values = np.random.default_rng(0).standard_normal((1, 9, 9))
    values[0, 3, 3] = np.nan
    np.save("map.npy", values)
    assert main(["compare", "map.npy", "--output-size", "2", "--html", "page.html"]) == 0
    chromium.open(Path("page.html"), 1000, 700)
    said = []
    for _ in range(chromium.run("data.groups.length")):
        chromium.press("ArrowDown")
        said.append(chromium.run("find('why').textContent"))
    assert any("(NaN)" in text for text in said)
    assert chromium.complaints == []


def test_nothing_is_drawn_without_boxes(chromium: Browser) -> None:
    np.save("boxes.npy", np.zeros((0, 4)))
    assert main(["compare", "--boxes", "boxes.npy", "--html", "page.html"]) == 0
    chromium.open(Path("page.html"), 800, 600)
    assert "no box" in chromium.run("find('why').textContent")
    assert chromium.complaints == []


def test_hostile_texts_stay_texts(chromium: Browser) -> None:
    chromium.open(hostile_page(), 1300, 900)
    chromium.press("ArrowDown")
    assert chromium.run("document.title").startswith("roipool compare: <img src=x")
    assert HOSTILE in chromium.run("document.body.textContent")
    assert chromium.run("document.querySelectorAll('img, script').length") == 2  # its own
    assert chromium.complaints == []
