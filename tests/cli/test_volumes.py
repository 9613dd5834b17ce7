"""`roipool compare` on volumes: input, engines, reasons, outputs and rejected input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.cli_runs import complains, given_to_a_system, strict_json
from _support.platforms import needs_matplotlib
from _support.sources import SOURCES

import roipool
from roipool.cli import main
from roipool.systems import RULES, shown_name
from roipool.systems import SYSTEMS as ROWS
from roipool.tools.compare import slices
from roipool.tools.compare.engines import ENGINES
from roipool.tools.compare.evaluation import BinOnMap, pooled_value
from roipool.tools.compare.inputs import FeatureMap
from roipool.tools.compare.problem import PARTS, Options, Problem, Unavailable
from roipool.tools.compare.reasons import explain
from roipool.tools.compare.systems import LISTED, VOLUME_SYSTEMS

Image = pytest.importorskip("PIL.Image")

# x1, y1, z1, x2, y2, z2: ordinary, over the edge, smaller than a cell, empty, reversed, far away.
BOXES = [
    [1, 1, 1, 7, 6, 4],
    [-2.5, 4, 3.2, 5, 9.5, 8],
    [4.2, 4.1, 2.2, 4.6, 4.8, 2.5],
    [2, 2, 2, 2, 2, 2],
    [7, 6, 4, 1, 1, 1],
    [20, 20, 20, 30, 30, 30],
    [np.nan, 1, 1, 3, 3, 3],
    [1, 1, 1, 3, 3, np.inf],
]
OPTIONS = [Options((2, 3, 2)), Options((1, 2, 4), 0.8, 2)]


def problem_of(options: Options, boxes: Any = BOXES) -> Problem:
    """Return random volumes of two images, and boxes of both."""
    features = np.random.default_rng(3).standard_normal((2, 2, 5, 8, 9), np.float32)
    rois = np.column_stack([np.arange(len(boxes)) % 2, boxes]).astype(np.float32)
    return Problem(features, rois, options)


def compare(*arguments: str) -> int:
    return main(["compare", *arguments])


# ---- Systems


def test_every_system_of_volumes_is_offered() -> None:
    """Classes compute what the function of their framework does."""
    functions = {
        shown_name(name)
        for name, row in ROWS.items()
        if row.is_volume and not row.forward.endswith(".forward")
    }
    assert set(VOLUME_SYSTEMS) == functions, (
        "no comparison: add `compared` to the row in roipool/systems/FRAMEWORK.py"
    )
    assert not functions & {*LISTED}


def test_the_default_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--volume") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(name in out for name in VOLUME_SYSTEMS)
    assert "built-in volume, volume 1 x 1 x 20 x 48 x 48; 8 boxes" in out
    assert "averages, measured against roipool.roi_align_3d\n" in out
    assert "medicaldetectiontoolkit.roi_align_3d, medvision.roi_align_3d: no shift" in out
    assert "pictures: --save FILE" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_documentation_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (SOURCES / "docs" / "compare.md").read_text(encoding="utf-8")
    (command, printed), *_ = re.findall(
        r"^```\nroipool compare (--volume[^\n]*)\n```\n+```text\n(.*?)^```$", page, re.M | re.S
    )
    assert compare(*command.split()) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("name", VOLUME_SYSTEMS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("options", OPTIONS)
def test_engine_and_oracle_agree(name: str, part: str, options: Options) -> None:
    problem = problem_of(options, BOXES[:6])
    try:
        expected = ENGINES["oracle"](VOLUME_SYSTEMS[name])(problem, part)
    except Unavailable:
        assert part == "boxes"
        assert name != "roipool.roi_align_3d"
        return
    got = ENGINES["cpu"](VOLUME_SYSTEMS[name])(problem, part)
    assert got.shape == problem.shape_of(part)
    np.testing.assert_allclose(got, expected, atol=1e-5 if part != "boxes" else 2e-4)


def test_systems_on_a_gpu(gpu: Any) -> None:
    """The emulator replaces a GPU."""
    problem = problem_of(Options((2, 3, 2)), BOXES[:6])
    for name, row in VOLUME_SYSTEMS.items():
        for part in ("forward", "features"):
            got = ENGINES["cuda"](row)(problem, part)
            expected = ENGINES["cpu"](row)(problem, part)
            np.testing.assert_allclose(got, expected, atol=1e-5, err_msg=name)


def test_a_volume_without_planes() -> None:
    features = np.ones((1, 2, 0, 4, 5), np.float32)
    problem = Problem(features, np.zeros((3, 7), np.float32), Options((2, 2, 2)))
    system = ENGINES["cpu"](VOLUME_SYSTEMS["roipool.roi_align_3d"])
    assert not system(problem, "forward").any()
    assert system(problem, "features").shape == features.shape


# ---- Input


@pytest.mark.parametrize(
    ("shape", "arguments", "expected"),
    [
        ((5, 8, 9), ["--volume"], (1, 1, 5, 8, 9)),
        ((2, 5, 8, 9), ["--volume"], (1, 2, 5, 8, 9)),
        ((3, 2, 5, 8, 9), ["--volume"], (3, 2, 5, 8, 9)),
        ((3, 2, 5, 8, 9), [], (3, 2, 5, 8, 9)),
        ((2, 5, 8, 9), [], (2, 5, 8, 9)),
    ],
)
def test_volumes(shape: tuple[int, ...], arguments: list[str], expected: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save("volume.npy", values)
    seen = given_to_a_system("volume.npy", *arguments, "--spatial-scale", "1/2")
    assert np.array_equal(seen.features, values.reshape(expected))
    assert seen.is_volume == (len(expected) == 5)
    if seen.is_volume:
        assert seen.rois.shape == (28, 7)  # the whole, and 3 x 3 x 3 parts
        assert seen.rois[0].tolist() == [0, 0, 0, 0, 18, 16, 10]  # in voxels of the image
        assert seen.rois[1].tolist() == pytest.approx([0, 0, 0, 0, 6, 16 / 3, 10 / 3])
        assert seen.rois[2].tolist() == pytest.approx([0, 6, 0, 0, 12, 16 / 3, 10 / 3])
        assert seen.rois[-1].tolist() == pytest.approx([0, 12, 32 / 3, 20 / 3, 18, 16, 10])


def test_a_made_volume() -> None:
    seen = given_to_a_system("--make", "2x4x6x8", "--spatial-scale", "0.5")
    assert seen.features.shape == (1, 2, 4, 6, 8)
    assert seen.rois[2].tolist() == [0, 0, 0, 0, 16, 12, 8]
    assert (seen.rois[:, 4:] < seen.rois[:, 1:4]).any()  # reversed


@pytest.mark.parametrize("scale", ["1", "0.5"])
def test_the_built_in_boxes_are_around_the_balls(scale: str) -> None:
    seen = given_to_a_system("--volume", "--spatial-scale", scale)
    pooled = roipool.roi_align_3d(seen.features, seen.rois, 3, float(scale))
    inside = pooled[:4, 0, 1, 1, 1]
    assert (inside > 0.9).all()
    assert (pooled[:4, 0, 0, 0, 0] < 0.3).all()


def test_columns_in_any_order() -> None:
    Path("boxes.csv").write_text("zmax,label,x1,y1,z1,batch,x2,y2\n4,nodule,2,3,1,0,8,7\n")
    Path("boxes.json").write_text('[{"z1": 1, "y1": 3, "x1": 2, "zmax": 4, "y2": 7, "x2": 8}]')
    for path in ("boxes.csv", "boxes.json"):
        given = given_to_a_system("--make", "1x5x8x10", "--boxes", path)
        assert given.rois.tolist() == [[0, 2, 3, 1, 8, 7, 4]]


@pytest.mark.parametrize(
    ("size", "bins"), [([], (7, 7, 7)), (["3"], (3, 3, 3)), (["2x3x4"], (2, 3, 4))]
)
def test_output_sizes(size: list[str], bins: tuple[int, int, int]) -> None:
    arguments = ["--output-size", *size] if size else []
    assert given_to_a_system("--volume", *arguments).options.output_size == bins


REJECTED = {
    "--html: the page cannot show volumes": ["--volume", "--html", "page.html"],
    "--html: the page": ["five.npy", "--html", "page.html"],
    "no installed library pools volumes": ["--volume", "--implementations", "torchvision"],
    "torchvision.roi_al* pools maps": ["--volume", "--systems", "medvision,torchvision.roi_al*"],
    "roipool.roi_pool pools maps": ["--volume", "--reference", "roipool.roi_pool"],
    "medvision.roi_align_3d pools volumes": ["--systems", "medvision.roi_align_3d@oracle"],
    "--volume needs shape (D, H, W)": ["flat.npy", "--volume"],
    "or of a volume (N, C, D, H, W)": ["six.npy"],
    "photo.png: a volume is an array": ["photo.png", "--volume"],
    "--make 4x5x6: a volume is CxDxHxW": ["--volume", "--make", "4x5x6"],
    "--output-size 7x7: of a volume it is 7 or 7x7x7": ["--volume", "--output-size", "7x7"],
    "--output-size 7x7x7: of a map it is 7 or 7x7": ["--output-size", "7x7x7"],
    "6 columns, but boxes have 4 numbers": ["--boxes", "six.csv"],
    "for boxes of a volume, give --volume": ["--boxes", "seven.csv"],
    "needs shape (K, 4) or (K, 5), but it is (1, 7)": ["--boxes", "seven.npy"],
    "heading: has z1 and z2, but a map has no depth": ["--boxes", "named.csv"],
    "box 1: has z1 and z2": ["--boxes", "named.json"],
    "--box-format xyzxyz: built-in picture": ["--boxes", "six.csv", "--box-format", "xyzxyz"],
    "is a volume: give xyzxyz, zyxzyx": ["--volume", "--boxes", "six.csv", "--box-format", "xyxy"],
    "give xyzxyz": ["--volume", "--boxes", "six.csv", "--box-format", "cxcywha"],
    "5 columns, but boxes have 6 numbers x1, y1, z1": ["--volume", "--boxes", "five.csv"],
    "8 columns": ["--volume", "--boxes", "eight.csv"],
    "the batch index is -1": ["--volume", "--boxes", "minus.csv"],
    "'bbox' is a box of a picture": ["--volume", "--boxes", "coco.json"],
    "describe a file: give --boxes": ["--volume", "--box-format", "zyxzyx"],
    "--gradients boxes: no selected": ["--volume", "--gradients", "boxes", "--systems", "med*"],
}


@pytest.mark.parametrize("message", REJECTED)
def test_bad_input(
    message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, before any work."""
    monkeypatch.setattr("roipool.tools.compare.command.compare", None)
    for name, dimensions in {"flat": 2, "five": 5, "six": 6}.items():
        np.save(f"{name}.npy", np.ones((1,) * dimensions))
    np.save("seven.npy", np.ones((1, 7)))
    numbers = {"five": "1,2,3,4,5", "six": "1,2,3,4,5,6", "seven": "0,1,2,3,4,5,6"}
    numbers |= {"eight": "0,1,2,3,4,5,6,7", "minus": "-1,1,2,3,4,5,6"}
    numbers |= {"named": "x1,y1,z1,x2,y2,z2\n1,2,3,4,5,6"}
    for name, text in numbers.items():
        Path(f"{name}.csv").write_text(f"{text}\n")
    box = {"x1": 1, "y1": 2, "z1": 3, "x2": 4, "y2": 5, "z2": 6}
    Path("named.json").write_text(json.dumps([box]))
    Path("coco.json").write_text('{"annotations": [{"bbox": [1, 2, 3, 4]}]}')
    assert message in complains(capsys, "compare", *REJECTED[message])


