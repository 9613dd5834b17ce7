"""NVRTC takes every kernel, as CuPy would ask it to; no GPU is needed.

By default each file once, to PTX, for the oldest architecture. ``pytest --thorough`` covers each
element type, layout and definition of files of one kind, and every architecture in `ARCHITECTURES`,
but not all of these together; the newest architecture also assembles each file to machine code.
``benchmarks/cuda_resources.py --check`` assembles each file in each type, layout and pack. All
texts as machine code for every architecture are ``pytest --everything``, and take half an hour.
"""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from _support import nvrtc
from _support.cuda_texts import (
    ARCHITECTURES,
    AVERAGES,
    BY_BIN,
    FILES,
    MAXIMA,
    Text,
    covering,
    covers,
    every_specialisation,
    of_volumes,
)

import roipool
from roipool._cuda import cubins, masks
from roipool._cuda.arguments import STORAGE
from roipool._cuda.nvrtc import machine_code
from roipool._cuda.source import OPTIONS, flatten, kernel_folder, kernel_source
from roipool._pooling import Call
from roipool._request import Pooling
from roipool.systems import SEMANTICS
from roipool.verification.call import run
from roipool.verification.generate import draw

OPTIONS_OF_CUPY = ("-ftz=true", "--device-as-default-execution-space")  # added by CuPy


EVERYTHING = list(itertools.product(ARCHITECTURES, every_specialisation()))
COVERING = list(covering())
ASSEMBLED = {text.file: text for _, text in COVERING}


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    """Require NVRTC on Linux, where the test dependencies include it."""
    try:
        nvrtc.library()
    except FileNotFoundError as error:
        if sys.platform == "linux":
            raise
        pytest.skip(f"{error}: it exists for Linux and Windows only")


