"""All variants of all operations as functions of any library's arrays, and input for them."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op, Variant
from roipool._layout import VolumeLayout, height_width, merged_shape
from roipool.systems import SYSTEMS
from roipool.systems.core import ONE_SCALE
from roipool.systems.volumes import OF_VOLUMES as OF_VOLUMES

IMAGES, CHANNELS, HEIGHT, WIDTH = SHAPE = (2, 3, 8, 9)
SMALL = (2, 3, 4, 5)
SIZE = (2, 3)
PLACING = {
    "spatial_scale": 0.77,
    "spatial_scales": (0.77, 0.37),
    "sampling_ratio": (2, 1),
    "clockwise": True,
    "group_size": (1, 3),
    "samples": (2, 3),
    "gamma": 0.2,
}
ADAPTIVE = {**PLACING, "sampling_ratio": 0, "aligned": False}
# Of operations that may have a scale for each axis.
PAIRS = {"spatial_scale": (0.6, 0.77), "spatial_scales": ((0.6, 0.77), 0.37)}

Array = NDArray[Any]


@dataclass(frozen=True)
class OperationCase:
    """A variant of an operation, with the options that determine its samples."""

    op: Op
    variant: Variant
    name: str
    adaptive: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def row(self) -> str:
        """The name of the variant's row in `SYSTEMS`."""
        own = f"{self.op.forward} {self.name.split(', ')[1]}"
        return own if own in SYSTEMS else self.op.forward

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
        if self.adaptive and self.op.forward not in ONE_SCALE:
            values = {**values, **PAIRS}
        return {name: values[name] for name in self.op.placing if name in values}

    def options(self, *, forward: bool = True) -> dict[str, Any]:
        """Return all options of the forward, or of its gradients."""
        filling = {self.op.filling: 1.5} if self.op.filling and forward else {}
        return {**self.placing, **self.variant.options, **filling}

    def per_bin(self, boxes: Any, size: Any = SIZE, layout: str = "NCHW") -> dict[str, Any]:
        """Return the arguments that hold numbers of each bin."""
        return {}

    def numbers(self, boxes: Any) -> Any:
        """Return the numbers of boxes as kernels take them."""
        return boxes

    def number_gradient(self, *given: Any) -> Any:
        """Return the gradient by these numbers."""
        return self.box_gradient(*given)

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
        arguments = {self.op.boxes: boxes, self.op.indices: indices, **self.placing}
        taken = inspect.signature(function).parameters
        chosen = {name: value for name, value in self.variant.options.items() if name in taken}
        return function(grad, features, **arguments, **chosen, **more)


@cache  # nothing is copied to a GPU while a graph is captured
def offsets_of_bins(count: int, rows: int, columns: int, layout: str, on_gpu: bool) -> Any:
    """Return the same offsets for each of so many boxes."""
    offsets = np.arange(2 * rows * columns) * 37 % 100 / 50 - 1
    every = np.tile(offsets.reshape(2, rows, columns), (count, 1, 1, 1))
    values = np.ascontiguousarray(to_layout(every, layout))
    return importlib.import_module("cupy").asarray(values) if on_gpu else values


class DeformedCase(OperationCase):
    """An operation whose bins are moved, by offsets that follow from their numbers."""

    def offsets(self, like: Any, boxes: Any, size: Any, layout: str = "NCHW", **_: Any) -> Any:
        """Return the offsets of the bins of all boxes, as an array like another."""
        rows, columns = (size, size) if isinstance(size, int) else size
        parts = boxes if is_per_image(boxes) else [boxes]
        count = sum(one.shape[0] if hasattr(one, "shape") else len(one) for one in parts)
        on_gpu = type(like).__module__.partition(".")[0] == "cupy"
        return self.array_like(offsets_of_bins(count, rows, columns, layout, on_gpu), like)

    def array_like(self, values: Any, like: Any) -> Any:
        """Return values as an array that stands beside another: JAX and Dask take NumPy's there."""
        del like
        return values

    def pool(self, features: Any, boxes: Any, indices: Any, size: Any = SIZE, **more: Any) -> Any:
        """Return pooled values, of any library's arrays."""
        offsets = self.offsets(features, boxes, size, **more)
        return super().pool(features, boxes, indices, size, offsets=offsets, **more)

    def gradient(
        self, grad: Any, argmax: Any, boxes: Any, indices: Any, shape: Any, **more: Any
    ) -> Any:
        """Return the gradient with respect to the features."""
        more["offsets"] = self.offsets_of(grad, boxes, **more)
        return super().gradient(grad, argmax, boxes, indices, shape, **more)

    def box_gradient(self, grad: Any, features: Any, boxes: Any, indices: Any, **more: Any) -> Any:
        """Return the gradient by the boxes."""
        more["offsets"] = self.offsets_of(grad, boxes, **more)
        return super().box_gradient(grad, features, boxes, indices, **more)

    def offsets_of(self, grad: Any, boxes: Any, layout: str = "NCHW", **_: Any) -> Any:
        """Return the offsets for a gradient of pooled values."""
        size = height_width(grad.shape, layout) if hasattr(grad, "shape") else SIZE
        return self.offsets(grad, boxes, size, layout)

    def per_bin(self, boxes: Any, size: Any = SIZE, layout: str = "NCHW") -> dict[str, Any]:
        """Return the arguments that hold numbers of each bin."""
        return {"offsets": self.offsets(boxes, boxes, size, layout)}

    def numbers(self, boxes: Any) -> Any:
        """Return the offsets of bins behind the corners."""
        offsets = self.offsets(boxes, boxes, SIZE).reshape(len(boxes), -1)
        return np.hstack([boxes, offsets.astype(boxes.dtype)])

    def number_gradient(self, *given: Any) -> Any:
        """Return the gradient by corners and offsets."""
        grad, features, boxes, indices = given
        function: Callable[..., Any] = getattr(roipool, str(self.op.backward_offsets))
        by_offsets = function(
            grad,
            features,
            boxes,
            self.offsets(grad, boxes, SIZE),
            batch_indices=indices,
            **self.placing,
        )
        by_corners = self.box_gradient(*given) if self.moves else np.zeros(np.shape(boxes))
        return np.hstack([by_corners, by_offsets.reshape(len(boxes), -1)])


