"""Dask arrays in every function of ``roipool.compat``, lazily, with the results of NumPy's call."""

from __future__ import annotations

import functools
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from _support.compare import assert_same_bits
from _support.rows import ROWS, RowCall, calls_of, converted, results_of

from roipool.compat import detectron2, model_garden, mxnet, paddle, torchvision
from roipool.systems import SYSTEMS

# Their boxes are as many for each image.
IN_EVERY_IMAGE = [row for row in ROWS if row.startswith("model_garden")]


class Loaded:
    """Makes Dask arrays of one chunk per image, and notes which are loaded."""

    def __init__(self) -> None:
        self.images: list[int] = []

    def lazy(self, array: Any) -> Any:
        if not len(array):
            return da.from_array(array)
        part = dask.delayed(self.load)
        shape = (1, *array.shape[1:])
        parts = [
            da.from_delayed(part(array, image), shape, array.dtype) for image in range(len(array))
        ]
        return da.concatenate(parts)

    def load(self, array: Any, image: int) -> Any:
        self.images.append(image)
        return array[image : image + 1]


@pytest.mark.parametrize("row", ROWS)
def test_every_row(row: str) -> None:
    """Nothing is computed before it is asked for, and then no chunk without boxes."""
    for call in calls_of(row, only_forward=True):
        loaded = Loaded()
        lazy = results_of(call.with_arrays(loaded.lazy, only_maps=True))
        assert loaded.images == []
        found = dask.compute(*lazy, scheduler="sync")
        assert row in IN_EVERY_IMAGE or set(loaded.images) <= {*map(int, call.case.images)}
        for declared, array, expected in zip(lazy, found, call.expected(), strict=True):
            assert isinstance(declared, da.Array)
            assert (declared.shape, declared.dtype) == (array.shape, array.dtype)
            if expected.dtype.kind == "i" and array.dtype == np.int64:
                expected = expected.astype(np.int64)  # an argmax, or a number of cells
            assert_same_bits(array, expected)


@functools.cache
def gradient_calls(row: str) -> list[RowCall]:
    return [call for call in calls_of(row) if call.maps not in forward_maps(row)]


def forward_maps(row: str) -> set[str]:
    return {call.maps for call in calls_of(row, only_forward=True)}


@pytest.mark.parametrize("row", [row for row in ROWS if SYSTEMS[row].backward])
def test_gradients_are_refused(row: str) -> None:
    for call in gradient_calls(row):
        with pytest.raises(TypeError, match=r"take.? no Dask arrays, which have no"):
            call.with_arrays(da.from_array, only_maps=True)


@pytest.mark.parametrize("row", ROWS)
def test_all_but_maps_must_be_known(row: str) -> None:
    call = next(calls_of(row, only_forward=True))
    for name, value in call.arguments.items():
        lazy = converted(value, da.from_array)
        if name == call.maps or not any(map(dask.is_dask_collection, results_of(lazy))):
            continue
        maps = converted(call.arguments[call.maps], da.from_array)
        with pytest.raises(TypeError, match="must be known, got a Dask array: compute it"):
            call.function(**{**call.arguments, call.maps: maps, name: lazy})


MAPS = np.arange(32.0, dtype=np.float32).reshape(2, 1, 4, 4)
ROIS = np.array([[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]], np.float32)


def test_lazy_boxes_are_named() -> None:
    maps, rois = da.from_array(MAPS), da.from_array(ROIS)
    with pytest.raises(TypeError, match=r"^roi_align: boxes must be known, got a Dask array: comp"):
        torchvision.roi_align(maps, rois, 2)
    with pytest.raises(TypeError, match=r"box_lists must be known, got a Dask array: compute it"):
        detectron2.ROIPooler(2, (1 / 4,), 0, "ROIAlign")([maps], [rois[:, 1:]] * 2)


def test_boxes_of_no_image() -> None:
    """They are pooled without any chunk."""
    rois = np.array([[7, 0, 0, 3, 3], [1, 0, 0, 3, 3], [-1, 1, 1, 2, 2]], np.float32)
    loaded = Loaded()
    pooled = mxnet.ROIPooling(loaded.lazy(MAPS), rois, (2, 2), 1.0)
    assert_same_bits(pooled.compute(), mxnet.ROIPooling(MAPS, rois, (2, 2), 1.0))
    assert loaded.images == [1]


def test_boxes_alone_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^distribute_fpn_proposals takes no Dask arrays: boxes"):
        paddle.distribute_fpn_proposals(da.from_array(ROIS[:, 1:]), 2, 5, 4, 224)


def test_chunks_of_unknown_sizes_are_refused_by_name() -> None:
    maps = da.from_array(MAPS)
    unknown = maps[maps[:, 0, 0, 0] > 0]
    with pytest.raises(ValueError, match=r"^roi_align: input must have chunks of known sizes"):
        torchvision.roi_align(unknown, ROIS, 2)
    with pytest.raises(ValueError, match=r"x\[1\] must have chunks of known sizes"):
        detectron2.ROIPooler(2, (1 / 4, 1 / 8), 0, "ROIAlign")([maps, unknown], [ROIS[:, 1:]] * 2)


def test_maps_of_two_libraries_are_refused() -> None:
    maps, boxes = da.from_array(MAPS), [ROIS[:, 1:]] * 2
    with pytest.raises(TypeError, match=r"x\[1\] must be a Dask array, got ndarray"):
        torchvision.MultiScaleRoIAlign(["0", "1"], 2, 2)({"0": maps, "1": MAPS}, boxes, [(4, 4)])
    fine, coarse = (each.transpose(0, 2, 3, 1) for each in (maps, MAPS[:, :, ::2, ::2]))
    features = {"2": fine, "3": coarse}
    with pytest.raises(TypeError, match=r"must be a Dask array, got ndarray"):
        model_garden.multilevel_crop_and_resize(features, np.array(boxes), 2)
    with pytest.raises(TypeError, match=r"^boxes must be known, got a Dask array: compute it"):
        torchvision.roi_align(MAPS, da.from_array(ROIS), 2)