def compiled(architecture: str, text: Text) -> str:
    if int(architecture.partition("_")[2]) not in nvrtc.architectures():
        pytest.skip(f"this version of NVRTC does not know {architecture}")
    return nvrtc.compile_cuda(
        text.source(), f"--gpu-architecture={architecture}", *OPTIONS, *OPTIONS_OF_CUPY
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests with texts."""
    if "text" in metafunc.fixturenames:
        chosen = [
            *((f"compute_{architecture}", text) for architecture, text in COVERING),
            *((f"sm_{ARCHITECTURES[-1]}", text) for text in ASSEMBLED.values()),
        ]
        if metafunc.config.getoption("everything"):
            chosen = [(f"sm_{number}", text) for number, text in EVERYTHING]
        metafunc.parametrize(("architecture", "text"), chosen, ids=str)


def test_lambdas_name_the_types_of_their_parameters() -> None:
    """NVRTC of CUDA 12 takes others for functions of the host, unless an option says otherwise."""
    for file in (kernel_folder() / "cuda").iterdir():
        assert not re.search(r"\]\s*\([^)]*\bauto\b", file.read_text()), file.name


@pytest.mark.thorough
def test_kernels_compile(architecture: str, text: Text) -> None:
    ptx = compiled(architecture, text)
    entries = set(re.findall(r"\.entry (\w+)", ptx))
    assert entries == set(re.findall(r"\s(\w+)\(\s*const roipool::", text.source())) - {"roipool"}
    # The CPU makes decisions without contraction, so the plan must do so, too.
    for plan in re.findall(r"\.entry plan_.*?\n}", ptx, re.DOTALL):
        assert re.search(r"\b(fma|mad)\.(r[nzmp]\.)?(ftz\.)?f(32|64)", plan) is None


@pytest.mark.thorough
@pytest.mark.parametrize("file", ["average_forward", "average_backward_boxes", "maximum_forward"])
def test_large_maps_compile(file: str) -> None:
    text = next(text for _, text in COVERING if text.file == file)
    source = text.source(plan_is_shared=0, offset="wide_int")
    assert ".entry" in nvrtc.compile_cuda(source, "--gpu-architecture=compute_75", *OPTIONS)


@pytest.mark.thorough
@pytest.mark.parametrize("file", ["average_forward", "average_backward_boxes"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_position_sensitive_averages_compile(file: str, layout: str) -> None:
    source = Text(file, "float32", layout, 1, "ps_roi_pool").source(position_sensitive=1)
    assert ".entry" in nvrtc.compile_cuda(source, "--gpu-architecture=compute_75", *OPTIONS)


@pytest.mark.thorough
@pytest.mark.parametrize("volumes", [text for text in of_volumes() if text.pack == 1], ids=str)
def test_averages_of_volumes_compile(volumes: Text) -> None:
    ptx = nvrtc.compile_cuda(volumes.source(), "--gpu-architecture=compute_75", *OPTIONS)
    assert ".entry" in ptx


def test_machine_code_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gradient of a pyramid with int32 levels, whose two kernels are in one text."""
    text = Text("average_backward", "float32", "NCHW", 1, "roi_align")
    source = text.source(levels=2, narrow_levels=1)
    monkeypatch.setattr(cubins, "folder", lambda: tmp_path)
    code = machine_code(source, 90, 13)
    assert code.startswith(b"\x7fELF")
    assert b"average_backward\0" in code
    assert b"plan_bin_taps\0" in code
    with pytest.raises(SyntaxError, match="gpu-architecture"):
        machine_code(source, 31, 13)
    with pytest.raises(FileNotFoundError, match="nvidia-cuda-nvrtc is not installed"):
        machine_code(source, 90, 11)


def test_every_value_is_compiled() -> None:
    assert covers(COVERING) == covers(EVERYTHING)
    assert set(ASSEMBLED) == set(FILES)


def test_every_file_is_compiled() -> None:
    files = [path.name for path in (kernel_folder() / "cuda").iterdir()]
    of_masks = masks.FILE.rpartition("/")[2]
    assert sorted(file for file in files if file.endswith(".cu")) == sorted(
        [*(f"{name}.cu" for name in FILES), of_masks]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("cells", [*STORAGE, "uint8"])
@pytest.mark.parametrize("result", ["values", "uint8", "bool"])
def test_pasting_compiles(cells: str, result: str) -> None:
    """Of masks of each type, to each type."""
    pasted = result if result != "values" else "float32" if cells == "uint8" else cells
    source = kernel_source(masks.FILE, **masks.defines(cells, pasted))
    for architecture in (ARCHITECTURES[0], ARCHITECTURES[-1]):
        virtual = f"--gpu-architecture=compute_{architecture}"
        if architecture in nvrtc.architectures():
            assert ".entry" in nvrtc.compile_cuda(source, virtual, *OPTIONS, *OPTIONS_OF_CUPY)


def test_every_definition_is_compiled() -> None:
    rows = set(re.findall(r"^  ROW\((\w+),", flatten("definitions.h"), re.MULTILINE))
    assert rows == {name for names in FILES.values() for name in names}
    assert set(MAXIMA) <= rows


@pytest.mark.parametrize("name", SEMANTICS)
def test_what_operations_ask_for_is_compiled(name: str) -> None:
    """The lists of definitions with averages and with maxima are complete."""
    asked: dict[str, set[str]] = {}

    def noting(method: str) -> mock._patch[Any]:
        original = getattr(Call, method)

        def noted(self: Call, *args: Any, **kwargs: Any) -> Any:
            (pooling,) = (each for each in args if isinstance(each, Pooling))
            asked.setdefault(method, set()).add(pooling.definition.name)
            return original(self, *args, **kwargs)

        return mock.patch.object(Call, method, noted)

    with (
        noting("average"),
        noting("average_backward"),
        noting("average_backward_boxes"),
        noting("maximum"),
        noting("maximum_backward"),
    ):
        run(draw(1, 0, [name], tiny=True), roipool)
    kinds = {"average": (*AVERAGES, *BY_BIN), "maximum": MAXIMA}
    assert asked
    for method, definitions in asked.items():
        assert definitions <= set(kinds[method.partition("_")[0]]), method


def test_loops_over_ranges_have_one_type() -> None:
    """Bounds of 32 bits and a counter of 64 gave wrong machine code on an H200 (NVRTC 13)."""
    mixed = re.compile(r"for \(wide_int \w+ = (?:share|packs|bins)\.")
    for path in (kernel_folder() / "cuda").iterdir():
        assert not mixed.search(path.read_text(encoding="utf-8")), path.name
