"""The rules of systems against the engines, and explanations from these rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import roipool
from roipool.reference import Rules
from roipool.systems import RULES
from roipool.tools.compare.differences import compare
from roipool.tools.compare.engines import ENGINES, row_of
from roipool.tools.compare.evaluation import BinOnMap, pooled_value
from roipool.tools.compare.problem import Compute, Options, Problem
from roipool.tools.compare.reasons import Verdict, explain
from roipool.tools.compare.systems import INSTALLED, SYSTEMS, VOLUME_SYSTEMS

pytestmark = pytest.mark.thorough

BOX, EDGE = [1, 1, 7, 7], [-0.6, 2, 3, 6]
AWKWARD = [
    [1, 1, 3, 3],
    [2, 2, 2, 2],
    [0.5, 0.5, 2.5, 2.5],
    [3, 3, 1, 1],
    [0, 0, 10, 8],
    [4.2, 4.1, 4.3, 4.2],
    [-3, -2, 2, 5],
    [8, 7, 15, 12],
    [20, 20, 30, 30],
    [np.nan, 1, 3, 3],
    [1, 1, np.inf, 3],
]


def problem_of(boxes: Any, options: Options, size: tuple[int, int] = (9, 11)) -> Problem:
    """Return random values of both signs, and boxes of two images."""
    rng = np.random.default_rng(3)
    rois = np.concatenate([np.arange(len(boxes))[:, None] % 2, boxes], axis=1).astype(np.float32)
    return Problem(rng.standard_normal((2, 2, *size), np.float32), rois, options)


def finite(problem: Problem, name: str) -> Problem:
    """Remove boxes that a system rejects."""
    rejecting = (
        "chainer",
        "tensorflow",
        "onnx.RoiAlign",
        "onnx.Crop",
        "roipool.crop",
        "roialign",
        "mxnet.ROIP",
    )
    if not name.startswith(rejecting):
        return problem
    return replace(problem, rois=problem.rois[np.isfinite(problem.rois).all(axis=1)])


def on_cpu(name: str) -> Compute:
    return ENGINES["cpu"](SYSTEMS[name])


# A box without samples is NaN in them: no rule says so.
NAN_WITHOUT_SAMPLES = {"openvino.ROIAlign[asymmetric]", "openvino.ROIAlign[half_pixel_for_nn]"}


# They have no adaptive number of samples.
COUNTED = {name for name, compared in SYSTEMS.items() if "samples" in row_of(compared).options}


@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - NAN_WITHOUT_SAMPLES))
@pytest.mark.parametrize(
    ("options", "size"),
    [
        (Options((3, 2)), (9, 11)),
        (Options((1, 4), 0.37, 2), (12, 7)),
    ],
)
def test_rules_give_what_engines_compute(
    name: str, options: Options, size: tuple[int, int]
) -> None:
    if name in COUNTED and not options.sampling_ratio:
        options = replace(options, sampling_ratio=3)
    problem = finite(problem_of(AWKWARD, options, size), name)
    got = on_cpu(name)(problem, "forward")
    for place in np.ndindex(got.shape):
        k, channel, row, column = place
        image = problem.features[int(problem.rois[k, 0]), channel]
        box = problem.rois[k, 1:]
        value = pooled_value(RULES[name], BinOnMap(image, box, (row, column), options))
        assert value == pytest.approx(float(got[place]), abs=1e-5), (place, box)


def test_every_system_has_rules() -> None:
    offered = {system for systems in INSTALLED.values() for system in systems}
    assert set(RULES) == {*SYSTEMS, *VOLUME_SYSTEMS, *offered}, (
        "add the rules to each system's Compared in roipool/systems/"
    )


def verdict_of(problem: Problem, name: str, reference: str, own: Compute | None = None) -> Verdict:
    """Compare two systems, and explain the element with the largest difference."""
    computes = {reference: on_cpu(reference), name: own or on_cpu(name)}
    found = compare(computes, problem, reference=reference)
    assert found is not None
    apart = found.between(1, 0)
    outputs = found.groups[1].output, found.groups[0].output
    verdict = explain(problem, "forward", (name, reference), apart.where, outputs)
    if verdict.reasons:
        # The changes by the rules add up to the difference.
        total = sum(reason.change for reason in verdict.reasons)
        expected = outputs[0][apart.where] - outputs[1][apart.where]
        assert total == pytest.approx(float(expected), rel=0.02, abs=1e-4)
    return verdict


@pytest.mark.parametrize(
    ("name", "reference", "box", "options", "rules", "words"),
    [
        # Each pair differs in one rule on this box.
        (
            "torchvision.roi_align",
            "torchvision.roi_align[aligned]",
            BOX,
            Options((2, 2)),
            ["shift"],
            "does not move the box by half a cell, x from 0.5 to 1",
        ),
        (
            "torchvision.roi_align[aligned]",
            "torchvision.roi_align",
            BOX,
            Options((2, 2)),
            ["shift"],
            "moves the box by half a cell up and left, x from 1 to 0.5",
        ),
        (
            "mmcv.roi_align[max]",
            "mmcv.roi_align",
            BOX,
            Options((2, 2)),
            ["reduce"],
            "takes the maximum of the bin, not the mean",
        ),
        (
            "onnx.RoiAlign[max]",
            "mmcv.roi_align[max]",
            [1.2, 1.1, 7, 7],
            Options((2, 2)),
            ["reduce"],
            "takes the largest weighted corner of the bin, not the maximum",
        ),
        (
            "caffe.roi_align",
            "mxnet.ROIAlign",
            [1, 1, 6, 6],
            Options((2, 2)),
            ["weights"],
            "counts a cell twice where a sample lies exactly on it",
        ),
        (
            "roialign_pytorch.RoIAlign",
            "roipool.roi_align",
            [1, 1, 7, 7],
            Options((2, 2)),
            ["ratio"],
            "takes 1 x 1 samples in the bin, not 3 x 3",
        ),
        (
            "roialign_pytorch.RoIAlign",
            "roipool.roi_align",
            EDGE,
            Options((1, 4), 1, 1),
            ["border"],
            "counts samples outside the cells' centres as 0",
        ),
    ],
)
def test_one_rule_explains(
    name: str, reference: str, box: list[float], options: Options, rules: list[str], words: str
) -> None:
    verdict = verdict_of(problem_of([box], options), name, reference)
    assert [reason.rule for reason in verdict.reasons] == rules
    assert verdict.reasons[0].words == words
    assert verdict.remark == ""


def test_rounding_and_one_cell_more() -> None:
    """roi_pool's rounding and extra cell, for a box with ends between cells."""
    problem = problem_of([[1.6, 1.2, 6.7, 6.4]], Options((1, 1)))
    pool = RULES["roipool.roi_average_pool"]
    own = {
        "rounding": replace(pool, rounding="none"),
        "extra": replace(pool, extra="cell"),
    }
    for rule, rules in own.items():

        def compute(given: Problem, part: str, rules: Rules = rules) -> Any:
            box, image = given.rois[0, 1:], given.features[0]
            values = [
                pooled_value(rules, BinOnMap(plane, box, (0, 0), given.options)) for plane in image
            ]
            return np.array(values, np.float32).reshape(1, 2, 1, 1)

        verdict = verdict_of(problem, "my.module:pool", "roipool.roi_average_pool", compute)
        assert [reason.rule for reason in verdict.reasons] == [rule]
        assert "my.module:pool computes here like" in verdict.remark
        assert {"rounding": "x 2 to 7 becomes 1.6 to 6.7", "extra": "width 5 becomes 6"}[rule] in (
            verdict.words
        )


