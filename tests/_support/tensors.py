"""Every variant of every operation as a function of tensors, with input for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import roipool
from roipool._definitions import OPS, Op, Variant

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
FORMATS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}

IMAGES, CHANNELS, HEIGHT, WIDTH = SHAPE = (2, 3, 8, 9)
SIZE = (2, 3)
PLACING = {"spatial_scale": 0.77, "sampling_ratio": (2, 1), "clockwise": True}
ADAPTIVE = {**PLACING, "sampling_ratio": 0, "aligned": False}


@dataclass(frozen=True)
class Case:
    """A variant of an operation, with the options that place its samples."""

    op: Op
    variant: Variant
    name: str
    adaptive: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def moves(self) -> bool:
        """Whether pooled values have a derivative by the boxes that is computed."""
        return self.variant.by_boxes is not None

    @property
    def is_linear(self) -> bool:
        """Whether derivatives of every order by the features are computed."""
        return not self.variant.has_argmax or self.op.forward == "roi_pool"

    @property
    def placing(self) -> dict[str, Any]:
        """The options that place its samples."""
        values = ADAPTIVE if self.adaptive else PLACING
        return {name: values[name] for name in self.op.placing if name in values}

    def options(self, *, forward: bool = True) -> dict[str, Any]:
        """Return all options of the forward, or those of its gradients."""
        filling = {self.op.filling: 1.5} if self.op.filling and forward else {}
        return {**self.placing, **self.variant.options, **filling}

    def boxes(self, count: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
        """Return boxes without batch indices, (K, columns)."""
        rng = np.random.default_rng(seed)
        first = rng.uniform(0.3, 4.5, (count, 2))
        corners = np.concatenate([first, first + rng.uniform(1.3, 6.0, (count, 2))], axis=1)
        if self.op.boxes == "boxes":
            corners = corners / 9 * rng.choice([1, 1.2], (count, 1))
        if self.op.columns == 5:
            middle = (corners[:, :2] + corners[:, 2:]) / 2
            turns = rng.uniform(-3, 3, (count, 1))
            corners = np.concatenate([middle, corners[:, 2:] - corners[:, :2], turns], axis=1)
        return torch.tensor(corners, dtype=dtype)

    def indices(self, count: int = 5) -> Tensor:
        """Return the image of each box."""
        return torch.arange(count) % IMAGES

    def pool(self, features: Any, boxes: Any, indices: Any, **more: Any) -> Any:
        """Return pooled values, of tensors or NumPy arrays."""
        function = getattr(roipool, self.op.forward)
        arguments = {self.op.boxes: boxes, self.op.indices: indices, self.op.size: SIZE}
        return function(features, **arguments, **self.options(), **more)


CASES = [
    Case(op, variant, f"{op.forward}, {name}{', adaptive' if adaptive else ''}", adaptive)
    for op in OPS.values()
    for name, variant in op.variants.items()
    for adaptive in ([False, True] if "sampling_ratio" in op.placing else [False])
]


def maps(
    dtype: torch.dtype = torch.float64,
    memory_format: torch.memory_format = torch.contiguous_format,
    seed: int = 0,
    shape: tuple[int, ...] = SHAPE,
) -> Tensor:
    """Return random maps without equal values."""
    rng = np.random.default_rng(seed)
    values = rng.permutation(int(np.prod(shape))).reshape(shape) / 32 - 4
    return torch.tensor(values).to(dtype).contiguous(memory_format=memory_format)


def to_numpy(tensor: Tensor) -> Any:
    """Return a tensor's values as NumPy array, bfloat16 as such."""
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().numpy()
