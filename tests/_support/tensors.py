"""All variants of all operations as functions of tensors, and input for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import cases
from .cases import SHAPE, SIZE

__all__ = [
    "ALL_CASES",
    "CASES",
    "DTYPES",
    "FORMATS",
    "PYRAMID_CASES",
    "SIZE",
    "Case",
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


class Case(cases.Case):
    """A variant of an operation, with the options that determine its samples, and tensors."""

    def boxes(self, count: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
        """Return boxes without batch indices, (K, columns)."""
        return torch.tensor(super().boxes(count, seed), dtype=dtype)

    def indices(self, count: int = 5) -> Tensor:
        """Return the image of each box."""
        return torch.tensor(super().indices(count))


class PyramidCase(Case, cases.PyramidCase):
    """An operation on pyramids, with tensors."""

    def levels(self, boxes: Any) -> Tensor:
        """Return the map of each box."""
        return torch.arange(boxes.shape[0], device=boxes.device) % 2


CASES = [Case(each.op, each.variant, each.name, each.adaptive) for each in cases.CASES]
PYRAMID_CASES = [
    PyramidCase(each.op, each.variant, each.name, each.adaptive) for each in cases.PYRAMID_CASES
]
ALL_CASES: list[Case] = [*CASES, *PYRAMID_CASES]


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
