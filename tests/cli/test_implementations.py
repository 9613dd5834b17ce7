"""Implementations of systems: engines, the oracle, installed libraries and users' functions."""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
from _support.cli_runs import FAST, fails, run_program, save_map, strict_json
from _support.platforms import needs_linux, needs_posix

import roipool
from roipool.cli import main
from roipool.tools.compare.engines import ENGINES
from roipool.tools.compare.problem import PARTS, Options, Problem, Unavailable
from roipool.tools.compare.systems import SYSTEMS

SMALL = ["--make", "2x9x11", "--output-size", "2x3"]


# Maxima without a gradient, or whose released gradient does not follow the forward's rules.
WITHOUT_ORACLE = (
    "caffe.roi_align",
    "caffe.roi_pooling",
    "chainer.roi_pooling_2d",
    "megengine.roi_align[max]",
    "megengine.roi_pooling",
    "mmcv.roi_align[max]",
    "mmcv.roi_pool",
    "mxnet.ROIAlign",
    "mxnet.ROIPooling",
    "onnx.MaxRoiPool",
    "onnx.RoiAlign[max]",
    "openvino.ROIPooling",
)


def small_problem() -> Problem:
    rng = np.random.default_rng(0)
    boxes = [[0, 1, 1, 7, 7], [1, 2.5, 1.2, 6.1, 9], [0, -2, -2, 4, 3], [1, 3, 3, 3.2, 3.1]]
    features = rng.standard_normal((2, 2, 9, 11), np.float32)
    return Problem(features, np.array(boxes, np.float32), Options((2, 3), 0.9, 2))


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("part", PARTS)
def test_engine_and_oracle_agree(name: str, part: str) -> None:
    problem = small_problem()
    try:
        expected = ENGINES["oracle"](SYSTEMS[name])(problem, part)
    except Unavailable:
        assert part != "forward"
        assert part == "boxes" or name in WITHOUT_ORACLE
        return
    got = ENGINES["cpu"](SYSTEMS[name])(problem, part)
    assert got.shape == problem.shape_of(part)
    # A few roundings of sums of a dozen terms; a slope of a map times its box's size for boxes.
    np.testing.assert_allclose(got, expected, atol=1e-5 if part != "boxes" else 2e-4)


def test_gradients_of_boxes_are_slopes_in_pixels() -> None:
    """Systems with other forms of boxes return gradients with respect to pixels."""
    problem = small_problem()
    for name in ("roipool.precise_roi_pool", "roipool.roi_align_rotated"):
        system = ENGINES["cpu"](SYSTEMS[name])
        got = system(problem, "boxes")
        for k, number in np.ndindex(got.shape):
            ends = []
            for step in (-1, 1):
                rois = problem.rois.copy()
                rois[k, 1 + number] += np.float32(step * 2e-3)
                moved = Problem(problem.features, rois, problem.options)
                pooled = system(moved, "forward")
                ends.append((pooled * problem.grad).sum(dtype=np.float64))
            slope = (ends[1] - ends[0]) / 4e-3
            assert got[k, number] == pytest.approx(slope, abs=0.02), (name, k, number)


def test_engines_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--systems", "torchvision.*", "--engines", "cpu,oracle", "--json", "out.json"]
    gradients = ["--gradients", "features,boxes", "--systems", "roipool.roi_align,tensorflow"]
    assert main(["compare", *SMALL, *arguments]) == 0
    (part,) = strict_json("out.json")["parts"]
    assert [system["name"] for system in part["systems"][:2]] == [
        "torchvision.roi_pool",
        "torchvision.roi_pool@oracle",
    ]
    assert main(["compare", *SMALL, *arguments, *gradients]) == 0
    parts = strict_json("out.json")["parts"]
    assert [part["part"] for part in parts] == ["forward", "features", "boxes"]
    for part in parts:
        for pair in part["pairs"]:
            assert pair["where"] is not None
    assert "gradient with respect to the boxes" in capsys.readouterr().out


def test_a_gradient_that_nobody_has(capsys: pytest.CaptureFixture[str]) -> None:
    line = fails(capsys, *SMALL, "--systems", "caffe.*", "--gradients", "boxes")
    assert "no selected system has this gradient" in line


