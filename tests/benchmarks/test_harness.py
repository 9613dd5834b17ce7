"""The benchmark harness: turns, verdicts, outputs and errors."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import bench
import numpy as np
import pytest
from _support.cli_runs import names_here, strict_json
from _support.platforms import needs_posix
from _support.run_python import NOT_INSTALLED, run_python
from harness import floor, measure, ours
from harness.devices import Cpu, Cuda, Device
from harness.workloads import WORKLOADS, changed, task_of

import roipool
from roipool.tools.libraries import LIBRARIES as PEERS
from roipool.tools.libraries import Absent, InstalledLibrary, Task
from roipool.tools.libraries.protocol import receive, send
from roipool.tools.libraries.task import as_message
from roipool.tools.libraries.task import task_of as task_of_message

TINY = ["--boxes", "3", "--channels", "2", "--repeat", "2"]
ONE = [*TINY, "--workload", "W4a", "--ops", "roi_pool"]

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("same_threads_after")]


class Here(Cpu):
    """The CPU, with small buffers for the measurement of its memory."""

    def bandwidth(self, threads: int) -> float:
        return floor.memory_bandwidth(threads, 1 << 16)


def run_bench(
    *arguments: str,
    stub: type[InstalledLibrary] | None = None,
    device: Callable[[str], Device] = lambda backend: Here(),
) -> int:
    """Run the program with a stub as an additional library."""
    return bench.main(arguments, PEERS if stub is None else {**PEERS, "stub": stub}, device)


class Stub(InstalledLibrary):
    """A library that returns roipool's results plus an offset."""

    modules = ("numpy",)
    operations = ("roi_align", "roi_pool", "crop_and_resize")
    layouts = ("NCHW", "NHWC")
    offset = 0.0
    remarks: ClassVar[dict[str, str]] = {"float32": "it adds something"}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self.threads = threads

    def prepare(self, task: Task) -> Any:
        return ours.prepare(task)

    def arrays(self, task: Task, results: Any) -> Any:
        return [result + result.dtype.type(self.offset) for result in results]


def complains(capsys: pytest.CaptureFixture[str], *arguments: str, **options: Any) -> str:
    """Run the program, expect an error and no new file, and return the message."""
    before = names_here()
    with pytest.raises(SystemExit) as stopped:
        run_bench(*arguments, **options)
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert names_here() == before
    message: str = err.rpartition("bench.py: error: ")[2]
    assert message.count("\n") == 1
    return message


def rows_of(*arguments: str, **options: Any) -> list[dict[str, Any]]:
    assert run_bench(*arguments, "--json", "out.json", **options) == 0
    rows: list[dict[str, Any]] = strict_json("out.json")["rows"]
    return rows


# Turns and verdicts


def test_turns_alternate() -> None:
    turns: list[tuple[str, int]] = []
    times = {"roipool": iter([9.0, 0.25, 2.0, 0.5]), "stub": iter([9.0, 1.0, 1.5, 7.0])}
    calls: list[str] = []

    class Noting(Stub):
        def prepare(self, task: Task) -> Any:
            call = super().prepare(task)
            return lambda: [calls.append("stub"), *call()][1:]

    class Clock(Here):
        def __init__(self) -> None:
            self.clocks = {"wall": self.seconds}

        def seconds(self, call: Any, repeats: int) -> float:
            del calls[:]
            call()
            turns.append((calls[0] if calls else "roipool", roipool.get_num_threads()))
            return next(times[turns[-1][0]])

    options = ["--peers", "stub", "--repeat", "3", "--threads", "3"]
    first, second = rows_of(*ONE, *options, stub=Noting, device=lambda backend: Clock())
    # One more than requested, to warm up.
    assert turns == [("roipool", 3), ("stub", 3)] * 4
    assert (first["library"], first["seconds"]) == ("roipool", [0.25, 2, 0.5])
    assert (second["library"], second["seconds"]) == ("stub", [1, 1.5, 7])
    assert (first["median"], first["ratio"], first["quartiles"]) == (0.5, 1, [0.375, 1.25])
    assert (second["median"], second["ratio"]) == (1.5, 3)
    assert first["times_floor"] == pytest.approx(0.5 / first["floor"])
    assert first["floor"] == pytest.approx(first["compulsory_bytes"] / first["bandwidth"])


