"""What users may pass, and what happens when they pass something else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _support.catalogue import DTYPES, Array
from _support.combinations import each
from _support.compare import assert_same_bits
from _support.run_python import ONLY_ARRAYS, run_python

import roipool
from roipool._definitions import OPS, PYRAMID_OPS, TRAITS, Op, Variant

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(2, 3, 6, 7)).astype(np.float32)
ROIS = np.array([[0, 1.25, 0.5, 5.5, 4], [1, -2, 1, 3, 6.75], [0, 2, 2, 5, 5]])
IMAGES = ROIS[:, 0].astype(np.int64)
BOXES = ROIS[:, [2, 1, 4, 3]] / 6
GRAD = RNG.normal(size=(3, 3, 2, 2)).astype(np.float32)
_, ARGMAX = roipool.roi_pool(FEATURES, ROIS, 2, return_argmax=True)
_, SAMPLES = roipool.roi_align(FEATURES, ROIS, 2, mode="max", return_argmax=True)

nan, inf = float("nan"), float("inf")

PYRAMID = [FEATURES, np.ascontiguousarray(FEATURES[:, :, ::2, ::2])]
# In the columns of each operation's boxes, after that of the image.
TABLES = {4: ROIS, 5: np.column_stack([ROIS, [0.3, -2.0, 1.5]])}


def calls_of(op: Op, variant: Variant) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Yield each public function of an operation, with one valid value of each argument."""
    is_pyramid = op.forward in PYRAMID_OPS
    boxes = {"rois": TABLES[op.columns]}
    if op.boxes == "boxes":
        boxes = {"boxes": BOXES, "box_indices": IMAGES}
    values = {
        "features": PYRAMID if is_pyramid else FEATURES,
        "grad_output": GRAD,
        "input_shape": FEATURES.shape,
        "input_shapes": [maps.shape for maps in PYRAMID],
        "spatial_scales": (1.0, 0.5),
        "levels": np.array([0, 1, 0]),
        op.size: 2,
        **boxes,
        **variant.options,
    }
    if variant.has_argmax:
        kind = TRAITS[variant.definition].kind
        values["argmax"] = ARGMAX if kind == "cells" else SAMPLES
    for name in filter(None, (op.forward, op.backward, variant.by_boxes and op.backward_boxes)):
        function = getattr(roipool, name)
        taken = inspect.signature(function).parameters
        yield function, {key: value for key, value in values.items() if key in taken}


# One valid call of every function of every operation, all arguments by name. The first variant has
# the function's name, others their own, too.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    f"{function.__name__} {key}" if number else function.__name__: (function, arguments)
    for op in (*OPS.values(), *PYRAMID_OPS.values())
    for number, (key, variant) in enumerate(op.variants.items())
    for function, arguments in calls_of(op, variant)
}


def arrays_of(value: Any) -> list[Array]:
    """Return the arrays that a value is, or is a list of."""
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if isinstance(part, np.ndarray)]


def changed(value: Any, change: Callable[[Array], Array]) -> Any:
    """Return a value with its arrays changed."""
    if isinstance(value, list):
        return [changed(part, change) for part in value]
    return change(value) if isinstance(value, np.ndarray) else value


def assert_same_arrays(got: Any, expected: Any) -> None:
    """Compare results, which are arrays or lists of them."""
    for one, other in zip(arrays_of(got), arrays_of(expected), strict=True):
        assert_same_bits(one, other)