def test_a_function_is_recognised() -> None:
    def own(problem: Problem, part: str) -> Any:
        return roipool.roi_align(problem.features, problem.rois, (2, 2), aligned=False)

    verdict = verdict_of(
        problem_of([[1, 1, 7, 7]], Options((2, 2))), "a:b", "roipool.roi_align", own
    )
    assert verdict.remark == "a:b computes here like torchvision.roi_align"
    assert [reason.rule for reason in verdict.reasons] == ["shift"]


def test_a_nan_against_the_rules() -> None:
    def nothing(problem: Problem, part: str) -> Any:
        return np.full(problem.pooled_shape, np.nan)

    problem = problem_of([[3, 3, 1, 1]], Options((2, 2)))
    verdict = verdict_of(problem, "paddle.roi_align@paddle", "torchvision.roi_pool", nothing)
    expected = "paddle.roi_align@paddle differs from its own rules here, which give 0"
    assert verdict.words == expected


def test_many_rules_take_few_values() -> None:
    """Not the value of every choice of eight rules: bins of large pictures take long."""
    problem = problem_of([EDGE], Options((2, 2)))
    verdict = verdict_of(problem, "roialign_pytorch.RoIAlign", "roipool.roi_pool")
    assert len(verdict.reasons) == 5
    (place,) = problem.places.values()
    assert len(place._known) < 30


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_maps_that_are_not_finite(bad: float) -> None:
    """Means read a cell that is not finite only if its weight is not 0; maxima read it anyway."""
    problem = problem_of([[1, 1, 7, 7]], Options((2, 2)))
    problem.features[0, 0, 3, 3] = bad
    # A NaN restarts the maximum of onnx.MaxRoiPool.
    for name in sorted(SYSTEMS.keys() - {"onnx.MaxRoiPool"} - COUNTED):
        got = on_cpu(name)(problem, "forward")[0, 0]
        for place in np.ndindex(got.shape):
            one = BinOnMap(problem.features[0, 0], problem.rois[0, 1:], place, problem.options)
            np.testing.assert_allclose(pooled_value(RULES[name], one), got[place], atol=1e-5)
    with np.errstate(all="ignore"):
        for name in SYSTEMS.keys() - COUNTED:
            for reference in ("roipool.roi_align", "roipool.roi_pool"):
                computes = {reference: on_cpu(reference), name: on_cpu(name)}
                found = compare(computes, problem, reference=reference)
                assert found is not None
                if len(found.groups) == 1:
                    continue
                outputs = found.groups[1].output, found.groups[0].output
                if np.allclose(*outputs, equal_nan=True):  # roundings need no words
                    continue
                where = found.between(1, 0).where
                assert explain(problem, "forward", (name, reference), where, outputs).words


