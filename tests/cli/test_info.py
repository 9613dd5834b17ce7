"""``roipool info``: the report on this installation, with and without CuPy."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from _support.run_python import NOT_INSTALLED, run_python

import roipool
from roipool import _cpu, _system_info
from roipool._addresses import CUPY_EXTRAS
from roipool.cli import main

pytestmark = pytest.mark.thorough

# A stand-in for CuPy.
CUPY = """
__version__ = "14.2.0"
driver, devices = 13000, 1

class cuda:
    class runtime:
        runtimeGetVersion = lambda: 12090
        driverGetVersion = lambda: driver
        getDeviceCount = lambda: devices
        getDeviceProperties = lambda number: {
            "name": b"NVIDIA H200", "major": 9, "minor": 0, "totalGlobalMem": 150 * 2**30
        }
"""
NO_DRIVER = """
driver = 0

def fail():
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version\\nis insufficient")

cuda.runtime.getDeviceCount = fail
"""


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["info", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["info"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return labelled(out)


def labelled(out: str) -> dict[str, str]:
    return {line[:16].strip(): line[17:] for line in out.splitlines()}


def info_with(cupy: str, **environment: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the JSON and text reports of a process with this source as CuPy."""
    code = "from roipool.cli import main; main(['info', '--json']); print('--'); main(['info'])"
    done = run_python(code, modules={"cupy": cupy}, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    as_json, _, out = done.stdout.partition("--\n")
    return json.loads(as_json), labelled(out)


def test_cpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROIPOOL_ISA", raising=False)
    report = facts(capsys)
    assert report["roipool"] == roipool.__version__
    assert report["numpy"] == np.__version__
    assert report["processor"]
    assert report["processors_usable"] >= 1
    assert report["openmp"] is _cpu.has_openmp()
    assert report["threads"] == roipool.get_num_threads()
    assert report["instruction_sets"] == list(_cpu.instruction_sets())
    assert report["instruction_set"] == _cpu.instruction_set()
    assert report["ROIPOOL_ISA"] is None
    monkeypatch.setenv("ROIPOOL_ISA", _cpu.instruction_set())
    assert facts(capsys)["ROIPOOL_ISA"] == _cpu.instruction_set()
    assert "forced by ROIPOOL_ISA" in lines(capsys)["instruction set"]


@pytest.mark.skipif(not _cpu.has_openmp(), reason="built without OpenMP")
def test_where_the_number_of_threads_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    code = "from roipool.cli import main; main(['info'])"
    printed = run_python(code, OMP_NUM_THREADS="2").stdout  # else a container's quota may decide
    assert re.search("^OpenMP .*: OpenMP's own setting$", printed, re.MULTILINE)
    printed = run_python(code, ROIPOOL_NUM_THREADS="3").stdout
    assert re.search("^OpenMP +yes, 3 threads: set by ROIPOOL_NUM_THREADS$", printed, re.MULTILINE)
    before = roipool.get_num_threads()
    roipool.set_num_threads(1)
    try:
        assert lines(capsys)["OpenMP"] == "yes, 1 thread: set by set_num_threads"
    finally:
        roipool.set_num_threads(before)


@pytest.mark.skipif(not _cpu.has_openmp(), reason="built without OpenMP")
def test_how_idle_threads_wait(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in _system_info.WAITING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_cpu, "uses_pool", lambda: False)
    assert "OMP_WAIT_POLICY" in lines(capsys)["idle threads"]
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    assert lines(capsys)["idle threads"] == "OMP_WAIT_POLICY=passive, GOMP_SPINCOUNT=1000"
    assert facts(capsys)["waiting"] == {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
    monkeypatch.setattr(_cpu, "uses_pool", lambda: True)
    assert lines(capsys)["idle threads"].startswith("sleep")
    assert facts(capsys)["team"] == "pool"


def test_cached_memory(capsys: pytest.CaptureFixture[str]) -> None:
    before = roipool.get_cache_limit()
    roipool.set_cache_limit(0)
    try:
        assert lines(capsys)["memory cache"] == "up to 0 MiB, 0.0 MiB now"
        roipool.set_cache_limit(100)
        _cpu.empty_array((50 * 2**20,), np.dtype(np.uint8))
        report = facts(capsys)
        assert report["cache_limit_mib"] == 100
        assert report["cached_bytes"] >= 50 * 2**20
    finally:
        roipool.set_cache_limit(before)
        roipool.free_memory()


@pytest.mark.parametrize(
    ("variable", "value", "arguments"),
    [
        ("ROIPOOL_CACHE_MIB", "lots", ["--help"]),
        ("ROIPOOL_CACHE_MIB", "-1", ["info"]),
        ("ROIPOOL_CACHE_MIB", "9" * 5000, ["verify"]),
        ("ROIPOOL_ISA", "avx9", ["--version"]),
        ("ROIPOOL_NUM_THREADS", "0", []),
        ("ROIPOOL_NUM_THREADS", "0", ["info"]),
    ],
)
def test_a_bad_variable_is_one_line(variable: str, value: str, arguments: list[str]) -> None:
    done = run_python(
        f"import sys; from roipool.cli import main; sys.exit(main({arguments}))",
        **{variable: value},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"roipool: error: {variable} is ")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 300


def test_cupy_with_a_device() -> None:
    report, printed = info_with(CUPY, CUPY_CACHE_DIR="/var/cache/cupy")
    assert report["no_gpu"] is None
    assert report["devices"] == [
        {"name": "NVIDIA H200", "compute_capability": "9.0", "memory_bytes": 150 * 2**30}
    ]
    assert printed["CuPy"] == "14.2.0"
    assert (printed["CUDA runtime"], printed["CUDA driver"]) == ("12.9", "13.0")
    assert printed["kernel cache"] == "/var/cache/cupy"
    assert printed["GPU 0"] == "NVIDIA H200, compute capability 9.0, 150.0 GiB"


@pytest.mark.parametrize(
    ("cupy", "reason"),
    [
        (NOT_INSTALLED, f"CuPy is not installed: {CUPY_EXTRAS}"),
        (
            CUPY + NO_DRIVER,
            "CuPy finds no CUDA device: cudaErrorInsufficientDriver: CUDA driver version is",
        ),
        (CUPY + "devices = 0", "CUDA finds no device"),
        ("", "CuPy finds no CUDA device: module 'cupy' has no attribute"),
    ],
)
def test_why_there_is_no_gpu(cupy: str, reason: str) -> None:
    report, printed = info_with(cupy)
    assert report["devices"] == []
    assert printed["GPU"].startswith(f"none: {reason}")


def test_show_config_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    roipool.show_config()
    assert capsys.readouterr().out == printed


# ---- Front ends


BROKEN = "raise ImportError('libtorch.so:\\n cannot be opened')"


def front_ends_with(**modules: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the JSON and text reports of a process with stand-ins for libraries."""
    code = "from roipool.cli import main; main(['info', '--json']); print('--'); main(['info'])"
    done = run_python(code, modules=modules)
    assert (done.returncode, done.stderr) == (0, "")
    as_json, _, out = done.stdout.partition("--\n")
    return json.loads(as_json), labelled(out)


def test_a_broken_front_end_is_reported() -> None:
    report, printed = front_ends_with(torch=BROKEN, jax="raise SystemError('no')")
    assert report["torch"] == printed["PyTorch"] == "cannot be used: libtorch.so: cannot be opened"
    assert report["jax"] == printed["JAX"] == "cannot be used: no"


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_an_installed_front_end_says_how_it_calls_kernels(name: str) -> None:
    library = pytest.importorskip(name)
    report, printed = front_ends_with()
    label = {"torch": "PyTorch", "jax": "JAX"}[name]
    ways = {"torch": "the memory of (CPU )?tensors", "jax": "handlers of XLA"}
    assert report[name] == printed[label]
    assert re.fullmatch(
        f"{re.escape(library.__version__)}, kernels called .*{ways[name]}", printed[label]
    )


def test_a_program_of_the_users_imports_no_library_for_this() -> None:
    done = run_python("import roipool; roipool.show_config()", modules={"torch": BROKEN})
    assert (done.returncode, done.stderr) == (0, "")
    assert "PyTorch" not in done.stdout
