"""The page of a comparison: its data and size, any texts in it, and its use in a browser."""

from __future__ import annotations

import base64
import io
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
from roipool.tools.compare import page as page_module
from roipool.tools.compare.page import playground
from roipool.tools.compare.problem import Problem

pytestmark = pytest.mark.thorough

Image = pytest.importorskip("PIL.Image")

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="alert(1)">{{data}}'


def data_of(path: str) -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    content: dict[str, Any] = json.loads(found)
    return content


def size_of(page: str) -> int:
    """Return the bytes of a page without its picture."""
    (picture,) = re.findall(r'"picture":"([^"]*)"', page)
    return len(page.encode()) - len(picture)


def hostile_page() -> Path:
    """Write a page with malicious names of the file and system, and a malicious reason."""
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
    assert content["values"] == "picture"
    reference, other = content["groups"]
    assert reference["reference"]
    assert [group["system"] for group in content["groups"]] == [
        "roipool.roi_align",
        "roipool.roi_pool",
    ]
    assert len(other["reasons"]) == 8  # for each box
    assert all(why["reasons"] for why in other["reasons"])


def test_the_first_sight_is_aligned_against_not_aligned() -> None:
    assert main(["compare", "--html", "page.html"]) == 0
    reference, first, *_ = data_of("page.html")["groups"]
    assert reference["system"] == "torchvision.roi_align[aligned]"
    assert first["system"] == "torchvision.roi_align"


def test_a_photograph_that_is_only_shown_is_a_small_jpeg() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), dtype=np.uint8)
    Image.fromarray(noise).save("noise.png")
    given = ["noise.png", "--systems", "torchvision.roi_*", "--output-size", "2"]
    assert main(["compare", *given, "--html", "page.html"]) == 0
    kind, content = data_of("page.html")["picture"].split(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (1024, 768)


def test_the_page_holds_the_values_of_a_function_of_the_user() -> None:
    save_map("map.npy", (2, 10, 12))

    def own(problem: Problem, part: str) -> Any:
        return np.arange(np.prod(problem.pooled_shape), dtype=np.float32).reshape(
            problem.pooled_shape
        )

    systems = {"my:function": own}
    arguments = ["compare", "map.npy", "--output-size", "2", "--html", "page.html"]
    assert main(arguments, systems=systems) == 0
    content = data_of("page.html")
    (group,) = content["groups"]
    assert group["system"] is None
    values = np.frombuffer(base64.b64decode(group["values"][0]), "<f4")
    first = content["boxes"][0]["number"] - 1
    channel = int(re.findall(r"channel (\d)", content["note"])[0])
    assert values.tolist() == [first * 8 + channel * 4 + k for k in range(4)]
    whole = np.frombuffer(base64.b64decode(content["values"]), "<f4").reshape(10, 12)
    assert np.array_equal(whole, np.load("map.npy")[channel].astype(np.float32))


def test_the_playground_is_small() -> None:
    """It has less than 152 kB without its picture, and loads nothing."""
    text = playground()
    assert size_of(text) < 152_000
    assert Elements(text).loads == []


@pytest.mark.parametrize("count", [1, 200])
def test_the_page_of_a_comparison_is_small(count: int) -> None:
    """It contains the boxes on which systems differ most."""
    corners = np.random.default_rng(0).uniform(-20, 240, (count, 4))
    np.save("boxes.npy", np.sort(corners.reshape(count, 2, 2), axis=1).reshape(count, 4))
    assert main(["compare", "--boxes", "boxes.npy", "--html", "page.html"]) == 0
    text = Path("page.html").read_text(encoding="utf-8")
    assert size_of(text) < 152_000
    assert len(data_of("page.html")["boxes"]) == min(count, 24)


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
    """Counts elements, and collects those that would load something."""

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


def show(page: Browser, path: str, width: int, height: int, mobile: bool = False) -> None:
    page.open(Path(path), width, height, mobile)
    page.run("ready")


def show_playground(page: Browser) -> None:
    Path("page.html").write_text(playground(), encoding="utf-8")
    show(page, "page.html", 1300, 900)


def frame(page: Browser) -> None:
    """Wait until changes are drawn."""
    page.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")


def text_of(page: Browser, name: str) -> str:
    frame(page)
    found: str = page.run(f"find({name!r}).textContent")
    return found


def points_of(page: Browser, system: str) -> Any:
    """Return x and y of the drawn samples, by bin."""
    page.run(f"change({{ a: choiceOf({system!r}) }})")
    bins = page.run("state.bins")
    lists = [
        page.run(f"samplesOf(state.a).of({i}, {j})") for i in range(bins[0]) for j in range(bins[1])
    ]
    return np.array([point for points in lists for point in points])


def on_picture(page: Browser, x: float, y: float) -> tuple[float, float]:
    """Return the position of a pixel of the picture on the screen."""
    at = page.run(
        "(() => { const r = find('picture').getBoundingClientRect();"
        f" return [r.x + pictureView.x({x}), r.y + pictureView.y({y})]; }})()"
    )
    return at[0], at[1]


def drag(page: Browser, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.move(*start)
    for kind, (x, y) in (("Pressed", start), ("Moved", end), ("Released", end)):
        page.ask(
            "Input.dispatchMouseEvent",
            type=f"mouse{kind}",
            x=x,
            y=y,
            button="left",
            buttons=1,
            clickCount=1,
        )
    frame(page)


def middle(page: Browser, selector: str) -> tuple[float, float, float]:
    x, y, width = page.run(
        f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2, r.width]; })()"
    )
    return x, y, width


