"""Features of integers: pictures are read as they are, and pooled to float32."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support.catalogue import VARIANTS, every_layout, in_layout, shape_in_layout
from _support.compare import assert_same_bits
from _support.loops import each
from _support.valid_calls import CALLS, FEATURES

import roipool
from roipool import _cpu, _pooling
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS
from roipool._dtypes import FLOATS, INTEGERS
from roipool.systems.case import LAYOUTS, dtypes, held_by
from roipool.verification.call import run
from roipool.verification.catalogue import ENTRIES, Entry
from roipool.verification.check import CALL, ORACLE, check

MIB = 2**20
every_integer_type = each(dtype=INTEGERS)
every_row = pytest.mark.parametrize(
    "name", [name for name, (op, _) in VARIANTS.items() if op.dtypes != FLOATS]
)


# The largest boxes of the catalogue could be in pixels, of which crops of pictures warn.
in_pixels = pytest.mark.filterwarnings("ignore:.*more than 10 times the size of their maps")


def cases_of_integers(name: str, entry: Entry, dtype: str, layout: str) -> list[Any]:
    """Return an entry's calls with pixels of integers, which count sixteenths or finer parts."""
    parts = 16 ** np.dtype(dtype).itemsize
    return [
        held_by(replace(case, layout=layout, maps=parts * case.maps), dtype)
        for _, case in entry.cases(name)
    ]


def check_integers(name: str, entry: Entry, dtype: str, layout: str, *subjects: str) -> None:
    """Make all calls of an operation for an entry, and compare."""
    for case in cases_of_integers(name, entry, dtype, layout):
        for finding in check(case, subjects):
            assert finding.comparison.problem is None, finding