ROTATED = [[4, 5, 6, 3, 0.4], [3, 2, 0.6, 0.7, -2], [0, 8, 9, 9, 1], [4, 4, -3, 2, 0.1]]


@pytest.mark.parametrize("options", [Options((3, 2)), Options((1, 4), 0.37, 2)])
def test_rotated_boxes(options: Options) -> None:
    problem = problem_of([*ROTATED, [np.nan] * 5], options)
    name = "roipool.roi_align_rotated"
    got = on_cpu(name)(problem, "forward")
    for k, channel, row, column in np.ndindex(got.shape):
        image = problem.features[int(problem.rois[k, 0]), channel]
        place = BinOnMap(image, problem.rois[k, 1:], (row, column), options)
        assert pooled_value(RULES[name], place) == pytest.approx(
            float(got[k, channel, row, column]), abs=1e-5
        )


@pytest.mark.parametrize(
    ("arguments", "rule", "words"),
    [
        ({"clockwise": True}, "angle", "turns the box clockwise by 0.4 radians"),
        ({"angle_unit": "degrees"}, "angle", "takes the angle 0.4 for degrees"),
        ({"sampling_ratio": 3}, "ratio", "takes 3 x 3 samples in the bin, not 2 x 3"),
        ({"aligned": False}, "shift", "does not move the box by half a cell, x from 0.5 to 1"),
        (None, "angle", "does not turn the box by its angle 0.4"),
    ],
)
def test_rules_of_rotated_boxes(arguments: dict[str, Any] | None, rule: str, words: str) -> None:
    def own(problem: Problem, part: str) -> Any:
        rois = problem.rois * np.array([1, 1, 1, 1, 1, float(arguments is not None)], np.float32)
        return roipool.roi_align_rotated(problem.features, rois, (2, 2), **(arguments or {}))

    problem = problem_of(ROTATED[:1], Options((2, 2)))
    verdict = verdict_of(problem, "a:b", "roipool.roi_align_rotated", own)
    assert [reason.rule for reason in verdict.reasons] == [rule]
    assert verdict.reasons[0].words == words


