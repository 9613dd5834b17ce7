"""Bins that are moved, each by an offset of its own; offsets follow the corners of a box."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from roipool.reference._bins import by_rules, crossed, line_of, places_of
from roipool.reference._inputs import Box, Boxes, Floats, Pair, Real, Scale
from roipool.reference._loops import Bin, Definition
from roipool.reference._rules import Rules


class MovedBins(NamedTuple):
    """The options of a call; `gamma` multiplies offsets, and `order` is one of `POSITIONS`."""

    rules: Rules
    scale: Scale
    ratio: Pair
    gamma: float
    real: Real
    count_real: Real
    order: str = "caffe2"

    def offset(self, box: Box, bins: Pair, ph: int, pw: int) -> tuple[float, float]:
        """Return the offset of a bin, down and across: they follow the corners, across first."""
        across, down = np.reshape(box[4:], (2, *bins))[:, ph, pw]
        return float(down), float(across)

    def define(self, bins: Pair, size: Pair) -> Definition:
        """Return the bins of boxes with offsets on a map."""

        def definition(box: Box, ph: int, pw: int) -> Bin:
            x1, y1, x2, y2, *_ = box
            places = places_of(
                (x1, y1, x2, y2),
                (ph, pw),
                bins,
                size,
                scale=self.scale,
                ratio=self.ratio,
                real=self.real,
                other_real=self.count_real,
                order=self.order,
            )
            rows, columns = (
                line_of(self.rules, place._replace(moved=(self.gamma, offset)))
                for place, offset in zip(places, self.offset(box, bins, ph, pw), strict=True)
            )
            return by_rules(self.rules, crossed(self.rules, rows, columns, self.real))

        return definition


def table_of(boxes: Boxes, offsets: Floats) -> Floats:
    """Return a row for each box: image, corners, and offsets (K, 2, rows, columns)."""
    table = np.array([[n, *box] for n, box in boxes]).reshape(len(boxes), 5)
    return np.hstack([table, offsets.reshape(len(boxes), math.prod(offsets.shape[1:]))])