def test_samples_lie_where_the_definition_says(chromium: Browser) -> None:
    """A box of 2 x 2 cells, aligned: centres of its bins, half a cell on in the picture."""
    np.save("map.npy", np.arange(36.0).reshape(6, 6))
    Path("boxes.csv").write_text("4,4,8,8\n")
    arguments = ["map.npy", "--boxes", "boxes.csv", "--spatial-scale", "0.5", "--output-size", "2"]
    systems = ["--systems", "torchvision.roi_align*", "--sampling-ratio", "1"]
    assert main(["compare", *arguments, *systems, "--html", "page.html"]) == 0
    show(chromium, "page.html", 1000, 700)
    aligned = points_of(chromium, "torchvision.roi_align[aligned]")
    assert aligned.tolist() == [[5, 5], [7, 5], [5, 7], [7, 7]]
    assert (points_of(chromium, "torchvision.roi_align") - aligned == 1).all()


def test_samples_of_a_box_turned_by_a_right_angle(chromium: Browser) -> None:
    """Counter-clockwise, the first bin is at the bottom left, and the next above it."""
    np.save("map.npy", np.arange(100.0).reshape(10, 10))
    Path("boxes.csv").write_text(f"5,5,4,2,{np.pi / 2}\n")
    arguments = ["map.npy", "--boxes", "boxes.csv", "--box-format", "cxcywha", "--output-size", "2"]
    assert main(["compare", *arguments, "--sampling-ratio", "1", "--html", "page.html"]) == 0
    show(chromium, "page.html", 1000, 700)
    points = points_of(chromium, "roipool.roi_align_rotated")
    expected = np.array([(4.5, 6), (4.5, 4), (5.5, 6), (5.5, 4)])
    np.testing.assert_allclose(points, expected, atol=1e-5)


def test_mouse(chromium: Browser) -> None:
    assert main(["compare", "--systems", "torchvision.roi_*", "--html", "page.html"]) == 0
    show(chromium, "page.html", 1300, 900)
    assert "(1 of 8)" in text_of(chromium, "box")
    chromium.click(*middle(chromium, "#next-box")[:2])
    assert "(2 of 8)" in text_of(chromium, "box")
    assert text_of(chromium, "about").startswith(text_of(chromium, "box").partition(" (")[0])
    assert "differs most from the second in bin" in text_of(chromium, "why")
    assert len(chromium.run("[...find('why').querySelectorAll('li')]")) > 0
    chromium.click(*middle(chromium, ".group:last-child")[:2])
    assert chromium.run("state.a === data.groups[2].choice")
    for canvas in ("#zoom", "#grid-b"):
        chromium.run("change({ bin: null })")
        chromium.move(*middle(chromium, canvas)[:2])
        assert re.match(
            r"Bin \(3, 3\): first .*; second .*weights of cells", text_of(chromium, "bin")
        )
    # A click selects the smallest box there: a glint on the spoon, inside others.
    chromium.click(*on_picture(chromium, 148, 115))
    assert text_of(chromium, "box").startswith("Box 6 ")
    chromium.click(*middle(chromium, "#theme")[:2])
    assert chromium.run("document.documentElement.dataset.theme") in ("dark", "light")
    assert chromium.complaints == []


