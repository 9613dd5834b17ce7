"""One bin of one box by any rules: its samples, and its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from roipool.reference._bins import Line, Place, by_rules, crossed, line_of, places_of
from roipool.reference._inputs import (
    Array,
    Box,
    DType,
    Pair,
    Scale,
    Size,
    as_pair,
    as_real,
    by_axis,
)
from roipool.reference._loops import Averages, Bin, Maxima
from roipool.reference._roi_align_rotated import TurnedBox
from roipool.reference._rules import Rules
from roipool.reference._sides import samples_per_bin, side_of


class BoxOnMap(NamedTuple):
    """A box, its bins, and the map that they lie on."""

    # x1, y1, x2, y2 in pixels of the image; or centre x and y, width, height and angle; or, of a
    # volume, x1, y1, z1, x2, y2, z2.
    box: Box
    # Rows and columns of bins; for a volume, its planes of bins come first.
    output_size: Size
    # Rows and columns of the map, or planes, rows and columns of the volume.
    map_size: Sequence[int]
    # As for `roi_align`; for volumes and rotated boxes one number each, for all axes.
    spatial_scale: Scale = 1.0
    sampling_ratio: Size = 0
    coordinate_dtype: DType = np.float64

    @property
    def is_rotated(self) -> bool:
        """Whether the box has an angle."""
        return len(self.box) == 5

    def places(self, number: Sequence[int]) -> list[Place]:
        """Return the places of a bin of an upright box on the axes of the map."""
        axes = len(self.map_size)
        return places_of(
            self.box,
            number,
            by_axis(self.output_size, axes),
            self.map_size,
            real=as_real(self.coordinate_dtype),
            scale=self.spatial_scale,
            ratio=by_axis(self.sampling_ratio, axes),
        )

    def turned(self, rules: Rules) -> TurnedBox:
        """Return a rotated box in cells."""
        with np.errstate(all="ignore"):
            return TurnedBox(
                rules,
                self.box,
                as_pair(self.output_size),
                as_pair(self.map_size),
                cast(float, self.spatial_scale),
                as_pair(self.sampling_ratio),
                as_real(self.coordinate_dtype),
            )


def bin_of(rules: Rules, box: BoxOnMap, number: Pair) -> Bin:
    """The samples of one bin of a box of a map, with the cells and weights of each.

    Parameters
    ----------
    rules : Rules
        Without a pair: see :meth:`Rules.of_boxes`.

    Returns
    -------
    Bin
        Samples outside the map have no cells; of them only the first is sure to be listed.

    Examples
    --------
    >>> box = BoxOnMap((1, 1, 3, 3), output_size=2, map_size=(5, 5), sampling_ratio=1)
    >>> bin_of(Rules(shift=0.5), box, (0, 0)).samples[0].pixels
    [(1, 1, 1.0), (1, 2, 0.0), (2, 1, 0.0), (2, 2, 0.0)]
    """
    if box.is_rotated:
        return by_rules(rules, box.turned(rules).bin(*number))
    rows, columns = lines_of(rules, box, number)
    return by_rules(rules, crossed(rules, rows, columns, as_real(box.coordinate_dtype)))


def lines_of(rules: Rules, box: BoxOnMap, number: Sequence[int]) -> list[Line]:
    """The samples of one bin of an upright box down and along the map: `bin_of` crosses them.

    Those of a volume's box come along depth first.
    """
    with np.errstate(all="ignore"):
        return [line_of(rules, place) for place in box.places(number)]


def counts_of(rules: Rules, box: BoxOnMap, number: Sequence[int]) -> list[int]:
    """How many samples a bin has on each axis of the map; they may be too many to list."""
    if box.is_rotated:
        turned = box.turned(rules)
        return [turned.down.grid, turned.across.grid]
    if rules.samples != "grid":
        return [line.grid for line in lines_of(rules, box, number)]
    with np.errstate(all="ignore"):
        return [
            samples_per_bin(
                rules,
                side_of(rules, one.first, one.last, one.scale, one.real).length,
                one.bins,
                one.ratio,
                one.real,
                one.real,
            )
            for one in box.places(number)
        ]


def box_in_cells(rules: Rules, box: BoxOnMap) -> list[float]:
    """The box in cells by the rules for its ends: x1, y1, x2, y2, or x1, y1, z1, x2, y2, z2.

    A rotated box is not yet turned.
    """
    if box.is_rotated:
        turned = box.turned(rules)
        centre = np.array([turned.x, turned.y])
        half = np.array([turned.across.length, turned.down.length]) / 2
        return [*(centre - half).tolist(), *(centre + half).tolist()]
    with np.errstate(all="ignore"):
        first_bin = (0,) * len(box.map_size)
        sides = [
            side_of(rules, one.first, one.last, one.scale, one.real)
            for one in reversed(box.places(first_bin))
        ]
        starts = [float(side.start) for side in sides]
        return [*starts, *(float(side.start + side.length) for side in sides)]


def value_of(rules: Rules, found: Bin, image: Array) -> float:
    """The mean or maximum of the samples of `bin_of` in one channel (H, W) of a map."""
    if not found.samples:
        return rules.empty
    alone = (lambda bins, size: lambda box, ph, pw: found), [[0.0] * 4], np.zeros(1)
    maps = np.asarray(image)[None, None]
    if rules.reduce == "mean":
        return float(Averages(*alone).forward(maps, 1).item())
    start = rules.empty or -np.inf
    largest = Maxima(*alone).forward(
        maps,
        1,
        start,
        scan_all=bool(rules.empty),
        skip_outside=rules.divisor == "samples inside",
    )
    return float(largest.value.item())
