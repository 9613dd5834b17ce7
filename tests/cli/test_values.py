"""`roipool compare --values`: which systems, options and mistakes give some pooled values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support import toy_libraries as toys
from _support.cli_runs import fails, strict_json

import roipool
from roipool import reference
from roipool.cli import main
from roipool.compat import tensorflow
from roipool.systems import Compared
from roipool.tools.compare.engines import ENGINES
from roipool.tools.compare.identify import identify
from roipool.tools.compare.problem import Options, Problem
from roipool.tools.compare.values import Values

pytestmark = pytest.mark.thorough

OPTIONS = Options((3, 4), 0.5, 2)
BOXES = [[0, 8, 4, 40, 37], [1, 21, 9, 52, 30], [1, 3, 5, 33, 50], [0, 17.5, 11, 41, 48.25]]


def problem() -> Problem:
    features = np.random.default_rng(0).standard_normal((2, 2, 30, 45), np.float32)
    return Problem(features, np.array(BOXES, np.float32), OPTIONS)


def aligned(rois: Any, features: Any = None, **options: Any) -> Any:
    """Pool by the oracle, as detectron2 does."""
    features = problem().features if features is None else features
    chosen = {"spatial_scale": 0.5, "sampling_ratio": 2, **options}
    return reference.roi_align(features, rois, (3, 4), **chosen)


def sides_for_corners(rois: Any) -> Any:
    return np.hstack([rois[:, :3], rois[:, 1:3] + rois[:, 3:]])


def crops(divisor: Callable[[int], float], order: list[int]) -> Any:
    """Crop with fractions of some length of each side."""
    height, width = problem().features.shape[2:]
    x1, y1, x2, y2 = (np.array(BOXES, np.float32)[:, 1:] * 0.5).T
    across, down = divisor(width), divisor(height)
    fractions = np.stack([y1 / down, x1 / across, y2 / down, x2 / across], axis=1)[:, order]
    images = np.array(BOXES)[:, 0].astype(int)
    pooled = tensorflow.crop_and_resize(
        problem().features.transpose(0, 2, 3, 1), fractions.astype(np.float32), images, (3, 4)
    )
    return pooled.transpose(0, 3, 1, 2)


def first_image(rois: Any) -> Any:
    return rois * np.float32([0, 1, 1, 1, 1])


ROIS = np.array(BOXES, np.float32)
# The values, and what they come from: a part of the description.
KNOWN: dict[str, tuple[Callable[[], Any], str]] = {
    "as asked": (lambda: aligned(ROIS), "torchvision.roi_align[aligned], "),
    "other ratio": (lambda: aligned(ROIS, sampling_ratio=3), "with sampling_ratio 3"),
    "x and y": (lambda: aligned(ROIS[:, [0, 2, 1, 4, 3]]), "but swaps x and y of boxes"),
    "xywh": (lambda: aligned(sides_for_corners(ROIS)), "as width and height instead of a corner"),
    "scale": (lambda: aligned(ROIS, spatial_scale=0.25), "with spatial_scale 0.25"),
    "no scale": (lambda: aligned(ROIS, spatial_scale=1.0), "with spatial_scale 1"),
    "batch": (lambda: aligned(first_image(ROIS)), "but ignores the batch index"),
    "transposed": (
        lambda: aligned(ROIS).swapaxes(2, 3).reshape(4, 2, 3, 4),
        "but transposes the bins",
    ),
    "channels": (
        lambda: aligned(ROIS, problem().features[:, ::-1]),
        "but reverses the order of the channels",
    ),
    "TensorFlow": (lambda: crops(lambda n: n - 1.0, [0, 1, 2, 3]), "tensorflow.crop_and_resize"),
    "H for H - 1": (lambda: crops(float, [0, 1, 2, 3]), "divides boxes by H and W instead of"),
    "x first": (lambda: crops(lambda n: n - 1.0, [1, 0, 3, 2]), "takes fractions x1, y1, x2, y2"),
    "one rule": (
        lambda: aligned(ROIS, rules=reference.Rules(shift=(0.0, 0.5), centre=0.0)),
        "places samples at the start of their part of the bin",
    ),
    "short reciprocal": (
        lambda: toys.roi_pool("reciprocal one rounding short")(
            problem().features, ROIS, (3, 4), 0.5
        )[0],
        "divides by a reciprocal that is one rounding short",
    ),
    "swapped with three samples": (
        lambda: aligned(ROIS[:, [0, 2, 1, 4, 3]], sampling_ratio=3),
        "with sampling_ratio 3, but swaps x and y",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_it_names_what_gives_the_values(name: str) -> None:
    values, words = KNOWN[name]
    matches, is_equal = identify(problem(), Values(np.asarray(values(), np.float32)))
    assert is_equal
    assert any(words in match.words(OPTIONS) for match in matches)


def test_it_names_the_nearest_of_unknown_values() -> None:
    values = np.asarray(aligned(ROIS), np.float32)
    values[2, 1, 0, 0] += 0.25
    matches, is_equal = identify(problem(), Values(values))
    assert not is_equal
    assert "torchvision.roi_align[aligned]" in matches[0].systems
    assert matches[0].off == pytest.approx(0.25, abs=1e-5)
    assert [match.off for match in matches] == sorted(match.off for match in matches)


def test_many_boxes_and_channels_are_all_compared() -> None:
    rng = np.random.default_rng(1)
    rois = np.hstack([np.zeros((40, 1)), np.tile([[2, 3, 30, 20]], (40, 1))])
    rois[:, 1:] += rng.uniform(0, 5, (40, 4))
    many = Problem(
        rng.standard_normal((1, 9, 30, 40), np.float32), rois.astype(np.float32), OPTIONS
    )
    values = reference.roi_align(many.features, many.rois, (3, 4), 0.5, 2).astype(np.float32)
    assert identify(many, Values(values))[1]
    values[-1, -1, -1, -1] += 1
    assert not identify(many, Values(values))[1]


def test_a_large_map_is_copied_for_each_bin_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Position-sensitive systems are tried with the options given, not with every mistake."""
    monkeypatch.setattr("roipool.tools.compare.identify._MANY_CELLS", 0)
    tried: Counter[str] = Counter()
    on_cpu = ENGINES["cpu"]

    def counted(compared: Compared) -> Any:
        tried[compared.row] += 1
        return on_cpu(compared)

    monkeypatch.setitem(ENGINES, "cpu", counted)
    swapped = np.asarray(aligned(ROIS[:, [0, 2, 1, 4, 3]]), np.float32)
    assert identify(problem(), Values(swapped))[1]
    assert tried["ps_roi_pool"] == 1 < tried["precise_roi_pool"]


