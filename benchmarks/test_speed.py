"""Times single calls with pytest-benchmark, to compare commits.

    pip install --group bench -e .
    pytest benchmarks/test_speed.py --benchmark-autosave
    pytest benchmarks/test_speed.py --benchmark-compare --benchmark-compare-fail=min:10%

They are not part of the tests, and need no other library.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness import ours
from harness.workloads import WORKLOADS, changed, task_of

NAMES = ("fpn-box", "fpn-mask", "vgg16-pool", "c4", "crop-and-resize", "small-call", "tiny-call")


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", NAMES)
def test_workload(name: str, backward: bool, benchmark: Any) -> None:
    # A quarter of the channels: enough for every code path, and fast.
    workload = changed(WORKLOADS[name], channels=max(WORKLOADS[name].channels // 4, 1))
    benchmark(ours.prepare(task_of(workload, "float32", backward)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_types(dtype: str, layout: str, benchmark: Any) -> None:
    pytest.importorskip("ml_dtypes")
    workload = changed(WORKLOADS["fpn-box"], channels=64, layout=layout)
    benchmark(ours.prepare(task_of(workload, dtype, False)))
