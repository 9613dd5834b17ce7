"""Every operation against the oracle, over the whole catalogue, in every dtype and layout.

The oracle computes values in float64 and takes its decisions (floor, ceil, outside) in the
coordinate type of the code under test; `roipool.verification.oracle` says how close is close.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.backends import GPUS, Backend, thorough_on_the_emulator
from _support.catalogue import OPERATIONS, VARIANTS, every_dtype, every_form, real_dtypes
from _support.compare import assert_same_bits

from roipool.systems import SYSTEMS
from roipool.verification.call import run
from roipool.verification.catalogue import ENTRIES, Entry, cases
from roipool.verification.check import CALL, ORACLE, check
from roipool.verification.oracle import samples_are_exact

# Systems without goldens.
WITHOUT_GOLDENS = (
    "caffe.roi_align",
    "mmcv.roi_align max",
    "mmcv.roi_pool",
    "mxnet.ROIAlign",
    "onnx.RoiAlign max",
)

every_entry = pytest.mark.parametrize(
    ("name", "entry"),
    [(name, entry) for name in OPERATIONS for entry in ENTRIES if any(entry.cases(name))],
    ids=str,
)
every_argmax = pytest.mark.parametrize(
    "name", [name for name in VARIANTS if "argmax" in SYSTEMS[name].returns]
)


def check_entry(
    backend: Backend, name: str, entry: Entry, dtype: np.dtype[Any], layout: str, *subjects: str
) -> None:
    """Make all calls of an operation for an entry, and compare."""
    for what, case in entry.cases(name):
        case = replace(case, dtype=dtype.name, layout=layout)
        for finding in check(case, subjects, backend.library):
            assert finding.comparison.problem is None, f"{what}, {finding}"


@every_form(0)
@every_entry
def test_oracle(
    backend: Backend, name: str, entry: Entry, dtype: np.dtype[Any], layout: str
) -> None:
    check_entry(backend, name, entry, dtype, layout, CALL, ORACLE)


@pytest.mark.thorough
@every_dtype
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_oracle_of_rotated_boxes_in_every_type(
    gpu: Backend, entry: Entry, dtype: np.dtype[Any]
) -> None:
    check_entry(gpu, "roi_align_rotated", entry, dtype, "NCHW", CALL, ORACLE)


# On the emulator `test_oracle` compares both sides with the oracle, in the same forms.
@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["cpu", *GPUS[1:]], indirect=True)
@every_form(0, dtypes=("float32", "float64"))
@every_entry
def test_transposes(
    backend: Backend, name: str, entry: Entry, dtype: np.dtype[Any], layout: str
) -> None:
    check_entry(backend, name, entry, dtype, layout, "transposes")


@thorough_on_the_emulator
@real_dtypes
@pytest.mark.parametrize("name", WITHOUT_GOLDENS)
def test_oracle_of_systems(backend: Backend, name: str, dtype: np.dtype[Any]) -> None:
    for entry in ENTRIES:
        check_entry(backend, name, entry, dtype, SYSTEMS[name].layouts[0], CALL, ORACLE)


@every_argmax
def test_values_are_the_same_without_their_argmax(backend: Backend, name: str) -> None:
    alone = SYSTEMS[name]._replace(
        fixed={**SYSTEMS[name].fixed, "return_argmax": False},
        returns=("pooled",),
        backward="",
        box_gradient="",
    )
    for _, case in cases(name):
        pooled = run(case, backend.library, alone)["pooled"]
        assert_same_bits(pooled, run(case, backend.library)["pooled"])


# Entries with adaptive grids of more samples than 32 bits can count.
ENDLESS = ("huge", "huge, many bins")


def test_type_of_an_argmax(backend: Backend) -> None:
    for entry in ENTRIES:
        for what, case in entry.cases("roi_align max"):
            # The size of an adaptive grid cannot be read back from a GPU.
            adaptive = np.min(case.options["sampling_ratio"]) == 0
            wide = adaptive and (backend.is_gpu or entry.name in ENDLESS)
            argmax = run(case, backend.library)["argmax"]
            assert argmax.dtype == (np.int64 if wide else np.int32), what


def test_equal_samples_are_exact() -> None:
    """Then the first of equal samples is the only right argmax."""
    equal = [entry for entry in ENTRIES if entry.name.startswith("equal samples")]
    assert len(equal) == 3
    for entry in equal:
        for _, case in entry.cases("roi_align max"):
            assert samples_are_exact(case)
