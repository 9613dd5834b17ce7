"""Arrays of other libraries: shared memory, results of the same type, and errors."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from _support.cases import (
    ALL_CASES,
    CASES,
    PYRAMID_CASES,
    SIZE,
    VOLUME_CASES,
    OperationCase,
    in_planes,
    maps,
)
from _support.compare import assert_same_bits
from _support.support_tables import Columns
from front_ends import contract
from front_ends.contract import Form
from front_ends.contract.calls import OwnArrays, calls_of_every_form, every_system

import roipool
from roipool.tools.random_calls.front_ends.adapters import MAPS, calls_of, each_of

ALIGN = next(case for case in CASES if case.op.forward == "roi_align")


class Other:
    """An array of a fictitious library that supports DLPack."""

    requires_grad = False
    place = (1, 0)
    shape = property(lambda self: self.array.shape)

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dtype = array.dtype
        self.handed = 0

    def __len__(self) -> int:
        return len(self.array)

    def reshape(self, shape: tuple[int, ...]) -> Other:
        return type(self)(self.array.reshape(shape))

    def __dlpack__(self, **kwargs: Any) -> Any:
        self.handed += 1
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __array_namespace__(self) -> type[Other]:
        return Other

    @staticmethod
    def from_dlpack(array: Any) -> Other:
        return Other(array)


class Others(contract.FrontEnd):
    array_name = "array"
    forms = (Form("float16"), Form("float32", "NHWC"), Form("float64"))

    def array(self, values: Any) -> Any:
        return Other(values)

    def numpy(self, array: Any) -> Any:
        assert isinstance(array, Other)
        return array.array


OTHERS = Others()


class TestContract(contract.CallsWithoutGuises, contract.Values, contract.Integers):
    arrays = OTHERS


class TestTable(contract.Documented):
    table, files = "other", "test_other_"
    columns: ClassVar[Columns] = {
        "no copy": {"arrays.test_maps_are_not_copied": "yes"},
        "half types": {"arrays.TestContract.test_calls_are_those_of_numpy": "float16"},
        "gradient": {"arrays.test_a_gradient_would_be_lost": "error"},
        "functions of gradients": {"arrays.TestContract.test_calls_are_those_of_numpy": "yes"},
    }


class Interface:
    """An array with only NumPy's array interface."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array

    __array_interface__: Any = None


def arguments(
    case: OperationCase, wrap: Callable[[Any], Any] = Other, dtype: str = "float32"
) -> list[Any]:
    boxes = case.boxes().astype(np.float32)
    return [wrap(one) for one in (maps().astype(dtype), boxes, case.indices())]


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_maps_are_not_copied(case: OperationCase) -> None:
    """Maps of 600 kB, pooled values of 120 kB."""
    features = Other(np.zeros((2, 1023, 8, 9), np.float32))
    given: Any = [features, features] if case in PYRAMID_CASES else features
    options = case.options() | {case.op.size: SIZE, case.op.indices: case.indices()}
    if case in PYRAMID_CASES:
        options["levels"] = case.indices()
    options[case.op.boxes] = case.boxes()
    options |= case.per_bin(case.boxes())
    if case in VOLUME_CASES:
        given = Other(in_planes(features.array, 2, "NCHW"))
        options[case.op.size] = (SIZE[0], 1, SIZE[1])
    tracemalloc.start()
    pooled = getattr(roipool, case.op.forward)(given, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert OTHERS.numpy(pooled).nbytes < peak < features.array.nbytes / 2


def test_keywords_lists_and_numpy_beside_them() -> None:
    features, boxes, indices = arguments(ALIGN)
    expected = ALIGN.pool(features.array, boxes.array, indices.array)
    for form in (boxes, boxes.array, boxes.array.tolist()):
        assert_same_bits(ALIGN.pool(features, form, indices.array).array, expected)
    order = np.argsort(indices.array, kind="stable")
    parts = [Other(boxes.array[indices.array == image]) for image in range(2)]
    got = roipool.roi_align(rois=parts, features=features, output_size=2)
    at = (boxes.array[order], 2)
    wanted = roipool.roi_align(features.array, *at, batch_indices=indices.array[order])
    assert_same_bits(got.array, wanted)


def test_lists_of_arrays_after_lists_of_numbers() -> None:
    """Their types are the same, and say nothing about what is in them."""
    features, boxes, indices = arguments(ALIGN)
    rows = np.column_stack([indices.array, boxes.array]).tolist()
    roipool.roi_align(features=features.array, rois=rows, output_size=2)
    pooled = roipool.multilevel_roi_align([features], rows, 2, (1.0,))
    assert_same_bits(pooled.array, roipool.roi_align(features.array, rows, 2))


def test_memory_is_shared() -> None:
    """`out` is filled in place and returned."""
    features, boxes, indices = arguments(ALIGN)
    out = Other(np.zeros((5, 3, 2, 3), np.float32))
    assert ALIGN.pool(features, boxes, indices, out=out) is out
    assert_same_bits(out.array, ALIGN.pool(features.array, boxes.array, indices.array))
    assert features.handed == 1


def test_an_array_interface_comes_back_as_numpy() -> None:
    given = arguments(ALIGN, Interface)
    got = ALIGN.pool(*given)
    assert type(got) is np.ndarray
    assert_same_bits(got, ALIGN.pool(*(one.array for one in given)))


class Elsewhere(Other):
    place = (7, 0)


class OnGpu(Other):
    place = (2, 0)


class Lazy(Other):
    def __dlpack__(self, **kwargs: Any) -> Any:
        raise RuntimeError("no values yet")


class Learning(Other):
    requires_grad = True


class PaddleLearning(Other):
    stop_gradient = False


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (Elsewhere, "roi_align: .*Elsewhere is on a device"),
        (OnGpu, "roi_align: .*OnGpu is on a GPU, for which CuPy"),
        (Lazy, "roi_align: .*Lazy has no readable values .no values yet.*callback"),
        (Learning, "roi_align: {} must not be a .*Learning that requires a gradient.*detach"),
        (PaddleLearning, "roi_align: {} must not be a .*Learning that requires a gradient.*detach"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_what_cannot_be_handed_over(kind: type[Other], match: str, place: int) -> None:
    given = arguments(ALIGN)
    given[place] = kind(given[place].array)
    with pytest.raises(TypeError, match=match.format(("features", "rois")[place])):
        ALIGN.pool(*given)


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_a_gradient_would_be_lost(case: OperationCase) -> None:
    """So maps or boxes that require a gradient are rejected."""
    plain = [maps().astype(np.float32), case.boxes().astype(np.float32), case.indices()]
    for place in (0, 1):
        features, boxes, indices = (
            (Learning if number == place else Other)(one) for number, one in enumerate(plain)
        )
        given: Any = features
        options = case.options() | {case.op.size: SIZE, case.op.indices: indices}
        if case in PYRAMID_CASES:
            given, options["levels"] = [Other(plain[0]), features], case.indices()
        with pytest.raises(TypeError, match=f"^{case.op.forward}: .*requires a gradient.*detach"):
            getattr(roipool, case.op.forward)(given, **{case.op.boxes: boxes}, **options)


@pytest.mark.parametrize("value", [[[1.0]], "x", None, 3, object()])
def test_an_unknown_type_hears_what_is_accepted(value: Any) -> None:
    with pytest.raises(
        TypeError, match=r"features must be .*NumPy.*CuPy.*PyTorch.*JAX.*__dlpack__"
    ):
        roipool.roi_align(value, [[0, 0, 0, 1, 1]], 2)
    with pytest.raises(TypeError, match=r"features must be .*__dlpack__"):
        roipool.roi_align(features=value, rois=[[0, 0, 0, 1, 1]], output_size=2)


def like(package: str, name: str) -> Any:
    """Return an object of a type that is named so."""
    return type(name, (), {"__module__": f"{package}.core"})()


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (like("zarr", "Array"), r"features\[:8\], or use dask.array.from_zarr\(features\)"),
        (like("h5py", "Dataset"), r"features\[:8\], or use dask.array.from_array\(features\)"),
        (like("xarray", "DataArray"), r"use the array in it, features.data"),
    ],
)
def test_arrays_in_files_hear_how_to_pool_from_them(value: Any, way: str) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=rf"features must be .*__dlpack__.*; got {kind}; .*{way}$"):
        roipool.roi_align(value, [[0, 0, 0, 1, 1]], 2)
    with pytest.raises(TypeError, match=rf"input must be .* array, got {kind}; "):
        roipool.compat.torchvision.roi_align(value, [[0, 0, 0, 1, 1]], 2)
    named = way.replace("features", r"features\[1\]")
    with pytest.raises(TypeError, match=rf"features\[1\] must be .*got {kind}; .*{named}$"):
        roipool.multilevel_roi_align(
            [np.ones((1, 1, 4, 4)), value], [[0, 0, 0, 1, 1]], 2, (1.0, 0.5)
        )


