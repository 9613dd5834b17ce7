"""``roipool bench``: workloads, calls, turns, verdicts, outputs and complaints."""

from __future__ import annotations

import ast
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.cli_runs import complains, names_here, strict_json
from _support.platforms import needs_posix

import roipool
from roipool import reference
from roipool.cli import main
from roipool.cli.bench.agreement import agreement
from roipool.cli.bench.command import measure
from roipool.cli.bench.ours import Roipool
from roipool.cli.bench.workloads import WORKLOADS, choose, task_of
from roipool.tools import libraries
from roipool.tools.libraries import LIBRARIES, Level, Library, Task, prepared

ONE = ["bench", "--workload", "one-box", "--repeat", "1"]

pytestmark = pytest.mark.usefixtures("same_threads_after")


class Stub(Roipool):
    """Answers as roipool does, plus an offset."""

    modules = ("numpy",)
    offset = 0.0

    def arrays(self, task: Task, results: Any) -> Any:
        return [result + result.dtype.type(self.offset) for result in results]


class Refusing(Library):
    """Refuses everything that it is asked to do."""

    modules = ("numpy",)

    def level(self, task: Task, level: Level) -> Any:
        raise RuntimeError("no kernel\nfor this")


def rows_of(*arguments: str, **tables: Any) -> list[dict[str, Any]]:
    assert main([*arguments, "--json", "out.json"], **tables) == 0
    rows: list[dict[str, Any]] = strict_json("out.json")["rows"]
    return rows


# Workloads


def test_choosing_workloads() -> None:
    assert choose("*", WORKLOADS) == list(WORKLOADS)
    assert choose("VGG16, *-head", WORKLOADS) == ["vgg16", "box-head", "mask-head"]
    for text in ("", "box-head,", "w9"):
        with pytest.raises(ValueError, match="there is no workload"):
            choose(text, WORKLOADS)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("backward", [False, True])
def test_workloads_run(name: str, backward: bool) -> None:
    task = task_of(WORKLOADS[name]._replace(boxes=3, channels=2), backward)
    (level,) = task.levels
    (result,) = prepared(Roipool(1), task)()
    pooled = (3, *task.output_size, 2) if task.layout == "NHWC" else (3, 2, *task.output_size)
    assert result.shape == (level.features.shape if backward else pooled)
    assert result.dtype == np.float32
    assert np.count_nonzero(result) > 0


@pytest.mark.parametrize("name", ["box-head", "vgg16", "crops"])
def test_boxes_are_of_the_sizes_of_a_detector(name: str) -> None:
    workload = WORKLOADS[name]._replace(boxes=1000, channels=1)
    (level,) = task_of(workload, False).levels
    (again,) = task_of(workload, False).levels
    assert np.array_equal(level.rois, again.rois)
    limit = np.array(workload.size[::-1] * 2) * workload.stride
    boxes = level.rois[:, 1:]
    if workload.operation == "crop_and_resize":
        boxes = boxes[:, [1, 0, 3, 2]] * limit
    assert np.all(boxes >= 0)
    assert np.all(boxes <= limit * (1 + 1e-6))
    side = np.percentile(np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)), [10, 50, 90])
    assert np.all(side >= [20, 56, 135])
    assert np.all(side <= [38, 78, 290])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("operation", "mode", "sampling", "aligned"),
    [
        ("roi_align", "avg", 0, True),
        ("roi_align", "avg", 3, False),
        ("roi_align", "max", 2, True),
        ("roi_pool", "avg", 0, True),
        ("crop_and_resize", "avg", 0, True),
    ],
)
def test_our_call_is_what_the_task_says(
    operation: str, mode: str, sampling: int, aligned: bool, backward: bool, layout: str
) -> None:
    """Against the oracle, called with every argument spelled out."""
    rng = np.random.default_rng(0)
    shape = (2, 9, 11, 3) if layout == "NHWC" else (2, 3, 9, 11)
    pooled = (4, 2, 4, 3) if layout == "NHWC" else (4, 3, 2, 4)
    x = rng.standard_normal(shape, np.float32)
    grad = rng.standard_normal(pooled, np.float32)
    corners = np.sort(rng.uniform(0, 18, (4, 2, 2)), axis=1).reshape(4, 4)
    if operation == "crop_and_resize":
        corners /= 20
    rois = np.concatenate([[[0], [0], [1], [1]], corners], axis=1).astype(np.float32)
    levels = [Level(x, rois, grad, 0.5)]
    task = Task(operation, backward, mode, False, (2, 4), sampling, aligned, layout, levels)
    (found,) = prepared(Roipool(roipool.get_num_threads()), task)()

    more: dict[str, Any] = {"layout": layout}
    if operation == "crop_and_resize":
        boxes, images = rois[:, 1:], rois[:, 0].astype(int)
        expected = reference.crop_and_resize(x, boxes, images, (2, 4), **more)
        if backward:
            expected = reference.crop_and_resize_backward(grad, boxes, images, shape, **more)
    elif operation == "roi_pool":
        expected, argmax = reference.roi_pool(x, rois, (2, 4), 0.5, return_argmax=True, **more)
        if backward:
            expected = reference.roi_pool_backward(grad, argmax, rois, shape, **more)
    else:
        more |= {"mode": mode, "aligned": aligned}
        expected = reference.roi_align(x, rois, (2, 4), 0.5, sampling, **more)
        if backward:
            if mode == "max":
                argmax = {"return_argmax": True}
                more["argmax"] = reference.roi_align(
                    x, rois, (2, 4), 0.5, sampling, **more, **argmax
                )[1]
            expected = reference.roi_align_backward(grad, rois, shape, 0.5, sampling, **more)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# Turns and verdicts


