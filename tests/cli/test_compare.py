"""The command-line program: options, outputs and failures."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.cli_runs import (
    FAST,
    fails,
    given_to_a_system,
    names_here,
    one_line,
    run_program,
    save_map,
    strict_json,
)
from _support.platforms import needs_links, needs_matplotlib, needs_posix
from _support.run_python import NOT_INSTALLED, run_python

from roipool._addresses import install
from roipool.cli import main
from roipool.systems import RULES
from roipool.tools.alternatives import alternative
from roipool.tools.compare.patterns import choose
from roipool.tools.compare.systems import LISTED, SYSTEMS

Image = pytest.importorskip("PIL.Image")


def test_default_run_compares_every_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(name in out for name in LISTED)
    assert "did not run" not in out
    assert "\x1b" not in out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 25
    (line,) = (line for line in lines if "tensorflow.crop_and_resize" in line)
    assert re.match(r" +\d\.\d+  tensorflow.crop_and_resize: one sample", line)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], ((7, 7), 1.0, 0)),
        (["--output-size", "3x5", "--sampling-ratio", "2"], ((3, 5), 1.0, 2)),
        (["--spatial-scale", "1/16", "--sampling-ratio", "-1"], ((7, 7), 0.0625, 0)),
    ],
)
def test_options(arguments: list[str], options: Any) -> None:
    given = given_to_a_system(*arguments).options
    assert (given.output_size, given.spatial_scale, given.sampling_ratio) == options


@pytest.mark.parametrize(
    "arguments",
    [
        ["--systems", "torch.roi_align"],
        ["--systems", "nothing*"],
        ["--systems", ","],
        ["--systems", "mmcv"],
        ["--reference", "mmcv*"],
        ["--output-size", "0"],
        ["--output-size", "7x7x7"],
        ["--output-size", "big"],
        ["--spatial-scale", "0"],
        ["--spatial-scale", "nan"],
        ["--spatial-scale", "1/0"],
        ["--sampling-ratio", "1.5"],
        ["--rtol", "-1"],
        ["--atol", "inf"],
        ["--check", "--systems", "roipool.roi_pool"],
        ["--json", "missing/out.json"],
        ["--save", "missing/figure.png"],
        ["--save", "figure.bmp"],
        ["--json", "same.png", "--save", "same.png"],
        ["--json", "."],
        ["--no-such-option"],
        ["one.png", "two.png"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, *arguments)


def test_an_output_must_not_replace_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(save_map()).read_bytes()
    assert "would overwrite the input" in fails(capsys, "map.npy", "--json", "map.npy")
    assert Path("map.npy").read_bytes() == before


def test_a_message_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in fails(capsys, "two\nlines\x1b[31m.png")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "package", "extra", "arguments"),
    [
        ("PIL", "Pillow", "cli", []),
        ("matplotlib", "matplotlib", "pictures", ["--save", "a.png"]),
    ],
)
def test_missing_packages(module: str, package: str, extra: str, arguments: list[str]) -> None:
    code = f"from roipool.cli import main; exit(main({['compare', *FAST, *arguments]}))"
    run = run_python(code, modules={module: NOT_INSTALLED})
    assert f"needs {package}, which is not installed: {install(extra)}" in one_line(run)
    assert run.stdout == ""
    assert names_here() == []


# Outputs


def test_json_holds_everything() -> None:
    assert main(["compare", "--systems", "torchvision.*", "--json", "out.json"]) == 0
    content = strict_json("out.json")
    assert set(content["versions"]) >= {"roipool", "numpy", "python"}
    assert content["input"]["boxes_count"] == 8
    assert content["options"]["output_size"] == [7, 7]
    (part,) = content["parts"]
    assert part["part"] == "forward"
    names = [system["name"] for system in part["systems"]]
    assert names == choose("torchvision.*", SYSTEMS)
    for system in part["systems"]:
        assert system["seconds"] > 0
        assert system["min"] <= system["mean"] <= system["max"]
    letters = list(part["groups"])
    pairs = {frozenset((pair["group"], pair["against"])) for pair in part["pairs"]}
    assert pairs == {frozenset((a, b)) for a in letters for b in letters if a != b}
    for pair in part["pairs"]:
        assert pair["greatest_difference"] >= pair["mean_difference"]
        assert pair["greatest_ulps"] > 0
        one, other = pair["values"]
        assert abs(one - other) == pytest.approx(pair["greatest_difference"], rel=1e-6)
        assert [reason["rule"] for reason in pair["reasons"]]


def described() -> Any:
    """Return a function that checks a document against the published schema."""
    jsonschema = pytest.importorskip("jsonschema")
    path = Path(__file__).parents[2] / "docs" / "compare.schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--make", "2x9x11", "--gradients", "features,boxes", "--engines", "cpu,cuda"],
        ["--systems", "roipool.roi_pool"],
        ["nan.npy", "--output-size", "2"],
        ["--boxes", "turned.csv", "--box-format", "cxcywha", "--gradients", "boxes"],
        ["--volume", "--gradients", "features,boxes", "--engines", "cpu,cuda"],
    ],
)
def test_json_is_as_documented(arguments: list[str]) -> None:
    np.save("nan.npy", np.full((4, 5), np.nan))
    Path("turned.csv").write_text("60,60,40,30,0.5\n90,80,20,50,-1\n")
    checker = described()
    assert main(["compare", *arguments, "--json", "out.json"]) == 0
    content = strict_json("out.json")
    checker.validate(content)
    content["parts"][0]["systems"][0]["nonsense"] = 1
    assert not checker.is_valid(content)


def test_json_in_place_of_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *FAST, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["reference"] == "roipool.roi_pool"
    assert names_here() == []


@pytest.mark.parametrize("image", [None, "map.npy"])
@pytest.mark.thorough
def test_figure(image: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    save_map()
    for name in ("figure.png", "figure.pdf", "figure.SVG"):
        arguments = ["compare", *FAST, "--save", name]
        assert main(arguments if image is None else [*arguments, image]) == 0
    assert capsys.readouterr().err == ""
    with Image.open("figure.png") as figure:
        figure.load()
        assert figure.format == "PNG"
        assert min(figure.size) > 500
        assert len(np.unique(np.asarray(figure.convert("L")))) > 50
    assert Path("figure.pdf").read_bytes().startswith(b"%PDF")
    assert b"<svg" in Path("figure.SVG").read_bytes()


@pytest.mark.thorough
def test_figure_needs_no_pyplot() -> None:
    code = (
        "import sys; from roipool.cli import main; s = main(sys.argv[1:]);"
        "sys.exit(s or 'matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, "compare", *FAST, "--save", "figure.png"])
    assert run.returncode == 0


@needs_matplotlib
def test_an_empty_map_cannot_be_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to draw" in fails(capsys, save_map(shape=(1, 0, 4)), "--save", "figure.png")


@needs_links
def test_outputs_replace_and_get_usual_permissions() -> None:
    Path("plain").touch()
    Path("old.json").write_text("old")
    Path("link.json").symlink_to("old.json")
    assert main(["compare", *FAST, "--json", "link.json"]) == 0
    assert Path("link.json").is_symlink()
    assert strict_json("old.json")
    assert Path("old.json").stat().st_mode == Path("plain").stat().st_mode
    assert names_here() == ["link.json", "old.json", "plain"]


@needs_posix
def test_devices_are_not_replaced() -> None:
    assert main(["compare", *FAST, "--json", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


# The program


def test_python_m_roipool() -> None:
    run = run_program("compare", *FAST)
    assert (run.returncode, run.stderr) == (0, "")
    assert "torchvision.roi_pool" in run.stdout
    run = run_program("compare", "missing.png")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "roipool: error: missing.png: No such file or directory\n"


def test_output_in_ascii() -> None:
    Path("caf\u00e9.npy").write_bytes(Path(save_map()).read_bytes())
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    run = run_program("compare", *FAST, "caf\u00e9.npy", env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert "caf\\xe9.npy" in run.stdout


def test_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    assert main(["compare", "--json", "out.json"], systems={"slow": interrupt}) == 130
    assert capsys.readouterr() == ("", "")
    assert names_here() == []


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_help_and_version(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument]) == 0
    assert re.match(r"roipool \d|usage: roipool", capsys.readouterr().out)


def test_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compete"]) == 2
    assert main(["compare", "--engines", "cpu,oracel"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 2)
    assert "did you mean compare?" in err
    assert "did you mean oracle?" in err


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: roipool")


def test_mistyped_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean torchvision.*?" in fails(capsys, "--systems", "torchvsion.*")
    assert "did you mean mxnet.ROIPooling or" in fails(capsys, "--systems", "mxnet.ROIPoling")
    assert "choose from roipool.roi_pool" in fails(capsys, "--systems", "something_else")


SLIPS = {
    "a stride of 16 is 1/16": (["--spatial-scale", "16"], "1,2,3,4\n"),
    "fractions need --normalized": ([], "0.1,0.2,0.3,1\n0,0,0.5,0.5\n"),
    "height - 1 and width - 1: --box-format tensorflow": (
        ["--normalized", "--systems", "mmcv.roi_align,tensorflow.*"],
        "0.1,0.2,0.3,1\n",
    ),
}


@pytest.mark.parametrize("hint", SLIPS)
def test_what_looks_like_a_slip_is_noted(hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, boxes = SLIPS[hint]
    Path("boxes.csv").write_text(boxes)
    given = ["compare", save_map(), "--boxes", "boxes.csv", "--systems", "mmcv.roi_align"]
    assert main([*given, *arguments]) == 0
    assert hint in " ".join(capsys.readouterr().out.split())
    for fine, text in (([], "1,2,3,4\n"), (["--normalized"], "0.1,0.2,0.3,1\n")):
        Path("boxes.csv").write_text(text)
        assert main([*given, *fine]) == 0
        assert "note:" not in capsys.readouterr().out


# ---- A check without a comparison does not pass


def test_no_boxes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("boxes.csv").write_text("")
    given = [save_map(), "--boxes", "boxes.csv", "--systems", "torchvision.*"]
    assert "no boxes, so nothing was compared" in fails(capsys, *given, "--check")
    assert main(["compare", *given]) == 0
    assert "There are no boxes: nothing is compared." in capsys.readouterr().out


def test_one_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", save_map(), "--systems", "mmcv.roi_align"]) == 0
    out = capsys.readouterr().out
    assert "Only mmcv.roi_align ran: nothing is compared." in out
    assert "equal" not in out


def test_a_gradient_that_nobody_has_is_an_error_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roipool.tools.compare.command.compare", None)
    given = ["--systems", "torchvision.roi_pool,mmcv.roi_pool", "--gradients", "features,boxes"]
    assert "--gradients boxes: no selected" in fails(capsys, save_map(), *given)


# ---- The summary


@pytest.mark.thorough
def test_averages_and_maxima_have_references_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    systems = ["--systems", "torchvision.*,mmcv.roi_pool,mxnet.ROIPooling"]
    assert main(["compare", *systems]) == 0
    out = capsys.readouterr().out
    averages, maxima = out.split("maxima, measured against torchvision.roi_pool\n")
    assert "averages, measured against torchvision.roi_align\n" in averages
    assert "torchvision.roi_align[aligned]: a shift of half a cell" in averages
    assert "   same  mxnet.ROIPooling\n" in maxima
    assert "mmcv.roi_pool: the box is not rounded" in maxima
    assert main(["compare", *systems, "--reference", "torchvision.roi_align"]) == 0
    out = capsys.readouterr().out
    assert "systems, measured against torchvision.roi_align\n" in out
    assert "maxima" not in out


def test_roundings_are_no_differences(capsys: pytest.CaptureFixture[str]) -> None:
    systems = ["--systems", "roipool.roi_align,roipool.roi_align_rotated"]
    assert main(["compare", *systems]) == 0
    assert "   same  roipool.roi_align_rotated\n" in capsys.readouterr().out


def test_every_rule_has_few_words() -> None:
    for first, second in itertools.combinations(RULES.values(), 2):
        for field in set(first.differing(second)) - {"empty"}:
            for rules in (first, second):
                known = alternative(field, getattr(rules, field))
                assert known is not None
                assert known.brief


def test_every_rule_that_differs_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """They are ordered by the number of bins that each changes: not those of the worst bin only."""
    systems = ["--systems", "torchvision.roi_pool,mmcv.roi_pool"]
    options = ["--spatial-scale", "1/16", "--make", "2x45x80"]
    assert main(["compare", *systems, *options, "--reference", "torchvision.roi_pool"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "mmcv.roi_pool: a pixel is added to the box, not a cell, the box is not rounded, "
        "small boxes stay as they are"
    ) in printed
