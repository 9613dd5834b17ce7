"""Dask arrays in every function of ``roipool.compat``, lazily, with the results of NumPy's call."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from _support.compare import assert_same_bits
from front_ends.contract.calls import COMPAT, calls_of_every_form, check_guise, every_system
from front_ends.test_dask import DASK

from roipool.compat import detectron2, model_garden, mxnet, paddle, torchvision
from roipool.systems import SYSTEMS
from roipool.tools.random_calls.front_ends.adapters import (
    ARRAYS,
    Adapter,
    calls_of,
    each_of,
    is_list_of_arrays,
)

# Their boxes are as many for each image.
IN_EVERY_IMAGE = [row for row in COMPAT if row.startswith("model_garden")]


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


@every_system
def test_every_system(row: str) -> None:
    for case in calls_of_every_form(row):
        for guise in DASK.guises:
            check_guise(case, DASK.library, guise)


@every_system
def test_chunks_without_boxes_are_not_loaded(row: str) -> None:
    """Nothing is computed before it is asked for."""
    for case in calls_of_every_form(row):
        name, (_, arguments, _) = next(iter(calls_of(case).items()))
        loaded = Loaded()
        maps = each_of(arguments["features"], loaded.lazy)
        lazy = Adapter(case).public(name)(**{**arguments, "features": maps})
        assert loaded.images == []
        dask.compute(lazy, scheduler="sync")
        assert row in IN_EVERY_IMAGE or set(loaded.images) <= {*map(int, case.images)}


@pytest.mark.parametrize("row", [row for row in COMPAT if SYSTEMS[row].backward])
def test_gradients_are_refused(row: str) -> None:
    for case in calls_of_every_form(row):
        for name, (_, arguments, _) in calls_of(case).items():
            if "grad_output" in arguments:
                lazy = each_of(arguments["grad_output"], da.from_array)
                with pytest.raises(TypeError, match=r"take.? no Dask arrays, which have no"):
                    Adapter(case).public(name)(**{**arguments, "grad_output": lazy})


@every_system
def test_all_but_maps_must_be_known(row: str) -> None:
    for case in calls_of_every_form(row):
        function, (_, arguments, _) = next(iter(calls_of(case).items()))
        arguments["features"] = each_of(arguments["features"], da.from_array)
        for name, value in arguments.items():
            if name == "features" or name not in ARRAYS:
                continue
            if not isinstance(value, np.ndarray) and not is_list_of_arrays(value):
                continue
            with pytest.raises(TypeError, match="must be known, got a Dask array: compute it"):
                Adapter(case).public(function)(**{**arguments, name: each_of(value, da.from_array)})


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