def read_only(array: Array) -> Array:
    """Return a copy that cannot be written to."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


# ---- Bad values: for every argument, what each operation that has it must refuse

# Of Microsoft's compiler, and on Apple's processors, a long double is a double.
LONG_DOUBLES = (
    [(FEATURES.astype(np.longdouble), TypeError)] if np.finfo(np.longdouble).bits > 64 else []
)
NOT_MAPS = [
    (FEATURES.tolist(), TypeError),
    (None, TypeError),
    (np.float32(1), TypeError),
    (FEATURES.astype(np.int64), TypeError),
    (FEATURES > 0, TypeError),
    (FEATURES.astype(np.uint8), TypeError),
    (FEATURES.astype(np.complex64), TypeError),
    *LONG_DOUBLES,
    (FEATURES.astype(object), TypeError),
    (FEATURES[0], ValueError),
    (FEATURES[None], ValueError),
    (FEATURES.ravel(), ValueError),
]
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
NOT_FLAGS = [(1, TypeError), (None, TypeError), ("True", TypeError)]
NOT_SHAPES = [
    ((2, 3, 6), ValueError),
    ((2, 3, 6, 7, 1), ValueError),
    ((2, 3, -6, 7), ValueError),
    ((2, 3, 6, 2**31), ValueError),
    ((2, 3, 6.0, 7), TypeError),
    (("2", "3", "6", "7"), TypeError),
    (6, TypeError),
    (None, TypeError),
]

BAD: dict[str, list[tuple[Any, type[Exception]]]] = {
    "features": NOT_MAPS,
    "grad_output": [
        *NOT_MAPS,
        (GRAD[:2], ValueError),
        (GRAD[:, :2], ValueError),
        (GRAD[:, :, :0], ValueError),
    ],
    "boxes": [
        (None, TypeError),
        (BOXES > 0, TypeError),
        (BOXES.astype(object), TypeError),
        (BOXES[0], ValueError),
        (ROIS, ValueError),
        ([[0, 1, 1, 2], [0, 1]], ValueError),
    ],
    "box_indices": [
        (None, TypeError),
        (IMAGES > 0, TypeError),
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
    "spatial_scale": [*NOT_REAL, (nan, ValueError), (inf, ValueError), (10**400, ValueError)],
    "extrapolation_value": [*NOT_REAL, (10**400, ValueError)],
    "sampling_ratio": [
        (-1, ValueError),
        ((2, -1), ValueError),
        (2**15 + 1, ValueError),
        (2**70, ValueError),
        ((2,), ValueError),
        (1.5, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
    "aligned": NOT_FLAGS,
    "clockwise": NOT_FLAGS,
    "return_argmax": NOT_FLAGS,
    "layout": [("CHWN", ValueError), ("nchw", ValueError), (None, TypeError), (1, TypeError)],
    "mode": [
        ("sum", ValueError),
        ("", ValueError),
        (np.array(["avg", "max"]), (TypeError, ValueError)),
    ],
    "method": [("cubic", ValueError), ("", ValueError)],
    "angle_unit": [("turns", ValueError), ("", ValueError), (None, (TypeError, ValueError))],
    "input_shape": NOT_SHAPES,
    "out": [
        ([0.0], TypeError),
        (0, TypeError),
        ("shape", ValueError),
        ("dtype", TypeError),
        ("integers", TypeError),
        ("read-only", ValueError),
    ],
}  # fmt: skip
BAD_ARGMAX: dict[str, list[tuple[Any, type[Exception]]]] = {
    "roi_pool_backward": [
        (None, TypeError),
        (ARGMAX.tolist(), TypeError),
        (ARGMAX.astype(np.float32), TypeError),
        (ARGMAX[:2], ValueError),
        (np.full_like(ARGMAX, 42), ValueError),
        (np.full_like(ARGMAX, -2), ValueError),
        (np.full(ARGMAX.shape, 2**40), ValueError),
        (np.full(ARGMAX.shape, 2**64 - 1, np.uint64), ValueError),
    ],
    "roi_align_backward max": [
        (None, TypeError),
        (SAMPLES.astype(np.float32), TypeError),
        (SAMPLES[:, :2], ValueError),
        (np.full_like(SAMPLES, -2), ValueError),
        (np.full_like(SAMPLES, 10**6), ValueError),
        (np.full(SAMPLES.shape, 2**31), ValueError),
    ],
    "roi_align_backward": [(SAMPLES, ValueError)],
}

# Of operations on several maps, where an argument of that name is another. Of a wrong number of
# maps the error names the scales.
BAD_OF_PYRAMIDS: dict[str, list[tuple[Any, type[Exception]]]] = {
    "features": [
        *(([FEATURES, value], error) for value, error in NOT_MAPS),
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
        ("abc", TypeError),
    ],
    "spatial_scales": [
        *(((1.0, value), error) for value, error in NOT_REAL),
        ((1.0, nan), ValueError),
        ((1.0,), ValueError),
        ((1.0, 0.5, 0.25), ValueError),
        ((), ValueError),
        (1.0, TypeError),
        (None, TypeError),
    ],
}


def bad_boxes(table: Array) -> list[tuple[Any, type[Exception]]]:
    """Return what is not in any form of these boxes: (K, 5), with an angle (K, 6)."""
    alone = table[:, 1:]
    return [
        (None, TypeError),
        ("abc", TypeError),
        (table > 0, TypeError),
        (table.astype(object), TypeError),
        (table.astype(np.complex128), TypeError),
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
    """Return what an argument of a call must not be."""
    function, arguments = CALLS[name]
    if argument == "rois":
        return bad_boxes(arguments["rois"])
    takes_pyramid = "spatial_scales" in inspect.signature(function).parameters
    if takes_pyramid and argument in BAD_OF_PYRAMIDS:
        return BAD_OF_PYRAMIDS[argument]
    return BAD.get(argument, [])


ROWS = [
    (name, argument, value, error)
    for name, (function, _) in CALLS.items()
    for argument in inspect.signature(function).parameters
    for value, error in bad_values(name, argument)
] + [(name, "argmax", value, error) for name, rows in BAD_ARGMAX.items() for value, error in rows]


def brief(value: Any) -> str:
    """Name a value in a test's id."""
    if isinstance(value, np.ndarray):
        return f"array{value.shape}{value.dtype}".replace(" ", "")
    if isinstance(value, type):
        return value.__name__
    return value if isinstance(value, str) else repr(value)[:24]