def is_per_image(boxes: Any) -> bool:
    """Return whether boxes are an array for each image."""
    return isinstance(boxes, (list, tuple)) and not isinstance(boxes[0], list)


class PyramidCase(OperationCase):
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


class VolumeCase(OperationCase):
    """An operation on volumes as a function of maps, whose rows are those of two planes."""

    @property
    def placing(self) -> dict[str, Any]:
        """The options that determine the samples."""
        if self.adaptive:  # not by super(), which torch's compiler does not know of a property
            return {name: ADAPTIVE[name] for name in self.op.placing}
        return {"spatial_scale": (0.8, 0.9, 0.77), "sampling_ratio": (2, 1, 2)}

    def boxes(self, count: int = 5, seed: int = 0) -> Array:
        """Return boxes without batch indices, (K, columns)."""
        x1, y1, x2, y2 = super().boxes(count, seed).T
        return np.column_stack([x1, y1 / 2, x1 / 5, x2, y2 / 2, x2 / 5])

    def pool(self, features: Any, boxes: Any, indices: Any, size: Any = SIZE, **more: Any) -> Any:
        """Return pooled values, of any library's arrays."""
        rows, columns = (size, size) if isinstance(size, int) else size
        layout = more.pop("layout", "NCHW")
        given = in_planes(features, 2, layout), boxes, indices, (rows, 1, columns)
        pooled = super().pool(*given, layout=OF_VOLUMES[layout], **more)
        return as_maps(pooled, OF_VOLUMES[layout])

    def gradient(
        self, grad: Any, argmax: Any, boxes: Any, indices: Any, shape: Any, **more: Any
    ) -> Any:
        """Return the gradient with respect to the features; `shape` is that of maps."""
        layout = more.pop("layout", "NCHW")
        bins, _ = height_width(grad.shape, layout)
        volumes = shape_in_planes(shape, 2, layout)
        given = in_planes(grad, bins, layout), argmax, boxes, indices, volumes
        return as_maps(
            super().gradient(*given, layout=OF_VOLUMES[layout], **more), OF_VOLUMES[layout]
        )

    def box_gradient(self, grad: Any, features: Any, boxes: Any, indices: Any, **more: Any) -> Any:
        """Return the gradient by the boxes."""
        layout = more.pop("layout", "NCHW")
        bins, _ = height_width(grad.shape, layout)
        given = in_planes(grad, bins, layout), in_planes(features, 2, layout), boxes, indices
        return super().box_gradient(*given, layout=OF_VOLUMES[layout], **more)


def shape_in_planes(shape: Any, planes: int, layout: str) -> tuple[int, ...]:
    """Return the shape of maps whose rows are divided among planes."""
    at = 1 if layout == "NHWC" else 2
    return (*shape[:at], planes, shape[at] // planes, *shape[at + 1 :])


def in_planes(maps: Any, planes: int, layout: str) -> Any:
    """Return maps, of any library's arrays, with their rows divided among planes."""
    shape = shape_in_planes(maps.shape, planes, layout)
    if 0 in shape and hasattr(maps, "dask"):  # whose reshape takes no empty arrays
        return importlib.import_module("dask.array").zeros(shape, maps.dtype)
    return reshaped(maps, shape)


def as_maps(volumes: Any, layout: VolumeLayout) -> Any:
    """Return volumes, of any library's arrays, as maps."""
    return reshaped(volumes, merged_shape(volumes.shape, layout))


def reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    """Return an array in another shape; arrays of the standard have functions only."""
    if hasattr(array, "reshape"):
        return array.reshape(shape)
    return array.__array_namespace__().reshape(array, shape)


def kind_of(op: Op) -> type[OperationCase]:
    """Return the class of an operation's cases."""
    if op.forward in PYRAMID_OPS:
        return PyramidCase
    if op.is_of_volumes:
        return VolumeCase
    return DeformedCase if op.is_deformable else OperationCase


def _every(ops: Mapping[str, Op]) -> list[Any]:
    return [
        kind_of(op)(
            op, variant, f"{op.forward}, {name}{', adaptive' if adaptive else ''}", adaptive
        )
        for op in ops.values()
        for name, variant in op.variants.items()
        for adaptive in ([False, True] if "sampling_ratio" in op.placing else [False])
    ]


CASES: list[OperationCase] = _every(OPS)
PYRAMID_CASES: list[PyramidCase] = _every(PYRAMID_OPS)
VOLUME_CASES: list[VolumeCase] = _every(VOLUME_OPS)
ALL_CASES: list[OperationCase] = [*CASES, *PYRAMID_CASES, *VOLUME_CASES]


def maps(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Array:
    """Return random maps of distinct values, exact in every dtype except bfloat16."""
    rng = np.random.default_rng(seed)
    return rng.permutation(int(np.prod(shape))).reshape(shape) / 32 - 4


def to_layout(values: Any, layout: str) -> Any:
    """Return (N, C, H, W) values in a layout, in any library's arrays."""
    return values.transpose(0, 2, 3, 1) if layout == "NHWC" else values
