"""Calls of every kept function on CuPy arrays: the driver launches what the general path would."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.compare import compute_type
from _support.emulator import driver

import roipool
from roipool import _cpu

SHAPES = ((2, 20, 19, 35), (1, 20, 23, 31), (3, 20, 7, 90))
SCALES = (0.5, 0.25, 0.125)
Calls = Iterator[tuple[Any, ...]]
Make = Callable[[Any, np.dtype[Any], str], Calls]


@pytest.fixture
def cupy() -> Iterator[Any]:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as module:
        roipool.roi_pool(module.asarray(np.ones((1, 1, 4, 4))), module.asarray(np.zeros((1, 5))), 1)
        driver.errors.clear()
        yield module
        assert not driver.errors


def values(shape: Sequence[int], dtype: np.dtype[Any], layout: str) -> np.ndarray[Any, Any]:
    """Return maps, or a gradient, of an NCHW shape."""
    found = np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1)) if layout == "NHWC" else found


def table(count: int, images: int, dtype: np.dtype[Any], columns: int = 4) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(count)
    corners = np.sort(rng.uniform(-3, 60, (count, 2, 2)), axis=1).reshape(count, 4)
    angles = rng.uniform(-180, 180, (count, columns - 4))
    rows = np.column_stack([np.arange(count) % images, corners, angles])
    return rows.astype(compute_type(dtype))


def maps(columns: int = 4) -> Make:
    """Return what gives maps of several shapes, and numbers of boxes."""

    def make(cupy: Any, dtype: np.dtype[Any], layout: str) -> Calls:
        for count, shape in zip((9, 9, 30), SHAPES, strict=True):
            boxes = table(count, shape[0], dtype, columns)
            yield cupy.asarray(values(shape, dtype, layout)), cupy.asarray(boxes)

    return make


def gradients(cupy: Any, dtype: np.dtype[Any], layout: str) -> Calls:
    """Of few bins, and of so many that tiles are crowded."""
    for count in (7, 200, 190):
        gradient = values((count, 20, 5, 5), dtype, layout)
        yield cupy.asarray(gradient), cupy.asarray(table(count, 2, dtype))


def levels_of(cupy: Any, count: int) -> Any:
    return cupy.asarray(np.arange(count) % len(SCALES))


def pyramids(cupy: Any, dtype: np.dtype[Any], layout: str) -> Calls:
    for rows, columns in ((19, 35), (31, 23), (40, 17)):
        sizes = [(2, 9, rows >> k, columns >> k) for k in range(len(SCALES))]
        several = [cupy.asarray(values(size, dtype, layout)) for size in sizes]
        yield several, cupy.asarray(table(20, 2, dtype)), levels_of(cupy, 20)


def gradients_of_pyramids(cupy: Any, dtype: np.dtype[Any], layout: str) -> Calls:
    for gradient, rows in gradients(cupy, dtype, layout):
        yield gradient, rows, levels_of(cupy, len(rows))


def shapes_of_maps(boxes: int, layout: str) -> tuple[tuple[int, ...], ...]:
    """Return shapes of maps, of other sizes for each number of boxes."""
    sizes = [(19 + boxes >> k, 35 - boxes // 10 >> k) for k in range(len(SCALES))]
    return tuple((2, *size, 20) if layout == "NHWC" else (2, 20, *size) for size in sizes)


def of_maximum(**options: Any) -> Any:
    return lambda m, r, layout: roipool.roi_align(
        m, r, 5, 0.5, 2, mode="max", layout=layout, **options
    )


CALLS: dict[str, tuple[Any, Make]] = {
    "align": (lambda m, r, layout: roipool.roi_align(m, r, 5, 0.5, 2, layout=layout), maps()),
    "maximum": (of_maximum(), maps()),
    "maximum and argmax": (of_maximum(return_argmax=True), maps()),
    "pool": (lambda m, r, layout: roipool.roi_pool(m, r, 5, 0.5, layout=layout), maps()),
    "pool and argmax": (
        lambda m, r, layout: roipool.roi_pool(m, r, 5, 0.5, return_argmax=True, layout=layout),
        maps(),
    ),
    "position-sensitive": (
        lambda m, r, layout: roipool.ps_roi_align(m, r, 2, 0.5, sampling_ratio=2, layout=layout),
        maps(),
    ),
    "rotated": (
        lambda m, r, layout: roipool.roi_align_rotated(m, r, 5, 0.5, 2, layout=layout),
        maps(columns=5),
    ),
    "gradient": (
        lambda g, r, layout: roipool.roi_align_backward(
            g, r, shapes_of_maps(len(r), layout)[0], 0.5, 2, layout=layout
        ),
        gradients,
    ),
    "pyramid": (
        lambda m, r, k, layout: roipool.multilevel_roi_align(
            m, r, 5, SCALES, 2, levels=k, layout=layout
        ),
        pyramids,
    ),
    "gradient of a pyramid": (
        lambda g, r, k, layout: roipool.multilevel_roi_align_backward(
            g, r, shapes_of_maps(len(r), layout), SCALES, 2, levels=k, layout=layout
        ),
        gradients_of_pyramids,
    ),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_give_the_bits_of_the_general_path(
    cupy: Any, name: str, dtype: str, layout: str
) -> None:
    call, make = CALLS[name]
    for number, arrays in enumerate(make(cupy, np.dtype(dtype), layout)):
        _cpu.keep_options(False)
        try:
            expected = call(*arrays, layout)
        finally:
            _cpu.keep_options(True)
        driver.launched.clear()
        with cupy.no_reads():
            got = call(*arrays, layout)
        assert bool(driver.launched) or number == 0  # the first call is kept
        for mine, other in zip(listed(got), listed(expected), strict=True):
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            assert mine.get().tobytes() == other.get().tobytes(), number


def listed(results: Any) -> list[Any]:
    return [*results] if isinstance(results, (list, tuple)) else [results]


def test_maps_of_integers_take_the_general_path(cupy: Any) -> None:
    """In launches, int16 is the bits of bfloat16."""
    call, make = CALLS["align"]
    for maps_of_floats, rows in make(cupy, np.dtype("float32"), "NCHW"):
        call(maps_of_floats, rows, "NCHW")
    integers = (100 * maps_of_floats.get()).astype(np.int16)
    expected = call(cupy.asarray(integers.astype(np.float32)), rows, "NCHW").get()
    for _ in range(2):  # the second has the options of the first
        assert call(cupy.asarray(integers), rows, "NCHW").get().tobytes() == expected.tobytes()


@pytest.mark.parametrize("wrong", ["levels", "type", "size", "channels", "number"])
def test_pyramids_that_take_the_general_path(cupy: Any, wrong: str) -> None:
    single = np.dtype("float32")
    for several, rows, levels in pyramids(cupy, single, "NCHW"):
        roipool.multilevel_roi_align(several, rows, 5, SCALES, 2, levels=levels)
    if wrong == "levels":
        levels = cupy.asarray((np.arange(20) % 3).astype(np.int32))
    if wrong == "number":
        several = several[:2]
    other = {"type": "float64"}.get(wrong, "float32")
    sizes = {"channels": (2, 8, 3, 4), "size": (1, 9, 3, 4)}
    several[-1] = cupy.asarray(values(sizes.get(wrong, (2, 9, 3, 4)), np.dtype(other), "NCHW"))
    driver.launched.clear()
    if wrong == "levels":
        roipool.multilevel_roi_align(several, rows, 5, SCALES, 2, levels=levels)
    else:
        with pytest.raises((TypeError, ValueError)):
            roipool.multilevel_roi_align(several, rows, 5, SCALES, 2, levels=levels)
    assert driver.launched == []


def test_a_gradient_of_another_shape_is_refused(cupy: Any) -> None:
    call = CALLS["gradient"][0]
    for gradient, rows in gradients(cupy, np.dtype("float32"), "NCHW"):
        call(gradient, rows, "NCHW")
    with pytest.raises(ValueError, match="grad_output"):
        call(gradient[:, :19].copy(), rows, "NCHW")
    driver.launched.clear()
    for shape in ((2, 20, 0, 5), (2, 20, 5, 6.0), (2, 20, 5), [2, 20, 9, 9]):
        with contextlib.suppress(TypeError, ValueError):
            roipool.roi_align_backward(gradient, rows, shape, 0.5, 2, layout="NCHW")
        assert driver.launched == []


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_maps_that_differ_are_refused(cupy: Any, axis: int) -> None:
    """In their numbers of images or channels."""
    for given in gradients_of_pyramids(cupy, np.dtype("float32"), "NCHW"):
        CALLS["gradient of a pyramid"][0](*given, "NCHW")
    gradient, rows, levels = given
    first, *others = map(list, shapes_of_maps(len(rows), "NCHW"))
    others[-1][axis] += 1
    shapes = tuple(tuple(each) for each in (first, *others))
    driver.launched.clear()
    with pytest.raises(ValueError, match="input_shapes"):
        roipool.multilevel_roi_align_backward(
            gradient, rows, shapes, SCALES, 2, levels=levels, layout="NCHW"
        )
    assert driver.launched == []


def test_an_argmax_of_another_type_takes_the_general_path(cupy: Any) -> None:
    from roipool._cuda import kept
    from roipool._definitions import Definition
    from roipool._request import MaxRules, Pooling

    pooling = Pooling(Definition("roi_pool"), (5, 5), rules=MaxRules(argmax_is_cell=True))
    own = kept.KeptVerb("maximum", pooling, np.dtype(np.int32))
    kind = np.dtype("float32"), kept.table_of(np.dtype("float32"), 4)
    assert own.prepared(kind, 0, 3, ((1, 1, 2**15, 2**15),))[0] is not None
    assert own.prepared(kind, 0, 3, ((1, 1, 2**16, 2**16),))[0] is None  # int64


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("verb", ["average", "average_backward"])
def test_structures_are_those_of_the_exact_sizes(cupy: Any, verb: str, layout: str) -> None:
    """What a launch sets is what planning finds, but for what is rounded up."""
    from roipool._cuda import kept, launch
    from roipool._cuda.arguments import Argument, call_type
    from roipool._cuda.partition import Sizes
    from roipool._request import Pooling

    single, scales = np.dtype("float32"), (0.5, 0.25)
    pooling = Pooling(roipool.ops.roi_align.definition(1.0, 2, True), (5, 5), layout, scales=scales)
    own = kept.KeptVerb(verb, pooling)
    kind = single, kept.table_of(single, 4)
    planned = ("capacity", "plan_bytes", "entries_at", "stage", "boxes")
    rng = np.random.default_rng(5)
    for _ in range(40):
        boxes, images, *extents = (int(each) for each in rng.integers(1, 200, 6))
        sizes = [extents[:2], extents[2:]]
        shapes = tuple(
            (images, *each, 20) if layout == "NHWC" else (images, 20, *each) for each in sizes
        )
        prepared, exact = own.prepared(kind, 0, boxes, shapes)
        table = kind[1]
        at = _cpu.rounded_up(boxes), table.strides, table.images, table.image_stride
        call = getattr(launch, verb)(Sizes(single, *at, pooling, shapes), layout == "NHWC")
        config = call.engine
        structure = call_type(2)
        mine, wanted = (
            np.frombuffer(text, structure)[0]
            for text in (
                prepared.filled(boxes, exact, (0, 0)),
                Argument(config.call, config.tasks_of_box).for_boxes(boxes, (0, 0)).tobytes(),
            )
        )
        for name in structure.names or ():
            if name not in (*planned, "rows", "columns"):
                assert mine[name].tobytes() == wanted[name].tobytes(), name
