"""Conformance checks: mistakes are found and named, and misbehaviour is reported."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support import toy_libraries as toys

import roipool
from roipool import reference
from roipool.compat import torchvision
from roipool.systems import RULES as COMPARED
from roipool.systems import SEMANTICS as ROWS
from roipool.systems import oracle_of, shown_name
from roipool.testing import (
    SEMANTICS,
    NotConforming,
    Report,
    Tolerance,
    assert_conforms,
    read_tolerances,
)
from roipool.tools.alternatives import ALTERNATIVES, FIELDS
from roipool.tools.compare.systems import LISTED, SYSTEMS
from roipool.tools.conformance.cases import KINDS, KINDS_IN_WORDS
from roipool.tools.conformance.names import resolved
from roipool.tools.conformance.reports import ReportRequest
from roipool.tools.conformance.rules import RULES
from roipool.tools.random_calls.shrink import text_of

pytestmark = pytest.mark.thorough  # a program of its own

# The toys truncate NaN, read cells of weight 0, and visit every sample of a huge box.
FINITE = ("non-finite-boxes", "non-finite-cells", "huge-boxes", "empty-arrays")


def found(implementation: Any, semantics: str, **more: Any) -> Report:
    """Return the report of an implementation that does not conform."""
    with pytest.raises(NotConforming) as caught:
        assert_conforms(
            implementation,
            semantics,
            **{"without": FINITE, "random_calls": 0, "strict": True, **more},
        )
    (report,) = caught.value.reports
    assert str(caught.value) == "\n".join(report.lines())
    return report


def own(semantics: str) -> Callable[..., Any]:
    """Return roipool's own function."""
    function: Any = roipool
    for part in ROWS[resolved(semantics)[0]].forward.split("."):
        function = getattr(function, part)
    return function


# ---- Conforming implementations


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_own_functions_conform(semantics: str) -> None:
    (report,) = assert_conforms(own(semantics), semantics, random_calls=4, strict=True)
    assert len(report.outcomes) > 60
    assert report.rounded == 0


def test_toys_conform() -> None:
    for implementation, semantics, backward in (
        (toys.roi_pool(), "torchvision.roi_pool", None),
        (toys.roi_align(), "torchvision.roi_align", toys.roi_align_backward()),
    ):
        (report,) = assert_conforms(
            implementation, semantics, backward=backward, without=FINITE, random_calls=20
        )
        assert report.conforms
        results = {finding.what for outcome in report.outcomes for finding in outcome.findings}
        assert results >= {"pooled", "argmax" if backward is None else "gradient"}


# ---- Mistakes are named


POOL = (
    "transposed argmax",
    "half to even",
    "missing +1",
    "clamp at H - 1",
    "batch index ignored",
    "halves up",
    "last of equals",
    "cut, not rounded",
    "reciprocal one rounding short",
)
ALIGN = (
    "floor of a negative",
    "last end floored",
    "clamp at H",
    "count without max 1",
    "swapped weights",
    "border at 0",
    "adaptive count by floor",
    "negative position cut",
    "batch index ignored",
    "half pixel left out",
    "not divided",
)
AT_EDGES = (
    "clamp at H - 1",
    "clamp at H",
    "floor of a negative",
    "border at 0",
    "negative position cut",
    "halves up",
    "cut, not rounded",
    "reciprocal one rounding short",
)
ADAPTIVE = ("count without max 1", "adaptive count by floor")


def left_out(mistake: str) -> tuple[str, ...]:
    """Return kinds of calls that do not show a mistake, to save time."""
    return FINITE if mistake in AT_EDGES else (*FINITE, "boxes-over-the-edge")


@pytest.mark.parametrize("mistake", POOL)
def test_mistakes_of_pooling_are_named(mistake: str) -> None:
    report = found(toys.roi_pool(mistake), "torchvision.roi_pool", without=left_out(mistake))
    result = "argmax" if mistake in ("transposed argmax", "last of equals") else "pooled"
    check_named(report, mistake, result)


