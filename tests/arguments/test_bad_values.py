"""Invalid arguments: each raises an error that names the argument, before anything is written."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from _support.catalogue import Array
from _support.forms import read_only
from _support.loops import each
from _support.run_python import ONLY_ARRAYS, run_python
from _support.valid_calls import (
    ARGMAX,
    BOXES,
    CALLS,
    FEATURES,
    GRAD,
    IMAGES,
    ROIS,
    SAMPLES,
    filled_out,
)

import roipool
from roipool._definitions import OPS, VOLUME_OPS
from roipool._dtypes import INTEGERS
from roipool.systems.core import ONE_SCALE

nan, inf = float("nan"), float("inf")

# ---- Bad values of every argument, which each operation must reject

# With Microsoft's compiler, and on Apple's processors, a long double is a double.
LONG_DOUBLES = (
    [(FEATURES.astype(np.longdouble), TypeError)] if np.finfo(np.longdouble).bits > 64 else []
)
NOT_MAPS = [
    (FEATURES.tolist(), TypeError),
    (None, TypeError),
    (np.float32(1), TypeError),
    (FEATURES.astype(np.int64), TypeError),
    (FEATURES.astype(np.int32), TypeError),
    (FEATURES.astype(np.complex64), TypeError),
    *LONG_DOUBLES,
    (FEATURES.astype(object), TypeError),
    (FEATURES[0], ValueError),
    (FEATURES[None], ValueError),
    (FEATURES.ravel(), ValueError),
    (np.ma.masked_less(FEATURES, 1), TypeError),
]
OF_INTEGERS = [(FEATURES.astype(name), TypeError) for name in INTEGERS]
NOT_SIZES = [
    (0, ValueError),
    (-1, ValueError),
    ((2, 0), ValueError),
    ((2,), ValueError),
    ((2, 2, 2), ValueError),
    ((), ValueError),
    (2**31, ValueError),
    (2**70, ValueError),
    (2.0, TypeError),
    ((2, 2.5), TypeError),
    ("2", TypeError),
    (None, TypeError),
]
NOT_REAL = [
    ("1", TypeError),
    (None, TypeError),
    (1j, TypeError),
    ([1.0], TypeError),
    (np.array([1.0]), TypeError),
    (np.array("a"), TypeError),
]
NO_SCALE = [
    *((value, error) for value, error in NOT_REAL if np.ndim(value) == 0),
    ([1.0], ValueError),
    ((1.0, 0.5, 0.25), ValueError),
    (np.ones((2, 2)), TypeError),
    ((1.0, "1"), TypeError),
    ((True, 1.0), TypeError),
    ((nan, 1.0), ValueError),
]
NOT_OF_BINS = [
    (np.zeros((3, 3, 2, 2), np.float32), ValueError),
    (np.zeros((2, 1, 2, 2), np.float32), ValueError),
    (np.zeros((3, 2), np.float32), ValueError),
    (1.0, ValueError),
    ("offsets", TypeError),
    (np.zeros((3, 2, 2, 2), bool), TypeError),
    (np.zeros((3, 2, 2, 2), complex), TypeError),
    (None, TypeError),
]
NOT_FLAGS = [(1, TypeError), (None, TypeError), ("True", TypeError)]
NOT_SHAPES = [
    ((2, 3, 6), ValueError),
    ((2, 3, 6, 7, 1), ValueError),
    ((2, 3, -1, 7), ValueError),
    ((-1, 3, 6, 7), ValueError),
    ((2, 3, 6, 2**31), ValueError),
    ((2, 3, 6.0, 7), TypeError),
    (("2", "3", "6", "7"), TypeError),
    (6, TypeError),
    (None, TypeError),
]

BAD: dict[str, list[tuple[Any, type[Exception]]]] = {
    "dtype": [
        ("uint8", TypeError),
        ("float16", TypeError),
        (np.float64, TypeError),
        (np.dtype(np.int32), TypeError),
        ("no type", TypeError),
        ([1], TypeError),
        (True, TypeError),
    ],
    "features": NOT_MAPS,
    "grad_output": [
        *NOT_MAPS,
        (FEATURES > 0, TypeError),
        *OF_INTEGERS,
        (GRAD[:2], ValueError),
        (GRAD[:, :2], ValueError),
        (GRAD[:, :, :0], ValueError),
    ],
    "boxes": [
        (None, TypeError),
        (BOXES > 0, TypeError),
        (BOXES.astype(object), TypeError),
        (np.ma.masked_less(BOXES, 1), TypeError),
        ([*np.ma.masked_less(BOXES, 1)], TypeError),
        (BOXES[0], ValueError),
        (ROIS, ValueError),
        ([[0, 1, 1, 2], [0, 1]], ValueError),
    ],
    "box_indices": [
        (None, TypeError),
        (IMAGES > 0, TypeError),
        (np.ma.masked_less(IMAGES, 1), TypeError),
        (IMAGES[:2], ValueError),
        (IMAGES[:, None], ValueError),
        (0, ValueError),
        ([0, 1, 2], ValueError),
        ([0, 1, -1], ValueError),
        ([0, 1, 0.5], ValueError),
        ([0, 1, nan], ValueError),
    ],
    "output_size": NOT_SIZES,
    "crop_size": NOT_SIZES,
    "spatial_scale": [*NO_SCALE, (nan, ValueError), (inf, ValueError), (10**400, ValueError)],
    "extrapolation_value": [*NOT_REAL, (10**400, ValueError)],
    "gamma": [*NOT_REAL, (nan, ValueError), (inf, ValueError), (10**400, ValueError)],
    "offsets": NOT_OF_BINS,
    "mask": NOT_OF_BINS[:-1],
    "group_size": [
        (-1, ValueError),
        ((2, -1), ValueError),
        (2**15 + 1, ValueError),
        ((1, 3, 1), ValueError),
        (1.5, TypeError),
        (True, TypeError),
        ("3", TypeError),
        (None, TypeError),
    ],
    "sampling_ratio": [
        (-1, ValueError),
        ((2, -1), ValueError),
        (2**15 + 1, ValueError),
        ((2, 2**15 + 1), ValueError),
        (2**70, ValueError),
        ((2,), ValueError),
        (1.5, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
    "samples": [
        (0, ValueError),
        ((2, 0), ValueError),
        (-1, ValueError),
        ((2, -1), ValueError),
        (2**15 + 1, ValueError),
        ((2, 2**15 + 1), ValueError),
        (2**70, ValueError),
        ((2,), ValueError),
        (1.5, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
    "aligned": NOT_FLAGS,
    "clockwise": NOT_FLAGS,
    "antialias": NOT_FLAGS,
    "return_argmax": NOT_FLAGS,
    "layout": [("CHWN", ValueError), ("nchw", ValueError), (None, TypeError), (1, TypeError)],
    "mode": [
        ("sum", ValueError),
        ("", ValueError),
        (np.array(["avg", "max"]), (TypeError, ValueError)),
    ],
    "method": [("cubic", ValueError), ("", ValueError)],
    "border": [("edges", ValueError), ("", ValueError), (None, (TypeError, ValueError))],
    "angle_unit": [("turns", ValueError), ("", ValueError), (None, (TypeError, ValueError))],
    "input_shape": NOT_SHAPES,
    "out": [
        ([0.0], TypeError),
        (0, TypeError),
        ("shape", ValueError),
        ("dtype", TypeError),
        ("integers", TypeError),
        ("masked", TypeError),
        ("read-only", ValueError),
    ],
}


def with_number(array: Array, place: tuple[int, ...], number: int) -> Array:
    """Return a copy with another number at one place."""
    copy = array.copy()
    copy[place] = number
    return copy


# The last box has 2 x 2 samples in a bin, as its sides are 3 cells long.
LAST_BIN = (2, 0, 1, 1)
BAD_ARGMAX: dict[str, list[tuple[Any, type[Exception]]]] = {
    "roi_pool_backward": [
        (None, TypeError),
        (ARGMAX.tolist(), TypeError),
        (ARGMAX.astype(np.float32), TypeError),
        (np.ma.masked_less(ARGMAX, 1), TypeError),
        (ARGMAX[:2], ValueError),
        (np.full_like(ARGMAX, 42), ValueError),
        (np.full_like(ARGMAX, -2), ValueError),
        (with_number(ARGMAX, LAST_BIN, 42), ValueError),
        (with_number(ARGMAX, LAST_BIN, -2), ValueError),
        (np.full(ARGMAX.shape, 2**40), ValueError),
        (np.full(ARGMAX.shape, 2**64 - 1, np.uint64), ValueError),
    ],
    "roi_align_backward max": [
        (None, TypeError),
        (SAMPLES.astype(np.float32), TypeError),
        (SAMPLES[:, :2], ValueError),
        (np.full_like(SAMPLES, -2), ValueError),
        (np.full_like(SAMPLES, 10**6), ValueError),
        (with_number(SAMPLES, LAST_BIN, 4), ValueError),
        (with_number(SAMPLES, LAST_BIN, -2), ValueError),
        (np.full(SAMPLES.shape, 2**31), ValueError),
    ],
    "roi_align_backward": [(SAMPLES, ValueError)],
}

# Arguments that differ for operations on several maps. For a wrong number of maps, the error names
# the scales.
BAD_OF_PYRAMIDS: dict[str, list[tuple[Any, type[Exception]]]] = {
    "features": [
        *(([FEATURES, value], error) for value, error in (*NOT_MAPS, *OF_INTEGERS)),
        ([], ValueError),
        (None, TypeError),
        (5, TypeError),
        ([FEATURES, FEATURES.astype(np.float64)], TypeError),
        ([FEATURES, FEATURES[:1]], ValueError),
        ([FEATURES, FEATURES[:, :2]], ValueError),
    ],
    "input_shapes": [
        *(([FEATURES.shape, value], error) for value, error in NOT_SHAPES),
        ([], ValueError),
        (None, TypeError),
        (5, TypeError),
        ([FEATURES.shape, (2, 2, 6, 7)], ValueError),
    ],
    "levels": [
        ([0, 1], ValueError),
        ([[0, 1, 0]], ValueError),
        (0, ValueError),
        ([0, 1, 2], ValueError),
        ([0, 1, -1], ValueError),
        ([0.0, 1.0, 0.0], TypeError),
        ([True, False, True], TypeError),
        (np.ma.masked_less([0, 1, 0], 1), TypeError),
        ("abc", TypeError),
    ],
    "spatial_scales": [
        *(((1.0, value), error) for value, error in NO_SCALE),
        ((1.0, nan), ValueError),
        ((1.0,), ValueError),
        ((1.0, 0.5, 0.25), ValueError),
        ((), ValueError),
        (1.0, TypeError),
        (None, TypeError),
    ],
}


# Arguments that differ for operations on volumes: arrays and options have one more axis.
BAD_OF_VOLUMES: dict[str, list[tuple[Any, type[Exception]]]] = {
    "features": [
        *((value, error) for value, error in NOT_MAPS if error is TypeError),
        (FEATURES, ValueError),
        (FEATURES[None, None], ValueError),
    ],
    "output_size": [
        *((value, error) for value, error in NOT_SIZES if np.size(value) < 2),
        ((2, 2), ValueError),
        ((2, 2, 2.5), TypeError),
        ((2, 2, 0), ValueError),
        ((2**16, 2**15, 1), ValueError),
    ],
    "spatial_scale": [
        *((value, error) for value, error in BAD["spatial_scale"] if np.ndim(value) == 0),
        ((1.0, 1.0), ValueError),
        ((1.0, 1.0, nan), ValueError),
        ((1.0, "1", 1.0), TypeError),
    ],
    "sampling_ratio": [
        *BAD["sampling_ratio"],
        ((1, 1), ValueError),
        ((1, 1, -1), ValueError),
        (True, TypeError),
    ],
    "input_shape": [
        ((2, 3, 2, 3), ValueError),
        ((2, 3, 2, -1, 7), ValueError),
        ((2, 3, 2**16, 2**15, 1), ValueError),
        ((2, 3, 1, 1, 2**31), ValueError),
        ((2, 3, 2, 3.0, 7), TypeError),
        (6, TypeError),
        (None, TypeError),
    ],
    "layout": [*BAD["layout"], ("NCHW", ValueError)],
}


def bad_boxes(table: Array) -> list[tuple[Any, type[Exception]]]:
    """Return invalid boxes for an operation whose boxes are (K, 5) or, with an angle, (K, 6)."""
    alone = table[:, 1:]
    return [
        (None, TypeError),
        ("abc", TypeError),
        (table > 0, TypeError),
        (table.astype(object), TypeError),
        (table.astype(np.complex128), TypeError),
        (np.ma.masked_less(table, 1), TypeError),
        ([alone, np.ma.masked_less(alone, 1)], TypeError),
        (table[0], ValueError),
        (table[None], ValueError),
        (table[:, :3], ValueError),
        (np.zeros((3, table.shape[1] + 1)), ValueError),
        (np.zeros((2, 0)), ValueError),
        ([[0, 1, 1, 2, 2], [0, 1]], ValueError),
        ([[[0, 1], [2]], [[1, 2, 3, 4]]], ValueError),
        ([alone], ValueError),
        ([alone] * 3, ValueError),
        ([table, table], ValueError),
        ([alone, "ab"], TypeError),
        (5, ValueError),
    ]


def bad_values(name: str, argument: str) -> list[tuple[Any, type[Exception]]]:
    """Return invalid values of an argument, with their errors."""
    function, arguments = CALLS[name]
    if argument == "rois":
        return bad_boxes(arguments["rois"])
    takes_pyramid = "spatial_scales" in inspect.signature(function).parameters
    if takes_pyramid and argument in BAD_OF_PYRAMIDS:
        return BAD_OF_PYRAMIDS[argument]
    is_of_volumes = any(function.__name__ in op.functions.values() for op in VOLUME_OPS.values())
    if is_of_volumes and argument in BAD_OF_VOLUMES:
        bad = BAD_OF_VOLUMES[argument]
    else:
        bad = BAD.get(argument, [])
    takes_integers = any(
        op.forward == function.__name__ and "uint8" in op.dtypes
        for op in (OPS | VOLUME_OPS).values()
    )
    operation = function.__name__.removesuffix("_rois").removesuffix("_backward")
    has_one_scale = argument == "spatial_scale" and operation in ONE_SCALE
    return [
        *bad,
        *(OF_INTEGERS if argument == "features" and not takes_integers else []),
        *([((0.5, 0.25), ValueError)] if has_one_scale else []),
    ]


ROWS = {
    (name, argument): rows
    for name, (function, _) in CALLS.items()
    for argument in inspect.signature(function).parameters
    if (rows := bad_values(name, argument))
} | {(name, "argmax"): rows for name, rows in BAD_ARGMAX.items()}


def brief(value: Any) -> str:
    """Name a value."""
    if isinstance(value, np.ndarray):
        return f"array{value.shape}{value.dtype}".replace(" ", "")
    return value if isinstance(value, str) else repr(value)[:24]


def rows_of(name: str, argument: str) -> dict[str, Any]:
    """Return an argument's bad values with their errors, by a unique name."""
    rows = ROWS[name, argument]
    return {f"{number}: {brief(row[0])}": row for number, row in enumerate(rows)}


