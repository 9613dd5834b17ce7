"""Features of integers on a GPU: kernels read them as they are, and pool to float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.cases import CASES, SHAPE, OperationCase
from _support.compare import assert_same_bits
from _support.loops import each

import roipool
from roipool._dtypes import FLOATS, INTEGERS, allowed_dtypes
from roipool.systems.case import dtypes

OF_INTEGERS = [case for case in CASES if case.op.dtypes != FLOATS]
USUAL = {"NCHW": ("uint16", 5), "NHWC": ("int8", 8)}  # of which the quick suite tests one each
every_case = pytest.mark.parametrize("case", OF_INTEGERS, ids=str)


def integers_of(dtype: str, layout: str, channels: int) -> Any:
    """Return maps of random integers."""
    shape = (SHAPE[0], channels, *SHAPE[2:])
    limits, rng = np.iinfo(dtype), np.random.default_rng(channels)
    maps = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.ascontiguousarray(np.moveaxis(maps, 1, -1) if layout == "NHWC" else maps)


def pooled(case: OperationCase, gpu: Backend, maps: Any, layout: str, **options: Any) -> list[Any]:
    """Return pooled values, and the argmax of a maximum, computed on a GPU."""
    boxes, indices = gpu.to_device(case.boxes()), gpu.to_device(case.indices())
    if case.variant.has_argmax:
        options["return_argmax"] = True
    found = case.pool(maps, boxes, indices, layout=layout, **options)
    return [gpu.to_host(one) for one in (found if isinstance(found, tuple) else (found,))]


def check_integers(
    case: OperationCase, gpu: Backend, dtype: str, layout: str, channels: int
) -> None:
    """Check that integers give what the same numbers give in float32."""
    maps = integers_of(dtype, layout, channels)
    expected = pooled(case, gpu, gpu.to_device(maps.astype(np.float32)), layout)
    for one, other in zip(pooled(case, gpu, gpu.to_device(maps), layout), expected, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("layout", USUAL)
@every_case
def test_results_are_those_of_the_numbers_in_float32(
    case: OperationCase, layout: str, gpu: Backend
) -> None:
    check_integers(case, gpu, USUAL[layout][0], layout, USUAL[layout][1])


@pytest.mark.thorough
@each(dtype=INTEGERS, layout=("NCHW", "NHWC"), channels=[1, 3, 4, 7, 16])
@every_case
def test_results_of_any_number_of_channels(
    case: OperationCase, dtype: str, layout: str, channels: int, gpu: Backend
) -> None:
    check_integers(case, gpu, dtype, layout, channels)


def test_maps_in_other_orders_of_memory(gpu: Backend) -> None:
    case = next(case for case in OF_INTEGERS if case.variant.definition == "roi_align")
    maps = integers_of("int8", "NHWC", 8)
    expected = pooled(case, gpu, gpu.to_device(maps), "NHWC")
    channels_last = gpu.to_device(maps).transpose(0, 3, 1, 2)
    (found,) = pooled(case, gpu, channels_last, "NCHW")
    assert_same_bits(np.moveaxis(found, 1, -1), expected[0])
    reverse = gpu.to_device(maps[::-1].copy())[::-1]
    assert_same_bits(pooled(case, gpu, reverse, "NHWC")[0], expected[0])
    # Not at an address of whole packs.
    shifted = gpu.to_device(np.concatenate([maps[..., :1], maps], axis=-1))[..., 1:]
    assert_same_bits(pooled(case, gpu, shifted, "NHWC")[0], expected[0])


@pytest.mark.parametrize("name", ["average", "maximum"])
def test_results_of_a_chosen_type(name: str, gpu: Backend) -> None:
    case = next(case for case in OF_INTEGERS if case.variant.has_argmax == (name == "maximum"))
    layout = "NHWC" if name == "average" else "NCHW"
    maps = gpu.to_device(integers_of("uint8", layout, 5))
    values, *argmax = pooled(case, gpu, maps, layout)
    for chosen in set(allowed_dtypes("uint8")) & {"uint8", "float16", "float32", "float64"}:
        got, *also = pooled(case, gpu, maps, layout, dtype=chosen)
        rounded = np.rint(values) if chosen == "uint8" else values
        assert_same_bits(got, rounded.astype(dtypes()[chosen]))
        for one, other in zip(also, argmax, strict=True):
            assert_same_bits(one, other)


@each(dtype=INTEGERS, filling=["2.5", "-1.5", "300", "nan", "inf", "-inf"])
def test_integers_are_rounded_as_those_of_numpy(dtype: str, filling: str, gpu: Backend) -> None:
    maps, boxes, images = np.zeros((1, 3, 4, 4), dtype), np.full((5, 4), 2.0), np.zeros(5, int)
    options: dict[str, Any] = {"extrapolation_value": float(filling), "dtype": dtype}
    expected = roipool.crop_and_resize(maps, boxes, images, 2, **options)
    out = gpu.to_device(np.full(expected.shape, 7, dtype))
    arrays = map(gpu.to_device, (maps, boxes, images))
    assert roipool.crop_and_resize(*arrays, 2, **options, out=out) is out
    assert_same_bits(gpu.to_host(out), expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_other_operations_take_no_integers(dtype: str, gpu: Backend) -> None:
    maps = gpu.to_device(np.zeros((1, 3, 4, 4), dtype))
    rois = gpu.to_device(np.array([[0.0, 1, 1, 2, 2]]))
    with pytest.raises(TypeError, match=rf"features must have dtype {', '.join(FLOATS)}, got"):
        roipool.precise_roi_pool(maps, rois, 2)