@pytest.mark.parametrize("mistake", ALIGN)
def test_mistakes_of_align_are_named(mistake: str) -> None:
    options = {} if mistake in ADAPTIVE else {"sampling_ratio": 2}
    report = found(
        toys.roi_align(mistake), "torchvision.roi_align", options=options, without=left_out(mistake)
    )
    check_named(report, mistake, "pooled")


@pytest.mark.parametrize("mistake", ["not divided", "swapped weights", "sign of the gradient"])
def test_mistakes_of_a_gradient_are_named(mistake: str) -> None:
    backward = toys.roi_align_backward(mistake)
    report = found(
        toys.roi_align(),
        "torchvision.roi_align",
        backward=backward,
        without=left_out(mistake),
        options={"sampling_ratio": 2, "aligned": True},
    )
    assert {diagnosis.result for diagnosis in report.diagnoses} == {"gradient"}
    check_named(report, mistake, "gradient")


# ---- Near misses have one verdict


def verdict(report: Report) -> str:
    """Return the words of a report, which must have a single diagnosis."""
    (diagnosis,) = report.diagnoses
    assert diagnosis.contradicted == 0
    assert diagnosis.alternatives == ()
    assert set(diagnosis.calls) == {one.name for one in report.outcomes if one.failures}
    return f"{diagnosis.results}: {diagnosis.words}"


@pytest.mark.parametrize(
    ("mistake", "words", "more"),
    [
        ("shift of 0.25", "shifts aligned boxes by 0.25 cells; it is 0.5", {}),
        (
            "half pixel before scaling",
            "shifts aligned boxes by 0.5 pixels before scaling instead of 0.5 cells after it",
            {},
        ),
        (
            "last end floored",
            "floors x2 and y2 to whole cells, and leaves x1 and y1 as they are",
            {},
        ),
        ("one sample", "takes one sample of each bin, whatever sampling_ratio is", {"options": {}}),
    ],
)
def test_near_misses_of_align(mistake: str, words: str, more: dict[str, Any]) -> None:
    given: dict[str, Any] = {"options": {"sampling_ratio": 2}, "strict": False, **more}
    report = found(toys.roi_align(mistake), "torchvision.roi_align", **given)
    assert verdict(report) == f"pooled: {words}"


def test_a_shift_of_any_boxes_is_fitted() -> None:
    def moved(input: Any, boxes: Any, output_size: Any, spatial_scale: float) -> Any:
        beside = boxes + np.float32([0, 1.3, 1.3, 1.3, 1.3])
        return torchvision.roi_pool(input, beside, output_size, spatial_scale)

    report = found(moved, "torchvision.roi_pool", strict=False)
    assert verdict(report) == "pooled: moves boxes by 1.3 pixels before they are scaled"


def test_a_nan_that_spreads() -> None:
    """The argmax is wrong for the same reason, not by another mistake."""

    def pool(input: Any, boxes: Any, output_size: Any, spatial_scale: float) -> Any:
        (pooled, argmax), (marked, first) = (
            torchvision.roi_pool(maps, boxes, output_size, spatial_scale, return_argmax=True)
            for maps in (input, np.isnan(input).astype(np.float32))
        )
        return np.where(marked > 0, np.float32(np.nan), pooled), np.where(marked > 0, first, argmax)

    report = found(pool, "torchvision.roi_pool", without=[])
    words = "propagates NaN in a maximum, like np.max, instead of ignoring it"
    assert verdict(report) == f"pooled, argmax: {words}"


def test_one_mistake_of_forward_and_backward_is_told_once() -> None:
    mistake = "half pixel left out"
    report = found(
        toys.roi_align(mistake),
        "torchvision.roi_align",
        options={"sampling_ratio": 2},
        backward=toys.roi_align_backward(mistake),
        strict=False,
    )
    words = "leaves out the half-pixel shift of aligned boxes"
    assert verdict(report) == f"pooled, gradient: {words}"


def test_what_matches_nothing_has_no_hint() -> None:
    def other(input: Any, boxes: Any, *arguments: Any, **options: Any) -> Any:
        pooled = torchvision.roi_align(input, boxes, *arguments, **options)
        return pooled + np.float32(0.125) * np.tanh(pooled)

    options = {"sampling_ratio": 2, "aligned": True}
    report = found(other, "torchvision.roi_align", strict=False, options=options)
    assert verdict(report) == "pooled: matches no known variation"