def test_turns_alternate() -> None:
    turns: list[str] = []

    class Noting(Stub):
        def __init__(self, name: str) -> None:
            self.name = name

        def prepare(self, task: Task) -> Any:
            call = super().prepare(task)
            return lambda: turns.append(self.name) or call()

    rows = measure(WORKLOADS["one-box"], False, Noting("a"), {"b": Noting("b")}, 3)
    # Each is prepared and warmed up before the three turns; for the verdict `a` runs once more.
    assert "".join(name for name, _ in itertools.groupby(turns)) == "ab" * 5
    assert [row.library for row in rows] == ["roipool", "b"]
    assert [len(row.seconds) for row in rows] == [3, 3]
    assert min(row.median for row in rows) > 0


def test_numbers_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(*ONE, "--repeat", "2", "--threads", "1", libraries={"stub": Stub})
    assert [(row["operation"], row["library"]) for row in rows] == [
        (operation, library)
        for operation in ("roi_align", "roi_align_backward")
        for library in ("roipool", "stub")
    ]
    for ours, row in zip(rows[::2], rows[1::2], strict=True):
        assert (ours["ratio"], ours["agrees"]) == (1, None)
        assert row["ratio"] == row["median"] / ours["median"]
        assert (row["agrees"], row["greatest_difference"]) == (True, 0)
        assert len(row["seconds"]) == 2
    content = strict_json("out.json")
    assert content["threads"] == 1
    assert content["machine"]["roipool"] == roipool.__version__
    assert content["versions"] == {"stub": f"numpy {np.__version__}"}
    out, err = capsys.readouterr()
    assert err == ""
    heading, first, second = out.splitlines()[-3:]
    assert heading.split() == ["workload", "operation", "roipool", "stub"]
    assert first.split()[:2] == ["one-box", "roi_align"]
    assert second.split()[:2] == ["one-box", "roi_align_backward"]
    assert first.endswith("x")
    assert len({len(line) for line in (heading, first, second)}) == 1