def test_boxes_are_dragged_resized_and_turned(chromium: Browser) -> None:
    show_playground(chromium)
    assert chromium.run("boxNow()") == [72, 7, 174, 120]
    drag(chromium, on_picture(chromium, 100, 60), on_picture(chromium, 110, 40))
    assert chromium.run("boxNow()") == pytest.approx([82, -13, 184, 100], abs=1)
    before = chromium.run("Array.from(pooled(state.a))")
    drag(
        chromium,
        on_picture(chromium, *chromium.run("boxNow().slice(2)")),
        on_picture(chromium, 150, 90),
    )
    assert chromium.run("boxNow()") == pytest.approx([82, -13, 150, 90], abs=1)
    assert chromium.run("Array.from(pooled(state.a))") != before
    x, y = chromium.run("within(boxNow(), 0.5, 0.5)")
    drag(
        chromium,
        on_picture(chromium, *chromium.run("knobOf(boxNow())")),
        on_picture(chromium, x - 60, y),
    )
    assert chromium.run("boxNow()[4]") == pytest.approx(np.pi / 2)
    assert "without its angle" in text_of(chromium, "samples")
    points = points_of(chromium, "roipool.roi_align_rotated")
    assert points[0][1] > points[1][1]  # the second sample is above the first
    chromium.click(*middle(chromium, "#reset")[:2])
    frame(chromium)
    assert chromium.run("boxNow()") == [72, 7, 174, 120]
    assert chromium.complaints == []


def test_keys(chromium: Browser) -> None:
    """Arrow keys scroll the page, unless a canvas has the focus."""
    show_playground(chromium)
    chromium.run(
        "window.taken = [];"
        " window.addEventListener('keydown', (event) => taken.push(event.defaultPrevented))"
    )
    before = chromium.run("JSON.stringify(state)")
    for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"):
        chromium.press(key)
    assert chromium.run("JSON.stringify(state)") == before
    assert chromium.run("taken") == [False] * 4
    chromium.run("change({ bin: null })")
    chromium.run("find('grid-a').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowRight"):
        chromium.press(key)
    assert text_of(chromium, "bin").startswith("Bin (1, 1): ")
    chromium.press("Escape")
    assert "Point at a bin" in text_of(chromium, "bin")
    chromium.run("find('picture').focus()")
    chromium.press("ArrowRight")
    chromium.press("ArrowDown")
    assert chromium.run("boxNow()") == [73, 8, 175, 121]
    chromium.press("[")
    assert chromium.run("boxNow()[4]") == pytest.approx(np.pi / 36)
    chromium.press("n")
    assert "(2 of 8)" in text_of(chromium, "box")
    assert chromium.run("taken") == [False] * 4 + [True] * 10
    assert chromium.complaints == []


def test_options_are_chosen(chromium: Browser) -> None:
    show_playground(chromium)

    def enter(name: str, value: str) -> None:
        chromium.run(
            f"find({name!r}).value = {value!r}; find({name!r}).dispatchEvent(new Event('change'))"
        )
        frame(chromium)

    enter("scale", "1/4")
    enter("rows", "5")
    enter("sampling", "0")
    chromium.run("change({ a: choiceOf('roipool.roi_align') })")
    frame(chromium)
    for name in ("a-aligned", "a-maximum"):
        chromium.click(*middle(chromium, f"#{name}")[:2])
        frame(chromium)
    assert text_of(chromium, "name-a") == "roipool.roi_align[max, not aligned]"
    chromium.click(*middle(chromium, "#copy")[:2])
    said = text_of(chromium, "call")
    assert "roipool.roi_align(" in said
    features = np.zeros(
        tuple(map(int, re.findall(r"shape \((.*)\)", said)[0].split(","))), np.float32
    )
    names: dict[str, Any] = {"features": features}
    exec(said, names)
    assert names["pooled"].shape == (1, 3, 5, 3)
    assert "aligned=False" in said
    assert "spatial_scale=0.25" in said
    assert chromium.complaints == []


def test_the_address_holds_the_state(chromium: Browser) -> None:
    show_playground(chromium)
    chromium.run(
        "change({ a: choiceOf('caffe.roi_align'), b: choiceOf('mmcv.roi_pool'), bins: [2, 5],"
        " scale: 0.5, sampling: 3, box: 3, bin: [1, 4] }); setBox([1.5, 2.25, 30, 40])"
    )
    chromium.run("new Promise(r => setTimeout(r, 400))")
    before, address = chromium.run("[JSON.stringify(state), location.hash]")
    show(chromium, "page.html", 1300, 900)
    assert chromium.run("JSON.stringify(state)") != before
    chromium.run(f"location.hash = {address!r}")
    frame(chromium)
    assert chromium.run("JSON.stringify(state)") == before
    chromium.run("location.hash = 'first=nobody&bins=9e9x-1&scale=-1&box=77&bin=1,2,3&boxes=1,2;x'")
    frame(chromium)
    assert chromium.complaints == []