def test_a_gradient_that_the_reference_lacks() -> None:
    arguments = ["--systems", "tensorflow.*,roipool.precise*", "--reference", "caffe.roi_align"]
    assert main(["compare", *SMALL, *arguments, "--gradients", "boxes", "--json", "out.json"]) == 0
    references = [part["reference"] for part in strict_json("out.json")["parts"]]
    assert references == ["caffe.roi_align", "tensorflow.crop_and_resize"]


def test_systems_on_a_gpu(gpu: Any) -> None:
    """The emulator replaces a GPU."""
    problem = small_problem()
    for name in ("roipool.roi_align", "torchvision.roi_pool"):
        for part in ("forward", "features"):
            got = ENGINES["cuda"](SYSTEMS[name])(problem, part)
            expected = ENGINES["cpu"](SYSTEMS[name])(problem, part)
            np.testing.assert_allclose(got, expected, atol=1e-5)


def test_the_gpu_is_absent_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    from roipool import _system_info

    if not _system_info.gpu_facts()["no_gpu"]:
        pytest.skip("there is a GPU here")
    arguments = ["compare", *SMALL, "--systems", "torchvision.*", "--engines", "cpu,cuda"]
    assert main(arguments) == 0
    assert "absent: cuda: " in capsys.readouterr().out
    assert main([*arguments, "--rtol", "9", "--atol", "9", "--check"]) == 1
    assert "cuda: did not run" in capsys.readouterr().out


# ---- Users' functions

OWN = """
import roipool
def align(features, rois, output_size, spatial_scale, sampling_ratio):
    features[:] = features * 1  # its own copies
    return roipool.roi_align(features, rois, output_size, spatial_scale, sampling_ratio)
def pool(features, rois, output_size, spatial_scale=1.0):
    return roipool.roi_pool(features, rois, output_size, spatial_scale)
def broken(features, rois, output_size):
    raise KeyError("no such box")
def ending(features, rois, output_size):
    print("noise")
    raise SystemExit(7)
class Module:
    pool = staticmethod(pool)
def other_order(x, boxes, size, sampling_ratio, spatial_scale):
    return roipool.roi_align(x, boxes, size, spatial_scale, sampling_ratio)
def other_names(x, boxes, size, spatial_scale, ratio=0):
    return roipool.roi_align(x, boxes, size, spatial_scale, ratio)
def keywords(x, boxes, size, *, spatial_scale, sampling_ratio):
    return roipool.roi_align(x, boxes, size, spatial_scale, sampling_ratio)
def any_number(*arguments):
    return roipool.roi_align(*arguments)
def in_place(x, boxes, size, scale, ratio, /):
    boxes[:, 1:] *= scale
    return list(roipool.roi_align(x, boxes, size, 1, ratio))
number = 3
"""


ALIGNS = ("align", "other_order", "other_names", "keywords", "any_number", "in_place")
POOLS = ("pool", "Module.pool")