# ---- Gradients of boxes


def boxes_negated(*arguments: Any, **options: Any) -> Any:
    return -roipool.roi_align_backward_rois(*arguments, **options)


BY_BOXES = {"options": {"sampling_ratio": 2, "aligned": True}}


@pytest.mark.parametrize(
    ("semantics", "implementation"),
    [("roi_align", roipool.roi_align), ("torchvision.roi_align", torchvision.roi_align)],
)
def test_the_gradient_of_boxes_is_checked(semantics: str, implementation: Any) -> None:
    (report,) = assert_conforms(
        implementation,
        semantics,
        backward_boxes=roipool.roi_align_backward_rois,
        strict=True,
        random_calls=0,
        **BY_BOXES,
    )
    assert report.checked == ["pooled values", "box gradient"]
    report = found(implementation, semantics, backward_boxes=boxes_negated, **BY_BOXES)
    check_named(report, "sign of the box gradient", "box_gradient")
    (diagnosis,) = report.diagnoses
    assert "box gradient: returns the gradient of boxes with the" in "\n".join(report.lines())
    assert np.prod(diagnosis.smallest.maps.shape) <= 4


def test_gradients_of_boxes_from_either_side_are_right() -> None:
    """A sample on a cell's centre has different slopes to its left and right."""

    def from_the_left(grad: Any, features: Any, rois: Any, *rest: Any, **options: Any) -> Any:
        mirrored = rois.copy()
        width = np.float32((features.shape[3] - 1) / options["spatial_scale"])
        mirrored[:, [1, 3]] = width - rois[:, [3, 1]]
        turned = roipool.roi_align_backward_rois(
            grad[..., ::-1], features[..., ::-1], mirrored, *rest, **options
        )
        return turned[:, [2, 1, 0, 3]] * np.array([-1, 1, -1, 1], np.float32)

    options = {"sampling_ratio": 1, "aligned": False, "spatial_scale": 1.0}
    more: dict[str, Any] = {"options": options, "random_calls": 0, "without": AT_CENTRES}
    assert_conforms(roipool.roi_align, "roi_align", backward_boxes=from_the_left, **more)
    report = found(
        roipool.roi_align, "roi_align", backward_boxes=from_the_left, **{**more, "strict": True}
    )
    assert {diagnosis.result for diagnosis in report.diagnoses} == {"box_gradient"}


# A mirrored map's border is held on the other side; sides below one cell grow to the left.
AT_CENTRES = (*FINITE, "boxes-over-the-edge", "reversed-boxes", "empty-boxes")


def check_named(report: Report, mistake: str, result: str) -> None:
    """Check that one rule explains every wrong result of a kind, and contradicts no right one."""
    diagnoses = [one for one in report.diagnoses if one.result == result]
    assert [[rule.name for rule in one.rules] for one in diagnoses] == [[mistake]], "\n".join(
        report.lines()
    )
    (diagnosis,) = diagnoses
    assert diagnosis.explained == diagnosis.wrong > 0
    assert diagnosis.contradicted == 0
    assert diagnosis.alternatives == ()
    case = diagnosis.smallest
    assert case.grad[:, 0].size <= 4
    assert case.maps[0, 0].size <= 16
    assert any(diagnosis.words in line for line in report.lines())


def test_every_alternative_has_words() -> None:
    """The table has a row for each name in the oracle's tables, and no others."""
    tables = {
        "rounding": reference.ROUNDINGS,
        "angle": reference.TURNS,
        "adaptive": reference.COUNTS,
        "edges": reference.EDGES,
        "spread": reference.SPREADS,
        "border": reference.BORDERS,
        "weights": reference.WEIGHTS,
        "reads": reference.READS,
        "divisor": reference.DIVISORS,
    }
    named = {(field, name) for field, table in tables.items() for name in table}
    rows = {(one.field, one.value) for one in ALTERNATIVES}
    assert {row for row in rows if row[0] in tables} == named
    assert len(rows) == len(ALTERNATIVES)
    assert [field.name for field in fields(reference.Rules)] == list(FIELDS)
    for rules in COMPARED.values():
        assert {(field, getattr(rules, field)) for field in FIELDS if field != "empty"} <= rows


