"""The built and installed package: OpenMP, files, imports, and the modules that a call visits."""

from __future__ import annotations

import importlib.resources
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from _support.run_python import run_python

import roipool
from roipool import _cpu
from roipool.compat import torchvision


def test_openmp_is_built_in() -> None:
    if os.environ.get("ROIPOOL_NO_OPENMP", "") not in ("", "0"):
        assert not _cpu.has_openmp()
    else:
        assert _cpu.has_openmp(), "built without OpenMP: set ROIPOOL_NO_OPENMP=1 if that is meant"


def test_missing_openmp_is_a_warning_at_the_first_call() -> None:
    """Installers hide the build's output, so the package itself warns."""
    code = """
        import warnings
        import numpy as np
        import roipool
        from roipool import _cpu

        _cpu.lacks_openmp = lambda: True
        maps, rois = np.ones((1, 1, 4, 4), np.float32), [[0, 0, 0, 3, 3]]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            roipool.roi_align(maps, rois, 1)
            roipool.roi_pool(maps, rois, 1)
        print(*((one.filename, one.category.__name__) for one in caught))
    """
    assert run_python(code).stdout == "('<string>', 'RuntimeWarning')\n"


def test_show_config(capsys: pytest.CaptureFixture[str]) -> None:
    roipool.show_config()
    printed = capsys.readouterr().out
    threads = f"{'yes' if _cpu.has_openmp() else 'no'}, {roipool.get_num_threads()} thread"
    assert re.search(rf"^OpenMP +{threads}", printed, re.MULTILINE)
    assert re.search(rf"^roipool +{re.escape(roipool.__version__)}$", printed, re.MULTILINE)
    assert re.search(rf"^instruction set +{_cpu.instruction_set()}\b", printed, re.MULTILINE)


def test_public_names_exist() -> None:
    for name in roipool.__all__:
        assert hasattr(roipool, name)


COMPUTING_MODULES = {"_front_ends", "_kept", "_arguments", "_pooling"}
ROI_ALIGN_MODULES = COMPUTING_MODULES | {"ops.roi_align"}
KEPT_MODULES = {"_front_ends"}  # sizes that are lists are not kept
TORCHVISION_MODULES = COMPUTING_MODULES | {"compat.torchvision", "compat._conventions"}


def entered(call: Callable[[], Any]) -> list[FrameType]:
    """Return the functions of Python that a call enters."""
    frames: list[FrameType] = []

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            frames.append(frame)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames


@pytest.mark.parametrize(
    ("pool", "modules"),
    [
        (lambda maps, rois: roipool.roi_align(maps, rois, [2, 2]), ROI_ALIGN_MODULES),
        (lambda maps, rois: roipool.roi_align(maps, rois, 2), KEPT_MODULES),
        (lambda maps, rois: torchvision.roi_align(maps, rois, [2, 2]), TORCHVISION_MODULES),
    ],
    ids=["roi_align", "roi_align with kept options", "torchvision"],
)
def test_a_call_visits_few_modules(pool: Callable[[Any, Any], Any], modules: set[str]) -> None:
    """A call passes through few modules, for readers and for the speed of small calls."""
    maps, rois = np.ones((1, 1, 8, 8), np.float32), np.array([[0, 0, 0, 7, 7]], np.float32)
    pool(maps, rois)
    visited = {frame.f_globals["__name__"] for frame in entered(lambda: pool(maps, rois))}
    assert {name for name in visited if name.startswith("roipool.")} == {
        f"roipool.{name}" for name in modules
    }


@pytest.mark.parametrize(
    ("pool", "most"),
    [
        (lambda maps, rois, ratio: roipool.roi_align(maps, rois, 2, 1.0, ratio), 15),
        (lambda maps, rois, ratio: torchvision.roi_align(maps, rois, 2, 1.0, ratio), 17),
        (
            lambda maps, rois, ratio: roipool.multilevel_roi_align(
                [maps, maps], rois, 2, [1.0, 0.5], ratio
            ),
            45,
        ),
    ],
    ids=["roi_align", "torchvision", "pyramid"],
)
def test_a_call_with_new_options_enters_few_functions(
    pool: Callable[[Any, Any, int], Any], most: int
) -> None:
    maps, rois = np.ones((1, 1, 8, 8), np.float32), np.array([[0, 0, 0, 7, 7]], np.float32)
    pool(maps, rois, 3)
    frames = entered(lambda: pool(maps, rois, 4))
    names = [frame.f_globals["__name__"] for frame in frames]
    own = [name for name in names if name.startswith("roipool.")]
    assert len(own) <= most, Counter(own)


def test_import_is_light() -> None:
    heavy = {"cupy", "torch", "ml_dtypes", "matplotlib", "PIL", "rich"}
    result = run_python(f"import sys, roipool; print({heavy!r} & {{*sys.modules}})")
    assert result.stdout.strip() == "set()", result.stderr


def test_bfloat16_needs_only_ml_dtypes() -> None:
    code = """
        import ml_dtypes, numpy as np, roipool
        maps = np.ones((1, 1, 4, 4), ml_dtypes.bfloat16)
        print(roipool.roi_pool(maps, [[0, 0, 0, 3, 3]], 1).dtype)
    """
    result = run_python(code)
    assert result.stdout.strip() == "bfloat16", result.stderr


@pytest.mark.parametrize(
    "file",
    [
        "py.typed",
        "kernels/config.h",
        "kernels/definitions.h",
        "tools/compare/data/coffee.jpg",
        "verification/goldens/cases.json",
        "kernels/cuda/call.h",
        "kernels/cuda/average_forward.cu",
    ],
)
def test_file_is_installed(file: str) -> None:
    assert importlib.resources.files("roipool").joinpath(file).is_file()


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", roipool.__version__)