@pytest.mark.parametrize(("difference", "agrees"), [(1e-7, True), (0.1, False)])
def test_disagreement_is_said(
    difference: float, agrees: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shifted(Stub):
        offset = difference

    rows = rows_of(*ONE, libraries={"stub": Shifted})
    assert {row["agrees"] for row in rows if row["library"] == "stub"} == {agrees}
    out = capsys.readouterr().out
    assert ("x*" in out) is not agrees
    assert ("* stub, one-box, roi_align: 100 % of the values differ" in out) is not agrees


def test_comparison_of_awkward_values() -> None:
    nan, inf = np.nan, np.inf
    one = [np.array([1.0, nan, 4.0, 0.0]), np.zeros(0)]
    same = agreement(one, one)
    assert (same.greatest, same.holds, same.limit) == (0, True, 4e-12)
    other = [np.array([1.0, nan, nan, 0.0]), np.zeros(0)]
    apart = agreement(one, other)
    assert (apart.greatest, apart.beyond, apart.holds) == (inf, 0.25, False)
    half = [np.array([1, 2], np.float16)]
    assert agreement(half, [np.array([1, 2.001], np.float32)]).holds
    with pytest.raises(ValueError, match=r"shape \(1,\), not \(2,\)"):
        agreement(half, [np.zeros(1, np.float32)])


def test_a_library_that_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(*ONE, libraries={"stub": Stub, "refusing": Refusing})
    assert [row["absent"] for row in rows] == [
        None, None, "refuses this: RuntimeError: no kernel",
    ] * 2  # fmt: skip
    assert rows[2]["median"] is None
    out = capsys.readouterr().out
    assert out.count("- refusing refuses this: RuntimeError: no kernel") == 1


def test_libraries_that_are_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    class Missing(Library):
        modules = ("no_such_module_anywhere",)

        def __init__(self, threads: int, device: str = "cpu") -> None:
            raise ModuleNotFoundError("No module named 'no_such_module_anywhere'")

    libraries = {"stub": Stub, "missing": Missing}

    def taking_part(*arguments: str) -> set[str]:
        return {row["library"] for row in rows_of(*ONE, *arguments, libraries=libraries)}

    assert taking_part() == {"roipool", "stub"}
    assert "missing" not in capsys.readouterr().out
    assert taking_part("--libraries", "missing") == {"roipool"}
    assert "missing is not installed (ModuleNotFoundError" in capsys.readouterr().out
    assert taking_part("--libraries", "none") == {"roipool"}
    assert '".[peers]"' in capsys.readouterr().out
    assert main(["bench", "--list"], libraries=libraries) == 0
    assert capsys.readouterr().out.endswith("installed here: stub\nnot installed: missing\n")


def test_every_library_that_is_installed_agrees() -> None:
    rows = rows_of("bench", "--workload", "few-boxes,one-box", "--repeat", "1")
    assert [row for row in rows if row["agrees"] is False] == []


def test_roipool_itself_runs_out_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    giant = WORKLOADS["one-box"]._replace(channels=10**9, size=(10**4, 10**4))
    assert main(["bench"], libraries={}, workloads={"giant": giant}) == 2
    err = capsys.readouterr().err
    assert err.startswith("roipool: error: ")
    assert err.count("\n") == 1


# What is written


def test_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE, "--libraries", "none", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["workload"] == "one-box"
    assert names_here() == []


def test_json_of_what_was_measured_outlives_a_failure() -> None:
    giant = WORKLOADS["one-box"]._replace(channels=10**9, size=(10**4, 10**4))
    workloads = {"one-box": WORKLOADS["one-box"], "giant": giant}
    options = ["--repeat", "1", "--json", "out.json"]
    assert main(["bench", *options], libraries={}, workloads=workloads) == 2
    rows = strict_json("out.json")["rows"]
    assert [row["operation"] for row in rows] == ["roi_align", "roi_align_backward"]
    assert names_here() == ["out.json"]


@needs_posix
def test_a_pipe_gets_one_json() -> None:
    """What is no file is written once, at the end: a second text would follow the first."""
    os.mkfifo("pipe")
    with os.fdopen(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)) as reader:  # holds it all
        assert main([*ONE, "--libraries", "none", "--json", "pipe"]) == 0
        assert len(json.loads(reader.read())["rows"]) == 2


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(WORKLOADS)]] == list(WORKLOADS)
    listed = ", ".join(lines[-2:]).replace("installed here: ", "").replace("not installed: ", "")
    assert set(LIBRARIES) <= set(listed.split(", "))


def test_a_reader_may_stop_early() -> None:
    program = [sys.executable, "-m", "roipool", *ONE, "--libraries", "none"]
    process = subprocess.Popen(
        [*program, "--json", "out.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0
    assert len(strict_json("out.json")["rows"]) == 2


def test_the_number_of_threads_stays() -> None:
    roipool.set_num_threads(2)
    assert main([*ONE, "--libraries", "none", "--threads", "1"]) == 0
    assert roipool.get_num_threads() == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "W9"],
        ["--workload", ","],
        ["--libraries", "caffe"],
        ["--libraries", ""],
        ["--threads", "0"],
        ["--threads", "two"],
        ["--threads", "9999"],
        ["--repeat", "0"],
        ["--repeat", "1.5"],
        ["--json", "missing/out.json"],
        ["--json", "."],
        ["--no-such-option"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    complains(capsys, *ONE, *arguments)


def test_the_libraries_need_little_elsewhere() -> None:
    """Their package runs in the environments of old libraries, without roipool."""
    names = set()
    for path in Path(libraries.__file__).parent.glob("*.py"):
        if path.name in ("process.py", "client.py"):  # they start the others
            continue
        for node in ast.parse(path.read_text(), feature_version=(3, 8)).body:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module or "")
    needed = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert needed == {"numpy"}


def test_the_program_starts_without_the_benchmark() -> None:
    code = (
        "import sys; from roipool.cli import main; main(['--version']);"
        "sys.exit(any(m.startswith('roipool.cli.bench.') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    assert names_here() == []