def test_every_rule_changes_an_oracle() -> None:
    applied = {
        rule.name for rule in RULES for name in ROWS if rule.vary(oracle_of(name)) is not None
    }
    assert applied == {rule.name for rule in RULES}
    assert len(applied) == len(RULES)


# ---- Names


def test_the_names_of_compare_are_known() -> None:
    for name in LISTED:
        if name == "roialign_pytorch.RoIAlign":  # a layer that makes fractions of its boxes first
            continue
        (row, options), system = resolved(name), SYSTEMS[name]
        assert row == system.row.removesuffix(" gradient")
        assert options.items() <= system.options.items()
    aligned = resolved("torchvision.roi_align[aligned]")
    assert (
        aligned == resolved("detectron2.ROIAlign") == ("torchvision.roi_align", {"aligned": True})
    )


def test_every_spelling_is_the_same_operation() -> None:
    assert set(SEMANTICS) == {shown_name(row) for row in ROWS}
    for row in ROWS:
        assert resolved(row) == resolved(shown_name(row)) == (row, {})
    (report,) = assert_conforms(
        torchvision.roi_align,
        "torchvision.roi_align[aligned]",
        random_calls=0,
        options={"sampling_ratio": 2},
    )
    assert {outcome.case.options["aligned"] for outcome in report.outcomes} == {True}
    for pattern in ("mmcv.roi_align[max]", "mmcv.roi_align max", "mmcv.*"):
        assert Tolerance(semantics=pattern).fits("x", "mmcv.roi_align max", "float32", "pooled")


def test_every_kind_has_words() -> None:
    assert list(KINDS_IN_WORDS) == list(KINDS)


# ---- Misbehaviour is reported


def misbehaving(kind: str) -> Callable[..., Any]:
    def align(input: Any, boxes: Any, output_size: Any, **options: Any) -> Any:
        pooled = torchvision.roi_align(input, boxes, output_size, **options)
        match kind:
            case "raises":
                raise KeyError("nothing\nhere")
            case "writes":
                boxes[:] = 0
            case "dtype":
                return pooled.astype(np.float64)
            case "shape":
                return pooled[..., :-1]
            case "nan":
                return np.full_like(pooled, np.nan)
            case "nothing":
                return None
            case "list":
                return pooled.tolist() or [[]]
            case "texts":
                return pooled.astype(str)
            case "empty tuple":
                return ()
        return pooled

    return align


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raises", "raises KeyError: 'nothing\\nhere'"),
        ("writes", "writes into its boxes"),
        ("dtype", "pooled has dtype float64, not float32"),
        ("shape", "pooled has shape"),
        pytest.param("nan", "matches no known variation", marks=pytest.mark.thorough),
        ("nothing", "returns a NoneType, not an array"),
        ("list", "returns a list, not an array"),
        ("texts", "returns an array of dtype <U"),
        ("empty tuple", "returns nothing"),
    ],
)
def test_misbehaviour(kind: str, words: str) -> None:
    report = found(
        misbehaving(kind),
        "torchvision.roi_align",
        random_calls=0,
        options={"sampling_ratio": 2, "aligned": True},
    )
    assert any(diagnosis.words.startswith(words) for diagnosis in report.diagnoses)