@pytest.mark.parametrize(("box", "ratio"), [([1, 1, 7, 7], 10**12), ([0, 0, 1e9, 1e9], 0)])
def test_thousands_of_samples_are_left_alone(box: list[float], ratio: int) -> None:
    problem = problem_of([box, [np.nan] * 4], Options((2, 2), 1.0, ratio))
    zeros = np.zeros(problem.pooled_shape, np.float32)
    names = ("torchvision.roi_align", "roipool.roi_pool")
    verdict = explain(problem, "forward", names, (0, 0, 0, 0), (zeros, zeros))
    assert "samples of a bin along one axis" in verdict.words
    assert explain(problem, "forward", names, (1, 0, 0, 0), (zeros, zeros)) == Verdict([])


def test_a_gradient_that_is_no_derivative_is_named() -> None:
    """Caffe gives a reversed box none, though its forward pools a cell of it."""
    problem = problem_of([[5, 5, 2, 2]], Options((2, 2)))
    names = ("caffe.roi_pooling", "torchvision.roi_pool")
    zeros, ones = (np.full(problem.features.shape, value, np.float32) for value in (0, 1))
    where = (0, 0, 0, 0)
    words = explain(problem, "features", names, where, (zeros, ones)).words
    assert words == "the gradient of caffe.roi_pooling is not the derivative of its forward"
    words = explain(problem, "features", names, where, (ones, ones)).words
    assert words == "the same rules: only sums are rounded otherwise"


def test_roundings_of_far_positions_break_no_rules() -> None:
    rng = np.random.default_rng(3)
    features = rng.standard_normal((1, 1, 8, 6000), np.float32)
    rois = np.float32([[0, 5000.3, 1.1, 5711.7, 6.3], [0, 4100.9, 0.7, 5950.1, 7.7]])
    problem = Problem(features, rois, Options((2, 3), 1.0, 2))
    names = "roipool.roi_align_rotated", "roipool.roi_align"
    comparison = compare({name: ENGINES["cpu"](SYSTEMS[name]) for name in names}, problem)
    assert comparison is not None
    first, second = (group.output for group in comparison.groups)
    where = np.unravel_index(np.abs(first - second).argmax(), first.shape)
    assert np.abs(first - second).max() > 1e-4  # more than roundings of the sums
    verdict = explain(problem, "forward", names, tuple(map(int, where)), (first, second))
    assert verdict == Verdict([], "positions are rounded otherwise")


def test_nothing_is_guessed() -> None:
    """A result that no rules give is not explained."""

    def wrong(problem: Problem, part: str) -> Any:
        return 1.1 * roipool.roi_align(problem.features, problem.rois, (2, 2))

    problem = problem_of([[1, 1, 7, 7]], Options((2, 2)))
    verdict = verdict_of(problem, "a:b", "roipool.roi_align", wrong)
    assert verdict == Verdict([], "no known rules give the result of a:b", unknown="a:b")
    for name in ("torchvision.roi_pool", "torchvision.roi_align[aligned]"):
        verdict = verdict_of(problem, name, "roipool.roi_align", wrong)
        assert verdict.words.startswith(f"{name} differs from its own rules here, which give ")
    verdict = verdict_of(problem, "something", "roipool.roi_align", wrong)
    assert verdict.words == "the rules of something are not known"
