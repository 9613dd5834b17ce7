"""Crop and resize: one sample per cell of the crop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from roipool.reference._bins import Line, Place, by_rules, crossed, places_of, spread_position
from roipool.reference._inputs import Array, Box, DType, Floats, Pair, Size, as_real
from roipool.reference._loops import Averages, Bin, Definition, Motion, Sample, Slopes
from roipool.reference._rules import (
    CROP_AND_RESIZE,
    ROUNDINGS,
    Pixel,
    Rules,
    floor_and_ceil,
    neighbours,
    slopes,
)


def _define(
    rules: Rules, dtype: DType, pinned: bool, method: str = "bilinear", ratio_first: bool = False
) -> Callable[[Pair, Pair], Definition]:
    """From the numbers of cells and the size of a map to the cells of crops."""
    if method not in ("bilinear", "nearest"):
        raise ValueError(f"method must be 'bilinear' or 'nearest', got {method!r}")
    real, rounded = as_real(dtype), ROUNDINGS[rules.nearest]
    if pinned and rules.spread == "corners":
        rules = replace(rules, spread="exact corners")

    def of_maps(bins: Pair, size: Pair) -> Definition:
        def line(place: Place) -> Line:
            at = spread_position(rules, place, ratio_first=ratio_first)
            cells = neighbours(rules, at, place.size, real)
            if cells and method == "nearest":
                assert rounded is not None
                cells = [(min(max(rounded(at), 0), place.size - 1), 1.0)]
            return Line(1, [(0, float(at), cells)], float, 1)

        def definition(box: Box, ph: int, pw: int) -> Bin:
            y1, x1, y2, x2 = box
            places = places_of((x1, y1, x2, y2), (ph, pw), bins, size, real=real)
            rows, columns = (line(place) for place in places)
            return by_rules(rules, crossed(rules, rows, columns, real))

        return definition

    return of_maps


def crop_and_resize(
    features: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: Size,
    *,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    layout: str = "NCHW",
    pinned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: Rules = CROP_AND_RESIZE,
) -> Floats:
    """As :func:`roipool.crop_and_resize`, slowly: every sample by itself.

    If `pinned`, the last cell of a side lies exactly on the box's last edge, else where rounding
    puts it, as in TensorFlow: perhaps just outside the map.
    """
    crops = Averages(_define(rules, coordinate_dtype, pinned, method), boxes, box_indices, layout)
    return crops.forward(features, crop_size, extrapolation_value)


def crop_and_resize_backward(
    grad_output: Array,
    boxes: Array,
    box_indices: Array,
    input_shape: Sequence[int],
    *,
    method: str = "bilinear",
    layout: str = "NCHW",
    pinned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: Rules = CROP_AND_RESIZE,
) -> Floats:
    """As :func:`roipool.crop_and_resize_backward`, slowly: the transpose, sample by sample.

    `pinned` is as for `crop_and_resize`.
    """
    crops = Averages(_define(rules, coordinate_dtype, pinned, method), boxes, box_indices, layout)
    return crops.backward(grad_output, input_shape)


def crop_and_resize_backward_boxes(
    grad_output: Array,
    features: Array,
    boxes: Array,
    box_indices: Array,
    *,
    layout: str = "NCHW",
    pinned: bool = True,
    coordinate_dtype: DType = np.float64,
    rules: Rules = CROP_AND_RESIZE,
) -> Floats:
    """As :func:`roipool.crop_and_resize_backward_boxes`, slowly: the slope at every sample.

    Without `pinned` it multiplies in the order of TensorFlow's CropAndResizeGradBoxes, which is
    not that of its forward.
    """
    real = as_real(coordinate_dtype)

    def slopes_in(size: Pair) -> Slopes:
        def slopes_at(sample: Sample) -> tuple[list[Pixel], list[Pixel]]:
            """On a row of cells' centres there is none for y, on a column none for x."""
            if not sample.pixels:
                return [], []
            return slopes(
                floor_and_ceil(real(sample.y), size[0], real),
                floor_and_ceil(real(sample.x), size[1], real),
            )

        return slopes_at

    def motion(bins: Pair, size: Pair) -> Motion:
        def moves(
            box: Box, ph: int, pw: int, found: Bin, sample: Sample
        ) -> Iterator[tuple[float, float]]:
            y_first, y_last = _share(ph, bins[0], size[0])
            x_first, x_last = _share(pw, bins[1], size[1])
            yield from ((y_first, 0.0), (0.0, x_first), (y_last, 0.0), (0.0, x_last))

        return moves

    definition = _define(rules, coordinate_dtype, pinned, ratio_first=not pinned)
    crops = Averages(definition, boxes, box_indices, layout)
    return crops.backward_boxes(grad_output, features, slopes_in, motion)


def _share(p: int, bins: int, size: int) -> tuple[float, float]:
    """Cells that the sample of bin `p` moves as its side's start, and end, moves by one."""
    fraction = 0.5 if bins == 1 else p / (bins - 1)
    return (size - 1) * (1 - fraction), (size - 1) * fraction