def filled_out(function: Callable[..., Any], arguments: dict[str, Any]) -> Array | None:
    """Return an `out` full of 7 for a valid call, or None if the function has no such argument."""
    if "out" not in inspect.signature(function).parameters:
        return None
    result = function(**arguments)
    return np.full_like(result, 7)


@pytest.mark.parametrize(("name", "argument", "value", "error"), ROWS, ids=brief)
def test_bad_values_are_refused(name: str, argument: str, value: Any, error: Any) -> None:
    function, arguments = CALLS[name]
    out = filled_out(function, arguments)
    given = dict(arguments)
    if out is not None:
        given["out"] = out
    if argument == "out" and isinstance(value, str):
        kinds = {
            "shape": out[:1], "dtype": out.astype(np.float64), "integers": out.astype(np.int32),
            "read-only": read_only(out),
        }  # fmt: skip
        value = out = kinds[value]
    given[argument] = value
    untouched = None if out is None else out.copy()
    with pytest.raises(error, match=rf"\b{argument}\b"):
        function(**given)
    if out is not None:
        np.testing.assert_array_equal(out, untouched)


def test_every_argument_has_bad_values() -> None:
    named = {argument for _, argument, _, _ in ROWS} | {"batch_indices"}
    for function, _ in CALLS.values():
        assert set(inspect.signature(function).parameters) <= named


@pytest.mark.parametrize("name", [name for name, (_, call) in CALLS.items() if "rois" in call])
class TestBatchIndices:
    """The image of a box, in a column of its own or in an argument."""

    @pytest.mark.parametrize("index", [0.5, -1, 2, nan, inf, -inf, 1e30])
    def test_bad_index_names_its_row(self, name: str, index: float) -> None:
        function, arguments = CALLS[name]
        rois = arguments["rois"].copy()
        rois[1, 0] = index
        with pytest.raises(ValueError, match=r"rois\[1, 0\] is .*whole numbers"):
            function(**{**arguments, "rois": rois})
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

    @pytest.mark.parametrize("indices", ["abc", [True, False, True], [1j, 0, 0]], ids=repr)
    def test_indices_of_another_kind(self, name: str, indices: Any) -> None:
        function, arguments = CALLS[name]
        alone = arguments["rois"][:, 1:]
        with pytest.raises(TypeError, match="batch_indices"):
            function(**{**arguments, "rois": alone, "batch_indices": indices})


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.bool_])
def test_integer_features_name_the_fix(kind: type) -> None:
    with pytest.raises(TypeError, match=r"features\.astype\(np\.float32\)"):
        roipool.roi_pool(FEATURES.astype(kind), ROIS, 2)


def test_average_has_no_argmax() -> None:
    with pytest.raises(ValueError, match="return_argmax"):
        roipool.roi_align(FEATURES, ROIS, 2, return_argmax=True)


