"""Gradients of maps, some of whose tiles are read by many bins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from roipool import _cpu
from roipool._boxes import Regions
from roipool._cuda import launch
from roipool._cuda.partition import Limits, Sizes
from roipool._definitions import Definition, Depth
from roipool._request import Pooling
from roipool.systems.case import Array, in_layout

from .backends import Backend
from .catalogue import shape_in_layout
from .compare import compute_type

USUAL = Limits().crowd


class Crowd(NamedTuple):
    """A gradient of boxes, most of which are around one object: that of NCHW maps."""

    grad: Array
    regions: Regions
    pooling: Pooling
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        boxes: int,
        channels: int = 5,
        size: tuple[int, int] = (6, 5),
        levels: int = 1,
        is_of_volumes: bool = False,
    ) -> Crowd:
        """Draw boxes in two images, a few without an image."""
        rng = np.random.default_rng(boxes)
        axes, depth = (3, Depth(4, 2, 1, 0.7, 0.9)) if is_of_volumes else (2, None)
        low, high = np.sort(rng.uniform(-2, 40, (2, boxes, axes)), axis=0)
        crowd = slice(0, boxes * 3 // 4)
        low[crowd] = 9 + rng.normal(size=low[crowd].shape)
        high[crowd] = low[crowd] + 6 + rng.normal(size=low[crowd].shape)
        if is_of_volumes:
            low[:, 2], high[:, 2] = rng.uniform(-1, 2, boxes), rng.uniform(2, 7, boxes)
        images = rng.integers(0, 2, boxes)
        images[::17] = -1
        numbers = rng.integers(0, levels, boxes) if levels > 1 else None
        definition = Definition("roi_align", 0.9, (2, 2), aligned=True, depth=depth)
        height, width = size
        rows = 2 * height if is_of_volumes else height
        scales = (0.9, 0.45, 0.3)[:levels] if levels > 1 else ()
        pooling = Pooling(definition, (rows, width), scales=scales)
        maps = [(4 * 19, 43), (21, 23), (9, 50)] if is_of_volumes else [(37, 43), (21, 23), (9, 50)]
        return cls(
            rng.normal(size=(boxes, channels, rows, width)),
            Regions(np.concatenate([low, high], axis=1), images, numbers),
            pooling,
            tuple((2, channels, *cells) for cells in maps[:levels]),
        )

    def on_cpu(self, dtype: Any) -> list[Array]:
        """Return the gradients of all maps in NCHW, computed by the CPU's engine."""
        known = self.regions.batch_indices >= 0
        boxes, images, levels = self.regions
        there = Regions(
            boxes[known].astype(compute_type(dtype)),
            images[known],
            None if levels is None else levels[known],
        )
        outs = [np.empty(shape, dtype) for shape in self.shapes]
        _cpu.average_backward(self.grad[known].astype(dtype), there, self.pooling, outs)
        return outs

    def on_gpu(self, gpu: Backend, dtype: Any, layout: str, limits: Limits) -> list[Array]:
        """Return the same, computed by the GPU's engine in a layout."""
        boxes, images, levels = self.regions
        there = Regions(
            gpu.to_device(boxes.astype(compute_type(dtype))),
            gpu.to_device(images),
            None if levels is None else gpu.to_device(levels),
        )
        grad = gpu.to_device(np.ascontiguousarray(in_layout(self.grad.astype(dtype), layout)))
        shapes = [shape_in_layout(shape, layout) for shape in self.shapes]
        outs = [gpu.to_device(np.full(shape, np.nan).astype(dtype)) for shape in shapes]
        pooling = self.pooling._replace(layout=layout)
        sizes = Sizes(*gpu.module.sizes_of(grad.dtype, there, pooling, *shapes), limits)
        kernels = gpu.module.kernels_of(launch.average_backward(sizes, False))
        with there.boxes.device:
            gpu.module.run(kernels, there, grad, outs[0], maps=outs)
        results = map(gpu.to_host, outs)
        return [one if layout == "NCHW" else np.moveaxis(one, -1, 1) for one in results]
