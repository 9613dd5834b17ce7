"""Random calls against the oracle and each other, and the program's reports of failures."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.faulty import Faulty
from _support.public import public_functions

import roipool
from roipool.systems import SYSTEMS, functions
from roipool.systems.case import FORMS, STORAGES, Case
from roipool.systems.core import ONE_SCALE, VARIANTS
from roipool.tools.random_calls.digest import digest
from roipool.tools.random_calls.shrink import first_failure, line_of, shrink_call
from roipool.verification.call import run
from roipool.verification.check import CALL, ORACLE, Finding, check, subjects
from roipool.verification.generate import draw
from roipool.verification.options import DRAWN
from roipool.verification.relations import RELATIONS

CASE = Case(
    "roi_align",
    maps=np.arange(24.0).reshape(1, 2, 3, 4),
    grad=np.ones((2, 2, 1, 2)),
    rois=np.array([[0, 0.5, 0.25, 3, 2], [0, 1, 1, 2, 9]]),
    options={"spatial_scale": 1.0, "sampling_ratio": 2, "aligned": True},
)


def test_random_calls() -> None:
    for number in range(100):  # `scripts/nightly.sh` makes 9,000
        case = draw(9, number)
        for finding in check(case, subjects(case, number)):
            assert finding.comparison.problem is None, (
                f"python -m roipool.tools.random_calls --seed 9 --first {number} --calls 1: "
                f"{case.operation}, {finding}"
            )


def test_a_call_depends_on_its_seed_and_number_only() -> None:
    first, again, other = draw(3, 7), draw(3, 7), draw(4, 7)
    assert repr(first) == repr(again)
    assert repr(first) != repr(other)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_operation_has_a_row(name: str) -> None:
    op, variant = VARIANTS[name]
    row = SYSTEMS[name]
    assert row.forward == op.forward
    assert row.backward == op.backward
    assert row.box_gradient == (op.backward_boxes if variant.by_boxes else "")
    assert ("argmax" in row.returns) == variant.has_argmax
    forward = inspect.signature(getattr(roipool, op.forward)).parameters
    for option, value in variant.options.items():
        assert row.fixed.get(option, forward[option].default) == value
    drawn = {"scale_ratio"} if op.forward not in ONE_SCALE else set()
    assert set(row.options) == {*op.placing, *drawn, op.filling} - {None}
    assert row.layouts == ("NCHW", "NHWC")


# Not drawn: levels are compared in a relation, `levels`; `crop` calls `crop_and_resize`; a mask's
# gradient is a sum of pooled values; settings and information.
NOT_DRAWN = set(
    "assign_levels compat.paddle.distribute_fpn_proposals crop deform_roi_pool_backward_mask "
    "free_memory get_cache_limit get_num_threads set_cache_limit set_debug set_num_threads "
    "show_config".split()
)
# Masks as run lengths, bool or a part of the picture, which tests/ops/test_masks.py and
# tests/compat/test_masks.py compare with those that are drawn; targets of one size for both axes.
MASKS = set(
    "masks_to_rle compat.detectron2.paste_masks_in_image compat.matterport.unmold_mask "
    "compat.mmdet.do_paste_mask compat.torchvision.project_masks_on_boxes".split()
)


def test_every_public_function_is_drawn() -> None:
    assert functions() | NOT_DRAWN | MASKS == public_functions(), (
        "the functions of the rows are not the public ones: add a row to SYSTEMS in "
        "roipool/systems/FRAMEWORK.py, or a function that is no pooling to NOT_DRAWN here"
    )


def test_every_option_can_be_drawn() -> None:
    options = {option for row in SYSTEMS.values() for option in row.options}
    assert options == set(DRAWN), "add a row to DRAWN in roipool/verification/options.py"


@pytest.fixture(scope="module")
def drawn() -> list[Case]:
    return [draw(0, number) for number in range(1500)]


@pytest.mark.thorough
def test_the_whole_space_is_drawn(drawn: list[Case]) -> None:
    assert {case.operation for case in drawn} == set(SYSTEMS)
    assert {case.form for case in drawn} == set(FORMS)
    assert {case.storage for case in drawn} == set(STORAGES)
    assert {case.layout for case in drawn} == {"NCHW", "NHWC"}
    assert {case.size[0] for case in drawn} >= set(range(1, 18))
    assert {case.size[1] for case in drawn} >= set(range(1, 18))
    extents = {size for case in drawn for size in case.maps.shape[2:]}
    assert extents >= set(range(71))
    channels = {case.maps.shape[1] for case in drawn}
    assert {0, 1, 16, 17, 32, 33} <= channels
    ratios = [case.options["sampling_ratio"] for case in drawn if "sampling_ratio" in case.options]
    assert set(ratios) >= set(range(10))
    assert any(isinstance(ratio, tuple) for ratio in ratios)
    boxes = np.concatenate([case.rois[:, 1:] for case in drawn])
    assert np.isnan(boxes).any()
    assert np.isinf(boxes).any()
    assert np.abs(boxes[np.isfinite(boxes)]).max() > 1e6
    assert any(case.large for case in drawn)


def wrong_in_wide_maps(pooled: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    pooled[..., -1:] *= 1.25
    return pooled


# A library with wrong averages on maps wider than 3 cells.
WRONG = Faulty(
    wrong_in_wide_maps, "roi_align", when=lambda arguments: arguments["features"].shape[3] > 3
)


def found_in(case: Case, subject: str, library: Any = roipool) -> Finding:
    checked = check(case, (CALL, subject), library)
    return next(one for one in checked if one.comparison.problem)


def test_a_failure_is_made_small() -> None:
    maps = np.random.default_rng(0).integers(1, 99, (2, 2, 5, 6)) / 16
    rois = np.array([[1, 0.1, 0.3, 4.7, 4], [0, 1, 1, 2, 9], [1, 1, 1, 1, 1]])
    grad = np.ones((3, 2, 3, 2))
    case = replace(CASE, maps=maps, grad=grad, rois=rois, storage="strided", threads=2)
    small, failure = shrink_call(case, found_in(case, ORACLE, WRONG), WRONG)
    assert failure.what == "pooled"
    assert small.maps.shape == (1, 1, 1, 4)
    assert small.grad.shape == (1, 1, 1, 1)
    assert (small.storage, small.threads, small.options["aligned"]) == ("plain", 1, False)
    assert np.all(small.maps == 1)
    again, _ = shrink_call(small, failure, WRONG)
    assert repr(again) == repr(small)


def test_the_line_repeats_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    problem = next(iter(check(CASE, (ORACLE,))))  # right, but printed as if it were not
    for case in (CASE, replace(CASE, storage="swapped", form="one array per image")):
        exec(line_of(case, problem._replace(what="pooled")), {})
        assert capsys.readouterr().out.strip() == str(run(case, roipool)["pooled"]).strip()
    for name in RELATIONS:
        exec(line_of(CASE, Finding(name, "pooled", problem.comparison)), {})
        assert capsys.readouterr().out == "None\n"


def test_every_comparison_sees_a_wrong_average() -> None:
    assert found_in(CASE, ORACLE, WRONG).what == "pooled"
    assert found_in(CASE, "transposes", WRONG)
    assert (
        first_failure(CASE, "threads", "pooled", WRONG) is None
    )  # the same for any number of threads


def test_differences_see_a_wrong_box_gradient() -> None:
    case = replace(CASE, dtype="float64")
    got = run(case, roipool)
    wrong = got | {"box_gradient": got["box_gradient"] * 1.001}
    assert [found.problem for _, found in RELATIONS["differences"](case, got, roipool)] == [None]
    assert [found.wrong > 1 for _, found in RELATIONS["differences"](case, wrong, roipool)] == [
        True
    ]


def test_differences_see_a_wrong_gradient_of_rotated_boxes() -> None:
    rois = np.array([[0, 0.6, 0.3, 3.1, 2.2], [0, 1.1, 1.3, 2.2, 9]])
    options = CASE.options | {"clockwise": False, "angle_unit": "radians"}
    case = replace(
        CASE,
        operation="roi_align_rotated",
        dtype="float64",
        rois=rois,
        options=options,
        maps=np.random.default_rng(0).integers(-9, 9, CASE.maps.shape).astype(np.float64),
    )
    got = run(case, roipool)
    wrong = got | {"box_gradient": got["box_gradient"] * 1.1}
    assert [found.problem for _, found in RELATIONS["differences"](case, got, roipool)] == [None]
    assert [found.wrong > 1 for _, found in RELATIONS["differences"](case, wrong, roipool)] == [
        True
    ]


def test_an_exception_is_a_failure() -> None:
    case = replace(CASE, options=CASE.options | {"sampling_ratio": -1})
    assert "ValueError: sampling_ratio" in str(found_in(case, ORACLE).comparison.problem)


def test_digests_depend_on_results() -> None:
    case = draw(2, 5)
    assert digest(case, roipool) == digest(case, roipool)
    assert digest(CASE, roipool) == digest(replace(CASE, layout="NHWC", storage="swapped"), roipool)
    other = replace(CASE, maps=CASE.maps + 1)
    assert digest(CASE, roipool) != digest(other, roipool)


@pytest.mark.thorough
def test_the_program(tmp_path: Any) -> None:
    module = "roipool.tools.random_calls"
    command = [sys.executable, "-P", "-m", module, "--calls", "20", "--jobs", "2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1].startswith("20 calls, ")
    assert result.stdout.splitlines()[-1].endswith("failed: none")
    output = tmp_path / "digests.txt"
    command = [
        sys.executable,
        "-P",
        "-m",
        f"{module}.digest",
        "--calls",
        "5",
        "--output",
        str(output),
    ]
    subprocess.run(command, check=True)
    assert len(output.read_text().splitlines()) == 5