# ---- Reasons


@pytest.mark.parametrize("name", VOLUME_SYSTEMS)
@pytest.mark.parametrize("options", OPTIONS)
def test_rules_give_what_engines_compute(name: str, options: Options) -> None:
    problem = problem_of(options)
    got = ENGINES["cpu"](VOLUME_SYSTEMS[name])(problem, "forward")
    for at in np.ndindex(got.shape):
        k, channel, *number = at
        image = problem.features[int(problem.rois[k, 0]), channel]
        place = BinOnMap(image, problem.rois[k, 1:], tuple(number), options)
        assert pooled_value(RULES[name], place) == pytest.approx(float(got[at]), abs=1e-5), at


@pytest.mark.parametrize(
    ("box", "rule", "words"),
    [
        (
            [1, 1, 1, 7, 6, 4],
            "shift",
            "does not move the box by half a cell, x from 0.5 to 1",
        ),
        (
            [4.2, 4.1, 2.2, 4.6, 4.8, 2.5],
            "minimum",
            "makes the box at least one cell long: 0.4 x 0.7 x 0.3 becomes 1 x 1 x 1",
        ),
    ],
)
def test_the_rule_that_differs_is_named(box: list[float], rule: str, words: str) -> None:
    problem = problem_of(Options((2, 2, 2)), [box])
    names = "medvision.roi_align_3d", "roipool.roi_align_3d"
    one, other = (ENGINES["cpu"](VOLUME_SYSTEMS[name])(problem, "forward") for name in names)
    at = tuple(int(i) for i in np.unravel_index(np.abs(one - other).argmax(), one.shape))
    verdict = explain(problem, "forward", names, at, (one, other))
    assert (rule, words) in [(reason.rule, reason.words) for reason in verdict.reasons]
    total = sum(reason.change for reason in verdict.reasons)
    assert total == pytest.approx(float(one[at] - other[at]), rel=0.02)
    (back,) = (
        reason.words
        for reason in explain(problem, "forward", names[::-1], at, (other, one)).reasons
        if reason.rule == "shift"
    )
    assert back.startswith("moves the box by half a cell up, left and towards plane 0, x from")