@pytest.mark.parametrize(
    "name", [name for name, (_, call) in CALLS.items() if {"features", "grad_output"} <= set(call)]
)
def test_gradient_and_features_of_two_types(name: str) -> None:
    function, arguments = CALLS[name]
    with pytest.raises(TypeError, match=r"grad_output.*features"):
        function(**{**arguments, "grad_output": GRAD.astype(np.float64)})


def test_more_boxes_than_images() -> None:
    with pytest.raises(ValueError, match=r"rois\[0, 0\]"):
        roipool.roi_pool(FEATURES[:0], ROIS, 2)


class Foreign:
    """An array of another library, which converts itself on request."""

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


# ---- Every form of boxes


@pytest.mark.parametrize("name", [name for name, (_, call) in CALLS.items() if "rois" in call])
def test_forms_of_rois(name: str) -> None:
    function, arguments = CALLS[name]
    # In the order of images, as one array per image must be.
    order = np.argsort(IMAGES, kind="stable")
    rois = arguments["rois"][order]
    arguments = dict(arguments)
    for per_box in ("grad_output", "argmax", "levels"):
        if per_box in arguments:
            arguments[per_box] = arguments[per_box][order]
    expected = function(**{**arguments, "rois": rois})
    parts = [rois[rois[:, 0] == image, 1:] for image in range(2)]
    forms: list[dict[str, Any]] = [
        {"rois": rois.tolist()},
        {"rois": tuple(map(tuple, rois))},
        {"rois": list(rois)},
        {"rois": rois[:, 1:], "batch_indices": rois[:, 0].astype(np.int32)},
        {"rois": rois[:, 1:], "batch_indices": rois[:, 0]},
        {"rois": rois[:, 1:].tolist(), "batch_indices": [0, 0, 1]},
        {"rois": parts},
        {"rois": tuple(parts)},
        {"rois": [part.tolist() for part in parts]},
    ]
    for form in forms:
        assert_same_arrays(function(**{**arguments, **form}), expected)


@pytest.mark.parametrize(
    "rois",
    [
        [],
        (),
        np.zeros((0, 5)),
        np.zeros(0),
        [np.zeros((0, 4))] * 2,
        [[], []],
        ([], np.zeros((0, 4))),
    ],
    ids=["[]", "()", "(0, 5)", "(0,)", "two (0, 4)", "[[], []]", "[] and (0, 4)"],
)
def test_no_boxes(rois: Any) -> None:
    assert roipool.roi_pool(FEATURES, rois, (2, 3)).shape == (0, 3, 2, 3)
    assert roipool.roi_align(FEATURES, rois, (2, 3)).shape == (0, 3, 2, 3)
    grad = roipool.roi_align_backward(np.zeros((0, 3, 2, 2)), rois, FEATURES.shape)
    np.testing.assert_array_equal(grad, np.zeros(FEATURES.shape))
    assert roipool.roi_align_backward_rois(GRAD[:0], FEATURES, rois).shape == (0, 4)


def test_no_boxes_for_one_image() -> None:
    expected = roipool.roi_align(FEATURES, ROIS[[1]], 2)
    for empty in ([], np.zeros((0, 4))):
        assert_same_bits(roipool.roi_align(FEATURES, [empty, ROIS[[1], 1:]], 2), expected)


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "uint16", "float16", "float32", "longdouble", ">f8", "bfloat16"]
)
def test_dtypes_of_boxes(dtype: str) -> None:
    whole = np.array([[0, 1, 0, 5, 4], [1, 2, 1, 3, 6]])
    boxes = whole.astype(DTYPES.get(dtype, dtype))
    for op in (roipool.roi_pool, roipool.roi_align):
        expected = op(FEATURES, whole.astype(np.float64), 2)
        assert_same_bits(op(FEATURES, boxes, 2), expected)
        assert_same_bits(op(FEATURES, boxes[:, 1:], 2, batch_indices=boxes[:, 0]), expected)
    corners, images = boxes[:, 1:], boxes[:, 0]
    assert_same_bits(
        roipool.crop_and_resize(FEATURES, corners, images, 2),
        roipool.crop_and_resize(FEATURES, corners.astype(np.float64), images.astype(int), 2),
    )


