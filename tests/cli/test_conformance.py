"""``roipool verify --implementation``: exit statuses, messages, JUnit, crashes."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from _support.platforms import needs_posix

from roipool.cli import main

pytestmark = pytest.mark.thorough

THEIRS = """
import os, sys, time
import numpy as np
import roipool
from roipool.compat import torchvision

def right(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    print("implementations print")
    return torchvision.roi_align(
        input, boxes, output_size, spatial_scale, sampling_ratio, aligned)

def backward(grad_output, boxes, input_shape, spatial_scale, sampling_ratio, aligned):
    return torchvision.roi_align_backward(
        grad_output, boxes, input_shape, spatial_scale, sampling_ratio, aligned)

def reversed_boxes(grad_output, features, rois, spatial_scale, sampling_ratio, aligned):
    return -roipool.roi_align_backward_rois(
        grad_output, features, rois, spatial_scale, sampling_ratio, aligned=aligned)

def dies(input, boxes, output_size, **options):
    if np.isnan(boxes).any():
        sys.stderr.write("terminate called\\n")
        sys.stderr.flush()
        os._exit(7)
    return right(input, boxes, output_size, **options)

def leaves_a_child(input, boxes, output_size, **options):
    if len(boxes) == 60 and os.fork():
        os._exit(9)
    if len(boxes) == 60:
        time.sleep(60)
    return right(input, boxes, output_size, **options)

def hangs(input, boxes, output_size, **options):
    if len(boxes) == 60:
        time.sleep(600)
    return right(input, boxes, output_size, **options)

number = 3
"""
POOL = ["--implementation", "theirs:right", "--semantics", "torchvision.roi_pool"]
OPTIONS = ["--option", "sampling_ratio=2", "--option", "aligned=True", "--calls", "10"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "theirs.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verify(name: str, *more: str) -> int:
    semantics = ["--semantics", "torchvision.roi_align"]
    return main(["verify", "--implementation", f"theirs:{name}", *semantics, *OPTIONS, *more])


def test_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--backward", "theirs:backward", "--junit", "found.xml"]
    status = verify("right", *files, "--dtype", "float32,float64")
    told = capsys.readouterr()
    assert (status, told.err) == (0, "")
    assert told.out.count(": conforms\n") == 2
    suites = ET.parse(folder / "found.xml").getroot()
    assert [suite.get("name") for suite in suites] == [
        f"theirs:right as torchvision.roi_align, {dtype} on cpu" for dtype in ("float32", "float64")
    ]
    for suite in suites:
        assert len(suite) == int(suite.get("tests", 0)) > 60
        assert suite.get("failures") == "0"
    assert [path.name for path in folder.glob(".roipool*")] == []


def test_a_gradient_of_boxes(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("right", "--backward-boxes", "theirs:reversed_boxes", "--calls", "0") == 1
    told = capsys.readouterr().out
    assert "  box gradient: returns the gradient of boxes with the opposite sign\n" in told
    assert "    checked: pooled values, box gradient; not checked: gradient\n" in told


def test_a_crash_is_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("dies", "--junit", "found.xml") == 1
    told = capsys.readouterr().out
    words = "crashes: the process exits with status 7, after 'terminate called'"
    assert f"  pooled: {words}\n" in told
    assert "NaN and infinite boxes" in told
    assert "what they have in common: non-finite-boxes" in told
    (suite,) = ET.parse(folder / "found.xml").getroot()
    failures = [case for case in suite if case.find("failure") is not None]
    assert len(failures) == int(suite.get("failures", 0)) > 0
    assert failures[0].find("failure").get("message") == words  # type: ignore[union-attr]


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="needs os.waitid")
def test_a_crash_with_a_child_that_holds_the_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("leaves_a_child", "--calls", "0") == 1
    assert "crashes: the process exits with status 9" in capsys.readouterr().out


def test_a_call_that_does_not_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("hangs", "--timeout", "0.5", "--calls", "0") == 1
    assert "  pooled: gives no answer in 0.5 s\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--semantics", "roi_align"], "--semantics needs --implementation"),
        (["--backward-boxes", "x"], "--backward-boxes needs --implementation"),
        (["--implementation", "theirs:right"], "--semantics is missing: one of roipool.roi_pool, "),
        (["--implementation", "theirs:x", "--semantics", "y"], "--semantics: 'y' is not one of "),
        (["--implementation", "theirs:absent"], "theirs:absent cannot be used: 'theirs:absent': "),
        (["--implementation", "theirs:number"], "'theirs:number' is a int, not a function"),
        (["--implementation", "nowhere:x"], "nowhere:x cannot be used: ModuleNotFoundError: "),
        (["--implementation", "theirs"], "is not of the form package.module:function"),
        (["--implementation", "theirs:right", "--backend", "cpu"], "--backend cannot be used with"),
        (["--implementation", "theirs:right", "--python", "absent"], "not be started: absent: "),
        pytest.param(
            ["--implementation", "theirs:right", "--python", "/bin/true"],
            "used: the process exits",
            marks=needs_posix,
        ),
        (["--implementation", "theirs:right", "--option", "x"], "--option must be NAME=VALUE"),
        (
            ["--implementation", "theirs:right", "--option", "aligned=true"],
            "--option: aligned must be a bool, got 'true'",
        ),
        (
            ["--implementation", "theirs:right", "--option", "spatial_scale=x"],
            "--option: spatial_scale must be a real number, got 'x'",
        ),
        (
            ["--implementation", "theirs:right", "--option", "x=1"],
            "roi_align has no option 'x'; it has ",
        ),
        (
            [*POOL, "--backward-boxes", "autograd"],
            "--backward-boxes: torchvision.roi_pool has no gradient of boxes",
        ),
        (["--implementation", "theirs:right", "--dtype", ""], "--dtype: must name at least one"),
        (["--implementation", "theirs:right", "--device", "cuda"], "device must be one of cpu"),
        (["--implementation", "theirs:right", "--tolerances", "absent"], "absent: No such file"),
        (["--implementation", "theirs:right", "--junit", "no/x.xml"], "there is no folder"),
        (["--implementation", "theirs:right", "--timeout", "0"], "'0' is not a number of seconds"),
        (["--implementation", "theirs:right", "--calls", "-1"], "'-1' is not a whole number"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[Any] = list(arguments)
    if len(given) > 2 or given[1] not in ("theirs:right", "roi_align", "x"):
        given += [] if "--semantics" in given else ["--semantics", "torchvision.roi_align"]
    try:
        status = main(["verify", *given])
    except SystemExit as error:
        status = int(error.code or 0)
    told = capsys.readouterr()
    assert (status, told.out) == (2, "")
    (line,) = told.err.splitlines()[-1:]
    assert message in line