# ---- Outputs


RAW = """
import roipool

def operator(features, rois, out_h, out_w, out_d, spatial_scale=1.0, sampling_ratio=0):
    size = (out_d, out_h, out_w)
    return roipool.roi_align_3d(features, rois, size, spatial_scale, sampling_ratio, aligned=False)
"""


def test_a_raw_operator_gets_a_wrapper_with_its_depth(capsys: pytest.CaptureFixture[str]) -> None:
    Path("raw.py").write_text(RAW)
    own = ["--volume", "--systems", "medvision.roi_align_3d", "--output-size", "2x3x4", "--check"]
    said = complains(capsys, "compare", *own, "--implementation", "raw.py:operator")
    assert "takes out_d, out_h and out_w, as raw operators do" in said
    (wrapper,) = re.findall("`(.*)`", said)
    Path("raw.py").write_text(f"{RAW}\n{wrapper}\n")
    named = ["--implementation", "raw.py:wrapper", "--reference", "medvision.roi_align_3d"]
    assert compare(*own, *named) == 0


def test_gradients_and_engines() -> None:
    options = ["--output-size", "2x3x2", "--gradients", "features,boxes"]
    engines = ["--engines", "cpu,oracle", "--details", "--json", "out.json"]
    assert compare("--make", "2x4x6x8", *options, *engines) == 0
    content = strict_json("out.json")
    assert content["input"]["features_shape"] == [1, 2, 4, 6, 8]
    assert content["options"]["output_size"] == [2, 3, 2]
    forward, features, boxes = content["parts"]
    names = [f"{name}{engine}" for name in VOLUME_SYSTEMS for engine in ("", "@oracle")]
    for part in (forward, features):
        assert [system["name"] for system in part["systems"]] == names
        assert not any(system["error"] for system in part["systems"])
    assert set(forward["pairs"][0]["where"]) == {"box", "channel", "plane", "row", "column"}
    assert set(features["pairs"][0]["where"]) == {"image", "channel", "plane", "row", "column"}
    assert {system["name"] for system in boxes["systems"] if not system["error"]} == {
        "roipool.roi_align_3d",
        "roipool.roi_align_3d@oracle",
    }
    assert boxes["pairs"][0]["where"]["coordinate"] in ("x1", "y1", "z1", "x2", "y2", "z2")


