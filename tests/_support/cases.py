"""All variants of all operations as functions of any library's arrays, and input for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool._definitions import OPS, PYRAMID_OPS, Op, Variant

IMAGES, CHANNELS, HEIGHT, WIDTH = SHAPE = (2, 3, 8, 9)
SMALL = (2, 3, 4, 5)
SIZE = (2, 3)
PLACING = {
    "spatial_scale": 0.77,
    "spatial_scales": (0.77, 0.37),
    "sampling_ratio": (2, 1),
    "clockwise": True,
    "group_size": (1, 3),
}
ADAPTIVE = {**PLACING, "sampling_ratio": 0, "aligned": False}

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A variant of an operation, with the options that determine its samples."""

    op: Op
    variant: Variant
    name: str
    adaptive: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def moves(self) -> bool:
        """Whether the variant has a gradient with respect to the boxes."""
        return self.variant.by_boxes is not None

    @property
    def is_linear(self) -> bool:
        """Whether derivatives of all orders with respect to the features are supported."""
        return not self.variant.has_argmax or self.op.forward == "roi_pool"

    @property
    def groups(self) -> int:
        """The channels of the features for each channel of pooled values."""
        return math.prod(PLACING["group_size"]) if self.op.is_position_sensitive else 1

    @property
    def placing(self) -> dict[str, Any]:
        """The options that determine the samples."""
        values = ADAPTIVE if self.adaptive else PLACING
        return {name: values[name] for name in self.op.placing if name in values}

    def options(self, *, forward: bool = True) -> dict[str, Any]:
        """Return all options of the forward, or of its gradients."""
        filling = {self.op.filling: 1.5} if self.op.filling and forward else {}
        return {**self.placing, **self.variant.options, **filling}

    def boxes(self, count: int = 5, seed: int = 0) -> Array:
        """Return boxes without batch indices, (K, columns)."""
        rng = np.random.default_rng(seed)
        first = rng.uniform(0.3, 4.5, (count, 2))
        corners = np.concatenate([first, first + rng.uniform(1.3, 6.0, (count, 2))], axis=1)
        if self.op.boxes == "boxes":
            corners = corners / 9 * rng.choice([1, 1.2], (count, 1))
        if self.op.is_rotated:
            middle = (corners[:, :2] + corners[:, 2:]) / 2
            turns = rng.uniform(-3, 3, (count, 1))
            corners = np.concatenate([middle, corners[:, 2:] - corners[:, :2], turns], axis=1)
        return corners

    def indices(self, count: int = 5) -> Array:
        """Return the image of each box."""
        return np.arange(count) % IMAGES

    def pool(self, features: Any, boxes: Any, indices: Any, size: Any = SIZE, **more: Any) -> Any:
        """Return pooled values, of any library's arrays."""
        function: Callable[..., Any] = getattr(roipool, self.op.forward)
        arguments = {self.op.boxes: boxes, self.op.indices: indices, self.op.size: size}
        return function(features, **arguments, **self.options(), **more)

    def gradient(
        self, grad: Any, argmax: Any, boxes: Any, indices: Any, shape: Any, **more: Any
    ) -> Any:
        """Return the gradient with respect to the features; `argmax` is None for averages."""
        function: Callable[..., Any] = getattr(roipool, self.op.backward)
        options = self.options(forward=False)
        if self.op.forward == "roi_pool":  # its gradient takes the argmax instead of options
            options = {}
        if argmax is not None:
            options["argmax"] = argmax
        arguments = {self.op.boxes: boxes, self.op.indices: indices, "input_shape": shape}
        return function(grad, **arguments, **options, **more)

    def box_gradient(self, grad: Any, features: Any, boxes: Any, indices: Any, **more: Any) -> Any:
        """Return the gradient by the boxes."""
        function: Callable[..., Any] = getattr(roipool, str(self.op.backward_boxes))
        arguments = {self.op.boxes: boxes, self.op.indices: indices}
        return function(grad, features, **arguments, **self.placing, **more)


class PyramidCase(Case):
    """An operation on pyramids as a function of the first map, from which the second is derived."""

    def pyramid(self, features: Any, layout: str = "NCHW") -> list[Any]:
        """Return the maps of the pyramid, in any library's arrays."""
        half = features[:, ::2, ::2] if layout == "NHWC" else features[:, :, ::2, ::2]
        return [features, half * 2]

    def levels(self, boxes: Any) -> Any:
        """Return the map of each box."""
        return np.arange(boxes.shape[0]) % 2

    def pool(self, features: Any, boxes: Any, indices: Any, size: Any = SIZE, **more: Any) -> Any:
        """Return pooled values, of any library's arrays."""
        maps = self.pyramid(features, more.get("layout", "NCHW"))
        return super().pool(maps, boxes, indices, size, levels=self.levels(boxes), **more)

    def gradient(
        self, grad: Any, argmax: Any, boxes: Any, indices: Any, shape: Any, **more: Any
    ) -> Any:
        """Return the gradient with respect to each map; `shape` is that of the first."""
        del argmax
        function: Callable[..., Any] = getattr(roipool, self.op.backward)
        shapes = [each.shape for each in self.pyramid(np.zeros(shape), more.get("layout", "NCHW"))]
        options = {**self.options(forward=False), **more, "levels": self.levels(boxes)}
        return function(grad, boxes, shapes, batch_indices=indices, **options)

    def box_gradient(self, grad: Any, features: Any, boxes: Any, indices: Any, **more: Any) -> Any:
        """Return the gradient by the boxes."""
        maps = self.pyramid(features, more.get("layout", "NCHW"))
        return super().box_gradient(grad, maps, boxes, indices, levels=self.levels(boxes), **more)


def _every(ops: Mapping[str, Op], kind: type[Case]) -> list[Any]:
    return [
        kind(op, variant, f"{op.forward}, {name}{', adaptive' if adaptive else ''}", adaptive)
        for op in ops.values()
        for name, variant in op.variants.items()
        for adaptive in ([False, True] if "sampling_ratio" in op.placing else [False])
    ]


CASES: list[Case] = _every(OPS, Case)
PYRAMID_CASES: list[PyramidCase] = _every(PYRAMID_OPS, PyramidCase)


def maps(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Array:
    """Return random maps of distinct values, exact in every dtype except bfloat16."""
    rng = np.random.default_rng(seed)
    return rng.permutation(int(np.prod(shape))).reshape(shape) / 32 - 4


def to_layout(values: Any, layout: str) -> Any:
    """Return (N, C, H, W) values in a layout, in any library's arrays."""
    return values.transpose(0, 2, 3, 1) if layout == "NHWC" else values