@each(row=rows_of)
@pytest.mark.parametrize(("name", "argument"), ROWS)
def test_bad_values_are_refused(name: str, argument: str, row: tuple[Any, Any]) -> None:
    (function, arguments), (value, error) = CALLS[name], row
    out = filled_out(function, arguments)
    given = dict(arguments)
    if out is not None:
        given["out"] = out
    if argument == "out" and isinstance(value, str):
        kinds = {
            "shape": out[:1],
            "dtype": out.astype(np.float64),
            "integers": out.astype(np.int32),
            "masked": np.ma.masked_less(out, 1),
            "read-only": read_only(out),
        }
        value = out = kinds[value]
    given[argument] = value
    untouched = None if out is None else out.copy()
    with pytest.raises(error, match=rf"\b{argument}\b"):
        function(**given)
    if out is not None:
        np.testing.assert_array_equal(out, untouched)


def test_every_argument_has_bad_values() -> None:
    named = {argument for _, argument in ROWS} | {"batch_indices"}
    for function, _ in CALLS.values():
        assert set(inspect.signature(function).parameters) <= named


@pytest.mark.parametrize("name", [name for name, (_, call) in CALLS.items() if "rois" in call])
class TestBatchIndices:
    """Batch indices, in the first column of the boxes or in a separate argument."""

    @each(index=[0.5, -1, 2, nan, inf, -inf, 1e30])
    def test_bad_index_names_its_row(self, name: str, index: float) -> None:
        function, arguments = CALLS[name]
        rois = arguments["rois"].copy()
        rois[1, 0] = index
        for dtype in (np.float32, np.float64):
            with pytest.raises(ValueError, match=r"rois\[1, 0\] is .*whole numbers"):
                function(**{**arguments, "rois": rois.astype(dtype)})
        with pytest.raises(ValueError, match=r"batch_indices\[1\] is .*whole numbers"):
            function(**{**arguments, "rois": rois[:, 1:], "batch_indices": rois[:, 0]})

    def test_four_columns_need_indices(self, name: str) -> None:
        function, arguments = CALLS[name]
        with pytest.raises(ValueError, match="batch_indices"):
            function(**{**arguments, "rois": arguments["rois"][:, 1:]})

    def test_indices_that_do_not_fit(self, name: str) -> None:
        function, arguments = CALLS[name]
        table = arguments["rois"]
        alone = table[:, 1:]
        for rois, indices in [
            (table, IMAGES),
            ([alone[:2], alone[2:]], IMAGES),
            (alone, IMAGES[:2]),
            (alone, IMAGES[:, None]),
            (alone, 0),
        ]:
            with pytest.raises(ValueError, match="batch_indices"):
                function(**{**arguments, "rois": rois, "batch_indices": indices})

    @each(indices=["abc", [True, False, True], [1j, 0, 0], np.ma.masked_less(IMAGES, 1)])
    def test_indices_of_another_kind(self, name: str, indices: Any) -> None:
        function, arguments = CALLS[name]
        alone = arguments["rois"][:, 1:]
        with pytest.raises(TypeError, match="batch_indices"):
            function(**{**arguments, "rois": alone, "batch_indices": indices})


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_integer_features_name_the_fix(kind: type) -> None:
    with pytest.raises(TypeError, match=r"features\.astype\(np\.float32\)"):
        roipool.roi_pool(FEATURES.astype(kind), ROIS, 2)


