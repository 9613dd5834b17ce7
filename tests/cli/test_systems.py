"""The selection of systems, the comparison of their outputs, and the check of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.cli_runs import fails, strict_json
from _support.platforms import needs_matplotlib

from roipool._definitions import OPS
from roipool.cli import main
from roipool.tools.compare.patterns import choose
from roipool.tools.compare.problem import Compute, Problem
from roipool.tools.compare.systems import SYSTEMS

pytest.importorskip("PIL")


def answering(**outputs: Any) -> dict[str, Compute]:
    """Make systems that return the given number everywhere, or an array, or raise an error."""

    def system(value: Any) -> Compute:
        def call(problem: Problem, part: str) -> Any:
            if isinstance(value, Exception):
                raise value
            return np.broadcast_to(np.float32(value), problem.pooled_shape)

        return call

    return {name: system(value) for name, value in outputs.items()}


def compare(systems: dict[str, Compute], *arguments: str) -> int:
    return main(["compare", *arguments], systems=systems)


def test_every_operation_is_a_system() -> None:
    missing = {name for name in OPS if f"roipool.{name}" not in SYSTEMS}
    assert not missing


def test_choosing_systems() -> None:
    assert choose(None, SYSTEMS) == list(SYSTEMS)
    assert choose("torchvision.roi_align", SYSTEMS) == ["torchvision.roi_align"]
    assert choose("torchvision.roi_align[aligned]", SYSTEMS) == ["torchvision.roi_align[aligned]"]
    assert choose("tensor, DETECTRON2.ROIAlign,tensorflow.crop_and_resize", SYSTEMS) == [
        "tensorflow.crop_and_resize",
        "detectron2.ROIAlign",
    ]
    assert choose("torchvision.*", SYSTEMS) == [
        name for name in SYSTEMS if name.startswith("torchvision.")
    ]
    assert choose("*[max]", SYSTEMS) == [name for name in SYSTEMS if name.endswith("[max]")]


@pytest.mark.thorough
def test_systems_of_one_definition_share_a_group() -> None:
    assert main(["compare", "--json", "out.json"]) == 0
    (content,) = strict_json("out.json")["parts"]
    together = {frozenset(members) for members in content["groups"].values()}
    whole_pixels = {"roipool.roi_pool", "caffe.roi_pooling", "mxnet.ROIPooling"}
    assert any(whole_pixels <= members for members in together)
    assert any({"roipool.roi_align", "detectron2.ROIAlign"} <= members for members in together)
    assert content["reference"] == "roipool.roi_align"


@needs_matplotlib
def test_a_system_that_refuses_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    systems = answering(one=1, moody=ValueError("not\ntoday"), broken=KeyError("bug"))
    assert compare(systems, "--json", "out.json", "--save", "figure.png") == 0
    out = capsys.readouterr().out
    assert "moody did not run: not today\n" in out
    assert "broken did not run: KeyError: 'bug'\n" in out
    (part,) = strict_json("out.json")["parts"]
    assert part["systems"][1] == {"name": "moody", "error": "not today", "lacks": False}
    assert compare(systems, "--check") == 1
    assert "moody: did not run" in capsys.readouterr().out


def test_bad_when_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    systems = answering(one=1, moody=ValueError("no"), wrong=np.ones((9, 9, 9, 9)))
    line = fails(capsys, "--systems", "moody,wrong", "--json", "out.json", systems=systems)
    assert "moody: no" in line
    line = fails(capsys, "--systems", "one", "--reference", "moody", systems=systems)
    assert "does not accept" in line


@pytest.mark.parametrize(
    ("other", "status"),
    [(1.0, 0), (1.000001, 0), (1.1, 1), (np.nan, 1), (np.inf, 1)],
)
def test_check(other: float, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    systems = answering(one=1, other=other)
    arguments = ["--systems", "other", "--reference", "one", "--json", "out.json"]
    assert compare(systems, *arguments, "--check") == status
    out = capsys.readouterr().out
    assert ("check passed" in out) == (status == 0)
    assert ("  other: greatest |diff|" in out) == (status == 1)
    (part,) = strict_json("out.json")["parts"]
    entry = part["systems"][1]
    assert (entry["name"], part["reference"]) == ("other", "one")
    assert entry["to_reference"]["within_tolerance"] == (status == 0)
    assert compare(systems, *arguments, "--check", "--atol", "1") == (
        0 if np.isfinite(other) else 1
    )
    assert compare(systems, *arguments) == 0


@needs_matplotlib
def test_equal_nans_and_infinities_are_no_difference() -> None:
    systems = answering(a=np.nan, b=-np.float32(np.nan), c=np.inf)
    assert compare(systems, "--systems", "a,b", "--check", "--json", "out.json") == 0
    (content,) = strict_json("out.json")["parts"]
    assert content["groups"] == {"A": ["a", "b"]}
    assert content["systems"][0]["min"] is None
    assert compare(systems, "--systems", "a,c", "--check", "--save", "figure.png") == 1


def test_only_the_sign_of_zero(capsys: pytest.CaptureFixture[str]) -> None:
    systems = answering(plus=0.0, minus=-0.0)
    assert compare(systems, "--check", "--details") == 0
    assert "only signs of zeros" in capsys.readouterr().out
    assert compare(systems) == 0
    assert "   same  minus\n" in capsys.readouterr().out


def test_wide_numbers_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    systems = answering(a_system_with_the_longest_name=-1.23e-6, b=-4.56e7)
    assert compare(systems, "--details") == 0
    out = capsys.readouterr().out
    assert "a_system_with_the_longest_name" in out
    assert "-1.23e-6" in out
    assert max(map(len, out.splitlines())) <= 80


def test_more_groups_than_letters() -> None:
    systems = answering(**{f"system{number}": number for number in range(30)})
    assert compare(systems, "--output-size", "1", "--json", "out.json") == 0
    assert list(strict_json("out.json")["parts"][0]["groups"])[25:28] == ["Z", "AA", "AB"]
