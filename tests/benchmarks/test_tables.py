"""The scripts in benchmarks/: their tables agree with the files of results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the scripts, but without results."""
    shutil.copytree(BENCHMARKS, tmp_path / "benchmarks", ignore=shutil.ignore_patterns("results*"))
    shutil.copy(BENCHMARKS.parent / "README.md", tmp_path)
    (tmp_path / "docs").mkdir()
    shutil.copy(BENCHMARKS.parent / "docs" / "gpu.md", tmp_path / "docs")
    (tmp_path / "benchmarks" / "results").mkdir()
    return tmp_path


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "benchmarks" / "tables.py")]
    return subprocess.run(command, capture_output=True, text=True)


def fill(folder: Path) -> str:
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return (folder / "benchmarks" / "README.md").read_text()


def row(code: str, operation: str, library: str, ratio: float, **more: Any) -> dict[str, Any]:
    common = {"workload": code, "code": code, "operation": operation, "library": library}
    measured = {"ratio": ratio, "median": 0.002, "times_floor": 2.5, "threads": 2, "absent": None}
    sizes = {"peak_bytes": 3e6, "output_bytes": 1e6, "agreement": {"agrees": True}}
    return {**common, **measured, **sizes, **more}


def test_without_results_nothing_is_claimed(folder: Path) -> None:
    text = fill(folder)
    assert text.count("not yet measured") >= 12
    assert "| yes |" not in text
    assert "| no |" not in text


def test_tables_and_verdicts(folder: Path) -> None:
    machine = {
        **dict.fromkeys(("cpu", "instruction_set", "python", "numpy", "date"), "x"),
        "cores": 2,
        "commit": None,
    }
    rows = [
        row("W4a", "roi_pool", "roipool", 1),
        row("W4a", "roi_pool", "torchvision", 15.04),
        row("W4a", "roi_pool", "paddle", 3, agreement={"agrees": False}),
        {**row("W4a", "roi_pool", "mxnet", 1), "absent": "is not installed"},
        row("W6a", "crop_and_resize", "roipool", 1),
        row("W6a", "crop_and_resize", "tensorflow", 1.49),
    ]
    content = {"machine": machine, "rows": rows}
    for name in ("cpu", "readme"):
        (folder / "benchmarks" / "results" / f"{name}.json").write_text(json.dumps(content))
    text = fill(folder)
    assert "| roi_pool forward against torchvision: 15x | W4a 15x | yes |  |" in text
    assert "against TensorFlow: 1.5x | W6a 1.49x | no | memory: " in text
    assert "| W4a (W4a) | `roi_pool` | 2 | 2 ms | 15x |  | 3x* | 2.5 | 3 / 1 MB |" in text
    assert "mxnet |" not in text
    assert fill(folder) == text
    readme = (folder / "README.md").read_text()
    assert "| VGG16, 300 boxes | `roi_pool` | 2 ms | 15x |  |  |" in readme


def test_the_latest_results_of_a_gpu_are_judged(folder: Path) -> None:
    cold = {"clock": "cold", "dtype": "float32", "layout": "NCHW"}
    machine = dict.fromkeys(("device", "cupy", "python", "date", "commit"), "x")
    for device, ratio in (("one-2026-01-02", 3.5), ("another-2025-12-31", 2.0)):
        results = folder / "benchmarks" / f"results-{device}"
        results.mkdir()
        rows = [
            row("W1a", "roi_align", "roipool", 1, **cold),
            row("W1a", "roi_align", "torchvision", ratio, **cold),
            row("W1a", "roi_align", "torchvision", 1, **cold | {"clock": "warm"}),
            row("W1a", "roi_align", "roipool", 1, **cold | {"clock": "launch"}),
            row("W1a", "roi_align_backward", "roipool", 1, **cold),
            row("W1a", "roi_align_backward", "torchvision", 1.5, **cold),
        ]
        (results / "bench.json").write_text(json.dumps({"machine": machine, "rows": rows}))
        half = cold | {"dtype": "float16"}
        rows = [row("W1a", "roi_align", name, 4.5, **half) for name in ("roipool", "torchvision")]
        (results / "bench-float16.json").write_text(json.dumps({"machine": machine, "rows": rows}))
    text = fill(folder)
    assert "| GPU forward, float32 NCHW, against torchvision: 3x | W1a 3.5x | yes |" in text
    assert "| GPU forward, float16 NCHW, against torchvision: 4x | W1a 4.5x | yes |" in text
    assert "deterministic, against torchvision: 2x | W1a 1.5x | no |" in text
    assert "| GPU forward: at most 3 times the memory time | W1a 2.5x | yes |" in text
    page = (folder / "docs" / "gpu.md").read_text()
    line = "| W1a (W1a) | `roi_align` | float32 | NCHW | 2 ms | 2 ms | 3.5x | 2.5 | 2 ms |"
    assert line in page


def test_lost_markers_are_an_error(folder: Path) -> None:
    path = folder / "benchmarks" / "README.md"
    path.write_text(path.read_text().replace("<!-- scaling: end -->", ""))
    done = run(folder)
    assert done.returncode != 0
    assert "ValueError" in done.stderr
    assert "no markers for scaling" in done.stderr
