"""One bin of one box by any rules: its samples, and its value."""

from __future__ import annotations

import numpy as np

from roipool.reference._bins import Line, by_rules, crossed, line_of, places_of
from roipool.reference._inputs import Array, Box, DType, Pair, Size, as_pair, as_real
from roipool.reference._loops import Averages, Bin, Maxima
from roipool.reference._roi_align_rotated import TurnedBox
from roipool.reference._rules import Rules
from roipool.reference._sides import samples_per_bin, side_of


def bin_of(
    rules: Rules,
    box: Box,
    number: Pair,
    *,
    output_size: Size,
    map_size: Pair,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    coordinate_dtype: DType = np.float64,
) -> Bin:
    """The samples of one bin of a box, with the cells and weights of each.

    Parameters
    ----------
    rules : Rules
        Without a pair: see :meth:`Rules.of_boxes`.
    box : tuple of float
        x1, y1, x2, y2 in pixels of the image; or centre x and y, width, height and angle.
    number : (int, int)
        Row and column of the bin.
    output_size : int or (int, int)
        How many rows and columns of bins there are.
    map_size : (int, int)
        Rows and columns of the map.
    spatial_scale, sampling_ratio, coordinate_dtype
        As for `roi_align`.

    Returns
    -------
    Bin
        Samples outside the map have no cells; of them only the first is sure to be listed.

    Examples
    --------
    >>> found = bin_of(ROI_ALIGN.of_boxes(True), (1, 1, 3, 3), (0, 0), output_size=2,
    ...     map_size=(5, 5), sampling_ratio=1)
    >>> found.samples[0].pixels
    [(1, 1, 1.0), (1, 2, 0.0), (2, 1, 0.0), (2, 2, 0.0)]
    """
    options = output_size, map_size, spatial_scale, sampling_ratio, coordinate_dtype
    if len(box) == 5:
        return by_rules(rules, _turned(rules, box, *options).bin(*number))
    rows, columns = lines_of(
        rules, box, number, output_size=output_size, map_size=map_size,
        spatial_scale=spatial_scale, sampling_ratio=sampling_ratio,
        coordinate_dtype=coordinate_dtype,
    )  # fmt: skip
    return by_rules(rules, crossed(rules, rows, columns, as_real(coordinate_dtype)))


def lines_of(
    rules: Rules,
    box: Box,
    number: Pair,
    *,
    output_size: Size,
    map_size: Pair,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    coordinate_dtype: DType = np.float64,
) -> tuple[Line, Line]:
    """The samples of one bin of an upright box down and along the map: `bin_of` is their product.

    Parameters are those of `bin_of`.
    """
    real = as_real(coordinate_dtype)
    rows, columns = places_of(
        box, number, as_pair(output_size), map_size, scale=spatial_scale,
        ratio=as_pair(sampling_ratio), real=real,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        return line_of(rules, rows), line_of(rules, columns)


def counts_of(
    rules: Rules,
    box: Box,
    number: Pair,
    *,
    output_size: Size,
    map_size: Pair,
    spatial_scale: float = 1.0,
    sampling_ratio: Size = 0,
    coordinate_dtype: DType = np.float64,
) -> Pair:
    """How many rows and columns of samples the bin has, however many they are.

    Parameters are those of `bin_of`.
    """
    options = output_size, map_size, spatial_scale, sampling_ratio, coordinate_dtype
    if len(box) == 5:
        turned = _turned(rules, box, *options)
        return turned.down.grid, turned.across.grid
    if rules.samples != "grid":
        rows, columns = lines_of(
            rules, box, number, output_size=output_size, map_size=map_size,
            spatial_scale=spatial_scale, sampling_ratio=sampling_ratio,
            coordinate_dtype=coordinate_dtype,
        )  # fmt: skip
        return rows.grid, columns.grid
    bins, ratio, real = as_pair(output_size), as_pair(sampling_ratio), as_real(coordinate_dtype)
    x1, y1, x2, y2 = box
    with np.errstate(all="ignore"):
        down, along = (
            samples_per_bin(
                rules, side_of(rules, *ends, spatial_scale, real).length, bins[axis], ratio[axis],
                real, real,
            )
            for axis, ends in enumerate(((y1, y2), (x1, x2)))
        )  # fmt: skip
    return down, along


def box_in_cells(
    rules: Rules, box: Box, *, spatial_scale: float = 1.0, coordinate_dtype: DType = np.float64
) -> list[float]:
    """x1, y1, x2, y2 in cells by the rules for a box's ends; of a rotated box before it is turned.

    Parameters are those of `bin_of`.
    """
    if len(box) == 5:
        turned = _turned(rules, box, 1, (1, 1), spatial_scale, 1, coordinate_dtype)
        centre = np.array([turned.x, turned.y])
        half = np.array([turned.across.length, turned.down.length]) / 2
        return [*(centre - half).tolist(), *(centre + half).tolist()]
    real = as_real(coordinate_dtype)
    x1, y1, x2, y2 = box
    with np.errstate(all="ignore"):
        x, y = (side_of(rules, *ends, spatial_scale, real) for ends in ((x1, x2), (y1, y2)))
        ends = [x.start, y.start, x.start + x.length, y.start + y.length]
    return [float(end) for end in ends]


def value_of(rules: Rules, found: Bin, image: Array) -> float:
    """The mean or maximum of a bin's samples in one channel of a map.

    Parameters
    ----------
    rules : Rules
        Those of the bin.
    found : Bin
        From `bin_of`.
    image : array_like, (H, W)
        The channel.
    """
    if not found.samples:
        return rules.empty
    one_box = [[0.0] * 4]
    if rules.reduce == "mean":
        averages = Averages(lambda bins, size: lambda box, ph, pw: found, one_box, np.zeros(1))
        return float(averages.forward(np.asarray(image)[None, None], 1).item())
    maxima = Maxima(lambda bins, size: lambda box, ph, pw: found, one_box, np.zeros(1))
    start = rules.empty or -np.inf
    scanned = maxima.forward(np.asarray(image)[None, None], 1, start, scan_all=bool(rules.empty))
    return float(scanned.value.item())


def _turned(
    rules: Rules, box: Box, output_size: Size, map_size: Pair, spatial_scale: float,
    sampling_ratio: Size, coordinate_dtype: DType,
) -> TurnedBox:  # fmt: skip
    with np.errstate(all="ignore"):
        return TurnedBox(
            rules, box, as_pair(output_size), map_size, spatial_scale, as_pair(sampling_ratio),
            as_real(coordinate_dtype),
        )  # fmt: skip
