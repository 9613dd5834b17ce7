"""All variants of all operations as functions of tensors, and input for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import cases
from .cases import SHAPE, SIZE, is_per_image

__all__ = [
    "ALL_CASES",
    "CASES",
    "DTYPES",
    "FORMATS",
    "PYRAMID_CASES",
    "SIZE",
    "VOLUME_CASES",
    "TensorCase",
    "VolumeTensorCase",
    "maps",
    "to_numpy",
]

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
FORMATS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}


class TensorCase(cases.OperationCase):
    """A variant of an operation, with the options that determine its samples, and tensors."""

    def boxes(self, count: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
        """Return boxes without batch indices, (K, columns)."""
        return torch.tensor(super().boxes(count, seed), dtype=dtype)

    def numbers(self, boxes: Tensor) -> Tensor:
        """Return the numbers of boxes as operators take them."""
        return boxes

    def indices(self, count: int = 5) -> Tensor:
        """Return the image of each box."""
        return torch.tensor(super().indices(count))


def moved_bins(like: Tensor, boxes: Any, size: Any, layout: str = "NCHW") -> Tensor:
    """Return the offsets of `cases.DeformedCase`; a compiler can trace this."""
    rows, columns = (size, size) if isinstance(size, int) else size
    count = sum(len(part) for part in boxes) if is_per_image(boxes) else boxes.shape[0]
    number = torch.arange(2 * rows * columns, device=like.device) * 37 % 100
    of_box = (number.double() / 50 - 1).reshape(2, rows, columns)
    offsets = of_box.expand(count, 2, rows, columns)
    return offsets.permute(0, 2, 3, 1) if layout == "NHWC" else offsets


class DeformedTensorCase(TensorCase, cases.DeformedCase):
    """An operation whose bins are moved, with tensors."""

    def offsets(self, like: Any, boxes: Any, size: Any, layout: str = "NCHW", **_: Any) -> Any:
        """Return the offsets of the bins of all boxes."""
        of = moved_bins if isinstance(like, Tensor) else super().offsets
        return of(like, boxes, size, layout)

    def numbers(self, boxes: Tensor) -> Tensor:
        """Return the offsets behind the corners."""
        offsets = self.offsets(boxes, boxes, SIZE).flatten(1)
        return torch.cat([boxes, offsets.to(boxes.dtype)], 1).detach()


class PyramidTensorCase(TensorCase, cases.PyramidCase):
    """An operation on pyramids, with tensors."""

    def levels(self, boxes: Any) -> Tensor:
        """Return the map of each box."""
        return torch.arange(boxes.shape[0], device=boxes.device) % 2


class VolumeTensorCase(TensorCase, cases.VolumeCase):
    """An operation on volumes, with tensors."""


CASES: list[TensorCase] = [
    (DeformedTensorCase if each.op.is_deformable else TensorCase)(
        each.op, each.variant, each.name, each.adaptive
    )
    for each in cases.CASES
]
PYRAMID_CASES = [
    PyramidTensorCase(each.op, each.variant, each.name, each.adaptive)
    for each in cases.PYRAMID_CASES
]
VOLUME_CASES = [
    VolumeTensorCase(each.op, each.variant, each.name, each.adaptive) for each in cases.VOLUME_CASES
]
ALL_CASES: list[TensorCase] = [*CASES, *PYRAMID_CASES, *VOLUME_CASES]


def maps(
    dtype: torch.dtype = torch.float64,
    memory_format: torch.memory_format = torch.contiguous_format,
    seed: int = 0,
    shape: tuple[int, ...] = SHAPE,
) -> Tensor:
    """Return random maps of distinct values."""
    values = torch.tensor(cases.maps(shape, seed))
    return values.to(dtype).contiguous(memory_format=memory_format)


def to_numpy(tensor: Tensor) -> Any:
    """Convert a tensor to a NumPy array; bfloat16 stays bfloat16."""
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().numpy()
