"""ROI align over a pyramid's maps: each box from the map of its level, one level at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Answer,
    Array,
    Floats,
    Integers,
    Pair,
    Scale,
    Size,
    as_boxes,
    as_pair,
)
from roipool.reference._roi_align import RoiAlign
from roipool.reference._roi_pool import RoiPool


def assign_levels(
    rois: Array,
    min_level: int,
    max_level: int,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
) -> Integers:
    """As :func:`roipool.assign_levels`, slowly: Lin et al. (2017), equation 1, box by box."""
    places = []
    for row in np.asarray(rois, np.float64).tolist():
        x1, y1, x2, y2 = row[-4:]
        level = min_level
        while (
            level < max_level
            and x1 < x2
            and (x2 - x1) * (y2 - y1)
            >= (canonical_size * 2.0 ** (level + 1 - canonical_level)) ** 2
        ):
            level += 1
        places.append(level - min_level)
    return np.array(places, np.int64)


@dataclass(frozen=True)
class BoxesOfPyramid(BoxPooling):
    """Boxes of several maps, each with the level of its own; a box of no map is 0."""

    spatial_scales: Sequence[Scale]
    _: KW_ONLY
    levels: Array

    def on_map(self, level: int, boxes: Floats, first_map: Pair) -> Any:
        """Return the operation on one map, for its boxes; the first map has some rows, columns."""
        raise NotImplementedError

    def every_map(
        self, shapes: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, np.ndarray[Any, Any], Any]]:
        """Yield each level, which boxes are its own, and the operation for these."""
        boxes = as_boxes(self.rois, self.batch_indices, shapes[0][0])
        table = np.array([(n, *box) for n, box in boxes], np.float64).reshape(-1, 5)
        first_map = shapes[0][1:3] if self.layout == "NHWC" else shapes[0][2:]
        for level in range(len(shapes)):
            own = np.asarray(self.levels) == level
            yield level, own, self.on_map(level, table[own], as_pair(first_map))


class AveragesOfPyramid(BoxesOfPyramid):
    """Averages over boxes of several maps."""

    def forward(self, features: Sequence[Array], output_size: Size) -> Answer:
        """Return the pooled values of each box from its level's map."""
        values = [
            (own, one.forward(features[level], output_size))
            for level, own, one in self.every_map([np.shape(each) for each in features])
        ]
        return _of_all(values)

    def backward(self, grad_output: Array, input_shapes: Sequence[Sequence[int]]) -> list[Floats]:
        """Return a gradient for each of the maps, from its own boxes."""
        upstream = np.asarray(grad_output)
        return [
            one.backward(upstream[own], input_shapes[level])
            for level, own, one in self.every_map(input_shapes)
        ]

    def backward_boxes(self, grad_output: Array, features: Sequence[Array]) -> Floats:
        """Return the gradient of each box, from its level's map; levels count as constant."""
        upstream = np.asarray(grad_output)
        gradients = [
            (own, one.backward_boxes(upstream[own], features[level]))
            for level, own, one in self.every_map([np.shape(each) for each in features])
        ]
        return _of_all(gradients)


def _of_all(parts: list[tuple[np.ndarray[Any, Any], Floats]], nothing: float = 0.0) -> Floats:
    """Return the rows of all boxes from those of each level; `nothing` for a box of no level."""
    rows = np.full((len(parts[0][0]), *parts[0][1].shape[1:]), nothing, parts[0][1].dtype)
    for own, values in parts:
        rows[own] = values
    return rows


@dataclass(frozen=True)
class MultilevelRoiAlign(AveragesOfPyramid):
    """As :func:`roipool.multilevel_roi_align`, slowly: `roi_align` of every map, for its boxes."""

    sampling_ratio: Size = 0
    _: KW_ONLY
    aligned: bool = True

    def on_map(self, level: int, boxes: Floats, first_map: Pair) -> RoiAlign:
        """Return ROI align on one map."""
        return RoiAlign(
            boxes,
            self.spatial_scales[level],
            self.sampling_ratio,
            aligned=self.aligned,
            layout=self.layout,
            coordinate_dtype=self.coordinate_dtype,
        )


@dataclass(frozen=True)
class MultilevelRoiPool(BoxesOfPyramid):
    """`roi_pool` of every map, for its boxes: values and argmax, of no map 0 and -1."""

    def on_map(self, level: int, boxes: Floats, first_map: Pair) -> RoiPool:
        """Return ROI pooling on one map."""
        scale, dtype = self.spatial_scales[level], self.coordinate_dtype
        return RoiPool(boxes, scale, layout=self.layout, coordinate_dtype=dtype)

    def forward(self, features: Sequence[Array], output_size: Size) -> Answer:
        """Return values and argmax."""
        found = [
            (own, one.forward(features[level], output_size, return_argmax=True))
            for level, own, one in self.every_map([np.shape(each) for each in features])
        ]
        values, argmax = ([(own, both[i]) for own, both in found] for i in range(2))
        return _of_all(values), _of_all(argmax, -1)

    def backward(
        self, grad_output: Array, argmax: Array, input_shapes: Sequence[Sequence[int]]
    ) -> list[Floats]:
        """Return a gradient for each of the maps."""
        upstream, indices = np.asarray(grad_output), np.asarray(argmax)
        return [
            one.backward(upstream[own], indices[own], input_shapes[level])
            for level, own, one in self.every_map(input_shapes)
        ]