# ---- The command


@pytest.fixture
def five() -> list[str]:
    np.save("map.npy", np.arange(25, dtype=np.float32).reshape(5, 5))
    Path("boxes.csv").write_text("0 0 2 2\n")
    return ["compare", "map.npy", "--boxes", "boxes.csv", "--output-size", "2"]


# The report of the numbers 3 4 8 9, where 0 1 5 6 were expected.
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["3", "4", "8", "9"], "torchvision.roi_align, "),
        (["[[3.0000, 4.0000],", "[8.0000, 9.0000]]"], "torchvision.roi_align, "),
        (["0,1,5,6"], "torchvision.roi_align[aligned], "),
        (["0.75", "1.63", "5.13", "6"], "sampling_ratio 2"),
        (["7.5e-1", "0.163E+1", "5.13", "6"], "sampling_ratio 2"),
        (["-3", "1", "5", "6"], "Nearest:"),
    ],
)
def test_numbers_on_the_command_line(
    five: list[str], values: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*five, "--values", *values]) == 0
    printed = capsys.readouterr().out
    assert words in " ".join(printed.split())
    assert all(len(line) <= 80 for line in printed.splitlines())


@pytest.mark.parametrize("name", ["values.npy", "values.txt"])
def test_values_of_a_file(five: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pooled = roipool.roi_align(
        np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5), [[0, 0, 0, 2, 2]], 2, aligned=False
    )
    if name.endswith("npy"):
        np.save(name, pooled[0, 0])
    else:
        np.savetxt(name, pooled[0, 0])
    assert main([*five, "--values", name, "--json", "out.json"]) == 0
    assert "The values 3 4 8 9 are those of:\n   torchvision.roi_align," in capsys.readouterr().out
    content = strict_json("out.json")
    assert content["identified"]["equal"]
    assert content["identified"]["matches"][0]["systems"][0] == "torchvision.roi_align"
    (part,) = content["parts"]
    assert part["reference"] == "values"
    near = {system["name"]: system["to_reference"] for system in part["systems"]}
    assert near["torchvision.roi_align"]["greatest_difference"] == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2", "3"], "--values: 3 numbers, but there are 4 pooled values: 1 box x 1 channel"),
        (["1", "x", "3", "4"], "--values: 'x' is not a number"),
        (["nowhere.npy"], "nowhere.npy"),
        (["boxes.csv"], "boxes.csv: 4 numbers"),
    ],
)
def test_bad_values(
    five: list[str], values: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if values == ["boxes.csv"]:
        five[-1] = "3"
    assert message in fails(capsys, *five[1:], "--values", *values)