@each(index=[-1, 0, 3])
def test_the_last_right_argmax_is_accepted(index: int) -> None:
    function, arguments = CALLS["roi_align_backward max"]
    gradient = function(**{**arguments, "argmax": with_number(SAMPLES, LAST_BIN, index)})
    none = function(**{**arguments, "argmax": with_number(SAMPLES, LAST_BIN, -1)})
    assert (gradient != none).any() == (index >= 0)


def test_average_has_no_argmax() -> None:
    with pytest.raises(ValueError, match="return_argmax"):
        roipool.roi_align(FEATURES, ROIS, 2, return_argmax=True)


@pytest.mark.parametrize(
    "name", [name for name, (_, call) in CALLS.items() if {"features", "grad_output"} <= set(call)]
)
def test_gradient_and_features_of_two_types(name: str) -> None:
    function, arguments = CALLS[name]
    with pytest.raises(TypeError, match=r"grad_output.*features"):
        function(**{**arguments, "grad_output": arguments["grad_output"].astype(np.float64)})


def test_groups_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="features must have a multiple of 2 x 2 channels"):
        roipool.ps_roi_pool(FEATURES, ROIS, 2)
    with pytest.raises(ValueError, match="features must have a multiple of 3 x 2 channels"):
        roipool.ps_roi_align_backward(GRAD, ROIS, FEATURES.shape, group_size=(3, 2))


def test_more_boxes_than_images() -> None:
    with pytest.raises(ValueError, match=r"rois\[0, 0\]"):
        roipool.roi_pool(FEATURES[:0], ROIS, 2)


class Foreign:
    """An array of another library that converts itself to NumPy."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return FEATURES


def test_arrays_of_other_libraries_are_refused() -> None:
    with pytest.raises(TypeError, match=r"features must be .*Foreign"):
        roipool.roi_align(Foreign(), ROIS, 2)


def test_mixed_kinds_of_arrays_are_refused() -> None:
    code = """
        import cupy, roipool
        import numpy as np
        on_gpu, rois, grad = cupy.ndarray(), np.ones((2, 5)), np.ones((2, 1, 2, 2))
        for call in (
            lambda: roipool.roi_align(on_gpu, rois, 2),
            lambda: roipool.roi_pool_backward(grad, on_gpu, rois, (1, 1, 4, 4)),
        ):
            try:
                call()
            except TypeError as error:
                print(error)
    """
    done = run_python(code, modules={"cupy": ONLY_ARRAYS})
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert "features is on the GPU, rois is not" in first
    assert "argmax is on the GPU, grad_output, rois is not" in second