@in_pixels
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
@every_row
def test_oracle(name: str, entry: Entry) -> None:
    number = ENTRIES.index(entry)
    dtype, layout = INTEGERS[number % 4], LAYOUTS[number // 4 % 2]
    check_integers(name, entry, dtype, layout, CALL, ORACLE)


@in_pixels
@pytest.mark.thorough
@every_integer_type
@every_layout
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
@every_row
def test_every_type_and_layout(name: str, entry: Entry, dtype: str, layout: str) -> None:
    check_integers(
        name, entry, dtype, layout, CALL, ORACLE, "transposes", "threads", "chosen types"
    )


@every_integer_type
@every_layout
@each(engine=_cpu.instruction_sets(), channels=[1, 3, 5, 16, 19, 32])
@every_row
def test_results_are_those_of_the_numbers_in_float32(
    name: str, dtype: str, layout: str, engine: str, channels: int
) -> None:
    entry = next(entry for entry in ENTRIES if entry.name == "inside")
    rng = np.random.default_rng(channels)
    before = _cpu.instruction_set()
    _cpu.use_instruction_set(engine)
    try:
        for _, drawn in entry.cases(name):
            maps = rng.integers(-(2**15), 2**16, (len(drawn.maps), channels, *drawn.maps.shape[2:]))
            grad = np.zeros((len(drawn.grad), channels, *drawn.grad.shape[2:]))
            case = held_by(replace(drawn, maps=maps, grad=grad, layout=layout), dtype)
            of_floats = run(replace(case, dtype="float32"), roipool)
            for result, array in run(case, roipool).items():
                assert_same_bits(array, of_floats[result])
    finally:
        _cpu.use_instruction_set(before)


IDENTITIES: dict[str, Callable[..., Any]] = {
    "average": lambda maps, side, **more: roipool.roi_align(
        maps, [[0, 0, 0, side, side]], side, 1.0, 1, **more
    ),
    "bilinear crop": lambda maps, side, **more: roipool.crop_and_resize(
        maps, [[0, 0, 1, 1]], [0], side, **more
    ),
    "nearest crop": lambda maps, side, **more: roipool.crop_and_resize(
        maps, [[0, 0, 1, 1]], [0], side, method="nearest", **more
    ),
    "maximum": lambda maps, side, **more: roipool.roi_pool(
        maps, [[0, 0, 0, side - 1, side - 1]], side, **more
    ),
    "maximum of samples": lambda maps, side, **more: roipool.roi_align(
        maps, [[0, 0, 0, side, side]], side, 1.0, 1, mode="max", **more
    ),
}


@every_integer_type
@every_layout
@each(channels=[1, 3, 16, 17])
@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_integer_passes(identity: str, channels: int, layout: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    every = np.arange(limits.min, limits.max + 1).astype(dtype)
    side = math.isqrt(len(every))
    maps = in_layout(np.repeat(every.reshape(1, 1, side, side), channels, axis=1), layout)
    got = IDENTITIES[identity](maps, side, layout=layout)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, maps)


def test_crops_go_to_a_given_float32_array() -> None:
    maps = np.arange(75, dtype=np.uint8).reshape(1, 5, 5, 3)
    out = np.full((1, 2, 2, 3), np.nan, np.float32)
    crops = roipool.crop_and_resize(maps, [[0, 0, 1, 1]], [0], 2, layout="NHWC", out=out)
    assert crops is out
    np.testing.assert_array_equal(out[0, :, :, 0], [[0, 12], [60, 72]])


def test_crops_in_the_memory_of_their_picture() -> None:
    memory = np.arange(16 * 16, dtype=np.uint8)
    expected = roipool.crop_and_resize(memory.reshape(1, 1, 16, 16).copy(), [[0, 0, 1, 1]], [0], 8)
    roipool.crop_and_resize(
        memory.reshape(1, 1, 16, 16),
        [[0, 0, 1, 1]],
        [0],
        8,
        out=memory.view(np.float32).reshape(1, 1, 8, 8),
    )
    np.testing.assert_array_equal(memory.view(np.float32).reshape(1, 1, 8, 8), expected)


def test_crops_of_no_picture_and_of_no_boxes() -> None:
    no_picture = roipool.crop_and_resize(np.zeros((0, 4, 4, 3), np.uint8), np.zeros((0, 4)), [], 2)
    no_cells = roipool.roi_pool(np.zeros((1, 3, 0, 4), np.uint8), [[0, 0, 0, 1, 1]], 2)
    assert (no_picture.shape, no_picture.dtype) == ((0, 4, 2, 2), np.float32)
    np.testing.assert_array_equal(no_cells, np.zeros((1, 3, 2, 2), np.float32))


# ---- Types that a caller chooses

every_function = pytest.mark.parametrize(
    "function", [name for name, op in OPS.items() if op.dtypes != FLOATS]
)
WITHIN = ["2.5", "3.5", "-0.5", "-1.5", "127.5", "254.5", "255.5", "-128.5", "65534.5"]
BEYOND = ["32767.5", "-32768.5", "65535.5", "1e30", "inf", "-inf", "nan"]


@every_integer_type
@each(filling=[*WITHIN, *BEYOND])
def test_integers_are_rounded_half_to_even_and_limited(filling: str, dtype: str) -> None:
    number = float(filling)
    crops = roipool.crop_and_resize(
        np.zeros((1, 3, 4, 4), dtype),
        np.full((19, 4), 2.0),
        np.zeros(19),
        3,
        extrapolation_value=number,
        dtype=dtype,
    )
    assert crops.dtype == dtype
    limits = np.iinfo(dtype)
    expected = 0 if math.isnan(number) else min(max(number, limits.min), limits.max)
    np.testing.assert_array_equal(crops, round(expected))


@every_layout
@each(name=["uint8", "float16", "float64"], size=[1, 200])
def test_boxes_are_rounded_part_by_part(
    name: str, size: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("BATCH_ONE_THREAD", "BATCH_SEVERAL_THREADS"):
        monkeypatch.setattr(_pooling, limit, 500)
    rng = np.random.default_rng(size)
    maps = in_layout(rng.integers(0, 256, (2, 3, 9, 11)).astype(np.uint8), layout)
    boxes, images = rng.uniform(0, 1, (40, 4)), rng.integers(0, 2, 40)
    arguments: dict[str, Any] = {"layout": layout}
    values = roipool.crop_and_resize(maps, boxes, images, (size, 2), **arguments)
    got = roipool.crop_and_resize(maps, boxes, images, (size, 2), dtype=name, **arguments)
    assert_same_bits(got, (np.rint(values) if name == "uint8" else values).astype(name))
    rois = np.column_stack([images, boxes * 8])
    pooled, argmax = roipool.roi_pool(maps, rois, 2, return_argmax=True, **arguments)
    got, also = roipool.roi_pool(maps, rois, 2, return_argmax=True, dtype=name, **arguments)
    assert_same_bits(got, pooled.astype(name))
    assert_same_bits(also, argmax)


@each(name=["uint8", "float32", "float16"])
def test_a_given_array_has_the_chosen_type(name: str) -> None:
    maps = np.arange(75, dtype=np.uint8).reshape(1, 5, 5, 3)
    out = np.full((1, 2, 2, 3), 7, name)
    crops = roipool.crop_and_resize(
        maps, [[0, 0, 1, 1]], [0], 2, layout="NHWC", dtype=name, out=out
    )
    assert crops is out
    np.testing.assert_array_equal(out[0, :, :, 0], [[0, 12], [60, 72]])
    other = np.full((1, 2, 2, 3), 7, np.int8)
    with pytest.raises(TypeError, match=f"out must have dtype {name}, got int8"):
        roipool.crop_and_resize(maps, [[0, 0, 1, 1]], [0], 2, layout="NHWC", dtype=name, out=other)
    assert (other == 7).all()


@pytest.mark.parametrize("name", FLOATS)
@every_function
def test_floats_are_pooled_to_their_own_type(function: str, name: str) -> None:
    pool, arguments = CALLS[function]
    arguments = {**arguments, "features": FEATURES.astype(dtypes()[name])}
    assert_same_bits(pool(**arguments, dtype=name), pool(**arguments))
    for other in {*FLOATS, "uint8"} - {name}:
        message = rf"dtype must be None or {name} for {name} features, got '{other}'"
        with pytest.raises(TypeError, match=message):
            pool(**arguments, dtype=other)


@every_integer_type
@every_function
def test_a_type_that_integers_are_not_pooled_to(function: str, dtype: str) -> None:
    pool, arguments = CALLS[function]
    arguments = {**arguments, "features": FEATURES.astype(dtype)}
    message = rf"dtype must be None or {dtype}, {', '.join(FLOATS)} for {dtype} features, got"
    other_sign = dtype.removeprefix("u") if dtype.startswith("u") else f"u{dtype}"
    for other in ("int32", other_sign, bool, "no type", 8):
        with pytest.raises(TypeError, match=message):
            pool(**arguments, dtype=other)


# ---- Memory

PICTURE = (3000, 4000)
SIDE, CROPS, SIZE = 600, 64, 64
CORNERS = np.random.default_rng(0).uniform(0, 3000 - SIDE, (CROPS, 2))
ROIS = np.hstack([np.zeros((CROPS, 1)), CORNERS, CORNERS + SIDE])
FRACTIONS = ROIS[:, [2, 1, 4, 3]] / [2999, 3999, 2999, 3999]
WINDOWS = 2 * (SIDE + 2) ** 2 * 4  # of two threads, one box and channel each
CALLS_ON_A_PICTURE: dict[str, tuple[int, Callable[..., Any]]] = {
    "bilinear": (
        0,
        lambda maps, **more: roipool.crop_and_resize(
            maps, FRACTIONS, np.zeros(CROPS), SIZE, **more
        ),
    ),
    "antialias": (
        0,
        lambda maps, **more: roipool.crop_and_resize(
            maps, FRACTIONS, np.zeros(CROPS), SIZE, antialias=True, **more
        ),
    ),
    "nearest": (
        0,
        lambda maps, **more: roipool.crop_and_resize(
            maps, FRACTIONS, np.zeros(CROPS), SIZE, method="nearest", **more
        ),
    ),
    "average": (0, lambda maps, **more: roipool.roi_align(maps, ROIS, SIZE, **more)),
    "maximum": (WINDOWS, lambda maps, **more: roipool.roi_pool(maps, ROIS, SIZE, **more)),
    "maximum of samples": (
        WINDOWS,
        lambda maps, **more: roipool.roi_align(maps, ROIS, SIZE, 1.0, 2, mode="max", **more),
    ),
}


@every_layout
@each(stored=["uint8", "int16"], pooled_to_float=[True, False])
@pytest.mark.parametrize("name", CALLS_ON_A_PICTURE)
def test_a_picture_is_not_copied(
    name: str, stored: str, pooled_to_float: bool, layout: str
) -> None:
    """Memory grows by plans and, of a maximum, the windows of single boxes, beside `out`.

    NumPy's memory is traced, and the rest is in the cache after the call. What is rounded to
    integers is in float32 for a part of the boxes; parts need scratch memory of several sizes.
    """
    windows, call = CALLS_ON_A_PICTURE[name]
    dtype = "float32" if pooled_to_float else stored
    maps = np.zeros(shape_in_layout((1, 3, *PICTURE), layout), stored)
    out = np.empty(shape_in_layout((CROPS, 3, SIZE, SIZE), layout), dtype)
    threads, limit = roipool.get_num_threads(), roipool.get_cache_limit()
    roipool.free_memory()
    roipool.set_cache_limit(4096)
    roipool.set_num_threads(2)
    tracemalloc.start()
    try:
        call(maps, layout=layout, dtype=dtype, out=out)
        grown = tracemalloc.get_traced_memory()[1] + _cpu.cached_bytes()
    finally:
        tracemalloc.stop()
        roipool.set_num_threads(threads)
        roipool.set_cache_limit(limit)
        roipool.free_memory()
    rounded = 0 if dtype == "float32" else 4 * _pooling.BATCH_SEVERAL_THREADS
    assert windows <= grown < windows + rounded + 4 * MIB < maps.nbytes / 2


# ---- Supported dtypes


@every_integer_type
@pytest.mark.parametrize("op", (OPS | PYRAMID_OPS | VOLUME_OPS).values(), ids=lambda op: op.forward)
def test_the_table_says_which_operations_take_integers(op: Any, dtype: str) -> None:
    function, arguments = CALLS[op.forward]
    maps = arguments["features"]
    stored = [each.astype(dtype) for each in maps] if type(maps) is list else maps.astype(dtype)
    given = {**arguments, "features": stored}
    if dtype in op.dtypes:
        assert function(**given).dtype == np.float32
        return
    with pytest.raises(TypeError, match=rf"features.* must have dtype {', '.join(FLOATS)}, got"):
        function(**given)


def test_unsupported_dtype_lists_supported_ones() -> None:
    with pytest.raises(TypeError, match=r"features must have .*, uint16, int16, bool, got int32"):
        roipool.crop_and_resize(FEATURES.astype(np.int32), [[0, 0, 1, 1]], [0], 2)