@pytest.mark.parametrize(
    ("semantics", "more", "message"),
    [
        ("torch.roi_align", {}, "semantics: 'torch.roi_align' is not one of roipool.roi_pool, "),
        ("torchvison.roi_align", {}, "semantics: .*; did you mean torchvision.roi_align\\?"),
        (
            "torchvision.roi_align[max]",
            {},
            "semantics: 'torchvision.roi_align\\[max\\]' is not one",
        ),
        ("torchvision.roi_align", {"dtypes": ["int8"]}, "dtypes: 'int8' is not one of float16, "),
        ("torchvision.roi_align", {"dtypes": []}, "dtypes: must name at least one"),
        ("torchvision.roi_align", {"devices": ["tpu"]}, "device must be one of cpu, got 'tpu'"),
        ("torchvision.roi_align", {"arrays": "tf"}, "arrays must be one of numpy, "),
        ("torchvision.roi_align", {"without": ["x"]}, "without: 'x' is not one of non-finite-"),
        ("torchvision.roi_align", {"options": {"x": 1}}, "options: torchvision.roi_align has no "),
        ("torchvision.roi_align", {"random_calls": -1}, "random_calls: must not be neg"),
        ("torchvision.roi_align", {"backward": "autograd"}, "backward 'autograd' needs arrays"),
        ("torchvision.roi_pool", {"backward_boxes": "a:b"}, "backward_boxes: torchvision.roi_pool"),
        ("torchvision.roi_align", {"backward_boxes": "autograd"}, "backward_boxes 'autograd' ne"),
        ("mxnet.ROIPooling", {"backward": "a:b"}, "backward: that of mxnet.ROIPooling cannot be"),
    ],
)
def test_bad_arguments(semantics: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        assert_conforms(torchvision.roi_align, semantics, **more)


def test_no_function() -> None:
    with pytest.raises(TypeError, match="implementation must be a function, got int"):
        assert_conforms(3, "roi_align")  # type: ignore[arg-type]


def test_an_option_that_is_lacking_is_fixed() -> None:
    def align(input: Any, boxes: Any, output_size: Any, spatial_scale: float = 1.0) -> Any:
        return torchvision.roi_align(input, boxes, output_size, spatial_scale, 2, True)

    with pytest.raises(ValueError, match="the forward has no argument 'aligned', which torchv"):
        assert_conforms(align, "torchvision.roi_align")
    options = {"sampling_ratio": 2, "aligned": True}
    assert_conforms(align, "torchvision.roi_align", options=options, random_calls=5)


# ---- Tolerances


def test_positions_may_be_rounded_otherwise() -> None:
    """Boxes scaled beforehand are rounded differently, a failure only with `strict`."""

    def scaled_first(
        input: Any, boxes: Any, output_size: Any, spatial_scale: float = 1.0, **more: Any
    ) -> Any:
        scaled = boxes.astype(np.float64)
        scaled[:, 1:] *= spatial_scale * (1 + 1e-7)
        return torchvision.roi_align(input, scaled, output_size, 1.0, **more)

    request = ReportRequest(
        scaled_first, "torchvision.roi_align", options={"sampling_ratio": 2}, random_calls=0
    )
    examiner, _ = request.examiner("float32", "cpu")
    strict, _ = replace(request, strict=True).examiner("float32", "cpu")
    calls = dict(examiner.plan.calls())
    inexact = calls["scale 1/3, aligned=True"]
    assert examiner.examine("", inexact).rounded == {"pooled"}
    assert not examiner.examine("", inexact).failures
    assert strict.examine("", inexact).failures
    exact = calls["samples at -1 and at H, aligned=True"]  # is no matter of rounding
    assert examiner.examine("", exact).failures


def test_tolerances_of_a_pair(tmp_path: Path) -> None:
    def off(*arguments: Any, **options: Any) -> Any:
        return torchvision.roi_align(*arguments, **options) + np.float32(1e-3)

    more: dict[str, Any] = {
        "without": ("non-finite-cells", "boxes-over-the-edge"),
        "random_calls": 0,
        "options": {"sampling_ratio": 2, "aligned": True},
    }
    path = tmp_path / "tolerances.toml"
    path.write_text('[[tolerance]]\nsemantics = "torchvision.*"\nresult = "pooled"\natol = 2e-3\n')
    assert_conforms(off, "torchvision.roi_align", tolerances=read_tolerances(str(path)), **more)
    other = [Tolerance(implementation="other", atol=1.0)]
    found(off, "torchvision.roi_align", tolerances=other, **more)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[tolerance]", "is not TOML"),
        ("rtol = 1", "'rtol' is unknown"),
        ("tolerance = 3", "tolerances are tables"),
        ("[[tolerance]]\nulps = 3", "'ulps' is not one of"),
        ("[[tolerance]]\natol = 'x'", "atol must be a number, got 'x'"),
        ("[[tolerance]]\natol = -1", "atol must be finite and not negative"),
        ("[[tolerance]]\nrtol = nan", "rtol must be finite and not negative"),
        ("[[tolerance]]\nrtol = true", "rtol must be a number"),
        ("[[tolerance]]\ndtype = 3", "dtype must be a string"),
    ],
)
def test_bad_tolerances(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_tolerances(str(path))


# ---- Processes


CRASHING = """
import os

import numpy as np

from roipool.compat import torchvision


def align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    if not np.isfinite(boxes).all():
        os._exit(3)
    return torchvision.roi_align(input, boxes, output_size, spatial_scale, sampling_ratio, aligned)


def raw(input, rois, spatial_scale, pooled_h, pooled_w, sampling_ratio, aligned):
    size = pooled_h, pooled_w
    return torchvision.roi_align(input, rois, size, spatial_scale, sampling_ratio, aligned)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module of a folder that is in nobody's path."""
    (tmp_path / "ops_of_a_test.py").write_text(CRASHING)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("ops_of_a_test")
    del sys.modules["ops_of_a_test"]


def test_a_function_that_crashes_ends_one_call(module: Any) -> None:
    report = found(module.align, "torchvision.roi_align", without=())
    assert {diagnosis.subject for diagnosis in report.diagnoses} == {"crashes"}
    (diagnosis,) = report.diagnoses
    assert diagnosis.words == "crashes: the process exits with status 3"
    assert "non-finite-boxes" in diagnosis.kinds
    lines = list(report.lines())
    assert "    ordinary boxes: all right; wrong: non-finite-boxes" in lines
    assert "    to leave these out: --without non-finite-boxes" in lines
    more: dict[str, Any] = {"without": ["non-finite-boxes"], "random_calls": 0}
    assert_conforms(module.align, "torchvision.roi_align", **more)


def test_closures_and_functions_that_are_asked_to_run_in_this_process(module: Any) -> None:
    processes = []

    def align(*given: Any, **options: Any) -> Any:
        processes.append(os.getpid())
        return torchvision.roi_align(*given, **options)

    more: dict[str, Any] = {"without": ["non-finite-boxes"], "random_calls": 0}
    assert_conforms(align, "torchvision.roi_align", **more)
    assert set(processes) == {os.getpid()}
    module.torchvision = None  # which another process does not see
    with pytest.raises(NotConforming):
        assert_conforms(module.align, "torchvision.roi_align", isolated=False, **more)
    assert_conforms(module.align, "torchvision.roi_align", **more)


def test_a_raw_operator_gets_its_wrapper(module: Any) -> None:
    with pytest.raises(ValueError, match="takes pooled_h and pooled_w, as raw") as caught:
        assert_conforms(module.raw, "torchvision.roi_align")
    (wrapper,) = re.findall("`(.*)`", str(caught.value))
    made: dict[str, Any] = {"operator": module.raw}
    exec(wrapper, made)
    assert_conforms(made["wrapper"], "torchvision.roi_align", random_calls=0)


@pytest.mark.parametrize(
    ("library", "text"),
    [
        ("numpy", "np.full((1, 1, 2, 1), 2.0, np.float32)"),
        ("torch", "torch.full((1, 1, 2, 1), 2.0, dtype=torch.float32)"),
        ("jax", "jnp.full((1, 1, 2, 1), 2.0, jnp.float32)"),
        ("cupy", "cupy.full((1, 1, 2, 1), 2.0, cupy.float32)"),
    ],
)
def test_arrays_are_written_as_the_implementation_takes_them(library: str, text: str) -> None:
    assert text_of(np.full((1, 1, 2, 1), 2, np.float32), library) == text
    rows = text_of(np.array([[0.0, 1.0]]), library)
    assert rows.startswith("torch.tensor([[0.0, 1.0]]" if library == "torch" else text[:3])
