"""NVRTC takes every kernel, as CuPy would ask it to; no GPU is needed.

Covered: each file in each element type, layout and pack for sm_90; each definition that a file is
made for, for sm_75; each file for every architecture in `ARCHITECTURES`. With
ROIPOOL_COMPILE_ALL=1: all of these together, which takes half an hour.
"""

from __future__ import annotations

import itertools
import os
import re
import sys

import pytest
from _support import nvrtc
from _support.cuda_texts import (
    ARCHITECTURES,
    FILES,
    MAXIMA,
    Text,
    every_definition,
    every_file,
    every_specialisation,
)

from roipool._cuda.source import OPTIONS, flatten, kernel_folder

OPTIONS_OF_CUPY = ("-ftz=true", "--device-as-default-execution-space")  # it adds them to ours


def cases() -> list[tuple[int, Text]]:
    """Return what to compile for which architecture."""
    if os.environ.get("ROIPOOL_COMPILE_ALL"):
        return list(itertools.product(ARCHITECTURES, every_specialisation()))
    chosen = [(90, text) for text in every_file()]
    chosen += [(75, text) for text in every_definition()]
    files = {text.file: text for text in every_file()}
    chosen += itertools.product(ARCHITECTURES, files.values())
    return list(dict.fromkeys(chosen))


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    """Demand NVRTC on Linux, where the test dependencies bring it."""
    try:
        nvrtc.library()
    except FileNotFoundError as error:
        if sys.platform == "linux":
            raise
        pytest.skip(f"{error}: it exists for Linux and Windows only")


def compiled(architecture: int, text: Text) -> str:
    if architecture not in nvrtc.architectures():
        pytest.skip(f"this version of NVRTC does not know sm_{architecture}")
    return nvrtc.compile_cuda(
        text.source(), f"--gpu-architecture=sm_{architecture}", *OPTIONS, *OPTIONS_OF_CUPY
    )


@pytest.mark.parametrize(
    ("architecture", "text"),
    [pytest.param(*case, id=f"sm_{case[0]}-{case[1]}") for case in cases()],
)
def test_kernels_compile(architecture: int, text: Text) -> None:
    ptx = compiled(architecture, text)
    entries = set(re.findall(r"\.entry (\w+)", ptx))
    assert entries == set(re.findall(r"\s(\w+)\(const roipool::", text.source())) - {"roipool"}
    # The decisions of the CPU are made without contraction; those of the plan have to be too.
    for plan in re.findall(r"\.entry plan_.*?\n}", ptx, re.DOTALL):
        assert re.search(r"\b(fma|mad)\.(r[nzmp]\.)?(ftz\.)?f(32|64)", plan) is None


def test_every_file_is_compiled() -> None:
    files = [path.name for path in (kernel_folder() / "cuda").iterdir()]
    assert sorted(file for file in files if file.endswith(".cu")) == sorted(
        f"{name}.cu" for name in FILES
    )


def test_every_definition_is_compiled() -> None:
    rows = set(re.findall(r"^  ROW\((\w+),", flatten("definitions.h"), re.MULTILINE))
    assert rows == {name for names in FILES.values() for name in names}
    assert set(MAXIMA) <= rows