def test_short_calls_are_repeated() -> None:
    settled = iter([0.001, 0.002])
    case_rows = [measure.Row("a"), measure.Row("b", absent="not there")]
    a = SimpleNamespace(seconds=lambda clock, repeats: next(settled))
    assert len(list(measure._rounds([a, a], case_rows, None, 1))) == 1  # type: ignore[list-item, arg-type]
    assert (case_rows[0].calls, case_rows[0].seconds) == (50, [0.002])
    assert case_rows[1].absent == "not there"


@pytest.mark.parametrize(("offset", "agrees"), [(0.0, True), (1e-7, True), (0.1, False)])
def test_disagreement_is_said(
    offset: float, agrees: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    adding = type("Adding", (Stub,), {"offset": offset})
    _, row = rows_of(*ONE, "--peers", "stub", stub=adding)
    assert row["agreement"]["agrees"] is agrees
    assert row["agreement"]["greatest_difference"] == pytest.approx(offset, abs=2e-7)
    assert row["agreement"]["share_beyond"] == (0 if agrees else 1)
    out = capsys.readouterr().out
    assert ("100 % differ by more than" in out) is not agrees
    assert (", up to 0.1: it adds something" in out) is not agrees


def test_peers_that_drop_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Refusing(Stub):
        def prepare(self, task: Task) -> Any:
            raise RuntimeError("no kernel\nfor this")

    _, row = rows_of(*ONE, "--peers", "stub", stub=Refusing)
    assert row["absent"] == "refuses this: RuntimeError: no kernel"
    assert "stub         absent: refuses this" in capsys.readouterr().out


def test_peers_that_drop_out_later() -> None:
    class Vanishing(Stub):
        def prepare(self, task: Task) -> Any:
            calls = iter([super().prepare(task)] * 3)  # to prepare, to compare, to warm up

            def call() -> Any:
                if (computing := next(calls, None)) is None:
                    raise Absent("its process ended")
                return computing()

            return call

    _, row = rows_of(*ONE, "--peers", "stub", stub=Vanishing)
    assert row["absent"] == "its process ended"


def test_results_so_far_are_written() -> None:
    class Ending(Stub):
        def prepare(self, task: Task) -> Any:
            if task.backward:
                raise KeyboardInterrupt
            return super().prepare(task)

    operations = [*TINY, "--workload", "W4a", "--ops", "roi_pool,roi_pool_backward"]
    with pytest.raises(KeyboardInterrupt):
        run_bench(*operations, "--peers", "stub", "--json", "out.json", stub=Ending)
    rows = strict_json("out.json")["rows"]
    assert {row["operation"] for row in rows} == {"roi_pool"}
    assert [row["library"] for row in rows] == ["roipool", "stub"]


def test_another_shape_is_no_result() -> None:
    class Shortening(Stub):
        def arrays(self, task: Task, results: Any) -> Any:
            return [result[:1] for result in results]

    _, row = rows_of(*ONE, "--peers", "stub", stub=Shortening)
    assert "shape (1, 2, 7, 7), not (3, 2, 7, 7)" in row["absent"]


@pytest.mark.parametrize(
    ("workload", "options", "reason"),
    [
        ("W6a", [], "has no crop_and_resize"),
        ("W1a", ["--layout", "NHWC"], "takes NCHW only"),
        ("stress-max-align", [], "has no roi_align that takes the maximum"),
        ("stress-nan", [], "undefined"),
    ],
)
def test_what_a_peer_does_not_have(workload: str, options: list[str], reason: str) -> None:
    class Plain(Stub):
        operations = InstalledLibrary.operations
        layouts = InstalledLibrary.layouts

        def prepare(self, task: Task) -> Any:
            return self.check(task)

    rows = rows_of(*TINY, "--workload", workload, "--peers", "stub", *options, stub=Plain)
    assert [reason in row["absent"] for row in rows if row["library"] == "stub"] == [True, True]
    assert all(row["seconds"] for row in rows if row["library"] == "roipool")


def test_every_peer_is_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Installed libraries must agree; the others must be listed with a reason."""
    rows = rows_of(*TINY, "--workload", "W1a,W4a,W6a")
    out = capsys.readouterr().out
    for row in rows:
        assert row["library"] in ("roipool", *PEERS)
        if row["absent"]:
            assert f"{row['library']:<12} absent: {row['absent']}" in out
        elif row["library"] not in ("roipool", "paddle"):  # Paddle rounds positions differently
            assert row["agreement"]["agrees"], row
    assert len(rows) == 6 * (1 + len(PEERS))


# Peers in separate processes


@pytest.fixture
def worker_python() -> str:
    """An interpreter that serves a stub as any peer; the tests use mxnet's name."""
    Path("driver.py").write_text(
        "import os, sys\n"
        "from roipool.tools.libraries import LIBRARIES, server\n"
        "from harness.ours import Roipool\n"
        "class Stub(Roipool):\n"
        "    @property\n"
        "    def version(self):\n"
        "        return os.environ['OMP_NUM_THREADS'] + f' of {self.threads}'\n"
        "    def prepare(self, task):\n"
        "        print('noise')\n"
        "        call = super().prepare(task)\n"
        "        return lambda: os._exit(3) if os.path.exists('die') else call()\n"
        "LIBRARIES['mxnet'] = Stub\n"
        "server.serve()\n"
    )
    paths = f"{Path(roipool.__file__).parents[1]}:{Path(bench.__file__).parent}"
    program = Path("python-of-old").resolve()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" driver.py\n')
    program.chmod(0o755)
    return str(program)


@needs_posix
def test_a_peer_in_another_environment(worker_python: str) -> None:
    options = ["--peers", "mxnet", "--peer-python", f"mxnet={worker_python}"]
    rows = rows_of(*TINY, "--workload", "W1a,W4b", "--threads", "1,2", *options)
    assert len(rows) == 16
    for ours_row, row in zip(rows[::2], rows[1::2], strict=True):
        assert (ours_row["library"], row["library"]) == ("roipool", "mxnet")
        assert row["version"] == f"{row['threads']} of {row['threads']}"
        assert row["agreement"]["greatest_difference"] == 0
        assert len(row["seconds"]) == 2
        assert min(row["seconds"]) > 0
    Path("die").touch()
    assert rows_of(*ONE, *options)[1]["absent"].startswith("the process exits with status 3")


def test_a_peer_that_is_not_in_that_environment() -> None:
    code = "import mxnet"
    if subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0:
        pytest.skip("MXNet is installed here")
    rows = rows_of(*ONE, "--peers", "mxnet", "--peer-python", f"mxnet={sys.executable}")
    assert rows[1]["absent"].startswith("is not installed")


def test_tasks_survive_the_way_to_another_process() -> None:
    task = task_of(changed(WORKLOADS["fpn-box-train"], boxes=4, channels=1), "float16", True)
    stream = io.BytesIO()
    send(stream, as_message(task))
    stream.seek(0)
    read = task_of_message(receive(stream))
    for name in set(task._fields) - {"levels"}:
        assert getattr(read, name) == getattr(task, name)
    for one, other in zip(task.levels, read.levels, strict=True):
        assert one.scale == other.scale
        for name in ("features", "rois", "grad"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


# Devices


class FakeCupy(SimpleNamespace):
    """The part of CuPy that the benchmark uses, with NumPy's arrays."""

    def __init__(self) -> None:
        class Error(Exception):
            pass

        runtime = SimpleNamespace(
            CUDARuntimeError=Error,
            getDeviceProperties=lambda number: {"name": b"Fake GPU"},
            driverGetVersion=lambda: 13000,
            runtimeGetVersion=lambda: 12090,
        )
        device = SimpleNamespace(id=0, attributes={"L2CacheSize": 64}, synchronize=lambda: None)
        event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
        cuda = SimpleNamespace(
            Device=lambda: device,
            Event=lambda: event,
            get_elapsed_time=lambda start, end: 2.0,
            runtime=runtime,
        )
        super().__init__(
            __version__="fake",
            ndarray=Error,
            cuda=cuda,
            float32=np.float32,
            int64=np.int64,
            RawKernel=lambda text, name: lambda grid, block, arguments: None,
            zeros=np.zeros,
            ones=lambda count, dtype: np.ones(count >> 20, dtype),
            empty_like=np.empty_like,
            copyto=np.copyto,
            asarray=np.asarray,
        )


def test_cuda_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    options = [*ONE, "--backend", "cuda", "--peers", "openvino"]
    rows = rows_of(*options, device=lambda backend: Cuda(FakeCupy()))
    ours_rows = [row for row in rows if row["library"] == "roipool"]
    assert [row["clock"] for row in ours_rows] == ["cold", "warm", "launch"]
    assert [row["median"] for row in ours_rows[:2]] == [pytest.approx(0.002)] * 2
    assert ours_rows[2]["median"] > 0
    assert strict_json("out.json")["machine"]["device"] == "Fake GPU"
    assert "float32 NCHW, warm" in capsys.readouterr().out
    assert "--memory" in complains(capsys, *ONE, "--backend", "cuda", "--memory")


def test_no_cupy() -> None:
    code = """
        import bench
        bench.main(["--backend", "cuda", "--json", "out.json"])
    """
    done = run_python(code, modules={"cupy": NOT_INSTALLED}, path=Path(bench.__file__).parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs CuPy" in done.stderr
    assert names_here() == []


def test_no_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    def no_device() -> None:
        raise cupy.cuda.runtime.CUDARuntimeError("no CUDA-capable device is detected")

    cupy = FakeCupy()
    cupy.cuda.Device = no_device
    options = [*ONE, "--backend", "cuda"]
    complaint = complains(capsys, *options, device=lambda backend: Cuda(cupy))
    assert "no CUDA-capable device" in complaint


def test_bandwidth_is_positive() -> None:
    assert floor.memory_bandwidth(1, 1 << 16) > 0
    assert floor.memory_bandwidth(3, 1 << 16) > 0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux keeps the record")
def test_peak_memory() -> None:
    options = ["--workload", "W5a", "--boxes", "40", "--channels", "256", "--ops", "roi_align"]
    arguments = [*options, "--peers", "none", "--repeat", "1", "--memory"]
    (row,) = rows_of(*arguments)
    assert row["output_bytes"] == 40 * 256 * 14 * 14 * 4
    assert 0.9 * row["output_bytes"] < row["peak_bytes"] < 4 * row["output_bytes"]
    (reused,) = rows_of(*arguments, "--out-reuse")
    assert reused["peak_bytes"] < row["peak_bytes"] - 0.9 * row["output_bytes"]


# Outputs


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench(*ONE, "--peers", "none", "--threads", "1,2", "--json", "out.json") == 0
    content = strict_json("out.json")
    facts = content["machine"]
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["instruction_set"] in ("avx512", "avx2", "baseline")
    assert facts["roipool"] == roipool.__version__
    assert [row["threads"] for row in content["rows"]] == [1, 2]
    assert {row["code"] for row in content["rows"]} == {"W4a"}
    assert content["options"]["boxes"] == 3
    capsys.readouterr()
    assert run_bench(*ONE, "--peers", "none", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["workload"] == "vgg16-pool"


def test_both_layouts_and_all_types() -> None:
    pytest.importorskip("ml_dtypes")
    dtypes = ["float16", "bfloat16", "float32", "float64"]
    options = ["--peers", "none", "--layout", "NCHW,NHWC", "--dtype", ",".join(dtypes)]
    rows = rows_of(*ONE, *options)
    assert [(r["layout"], r["dtype"]) for r in rows] == [
        (layout, dtype) for layout in ("NCHW", "NHWC") for dtype in dtypes
    ]


@needs_posix
def test_a_pipe_gets_one_json() -> None:
    """A pipe keeps every text written to it, so only one may be written."""
    os.mkfifo("pipe")
    operations = [*TINY, "--workload", "W4a", "--peers", "none", "--json", "pipe"]
    with os.fdopen(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)) as reader:
        assert run_bench(*operations) == 0
        assert len(json.loads(reader.read())["rows"]) == 2


def test_a_reader_may_stop_early() -> None:
    program = [sys.executable, bench.__file__, *ONE, "--peers", "none", "--json", "out.json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert len(strict_json("out.json")["rows"]) == 1


@pytest.mark.parametrize("peer", ["stub", "none"])
def test_plot(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workload", "W4a,stress-nan", "--peers", peer]
    assert run_bench(*TINY, *options, "--plot", "out.png", stub=Stub) == 0
    assert capsys.readouterr().err == ""
    with pytest.importorskip("PIL.Image").open("out.png") as figure:
        figure.load()
        assert figure.format == "PNG"
        assert min(figure.size) > 300
        colours = len(np.unique(np.asarray(figure.convert("RGB")).reshape(-1, 3), axis=0))
    assert colours > 20


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert run_bench(*ONE, "--peers", "none") == 0
    assert "vgg16-pool (W4a) roi_pool" in terminal.getvalue()
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert err == ""


def test_no_progress_without_rich() -> None:
    code = """
        import io, sys
        sys.modules["rich"] = None
        sys.stderr = io.StringIO()
        sys.stderr.isatty = lambda: True
        from harness import command
        with command._progress(1) as tick:
            tick("label")
        print(repr(sys.stderr.getvalue()))
    """
    done = run_python(code, path=Path(bench.__file__).parent)
    assert done.stdout == "''\n", done.stderr


def test_list_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(WORKLOADS)
    with pytest.raises(SystemExit):
        run_bench("--help")
    assert "--peer-python" in capsys.readouterr().out


# Errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "W9"],
        ["--workload", ","],
        ["--ops", "roi_align"],
        ["--ops", ","],
        ["--dtype", "int8"],
        ["--layout", "NCWH"],
        ["--threads", "0"],
        ["--threads", "1,two"],
        ["--threads", "9999"],
        ["--threads", ""],
        ["--backend", "tpu"],
        ["--peers", "caffe"],
        ["--peers", ""],
        ["--peer-python", "mxnet"],
        ["--peer-python", "caffe=/bin/sh"],
        ["--peer-python", "mxnet=/no/such/python"],
        ["--peer-python", "mxnet=/"],
        ["--repeat", "0"],
        ["--repeat", "1.5"],
        ["--boxes", "-1"],
        ["--channels", "0"],
        ["--json", "missing/out.json"],
        ["--plot", "out.pdf"],
        ["--plot", "missing/out.png"],
        ["--json", "same.png", "--plot", "same.png"],
        ["--no-such-option"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    complains(capsys, *TINY, "--workload", "W4a", *arguments)


def test_roipool_itself_runs_out_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--channels", str(10**15), "--peers", "none", "--json", "-"]
    complains(capsys, "--workload", "W4a", *options)


def test_roipool_never_imports_the_harness() -> None:
    for path in Path(roipool.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            assert not {"benchmarks", "harness"} & {name.partition(".")[0] for name in names}, path