@pytest.mark.parametrize("form", ["own_{}.py:", "own_{}:"])
def test_functions(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("own_1.py").write_text(OWN)
    place = form.format(1)
    own = [f"--implementation={place}{name}" for name in (*ALIGNS, *POOLS, "broken", "ending")]
    systems = ["--systems", "roipool.roi_align,roipool.roi_pool"]
    options = ["--spatial-scale", "0.5", "--sampling-ratio", "3", "--json", "out.json"]
    assert main(["compare", *SMALL, *systems, *own, *options]) == 0
    (part,) = strict_json("out.json")["parts"]
    assert part["groups"] == {
        "A": ["roipool.roi_align", *(f"{place}{name}" for name in ALIGNS)],
        "B": ["roipool.roi_pool", *(f"{place}{name}" for name in POOLS)],
    }
    out, err = capfd.readouterr()
    assert f"{place}broken did not run: raises KeyError: 'no such box'" in out
    assert f"{place}ending did not run: crashes: the process exits with status 7" in out
    assert "noise" not in out
    assert "noise" in err
    check = [f"--implementation={place}align", "--reference", f"{place}align", "--check"]
    assert main(["compare", *SMALL, "--systems", "mmcv.roi_align", *check]) == 0


def test_only_what_is_named_is_imported_from_the_current_folder() -> None:
    """Only the named file takes precedence over installed modules."""
    for name in filter(importlib.util.find_spec, ("rich", "matplotlib", "decimal")):
        Path(f"{name}.py").write_text("raise ImportError('of this folder')")
    Path("neighbour.py").write_text("import roipool\nalign = roipool.roi_align\n")
    Path("wave.py").write_text("from neighbour import align\n")  # as one of the standard library
    own = ["--implementation", "wave:align", "--systems", "roipool.roi_align"]
    run = run_program("compare", *SMALL, *own)
    assert (run.returncode, run.stderr) == (0, "")
    assert "wave:align" in run.stdout
    for name in ("wave:align", "wave.py:align"):
        own = ["--implementation", name, "--semantics", "roi_align", "--calls", "2"]
        assert run_program("verify", *own).returncode == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not of the form package.module:function or path/to/file.py:function"),
        (":f", "is not of the form package.module:function"),
        ("no_such_module:f", "ModuleNotFoundError: No module named"),
        ("missing.py:f", "cannot be used: there is no file "),
        ("math:no_such", "math has no 'no_such'"),
        ("math:pi", "not a function"),
        ("this_exits.py:f", "SystemExit"),
    ],
)
def test_bad_functions(
    text: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a new file is a failure here
    Path("this_exits.py").write_text("raise SystemExit(7)")
    assert message in fails(capsys, "--implementation", text)


RAW = """
from roipool.compat import torchvision

def operator(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    size = (pooled_height, pooled_width)
    return torchvision.roi_align(input, rois, size, spatial_scale, sampling_ratio, aligned)
"""


def test_a_raw_operator_gets_its_wrapper(capsys: pytest.CaptureFixture[str]) -> None:
    Path("raw.py").write_text(RAW)
    said = fails(capsys, "--implementation", "raw.py:operator")
    assert "takes pooled_height and pooled_width, as raw operators do" in said
    (wrapper,) = re.findall("`(.*)`", said)
    Path("raw.py").write_text(f"{RAW}\n{wrapper}\n")
    own = ["--implementation", "raw.py:wrapper", "--systems", "torchvision.roi_align"]
    assert main(["compare", *SMALL, *own, "--check", "--reference", "torchvision.roi_align"]) == 0


# ---- Installed libraries, in other interpreters


def worker(
    *,
    dies: bool = False,
    greedy: bool = False,
    hangs: bool = False,
    lacks: str = "",
    says: str = "",
) -> str:
    """Return an interpreter that serves roipool under the name of any library."""
    paths = f"{Path(roipool.__file__).parents[1]}:{Path(harness.__file__).parents[1]}"
    Path("driver.py").write_text(
        "import os, sys\n"
        "from roipool.tools.libraries import LIBRARIES, Absent, server\n"
        "from harness.ours import Roipool\n"
        "class Stub(Roipool):\n"
        "    version = 'stub 1.0'\n"
        "    def __init__(self, *arguments):\n"
        f"        if {lacks!r}: raise Absent({lacks!r})\n"
        "        super().__init__(*arguments)\n"
        "    def prepare(self, task):\n"
        f"        if {greedy}:\n"
        "            import numpy\n"
        "            there = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')\n"
        "            numpy.empty(there * 6 // 10, 'u1')\n"  # which is not touched
        f"        while {hangs}: pass\n"
        f"        if {dies} and task.operation == 'roi_pool': os._exit(3)\n"
        "        return super().prepare(task)\n"
        "LIBRARIES.update(dict.fromkeys(LIBRARIES, Stub))\n"
        "server.serve()\n"
    )
    program = Path("other-python").resolve()
    greeting = f"echo '{says}'\n" if says else ""
    program.write_text(
        f'#!/bin/sh\n{greeting}PYTHONPATH="{paths}" exec "{sys.executable}" driver.py\n'
    )
    program.chmod(0o755)
    return str(program)


pytestmark = [needs_posix, pytest.mark.thorough]


ALIGN = ["--systems", "torchvision.roi_align*"]


def script(text: str) -> str:
    """Return a shell script."""
    program = Path("other-python").resolve()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def ask(name: str, python: str, *arguments: str) -> int:
    programs = ["--implementations", name, "--implementation-python", f"{name}={python}"]
    return main(["compare", *SMALL, *programs, *arguments, "--json", "out.json"])


@pytest.mark.parametrize("name", ["torchvision", "tensorflow", "paddle", "onnxruntime"])
def test_programs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Boxes are unsorted, and maps have either layout; results have the input's order."""
    rois = np.array([[1, 1, 1, 7, 7], [0, 2, 1, 6, 9], [1, -2, -2, 4, 3], [0, 3, 3, 5, 4]])
    np.save("boxes.npy", rois)
    np.save("map.npy", np.random.default_rng(0).standard_normal((2, 2, 9, 11)))
    programs = ["--implementations", name, "--implementation-python", f"{name}={worker()}"]
    arguments = ["map.npy", "--boxes", "boxes.npy", "--output-size", "2", "--gradients", "features"]
    assert main(["compare", *arguments, *programs, "--json", "out.json"]) == 0
    content = strict_json("out.json")
    assert content["programs"] == {name: "stub 1.0"}
    checked = 0
    for part in content["parts"]:
        group = {one["name"]: one.get("group") for one in part["systems"]}
        pairs = {frozenset((one["group"], one["against"])): one for one in part["pairs"]}
        for system, letter in group.items():
            inside = system.removesuffix(f"@{name}")
            if inside == system or letter is None or group.get(inside) in (None, letter):
                checked += inside != system and letter is not None
                continue
            # Rounding determines TensorFlow's last sample; roipool's own is exactly at the end.
            pair = pairs[frozenset((letter, group[inside]))]
            assert pair["greatest_difference"] < 1e-5
            checked += 1
    assert checked >= 2
    assert "; stub 1.0\n" in capsys.readouterr().out


def test_verify_takes_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    """A stand-in that computes the same as roipool conforms, forward and backward."""
    few = ["--calls", "3", "--without", "empty-arrays,huge-boxes,adaptive-sampling"]
    asked = ["verify", "--implementation", "paddle", "--python", worker(), *few]
    semantics = ["--semantics", "torchvision.roi_align", "--backward", "autograd"]
    assert main([*asked, *semantics]) == 0
    assert "paddle as torchvision.roi_align, float32 on cpu: conforms" in capsys.readouterr().out
    for more, message in (
        (["--semantics", "caffe.roi_align"], "paddle has no caffe.roi_align"),
        (["--semantics", "roi_align"], "paddle lacks some options of roipool's roi_align"),
        (["--semantics", "tensorflow.crop_and_resize"], "paddle has no tensorflow.crop_and_res"),
        (["--semantics", "torchvision.roi_pool", "--dtype", "bfloat16"], "takes no bfloat16"),
        ([*semantics, "--arrays", "torch"], "paddle takes arrays 'numpy'"),
    ):
        assert main([*asked, *more]) == 2
        assert message in capsys.readouterr().err


def test_a_program_that_ends_its_process() -> None:
    assert ask("torchvision", worker(dies=True), "--systems", "torchvision.*") == 0
    (part,) = strict_json("out.json")["parts"]
    results = {system["name"]: system["error"] for system in part["systems"]}
    assert results["torchvision.roi_pool@torchvision"] == "the process exits with status 3"
    assert results["torchvision.roi_align@torchvision"] is None  # by a new one


def test_an_environment_that_prints_when_it_starts() -> None:
    """A line of at least eight characters was once taken for the length of a message."""
    assert ask("torchvision", worker(says="Welcome to this environment!"), *ALIGN) == 0
    assert strict_json("out.json")["programs"] == {"torchvision": "stub 1.0"}


def test_an_environment_that_prints_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("torchvision", script("while :; do echo yes; done"), *ALIGN) == 0
    assert "absent: torchvision: cannot be understood: it prints" in capsys.readouterr().out


def test_an_environment_that_hangs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roipool.tools.libraries.process.GREETING_SECONDS", 0.5)
    assert ask("torchvision", script("exec sleep 600"), *ALIGN) == 0
    assert "absent: torchvision: gives no answer in 0.5 s" in capsys.readouterr().out


def test_a_program_that_hangs() -> None:
    assert ask("torchvision", worker(hangs=True), *ALIGN, "--timeout", "0.5") == 0
    (part,) = strict_json("out.json")["parts"]
    errors = {one["name"]: one["error"] for one in part["systems"]}
    assert errors["torchvision.roi_align@torchvision"] == "gives no answer in 0.5 s"
    assert errors["torchvision.roi_align"] is None


@pytest.mark.parametrize(
    "answer",
    ["{not json", "[1, 2]", "[" * 20_000 + "]" * 20_000, '{"array": 7}', "{}", "\\377"],
    ids=["no JSON", "a list", "deep", "no array", "no version", "no UTF-8"],
)
def test_a_program_that_answers_nonsense(answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    size = "".join(f"\\{byte:03o}" for byte in struct.pack("<Q", len(answer.replace("\\377", "?"))))
    greeting = r"\000roipool serves\000"
    text = script(f"printf '{greeting}{size}'; printf '{answer}'; exec sleep 600")
    assert ask("torchvision", text, *ALIGN) == 0
    assert "absent: torchvision: cannot be understood: " in capsys.readouterr().out


@needs_linux
def test_termination_ends_programs() -> None:
    """Otherwise a hanging process would outlive the command, and block readers of its output."""
    python = ["--implementation-python", f"torchvision={worker(hangs=True)}"]
    command = ["-m", "roipool", "compare", *SMALL, *ALIGN, "--implementations", "torchvision"]
    with subprocess.Popen([sys.executable, "-P", *command, *python]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (started := children.read_text().split()):
            time.sleep(0.05)
        time.sleep(1.0)  # into the call
        process.terminate()
        assert process.wait() == 143
    assert not any(Path("/proc", child).exists() for child in started)


@needs_linux
def test_a_program_that_wants_all_memory() -> None:
    assert ask("torchvision", worker(greedy=True), "--systems", "torchvision.*") == 0
    (part,) = strict_json("out.json")["parts"]
    errors = [one["error"] for one in part["systems"] if one["name"].endswith("@torchvision")]
    assert len(errors) == 3
    assert all("Unable to allocate" in error for error in errors)


def test_absent_programs(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--systems", "mxnet.*"]
    assert ask("mxnet", worker(lacks="is too old"), *few) == 0
    assert "absent: mxnet: is too old\n" in capsys.readouterr().out
    assert strict_json("out.json")["absent"] == {"mxnet": "is too old"}
    assert ask("paddle", "/no/such/python", *few) == 0
    assert "absent: paddle: could not be started" in capsys.readouterr().out
    assert ask("mxnet", worker(lacks="is too old"), *few, "--check") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--implementations", "caffe"],
        ["--implementations", ","],
        ["--implementation-python", "torchvision=/bin/python"],
        ["--implementation-python", "torchvision"],
        ["--engines", "tpu"],
        ["--gradients", "angles"],
        ["--implementation-arrays", "lists"],
        ["--implementation", "math:sin", "--arrays", "cupy"],
        ["--implementation", "math:sin", "--python", "/no/such/python"],
        ["--implementation", "math:sin", "--gradients", "boxes", "--systems", "caffe.*"],
        ["--make", "8x8"],
        ["--make", "0x8x8"],
        ["--make", "99999x99999x99999"],
        ["--make", "1x8x8", "map.npy"],
        ["--systems", "tensorflow.*", "--reference", "nobody"],
        ["--box-format", "corners"],
        ["--normalized"],
        ["--timeout", "0"],
        ["--timeout", "soon"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    save_map()
    fails(capsys, *arguments)


def test_completion() -> None:
    pytest.importorskip("shtab")
    run = run_program("--print-completion", "bash")
    assert (run.returncode, run.stderr) == (0, "")
    assert "--implementations" in run.stdout
    assert run_program("compare", *FAST, "--print-completion").returncode == 2