@needs_matplotlib
@pytest.mark.parametrize(
    "text", ["1,1,1,6,6,3\n0,0,0,0,0,0\n1,1,9,3,3,12\n", "nan,1,1,2,2,2\n", ""]
)
def test_figure(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("boxes.csv").write_text(text)
    arguments = ["--make", "2x4x8x10", "--boxes", "boxes.csv", "--output-size", "2x3x4"]
    assert compare(*arguments, "--save", "figure.png") == 0
    assert capsys.readouterr().err == ""
    with Image.open("figure.png") as figure:
        assert min(figure.size) > 500
        assert len(np.unique(np.asarray(figure.convert("L")))) > 50


@needs_matplotlib
def test_the_figure_shows_planes_in_the_middle() -> None:
    from roipool.tools.compare.canvas import View

    values = np.arange(2 * 5 * 6 * 7, dtype=np.float32).reshape(1, 2, 5, 6, 7)
    features = FeatureMap("volume", values, (14.0, 12.0, 10.0))
    rois = np.array(
        [[0, 1, 1, 3, 4, 5, 6], [0, 1, 1, 8, 4, 5, 2], [0, 1, 1, 20, 4, 5, 30]], np.float32
    )
    assert [slices.middle_plane(roi, features) for roi in rois] == [2, 2, 4]
    assert slices.are_crossing(rois, features, 2).tolist() == [True, True, False]
    assert slices.are_crossing(rois, features, 3).tolist() == [False, True, False]
    assert slices.flattened(rois, features)[0].tolist() == [0, 1, 1, 4, 5]
    np.testing.assert_array_equal(slices.middle_bins(values[0], features), values[0, :, 2])
    view = View(features, 0, 1, 2)
    np.testing.assert_array_equal(view.pixels, values[0, 1, 2])
    assert (view.low, view.high) == (values[0, 1].min(), values[0, 1].max())
    assert view.what == "Channel 1 of 0 to 1, plane 2 of 0 to 4"
