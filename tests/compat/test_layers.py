"""Signatures of the compat systems, and their layers."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support.layers import LAYERS, LayerCase
from _support.run_python import run_python

from roipool import compat
from roipool.compat import (
    detectron2,
    mmcv,
    mxnet,
    precise_roi_pooling,
    torchvision,
)
from roipool.compat._layers import CheckedLayer, Layer

PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)


def test_mxnet_takes_names_of_operators() -> None:
    """They have no effect."""
    box, turned, maps = [[0, 1, 1, 3, 3]], [[0, 2, 2, 2, 2, 30]], np.tile(PROBE, (1, 4, 1, 1))
    pools: dict[str, Callable[..., Any]] = {
        "ROIPooling": lambda **name: mxnet.ROIPooling(PROBE, box, (2, 2), 1.0, **name),
        "ROIAlign": lambda **name: mxnet.ROIAlign(PROBE, box, (2, 2), 1.0, **name),
        "contrib_ROIAlign": lambda **name: mxnet.contrib_ROIAlign(PROBE, box, (2, 2), 1.0, **name),
        "contrib_RROIAlign": lambda **name: mxnet.contrib_RROIAlign(
            PROBE, turned, (2, 2), 1.0, **name
        ),
        "contrib_PSROIPooling": lambda **name: mxnet.contrib_PSROIPooling(
            maps, box, 1.0, 1, 2, **name
        ),
        "contrib_DeformablePSROIPooling": lambda **name: mxnet.contrib_DeformablePSROIPooling(
            maps, box, None, 1.0, 1, 2, 2, no_trans=True, **name
        ),
    }
    assert {*pools} == {name for name in mxnet.__all__ if "_backward" not in name}
    for pool in pools.values():
        for name in ("roi_pool", None, ""):
            np.testing.assert_array_equal(pool(name=name), pool())
        with pytest.raises(TypeError, match="name must be a str or None, got 3"):
            pool(name=3)


@pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS)
def test_layers_show_their_options(case: LayerCase) -> None:
    assert repr(case.make()) == case.shown


@pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS)
def test_layers_can_be_copied_and_pickled(case: LayerCase) -> None:
    layer = case.make()
    expected = layer(*case.arguments)
    copies = [copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    for each in copies:
        assert type(each) is type(layer)
        assert repr(each) == case.shown
        np.testing.assert_array_equal(each(*case.arguments), expected)


class Doubled(torchvision.RoIAlign):
    """A user's layer."""

    def __init__(self, size: int) -> None:
        self.factor = 2
        super().__init__(size, 0.5, 2)

    def forward(self, input: Any, rois: Any) -> Any:
        return self.factor * super().forward(input, rois)


def test_classes_of_users_are_called_and_pickled() -> None:
    box, layer = [[0, 0.5, 1, 3, 3.5]], Doubled(2)
    expected = 2 * torchvision.roi_align(PROBE, box, 2, 0.5, 2)
    for each in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(each, Doubled)
        np.testing.assert_array_equal(each(PROBE, box), expected)
    assert repr(layer) == (
        "Doubled(output_size=2, spatial_scale=0.5, sampling_ratio=2, aligned=False)"
    )


def test_every_layer_is_tested() -> None:
    found = {
        f"{system}.{name}"
        for system in compat.__all__
        for name, value in vars(getattr(compat, system)).items()
        if inspect.isclass(value) and value.__module__.startswith("roipool.compat.")
        if not name.startswith("_") and issubclass(value, Layer)
        if value not in (Layer, CheckedLayer)
    }
    assert found == {name.split()[0] for name in LAYERS}


def test_layers_import_no_library() -> None:
    process = run_python(
        """
        import sys
        from roipool.compat import mmcv

        layer = mmcv.RoIAlign(7)
        assert "torch" not in sys.modules
        assert type(layer) is mmcv.RoIAlign
        """
    )
    assert not process.returncode, process.stderr


def test_layers_pool_as_their_functions() -> None:
    box, turned = [[0, 0.5, 1, 3, 3.5]], [[0, 4, 4, 5, 3, 0.5]]
    pairs = [
        (torchvision.RoIPool(2, 0.5)(PROBE, box), torchvision.roi_pool(PROBE, box, 2, 0.5)),
        (
            torchvision.RoIAlign(2, 0.5, 2, True).forward(PROBE, box),
            torchvision.roi_align(PROBE, box, 2, 0.5, 2, True),
        ),
        (mmcv.RoIPool(2, 0.5)(PROBE, box), mmcv.roi_pool(PROBE, box, 2, 0.5)),
        (
            mmcv.RoIAlignRotated(2, 0.5, 2, False, True)(PROBE, turned),
            mmcv.roi_align_rotated(PROBE, turned, 2, 0.5, 2, False, True),
        ),
        (
            mmcv.RiRoIAlignRotated(2, 0.5, 2, 1)(PROBE, turned),
            mmcv.riroi_align_rotated(PROBE, turned, 2, 0.5, 2, 1),
        ),
        (mmcv.PrRoIPool(2, 0.5)(PROBE, box), mmcv.prroi_pool(PROBE, box, 2, 0.5)),
        (
            precise_roi_pooling.PrRoIPool2D(2, 3, 0.5)(PROBE, box),
            precise_roi_pooling.prroi_pool2d(PROBE, box, 2, 3, 0.5),
        ),
        (
            mmcv.RoIAlign(2, 0.5, 2, "max")(PROBE, box),
            mmcv.roi_align(PROBE, box, 2, 0.5, 2, "max"),
        ),
        (
            mmcv.RoIAlign(2, 0.5, 2, "max", use_torchvision=True)(PROBE, box),
            mmcv.roi_align(PROBE, box, 2, 0.5, 2, "avg"),
        ),
    ]
    for layer, function in pairs:
        np.testing.assert_array_equal(layer, function)
    grad = np.ones((1, 1, 2, 2), np.float32)
    np.testing.assert_array_equal(
        detectron2.ROIAlign(2, 0.5, 2).backward(grad, box, PROBE.shape),
        torchvision.roi_align_backward(grad, box, PROBE.shape, 0.5, 2, True),
    )