class WithoutDtype(Other):
    """An array that does not tell its type but by DLPack, as pyarrow's tensors."""

    def __getattribute__(self, name: str) -> Any:
        if name == "dtype":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_an_array_need_not_tell_its_type() -> None:
    features, boxes, indices = arguments(ALIGN)
    expected = ALIGN.pool(features, boxes, indices)
    pooled = ALIGN.pool(WithoutDtype(features.array), boxes, indices)
    np.testing.assert_array_equal(pooled.array, expected.array)


class Another(Other):
    """An array of a second fictitious library."""


Another.__module__ = "another.arrays"


def test_mixed_libraries_hear_which_is_where() -> None:
    features, boxes, indices = arguments(ALIGN)
    with pytest.raises(TypeError, match=r"roi_align: .*one library.*Other and another.arrays"):
        ALIGN.pool(features, Another(boxes.array), indices)
    with pytest.raises(TypeError, match=r"one library: features is numpy.ndarray, rois is .*Other"):
        ALIGN.pool(features.array, boxes, indices.array)
    with pytest.raises(TypeError, match=r"features is numpy.ndarray, .*batch_indices is .*Other"):
        ALIGN.pool(features.array, boxes.array, indices)
    with pytest.raises(TypeError, match=r"features is numpy.ndarray, rois is .*Other"):
        roipool.roi_align(features.array, [Other(np.zeros((1, 4)))] * 2, 2)


@every_system
def test_a_gradient_of_compat_would_be_lost(row: str) -> None:
    """The error names the function and the argument."""
    case = next(calls_of_every_form(row))
    for name, call in calls_of(case).items():
        maps = next(each for each in MAPS if each in call.arguments)
        given = call.arguments | {maps: each_of(call.arguments[maps], Learning)}
        with pytest.raises(TypeError, match=r"^\w+: \w+ must not be .*Learning that requires"):
            OwnArrays(case, OTHERS).public(name)(**given)


def test_wrong_arguments_are_the_errors_of_numpy() -> None:
    features, boxes, indices = arguments(ALIGN)
    with pytest.raises(ValueError, match=r"output_size must be from 1"):
        roipool.roi_align(features, boxes, 0, batch_indices=indices)
    with pytest.raises(TypeError, match="features must have dtype"):
        ALIGN.pool(Other(features.array.astype(np.int32)), boxes, indices)