def test_many_bins(chromium: Browser) -> None:
    show_playground(chromium)
    chromium.run("change({ bins: [400, 400], bin: [399, 399] })")
    chromium.run("new Promise(r => setTimeout(r, 3000))")
    said = chromium.run("[...document.querySelectorAll('.far')].map((one) => one.textContent)")
    assert all(said)
    assert sum("differs from the second by" in text for text in said) > 5
    assert "400 \u00d7 400 bins" in text_of(chromium, "about")
    assert text_of(chromium, "bin").startswith("Bin (399, 399): first ")
    assert chromium.complaints == []


def test_rounding_errors_are_not_called_differences(chromium: Browser) -> None:
    save_map("map.npy", (1, 10, 12))

    def constant(value: float) -> Any:
        return lambda problem, part: np.full(problem.pooled_shape, value, np.float32)

    systems = {"one:a": constant(1), "nearly:a": constant(1 + 3e-7), "two:a": constant(2)}
    assert main(["compare", "map.npy", "--html", "page.html"], systems=systems) == 0
    show(chromium, "page.html", 1300, 900)
    said = {
        name: (chromium.run(f"change({{ a: choiceOf('{name}:a') }})"), text_of(chromium, "most"))[1]
        for name in ("nearly", "two")
    }
    assert said == {"nearly": "no difference but roundings", "two": "at most 1"}
    assert chromium.complaints == []


def test_a_map_too_large_for_the_page(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows the stored values, and options cannot be changed."""
    monkeypatch.setattr(page_module, "_MAX_MAP", 10)
    assert main(["compare", "--systems", "torchvision.*", "--html", "page.html"]) == 0
    show(chromium, "page.html", 1300, 900)
    assert chromium.run("plans === null && find('x1').disabled")
    assert "click on one" in text_of(chromium, "picture-keys")
    assert "differs most from the second" in text_of(chromium, "why")
    drag(chromium, on_picture(chromium, 100, 60), on_picture(chromium, 110, 40))
    assert chromium.run("JSON.stringify(state.boxes) === JSON.stringify(JSON.parse(start).boxes)")
    assert chromium.complaints == []


def test_a_phone(chromium: Browser) -> None:
    assert main(["compare", "--make", "2x12x16", "--output-size", "3", "--html", "page.html"]) == 0
    show(chromium, "page.html", 360, 780, mobile=True)
    assert chromium.run("document.documentElement.scrollWidth") == 360
    before = chromium.run("boxNow()")
    x, y = on_picture(chromium, *chromium.run("within(boxNow(), 0.5, 0.5)"))
    chromium.swipe(x, x + 30, y)
    frame(chromium)
    after = chromium.run("boxNow()")
    assert after[0] > before[0]
    assert after[1] == pytest.approx(before[1], abs=1 / 32)  # rounded to sixteenths
    chromium.run("find('grid-apart').scrollIntoView({ block: 'center' })")
    x, y, _ = middle(chromium, "#grid-apart")
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        chromium.ask("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    chromium.run("new Promise(r => setTimeout(r, 300))")  # the click follows
    assert text_of(chromium, "bin").startswith("Bin (1, 1): ")
    assert chromium.complaints == []


def test_a_map_of_nan(chromium: Browser) -> None:
    values = np.random.default_rng(0).standard_normal((1, 9, 9))
    values[0, 3, 3] = np.nan
    np.save("map.npy", values)
    assert main(["compare", "map.npy", "--output-size", "2", "--html", "page.html"]) == 0
    show(chromium, "page.html", 1000, 700)
    said = []
    for number in range(chromium.run("data.groups.length")):
        chromium.run(f"change({{ a: data.groups[{number}].choice }})")
        said.append(text_of(chromium, "why"))
    assert any("(NaN)" in text for text in said)
    assert chromium.complaints == []


def test_nothing_is_drawn_without_boxes(chromium: Browser) -> None:
    np.save("boxes.npy", np.zeros((0, 4)))
    assert main(["compare", "--boxes", "boxes.npy", "--html", "page.html"]) == 0
    show(chromium, "page.html", 800, 600)
    assert "no box" in chromium.run("find('why').textContent")
    assert chromium.complaints == []


def test_hostile_texts_stay_texts(chromium: Browser) -> None:
    show(chromium, str(hostile_page()), 1300, 900)
    assert chromium.run("document.title").startswith("roipool compare: <img src=x")
    assert HOSTILE in chromium.run("document.body.textContent")
    assert chromium.run("document.querySelectorAll('img, script').length") == 2  # its own
    assert chromium.complaints == []