def test_boxes_of_half_maps_keep_float32() -> None:
    # 1000.3 is 1000.5 in float16 and 1000 in bfloat16.
    maps = np.zeros((1, 1, 1, 2000), np.float32)
    maps[..., 1000] = 1
    roi = [[0, 1000.3, 0, 1001.3, 1]]
    expected = roipool.roi_align(maps, roi, 1, sampling_ratio=1)
    for dtype in ("float16", "bfloat16"):
        got = roipool.roi_align(maps.astype(DTYPES[dtype]), roi, 1, sampling_ratio=1)
        assert_same_bits(got, expected.astype(DTYPES[dtype]))


# ---- Every form of arrays


def every_second(array: Array) -> Array:
    """Return the array as a view with gaps."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def unaligned(array: Array) -> Array:
    """Return the array at an odd address."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def byte_swapped(array: Array) -> Array:
    """Return the array in the other byte order."""
    return array.byteswap().view(array.dtype.newbyteorder())


def in_dtype(arguments: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return arguments with maps and gradients of a type."""
    maps = {"features", "grad_output"} & set(arguments)
    return arguments | {
        key: changed(arguments[key], lambda array: array.astype(DTYPES[dtype])) for key in maps
    }


def placed(memory: Array, first: int, array: Array) -> Array:
    """Copy an array into a part of `memory`; return the view of it."""
    view = memory[first : first + array.size].reshape(array.shape)
    view[...] = array
    return view


class Subclass(np.ndarray):
    """An array with a name of its own."""


FORMS: dict[str, Callable[[Array], Array]] = {
    "every second": every_second,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "Fortran order": np.asfortranarray,
    "axes exchanged": lambda array: np.ascontiguousarray(array.swapaxes(0, -1)).swapaxes(0, -1),
    "byte-swapped": byte_swapped,
    "unaligned": unaligned,
    "read-only": read_only,
    "subclass": lambda array: array.copy().view(Subclass),
}


@pytest.mark.parametrize("form", FORMS)
@each(dtype=list(DTYPES))
@pytest.mark.parametrize("name", CALLS)
def test_forms_of_arrays(name: str, dtype: str, form: str) -> None:
    function, arguments = CALLS[name]
    plain = in_dtype(arguments, dtype)
    expected = function(**plain)
    other = {key: changed(value, FORMS[form]) for key, value in plain.items()}
    before = {key: changed(value, np.copy) for key, value in other.items()}
    result = function(**other)
    for got in arrays_of(result):
        assert type(got) is np.ndarray
        assert got.flags.c_contiguous
        assert got.dtype.isnative
    assert_same_arrays(result, expected)
    for key, value in other.items():
        for now, then in zip(arrays_of(value), arrays_of(before[key]), strict=True):
            np.testing.assert_array_equal(now.view(np.ndarray), then.view(np.ndarray))


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("read-only", "subclass")])
@each(dtype=list(DTYPES))
@pytest.mark.parametrize(
    "name", [name for name, call in CALLS.items() if filled_out(*call) is not None]
)
def test_forms_of_out(name: str, dtype: str, form: str) -> None:
    function, arguments = CALLS[name]
    arguments = in_dtype(arguments, dtype)
    expected = function(**arguments)
    out = FORMS[form](np.full(expected.shape, 7, expected.dtype))
    assert function(**arguments, out=out) is out
    assert_same_bits(out.astype(expected.dtype), expected)
    assert_same_bits(function(**arguments), expected)


def test_gaps_of_out_are_left_alone() -> None:
    wide = np.full((3, 3, 2, 4), 7, np.float32)
    roipool.roi_align(FEATURES, ROIS, 2, out=wide[..., ::2])
    np.testing.assert_array_equal(wide[..., 1::2], 7)


@pytest.mark.parametrize("shift", [0, 5, 40])
@pytest.mark.parametrize("name", [name for name in CALLS if name.split()[0] in OPS])
def test_out_may_overlap_the_features(name: str, shift: int) -> None:
    function, arguments = CALLS[name]
    arguments = {**arguments, OPS[name.split()[0]].size: (5, 6)}
    expected = function(**arguments)
    memory = np.zeros(FEATURES.size + expected.size + shift, np.float32)
    features = placed(memory, 0, FEATURES)
    out = memory[shift : shift + expected.size].reshape(expected.shape)
    assert_same_bits(function(**{**arguments, "features": features}, out=out), expected)


@pytest.mark.parametrize("shift", [0, 5, 20])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (function, call) in CALLS.items()
        if name.split()[0].endswith("_backward") and "input_shape" in call
    ],
)
def test_out_may_overlap_the_gradient(name: str, shift: int) -> None:
    function, arguments = CALLS[name]
    expected = function(**arguments)
    memory = np.zeros(expected.size + GRAD.size, np.float32)
    grad = placed(memory, shift, GRAD)
    out = memory[: expected.size].reshape(expected.shape)
    assert_same_bits(function(**{**arguments, "grad_output": grad}, out=out), expected)


def test_out_may_overlap_boxes_and_argmax() -> None:
    expected = roipool.roi_align(FEATURES, ROIS.astype(np.float32), 2)
    memory = np.zeros(expected.size, np.float32)
    rois = placed(memory, 0, ROIS)
    out = memory.reshape(expected.shape)
    assert_same_bits(roipool.roi_align(FEATURES, rois, 2, out=out), expected)

    expected = roipool.roi_pool_backward(GRAD, ARGMAX, ROIS, FEATURES.shape)
    memory = np.zeros(expected.size, np.float32)
    argmax = placed(memory.view(np.int32), memory.size - ARGMAX.size, ARGMAX)
    out = memory.reshape(expected.shape)
    assert_same_bits(
        roipool.roi_pool_backward(GRAD, argmax, ROIS, FEATURES.shape, out=out), expected
    )


# ---- Forms of the other arguments


def test_forms_of_sizes_and_numbers() -> None:
    expected = roipool.roi_align(FEATURES, ROIS, (2, 2), 0.5, (3, 3), aligned=True)
    for size in (2, np.int8(2), [2, 2], (np.uint64(2), 2)):
        for scale in (0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5), np.array(0.5)):
            got = roipool.roi_align(FEATURES, ROIS, size, scale, 3, aligned=np.True_)
            assert_same_bits(got, expected)
    assert_same_bits(roipool.roi_align(FEATURES, ROIS, 2, 0.5, [np.int16(3), 3]), expected)
    one = roipool.roi_align(FEATURES, ROIS, 2)
    assert_same_bits(roipool.roi_align(FEATURES, ROIS, 2, 1), one)
    assert_same_bits(roipool.roi_align(FEATURES, ROIS, 2, spatial_scale=np.int32(1)), one)
    shape = np.array(FEATURES.shape)
    expected = roipool.roi_align_backward(GRAD, ROIS, FEATURES.shape)
    assert_same_bits(roipool.roi_align_backward(GRAD, ROIS, shape), expected)
    assert_same_bits(roipool.roi_align_backward(GRAD, ROIS, list(shape)), expected)


@pytest.mark.parametrize("value", [0, 1.5, -inf, nan, np.float32(2), np.array(3.0)])
def test_forms_of_extrapolation_value(value: Any) -> None:
    crop = roipool.crop_and_resize(
        FEATURES, [[3.0, 3.0, 4.0, 4.0]], [0], 2, extrapolation_value=value
    )
    np.testing.assert_array_equal(crop, np.full(crop.shape, float(value)))


def test_a_bins_last_sample_is_its_number_of_samples_less_one() -> None:
    call, arguments = CALLS["roi_align_backward max"]
    for last, allowed in ((7, True), (8, False)):
        argmax = np.full_like(SAMPLES, -1)
        argmax[0, 0, 1, 1] = last
        given = {**arguments, "sampling_ratio": (2, 4), "argmax": argmax}
        if allowed:
            assert call(**given).any()
        else:
            with pytest.raises(ValueError, match="argmax"):
                call(**given)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.uint64, np.int16])
def test_argmax_of_any_integer_type(kind: type) -> None:
    argmax = np.maximum(ARGMAX, 0).astype(kind)
    expected = roipool.roi_pool_backward(GRAD, np.maximum(ARGMAX, 0), ROIS, FEATURES.shape)
    got = roipool.roi_pool_backward(GRAD, argmax, ROIS, FEATURES.shape)
    assert_same_bits(got, expected)


@pytest.mark.parametrize("function", dict.fromkeys(function for function, _ in CALLS.values()))
def test_options_are_keywords(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert all(
        parameter.kind is parameter.KEYWORD_ONLY
        for parameter in parameters
        if parameter.name in ("batch_indices", "layout", "out", "aligned", "mode", "method")
    )
