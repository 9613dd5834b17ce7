"""Tensors that are refused: without dense storage, or boxes of another format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import roipool
from roipool.torch import nn

MAPS = torch.zeros(2, 4, 5, 5)
ROIS = torch.tensor([[0, 1.0, 1, 3, 3], [1, 0, 0, 4, 4]])
GRAD = torch.zeros(2, 4, 1, 1)
FLATS = torch.zeros(2, 2, 1, 1)
INDICES = torch.zeros(2)
NESTED = {
    "jagged": torch.jagged,
    "strided": torch.strided,
}


def nested(layout: Any, *shapes: tuple[int, ...]) -> Any:
    return torch.nested.nested_tensor([torch.zeros(shape) for shape in shapes], layout=layout)


# By the argument: a call with it.
CALLS: dict[str, Callable[[Any], Any]] = {
    "features": lambda value: roipool.roi_align(value, ROIS, 1),
    "rois": lambda value: roipool.roi_align(MAPS, value, 1),
    "batch_indices": lambda value: roipool.roi_align(MAPS, ROIS[:, 1:], 1, batch_indices=value),
    "grad_output": lambda value: roipool.roi_align_backward(value, ROIS, MAPS.shape),
    "boxes": lambda value: roipool.crop_and_resize(MAPS, value, INDICES, 1),
    "offsets": lambda value: roipool.deform_roi_pool(MAPS, ROIS, value, output_size=1),
    "features[1]": lambda value: roipool.multilevel_roi_align([MAPS, value], ROIS, 1, (1, 0.5)),
}
DENSE = {
    "features": MAPS,
    "rois": ROIS,
    "batch_indices": INDICES,
    "grad_output": GRAD,
    "boxes": ROIS[:, 1:],
    "offsets": FLATS,
    "features[1]": MAPS,
}


@pytest.mark.parametrize("name", CALLS)
def test_sparse_tensors_are_refused(name: str) -> None:
    CALLS[name](DENSE[name])
    message = f"{name} must be a dense tensor, got a sparse_coo one: use .to_dense()"
    with pytest.raises(TypeError) as caught:
        CALLS[name](DENSE[name].to_sparse())
    assert str(caught.value).partition(": ")[2] == message


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("name", ["features", "rois"])
def test_nested_tensors_are_refused(name: str, layout: Any) -> None:
    shapes = ((3, 4), (2, 4)) if name == "rois" else ((3, 4, 4), (2, 4, 4))
    value = nested(layout, *shapes)
    with pytest.raises(TypeError, match=rf"roi_align: {name} must be a dense .* a nested one"):
        CALLS[name](value)
    if name == "rois":
        assert CALLS[name](list(value.unbind())).shape[0] == 5


def test_the_index_in_a_table_is_named_there() -> None:
    wrong = ROIS.clone()
    wrong[1, 0] = 2
    message = r"rois\[1, 0\] is 2.0, but batch indices must be whole numbers"
    with pytest.raises(ValueError, match=message):
        roipool.deform_roi_pool(MAPS, wrong, FLATS, output_size=1)
    with pytest.raises(ValueError, match=message):
        roipool.deform_roi_pool_backward(GRAD, wrong, FLATS, MAPS.shape)
    with pytest.raises(ValueError, match=message):
        roipool.deformable_ps_roi_pool(MAPS, wrong, FLATS, output_size=1)
    with pytest.raises(ValueError, match=r"batch_indices\[1\] is 2.0"):
        roipool.deform_roi_pool(MAPS, wrong[:, 1:], FLATS, output_size=1, batch_indices=wrong[:, 0])


def test_volumes_of_another_type_are_named_as_they_are_given() -> None:
    rois = torch.tensor([[0, 0.0, 0, 0, 1, 1, 1]])
    for dtype in (torch.int32, torch.int64, torch.complex64):
        with pytest.raises(TypeError) as caught:
            roipool.roi_align_3d(torch.zeros(1, 2, 3, 4, 5).to(dtype), rois, 1)
        own = str(dtype).removeprefix("torch.")
        assert str(caught.value) == (
            "roi_align_3d: features must have dtype float16, bfloat16, float32, float64, uint8, "
            f"int8, uint16, int16, bool, got {own}; convert it, for example features.float()"
        )


class TestBoundingBoxes:
    """torchvision's boxes have a format, of which one is that of the operation."""

    @staticmethod
    def boxes(form: str, *row: float) -> Any:
        tv_tensors = pytest.importorskip("torchvision.tv_tensors")
        return tv_tensors.BoundingBoxes([[*map(float, row)]], format=form, canvas_size=(9, 9))

    @staticmethod
    def calls(boxes: Any) -> dict[str, Callable[[], Any]]:
        maps, grad = torch.arange(25.0).reshape(1, 1, 5, 5), torch.ones(1, 1, 2, 2)
        layer = roipool.torch.nn.RoIAlign(2, 1.0, 2)
        multi_scale = roipool.torch.nn.MultiScaleRoIAlign(["0"], 2, 2)
        zero = torch.zeros(1)
        return {
            "list": lambda: roipool.roi_align(maps, [boxes], 2),
            "table": lambda: roipool.roi_align(maps, boxes, 2, batch_indices=zero),
            "backward": lambda: roipool.roi_align_backward(grad, [boxes], maps.shape),
            "by boxes": lambda: roipool.roi_align_backward_rois(grad, maps, [boxes]),
            "layer": lambda: layer(maps, [boxes]),
            "levels": lambda: multi_scale({"0": maps}, [boxes], [(5, 5)]),
            "assigned": lambda: roipool.assign_levels(boxes, 2, 5),
            "crop": lambda: roipool.crop(maps[0, 0], boxes, 2),
            "masks": lambda: roipool.paste_masks(grad[:, 0], boxes, 5),
        }

    @pytest.mark.parametrize("form", ["XYWH", "CXCYWH"])
    def test_other_formats_are_refused(self, form: str) -> None:
        for call in self.calls(self.boxes(form, 1, 1, 2, 3)).values():
            with pytest.raises(ValueError, match=rf"must have the format XYXY, got {form}"):
                call()

    def test_corners_are_pooled(self) -> None:
        plain = torch.tensor([[1.0, 1, 2, 3]])
        expected = self.calls(plain)
        for name, call in self.calls(self.boxes("XYXY", 1, 1, 2, 3)).items():
            torch.testing.assert_close(call(), expected[name](), rtol=0, atol=0)

    def test_crops_have_any_format_that_they_are_told(self) -> None:
        corners, sizes = self.boxes("XYXY", 1, 1, 3, 4), self.boxes("XYWH", 1, 1, 2, 3)
        expected = roipool.crop(MAPS[0, 0], corners, 2)
        found = roipool.crop(MAPS[0, 0], sizes, 2, box_format="xywh")
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        with pytest.raises(ValueError, match="the format XYWH, got XYXY"):
            roipool.crop(MAPS[0, 0], corners, 2, box_format="xywh")

    def test_fractions_have_no_format(self) -> None:
        with pytest.raises(ValueError, match="y1, x1, y2, x2 as fractions, got XYXY"):
            roipool.crop_and_resize(MAPS, self.boxes("XYXY", 0, 0, 1, 1), torch.zeros(1), 2)

    def test_turned_boxes_are_in_degrees(self) -> None:
        boxes, plain = self.boxes("CXCYWHR", 2, 2, 3, 2, 30), torch.tensor([[2.0, 2, 3, 2, 30]])
        maps = torch.arange(25.0).reshape(1, 1, 5, 5)
        pooled, expected = (
            roipool.roi_align_rotated(maps, [one], 2, angle_unit="degrees")
            for one in (boxes, plain)
        )
        torch.testing.assert_close(pooled, expected, rtol=0, atol=0)
        options: dict[str, Any]
        for options in ({}, {"angle_unit": "degrees", "clockwise": True}):
            with pytest.raises(ValueError, match="CXCYWHR with angle_unit='degrees'"):
                roipool.roi_align_rotated(maps, [boxes], 2, **options)


@pytest.mark.parametrize("size", [np.array([3, 2]), torch.tensor([3, 2])], ids=["array", "tensor"])
def test_an_array_is_a_pair(size: Any) -> None:
    """As torchvision takes sizes."""
    x, rois = torch.rand(1, 2, 9, 9), torch.tensor([[0, 1, 1, 7, 7.0]])
    pooled = roipool.roi_align(x, rois, (3, 2), sampling_ratio=2)
    assert torch.equal(roipool.roi_align(x, rois, size, sampling_ratio=size * 0 + 2), pooled)
    assert torch.equal(nn.RoIAlign(size, sampling_ratio=size * 0 + 2)(x, rois), pooled)


def test_a_notebook_completes_the_modules_alone() -> None:
    assert dir(nn) == nn.__all__
