"""What implementations get wrong: each rule is the oracle with one thing changed.

An implementation whose wrong answers are those of such an oracle, and its right answers too,
follows that rule. `RULES` is the table; a row applies to the operations whose oracle has what it
changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from roipool.reference._interpolation import _round_half_away
from roipool.verification.oracle import LOWEST_FLOAT32

from .mutants import (
    _GRID_HALF,
    _OVER_BINS,
    _OVER_SIZE,
    Vary,
    _always,
    _always_adaptive,
    _argmax,
    _argument,
    _case,
    _columns,
    _count,
    _cut_after_half,
    _cut_to_zero,
    _empty_argmax,
    _empty_bins,
    _ends,
    _finite,
    _first_image,
    _from_zero,
    _half_added_in_type,
    _held,
    _in_all_channels,
    _inside_only,
    _last_first,
    _nan_if_empty,
    _nan_spreads,
    _nearest,
    _negated,
    _never_adaptive,
    _option,
    _outside,
    _reading,
    _results,
    _row_before_first,
    _row_past_last,
    _rules,
    _sides_as_corners,
    _swapped,
    _transposed,
    _transposed_bins,
    _turned,
    _undivided,
    _up,
    half_to_even,
    side_with,
)


class Rule(NamedTuple):
    """A rule that an implementation may follow instead of the right one.

    Attributes
    ----------
    name : str
        Short, for programs and tables.
    words : str
        What the implementation does, and what is right.
    vary : callable
        From an operation's oracle to one that does so; None where that has no meaning.
    """

    name: str
    words: str
    vary: Vary


# ---- The table

RULES: tuple[Rule, ...] = (
    # Gradients
    Rule("sign of the gradient", "the sign of the gradient is reversed", _negated("gradient")),
    Rule("sign of the box gradient", "the sign of the gradient of boxes is reversed",
         _negated("box_gradient")),
    # Boxes
    Rule("batch index ignored", "ignores the batch index: every box is on the first image",
         _case(_first_image)),
    Rule("x and y swapped", "takes boxes as y1, x1, y2, x2 where they are x1, y1, x2, y2, or the "
         "other way round", _columns([0, 2, 1, 4, 3])),
    Rule("corners as sides", "takes the last two numbers of a box for its width and height; they "
         "are a corner", _case(_sides_as_corners)),
    Rule("scale ignored", "ignores spatial_scale", _option("spatial_scale", 1.0)),
    Rule("half pixel left out", "leaves out the half-pixel shift of aligned boxes",
         _rules(side=side_with(shift=0.0))),
    Rule("half pixel added", "shifts boxes by half a pixel even if aligned is False",
         _rules(side=side_with(shift=0.5))),
    Rule("aligned ignored", "takes aligned=True for False: no half-pixel shift, and sides of at "
         "least one cell", _option("aligned", False)),
    Rule("always aligned", "takes aligned=False for True: a half-pixel shift, and sides of any "
         "length", _option("aligned", True)),
    Rule("mode ignored", "takes half_pixel for output_half_pixel",
         _option("coordinate_transformation_mode", "output_half_pixel")),
    Rule("+1 added", "adds 1 to the width and height of boxes (end - start + 1); a box here "
         "ends at its corner", _rules(side=side_with(extra=1.0))),
    Rule("box rounded", "rounds boxes to whole cells first, as ROI pooling does",
         _rules(side=side_with(round_corner=_round_half_away))),
    Rule("last end floored", "floors x2 and y2 to whole cells, and leaves x1 and y1 as they are",
         _ends(None, np.floor)),
    Rule("first end floored", "floors x1 and y1 to whole cells, and leaves x2 and y2 as they are",
         _ends(np.floor, None)),
    Rule("last end raised", "takes the ceiling of x2 and y2 in whole cells, and leaves x1 and y1 "
         "as they are", _ends(None, np.ceil)),
    Rule("box to whole cells outside", "floors x1 and y1 to whole cells and takes the ceiling of "
         "x2 and y2", _ends(np.floor, np.ceil)),
    Rule("side not held at 1", "does not hold sides at one cell at least where aligned is False",
         _rules(side=side_with(least=False))),
    Rule("side held at 1", "holds sides at one cell at least even where aligned is True",
         _rules(side=side_with(least=True))),
    Rule("turns the other way", "turns boxes the other way: clockwise for counter-clockwise",
         _case(_turned)),
    Rule("not finite is 0", "takes coordinates that are not finite for 0; such a box pools to "
         "nothing", _finite(0.0, 0.0, 0.0)),
    Rule("not finite is the lowest", "takes coordinates that are not finite for the lowest "
         "integer; such a box pools to nothing", _finite(-(2.0**31), -(2.0**31), -(2.0**31))),
    Rule("not finite is cut", "takes NaN for 0 and infinity for the largest integer; such a box "
         "pools to nothing", _finite(0.0, 2.0**31, -(2.0**31))),
    Rule("float16", "computes coordinates in float16",
         _argument("coordinate_dtype", np.float16, None)),
    Rule("float64", "computes coordinates in float64, not in the features' type",
         _argument("coordinate_dtype", np.float64, None)),
    # Number of samples
    Rule("adaptive count by floor", "rounds the adaptive number of samples down; it is the ceiling "
         "of the bin's size", _rules(samples_per_bin=_count(math.floor))),
    Rule("adaptive count by floor, at least 1", "rounds the adaptive number of samples down, to 1 "
         "at least; it is the ceiling of the bin's size",
         _rules(samples_per_bin=_count(math.floor, 1))),
    Rule("adaptive count by rounding", "rounds the adaptive number of samples to the nearest; it "
         "is the ceiling of the bin's size", _rules(samples_per_bin=_count(_up))),
    Rule("sampling ratio ignored", "ignores sampling_ratio: it is always adaptive",
         _rules(samples_per_bin=_always_adaptive)),
    Rule("adaptive taken for 2", "takes an adaptive sampling_ratio for 2",
         _rules(samples_per_bin=_never_adaptive(2))),
    Rule("adaptive taken for 1", "takes an adaptive sampling_ratio for 1",
         _rules(samples_per_bin=_never_adaptive(1))),
    Rule("one sample", "takes one sample of each bin, whatever sampling_ratio is",
         _rules(samples_per_bin=_always(1))),
    Rule("two samples", "takes 2 by 2 samples of each bin, whatever sampling_ratio is",
         _rules(samples_per_bin=_always(2))),
    Rule("samples at the start", "places samples at the start of their part of the bin, not in its "
         "middle", _rules(centre=0.0)),
    Rule("count without max 1", "divides by the number of samples without max(count, 1): 0/0 is "
         "NaN where a bin has none", _rules(weighted=_nan_if_empty)),
    Rule("not divided", "does not divide the sum of samples by their number",
         _rules(weighted=_undivided)),
    Rule("divided by samples inside", "divides by the number of samples inside the map; those "
         "outside count, too", _rules(weighted=_inside_only)),
    Rule("reads weightless neighbours", "reads neighbours of weight 0 times 0: NaN and infinities "
         "there leak into the result", _rules(weighted=_reading(True, False))),
    Rule("reads the first cell", "reads the map's first cell times 0 for samples outside: NaN and "
         "infinities there leak into the result", _rules(weighted=_reading(False, True))),
    Rule("reads times 0", "reads neighbours of weight 0, and for samples outside the map's first "
         "cell, times 0: NaN and infinities there leak into the result",
         _rules(weighted=_reading(True, True))),
    Rule("maximum for average", "takes the maximum of samples, not their average",
         _argument("mode", "max", "avg")),
    # Weights and borders
    Rule("swapped weights", "swaps the two weights of interpolation along an axis",
         _rules(neighbours=_swapped)),
    Rule("nearest cell", "takes the nearest cell instead of interpolating",
         _rules(neighbours=_nearest)),
    Rule("border at 0", "takes samples before the first cell's centre (-1 to 0) as outside; they "
         "are held at it", _rules(is_outside=_outside(0.0, 1.0))),
    Rule("border at H - 1", "takes samples past the last cell's centre (H - 1 to H) as outside; "
         "they are held at it", _rules(is_outside=_outside(-1.0, 0.0))),
    Rule("border at 0 and H - 1", "takes samples off the rectangle of cell centres as outside; up "
         "to one cell off they are held at it", _rules(is_outside=_outside(0.0, 0.0))),
    Rule("border at -0.5", "takes samples more than half a cell off the cell centres as outside; "
         "it is one cell", _rules(is_outside=_outside(-0.5, 0.5))),
    Rule("-1 and H outside", "takes samples at exactly -1 or H as outside; they are inside",
         _rules(is_outside=_outside(-1.0, 1.0, ends=True))),
    Rule("no border", "holds samples at the border however far outside they are; more than one "
         "cell off they are 0", _rules(is_outside=_outside(-math.inf, math.inf), margin=64.0)),
    Rule("floor of a negative", "floors a negative position to cell -1, which it takes as 0; it is "
         "held at cell 0", _rules(neighbours=_row_before_first(False))),
    Rule("negative index wraps", "floors a negative position to cell -1, which is the last of the "
         "axis; it is held at cell 0", _rules(neighbours=_row_before_first(True))),
    Rule("negative position cut", "cuts a negative position to cell 0 but keeps its negative "
         "fraction as a weight; it is held at cell 0", _rules(neighbours=_cut_to_zero)),
    Rule("clamp at H", "holds positions at H instead of H - 1: past the last cell's centre it "
         "reads cell H", _rules(neighbours=_row_past_last)),
    # Pooling of cells
    Rule("half to even", "rounds halves to even; here they go away from zero",
         _rules(round_corner=half_to_even)),
    Rule("halves up", "rounds by floor(x + 0.5): negative halves go up; here "
         "they go away from zero",
         _rules(round_corner=_up)),
    Rule("0.5 added in float32", "adds 0.5 in float32 to round, which makes 1 of 0.49999997",
         _rules(round_corner=_half_added_in_type)),
    Rule("(int)(x + 0.5)", "rounds by cutting x + 0.5, which is wrong for negative coordinates",
         _rules(round_corner=_cut_after_half)),
    Rule("cut, not rounded", "cuts coordinates to whole cells; they are rounded",
         _rules(round_corner=math.trunc)),
    Rule("floored, not rounded", "floors coordinates to whole cells; they are rounded",
         _rules(round_corner=math.floor)),
    Rule("missing +1", "leaves out the + 1 of end - start + 1: the last row and column belong to "
         "the box", _rules(extra=0)),
    Rule("+1 too many", "adds 1 to end - start: the last row and column do not belong to the box",
         _rules(extra=1)),
    Rule("size not held at 1", "does not hold the size of a box at 1 cell at least",
         _rules(shortest=-(2**62))),
    Rule("clamp at H - 1", "clamps bins at H - 1 instead of H: they never reach the last row and "
         "column", _rules(cut=1)),
    Rule("end of bins floored", "rounds the end of a bin down; it is the ceiling",
         _rules(last=math.floor)),
    Rule("edges of bins rounded", "rounds the edges of bins to the nearest; they are floor and "
         "ceiling", _rules(first=_up, last=_up)),
    Rule("edges in float64", "computes the edges of bins in float64",
         _argument("edge_dtype", np.float64, None)),
    Rule("last of equals", "lets the last of equal cells be the argmax; it is the first",
         _rules(pooled=_last_first)),
    Rule("last of equal samples", "lets the last of equal samples be the argmax; it is the first",
         _rules(weighted=_last_first)),
    Rule("maximum from 0", "starts the running maximum at 0: negative values are lost",
         _results(_from_zero)),
    Rule("NaN spreads", "lets NaN win a maximum, as np.max does; here it never wins",
         _nan_spreads),
    Rule("empty bin lowest", "leaves the lowest float32 in bins without cells; they are 0",
         _empty_bins(LOWEST_FLOAT32)),
    Rule("empty bin -inf", "leaves -inf in bins without cells; they are 0", _empty_bins(-math.inf)),
    Rule("transposed argmax", "returns the argmax as x * H + y; it is y * W + x",
         _argmax(_transposed)),
    Rule("argmax in all channels", "counts the argmax over all images and channels; it is an index "
         "into one map", _argmax(_in_all_channels)),
    Rule("argmax 0 for none", "returns the argmax 0 for bins without one; it is -1",
         _results(_empty_argmax)),
    Rule("transposed bins", "transposes the bins: rows for columns", _results(_transposed_bins)),
    # Crops
    Rule("half-pixel crop", "samples at bin centres over H cells; it is from corner to corner of "
         "H - 1 cells", _rules(position=_GRID_HALF)),
    Rule("H for H - 1", "scales boxes by H; it is H - 1", _rules(position=_OVER_SIZE)),
    Rule("crop_size for crop_size - 1", "divides by crop_size; it is crop_size - 1",
         _rules(position=_OVER_BINS)),
    Rule("no extrapolation", "holds samples at the border; outside they are extrapolation_value",
         _rules(is_outside=_outside(-math.inf, math.inf), neighbours=_held,
                nearest=_round_half_away)),
    Rule("extrapolates late", "holds samples up to one cell off the map; outside they are "
         "extrapolation_value",
         _rules(is_outside=_outside(-1.0, 1.0), neighbours=_held, nearest=_round_half_away)),
    Rule("extrapolation_value ignored", "ignores extrapolation_value: it is 0",
         _option("extrapolation_value", 0.0)),
    Rule("nearest, half to even", "rounds halves to even in nearest sampling; they go away from "
         "zero", _rules(nearest=half_to_even)),
    Rule("nearest floored", "floors positions in nearest sampling; they are rounded",
         _rules(nearest=math.floor)),
    Rule("last cell not pinned", "leaves the last cell where rounding puts it; it is exactly on "
         "the box's edge", _argument("pinned", False, True)),
    Rule("last cell pinned", "puts the last cell exactly on the box's edge; it is where rounding "
         "puts it", _argument("pinned", True, True)),
)  # fmt: skip
