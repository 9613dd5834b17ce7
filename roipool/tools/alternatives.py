"""The alternatives of each rule and their descriptions, for `roipool compare` and conformance.

`compare` exchanges the rules of systems and describes the effect of an alternative on a box; the
conformance check finds the alternative that an implementation follows by mistake.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["ALTERNATIVES", "FIELDS", "Alternative", "Mistake", "alternative"]

# Descriptions of the fields of `roipool.reference.Rules`.
FIELDS = {
    "rounding": "the rounding of the box",
    "rounding_unit": "the unit of the rounding",
    "shift": "the half-cell shift",
    "shift_unit": "the unit of the half-cell shift",
    "extra": "the +1 of the box's size",
    "minimum": "the least size of a box",
    "angle": "the angle of a box",
    "samples": "what a bin reads",
    "ratio": "the number of samples",
    "adaptive": "the adaptive number of samples",
    "centre": "the place of samples",
    "edges": "the edges of bins",
    "cut": "the last row and column",
    "spread": "the place of a crop's samples",
    "border": "the border rule",
    "weights": "the weights of neighbours",
    "nearest": "the nearest cell",
    "reads": "the cells of weight 0",
    "divisor": "the divisor of a mean",
    "reduce": "maximum against mean",
    "ties": "the argmax of equal cells",
    "empty": "the value of empty bins",
}


class Mistake(NamedTuple):
    """A wrong alternative for operations of some kinds of `Rules.samples`."""

    samples: str  # the kinds, separated by spaces
    name: str  # a short name for programs and tables
    words: str  # a description of what the implementation does, and of what is right


class Alternative(NamedTuple):
    """One value of a rule."""

    # A field of `Rules`, and its value.
    field: str
    value: Any
    # Template of a description of its effect on a box, with attributes of
    # `roipool.tools.compare.reasons.Exchange`.
    words: str
    brief: str = ""  # a brief description, for values that systems have
    mistakes: tuple[Mistake, ...] = ()  # the operations for which it is a mistake


def _one(field: str, value: Any, words: str, brief: str = "", *mistakes: Mistake) -> Alternative:
    return Alternative(field, value, words, brief, mistakes)


ALTERNATIVES: tuple[Alternative, ...] = (
    # Boxes
    _one("rounding", "none", "does not round the box: {0.spans}", "the box is not rounded"),
    _one("rounding", "half away", "rounds the box to whole cells: {0.spans}",
         "the box is rounded to cells",
         Mistake("grid", "box rounded", "rounds boxes to whole cells first, as ROI pooling does")),
    _one("rounding", "half even", "rounds halves to even: {0.spans}", "halves are rounded to even",
         Mistake("cells", "half to even", "rounds halves to even instead of away from zero")),
    _one("rounding", "half up", "rounds halves up: {0.spans}", "",
         Mistake("cells", "halves up", "rounds by floor(x + 0.5): negative halves go up instead "
                 "of away from zero")),
    _one("rounding", "half added in its type", "adds 0.5 in float32 to round: {0.spans}", "",
         Mistake("cells", "0.5 added in float32",
                 "rounds by adding 0.5 in float32, so that 0.49999997 becomes 1")),
    _one("rounding", "half added and cut", "rounds by cutting x + 0.5: {0.spans}", "",
         Mistake("cells", "(int)(x + 0.5)",
                 "rounds by cutting x + 0.5, which is wrong for negative coordinates")),
    _one("rounding", "cut", "cuts the box to whole cells: {0.spans}", "",
         Mistake("cells", "cut, not rounded",
                 "truncates coordinates to whole cells instead of rounding them")),
    _one("rounding", "floor", "floors the box to whole cells: {0.spans}", "",
         Mistake("cells", "floored, not rounded",
                 "floors coordinates to whole cells instead of rounding them")),
    _one("rounding_unit", "cell", "rounds the box after it is scaled: {0.spans}",
         "the box is rounded in cells"),
    _one("rounding_unit", "pixel", "rounds the box before it is scaled: {0.spans}",
         "the box is rounded in pixels of the image"),
    _one("shift", 0.0, "does not move the box by half a cell, {0.left_end}",
         "no shift of half a cell",
         Mistake("grid", "half pixel left out",
                 "leaves out the half-pixel shift of aligned boxes")),
    _one("shift", 0.5, "moves the box by half a cell {0.backwards}, {0.left_end}",
         "a shift of half a cell",
         Mistake("grid", "half pixel added",
                 "shifts boxes by half a pixel even if aligned is False")),
    _one("shift_unit", "cell", "shifts the box after it is scaled, {0.left_end}"),
    _one("shift_unit", "pixel", "shifts the box by half a pixel before it is scaled, {0.left_end}",
         "", Mistake("grid", "half pixel before scaling",
                     "shifts aligned boxes by 0.5 pixels before scaling instead of 0.5 cells "
                     "after it")),
    _one("extra", "none", "adds nothing to the box's size: {0.widths}",
         "nothing is added to the box",
         Mistake("cells", "missing +1", "leaves out the + 1 of end - start + 1: the last row and "
                 "column belong to the box")),
    _one("extra", "cell", "adds 1 cell to the box's size: {0.widths}",
         "a cell is added to the box",
         Mistake("grid", "+1 added", "adds 1 to the width and height of boxes: end - start + 1 "
                 "instead of end - start"),
         Mistake("cells", "+1 too many",
                 "adds 1 to end - start: the last row and column do not belong to the box")),
    _one("extra", "pixel", "adds 1 pixel to the box's size: {0.widths}",
         "a pixel is added to the box"),
    _one("extra", "rounded pixel", "adds 1 pixel before it rounds the box: {0.widths}",
         "a pixel is added to the box before it is rounded"),
    _one("minimum", None, "takes a box shorter than one cell as it is: {0.sizes}",
         "small boxes stay as they are",
         Mistake("grid", "side not held at 1",
                 "does not enforce sides of at least one cell if aligned is False"),
         Mistake("cells", "size not held at 1",
                 "does not enforce a size of at least one cell")),
    _one("minimum", 1.0, "makes the box at least one cell long: {0.sizes}",
         "boxes are one cell long at least",
         Mistake("grid", "side held at 1",
                 "enforces sides of at least one cell even if aligned is True")),
    _one("minimum", 0.1, "makes the box at least a tenth of a cell long: {0.sizes}",
         "boxes are a tenth of a cell long at least"),
    _one("minimum", 0.0, "makes a reversed side 0 cells long: {0.sizes}",
         "reversed sides have no length"),
    _one("angle", "counter-clockwise", "turns the box counter-clockwise by {0.angle} radians",
         "turned counter-clockwise"),
    _one("angle", "clockwise", "turns the box clockwise by {0.angle} radians",
         "turned clockwise"),
    _one("angle", "degrees", "takes the angle {0.angle} for degrees", "the angle in degrees"),
    _one("angle", "clockwise degrees", "takes the angle {0.angle} for degrees, clockwise",
         "the angle in degrees, clockwise"),
    _one("angle", "ignored", "does not turn the box by its angle {0.angle}", "not turned"),
    # Samples of a bin
    _one("samples", "grid", "reads a grid of {0.count} interpolated samples",
         "a grid of samples"),
    _one("samples", "cells", "reads the {0.count} whole cells that the bin touches",
         "whole cells"),
    _one("samples", "steps", "reads {0.count} samples one cell apart from the bin's start",
         "samples one cell apart"),
    _one("samples", "ends", "reads one sample, the first and last bins' at the box's ends",
         "one sample, from end to end"),
    _one("samples", "integral", "integrates the interpolated map over the bin",
         "the exact integral"),
    _one("adaptive", "ceil", "rounds the adaptive number of samples up: {0.counts}",
         "the adaptive number is rounded up"),
    _one("adaptive", "floor", "rounds the adaptive number of samples down: {0.counts}", "",
         Mistake("grid", "adaptive count by floor", "rounds the adaptive number of samples down "
                         "instead of up")),
    _one("adaptive", "floor, at least 1",
         "rounds the adaptive number of samples down, to 1 at least: {0.counts}", "",
         Mistake("grid", "adaptive count by floor, at least 1", "rounds the adaptive number of "
                         "samples down, but to at least 1, instead of up")),
    _one("adaptive", "nearest", "rounds the adaptive number of samples: {0.counts}", "",
         Mistake("grid", "adaptive count by rounding", "rounds the adaptive number of samples to "
                         "the nearest integer instead of up")),
    _one("ratio", None, "takes {0.counts}", "more samples"),
    _one("ratio", 0, "takes {0.counts}", "",
         Mistake("grid", "sampling ratio ignored",
                 "ignores sampling_ratio: the number of samples is always adaptive")),
    _one("adaptive", "always 2", "takes {0.counts}", "",
         Mistake("grid", "adaptive taken for 2", "treats an adaptive sampling_ratio as 2")),
    _one("adaptive", "always 0", "takes no samples where others take an adaptive number",
         "no adaptive number of samples"),
    _one("adaptive", "always 1", "takes {0.counts}", "",
         Mistake("grid", "adaptive taken for 1", "treats an adaptive sampling_ratio as 1")),
    _one("ratio", 1, "takes {0.counts}", "one sample per bin",
         Mistake("grid", "one sample",
                 "takes one sample of each bin, whatever sampling_ratio is")),
    _one("ratio", 2, "takes {0.counts}", "",
         Mistake("grid", "two samples",
                 "takes 2 by 2 samples of each bin, whatever sampling_ratio is")),
    _one("ratio", 3, "takes {0.counts}"),
    _one("ratio", 4, "takes {0.counts}"),
    _one("centre", 0.5, "places samples in the middle of their part of the bin",
         "samples in the middle of their parts"),
    _one("centre", 0.0, "places samples at the start of their part of the bin",
         "samples at the start of their parts",
         Mistake("grid", "samples at the start", "places samples at the start of their part of the "
                 "bin, not in its middle")),
    _one("divisor", "all samples", "divides by the number of samples",
         "samples outside count"),
    _one("divisor", "all samples, even 0", "divides by the number of samples, also by 0", "",
         Mistake("grid ends", "count without max 1", "divides by the number of samples without "
                 "max(count, 1): 0/0 is NaN where a bin has none")),
    _one("divisor", "nothing", "does not divide the sum of samples", "",
         Mistake("grid ends", "not divided",
                 "does not divide the sum of samples by their number")),
    _one("divisor", "samples inside", "leaves out samples outside the map",
         "samples outside do not count",
         Mistake("grid ends", "divided by samples inside", "divides by the number of samples "
                         "inside the map instead of all samples")),
    _one("reads", "weighted", "reads no cells of weight 0"),
    _one("reads", "neighbours", "reads neighbours of weight 0", "",
         Mistake("grid ends", "reads weightless neighbours", "reads neighbours of weight 0 times "
                 "0: NaN and infinities there leak into the result")),
    _one("reads", "first cell", "reads the map's first cell for samples outside", "",
         Mistake("grid ends", "reads the first cell", "reads the map's first cell times 0 for "
                 "samples outside: NaN and infinities there leak into the result")),
    _one("reads", "neighbours and first cell",
         "reads neighbours of weight 0, and the map's first cell for samples outside", "",
         Mistake("grid ends", "reads times 0", "reads neighbours of weight 0, and for samples "
                 "outside the map's first cell, times 0: NaN and infinities there leak into the "
                 "result")),
    # Weights and borders
    _one("weights", "linear", "counts a cell once where a sample lies exactly on it",
         "a cell counts once"),
    _one("weights", "doubled", "counts a cell twice where a sample lies exactly on it",
         "a cell under a sample counts twice"),
    _one("weights", "swapped", "swaps the two weights of interpolation along an axis", "",
         Mistake("grid ends", "swapped weights",
                 "swaps the two weights of interpolation along an axis")),
    _one("weights", "nearest", "takes the nearest cell instead of interpolating", "",
         Mistake("grid ends", "nearest cell",
                 "takes the nearest cell instead of interpolating")),
    _one("border", "hold", "holds samples outside the map at its border for one cell",
         "samples outside are held at the border",
         Mistake("ends", "extrapolates late", "clamps samples up to one cell outside the map "
                         "instead of setting them to extrapolation_value")),
    _one("border", "zero before 0", "counts samples before the first cell's centre as 0", "",
         Mistake("grid", "border at 0", "treats samples before the first cell's centre (-1 to 0) "
                 "as outside instead of clamping them")),
    _one("border", "zero past the last", "counts samples past the last cell's centre as 0", "",
         Mistake("grid", "border at H - 1", "treats samples past the last cell's centre (H - 1 to "
                                            "H) as outside instead of clamping them")),
    _one("border", "zero", "counts samples outside the cells' centres as 0",
         "samples outside are 0",
         Mistake("grid", "border at 0 and H - 1", "treats samples up to one cell from the "
                         "rectangle of cell centres as outside instead of clamping them")),
    _one("border", "hold half a cell",
         "holds samples outside the cells' centres at the border for half a cell",
         "samples are outside half a cell from the centres",
         Mistake("grid", "border at -0.5", "treats samples more than half a cell, instead of one "
                 "cell, from the cell centres as outside")),
    _one("border", "hold less than a cell", "counts samples at exactly -1 or H as 0", "",
         Mistake("grid", "-1 and H outside",
                 "treats samples at exactly -1 or H as outside instead of inside")),
    _one("border", "hold all", "holds samples outside the map at its border however far they are",
         "", Mistake("grid", "no border", "clamps samples at any distance instead of setting "
                 "those more than one cell outside to 0"),
         Mistake("ends", "no extrapolation",
                 "clamps samples outside instead of setting them to extrapolation_value")),
    _one("border", "drop", "leaves out the neighbours beyond the map",
         "neighbours outside are left out"),
    _one("weights", "zero before the first", "takes the cell -1 of a floored position as 0", "",
         Mistake("grid", "floor of a negative", "floors a negative position to cell -1, with the "
                         "value 0, instead of clamping it to cell 0")),
    _one("weights", "last before the first", "takes the cell -1 of a floored position as the last",
         "", Mistake("grid", "negative index wraps", "floors a negative position to cell -1, the "
                         "last of the axis, instead of clamping it to cell 0")),
    _one("weights", "negative before the first",
         "cuts a negative position to cell 0, with a negative weight", "",
         Mistake("grid", "negative position cut", "truncates a negative position to cell 0 but "
                         "keeps its negative fraction as a weight")),
    _one("weights", "zero past the last", "reads cell H past the last cell's centre, as 0", "",
         Mistake("grid", "clamp at H", "clamps positions to H instead of H - 1 and reads cell H "
                 "past the last cell's centre")),
    # Pooling of cells
    _one("cut", 0, "lets bins reach the map's last row and column",
         "bins reach the map's last row and column"),
    _one("cut", 1, "does not let bins reach the map's last row and column",
         "no bin reaches the map's last row and column",
         Mistake("cells", "clamp at H - 1", "clamps bins at H - 1 instead of H: they never reach "
                 "the last row and column")),
    _one("edges", "floor and ceil", "takes the floor and the ceiling of the edges of bins",
         "edges of bins are rounded numbers"),
    _one("edges", "exact floor and ceil", "computes the edges of bins in integers",
         "edges of bins are exact"),
    _one("edges", "short reciprocal", "divides by a reciprocal that is one rounding short", "",
         Mistake("cells", "reciprocal one rounding short",
                 "divides by a reciprocal that is one rounding short, as -ffast-math does: "
                 "edges of bins on whole cells come out a cell low")),
    _one("edges", "floor and floor", "rounds the end of a bin down", "",
         Mistake("cells", "end of bins floored",
                 "rounds the end of a bin down instead of up")),
    _one("edges", "nearest", "rounds the edges of bins to the nearest", "",
         Mistake("cells", "edges of bins rounded",
                 "rounds the edges of bins to the nearest cell instead of down and up")),
    _one("ties", "first", "lets the first of equal samples be the argmax"),
    _one("ties", "last", "lets the last of equal samples be the argmax", "",
         Mistake("cells", "last of equals",
                 "returns the last instead of the first of equal cells as the argmax"),
         Mistake("grid", "last of equal samples",
                 "returns the last instead of the first of equal samples as the argmax")),
    _one("reduce", "mean", "takes the mean of the bin, not {0.other_reduction}", "the mean"),
    _one("reduce", "max", "takes the maximum of the bin, not {0.other_reduction}",
         "the maximum"),
    _one("reduce", "max of corners",
         "takes the largest weighted corner of the bin, not {0.other_reduction}",
         "the largest weighted corner"),
    # Crops
    _one("spread", "corners", "spreads samples from corner to corner of the box",
         "the last sample is where rounding puts it"),
    _one("spread", "exact corners", "places the last sample exactly at the corner of the box",
         "the last sample is exactly at the box's corner"),
    _one("spread", "middles", "samples at bin centres over H cells", "",
         Mistake("ends", "half-pixel crop", "samples at bin centres over H cells instead of from "
                 "corner to corner over H - 1 cells")),
    _one("spread", "corners over size", "scales boxes by H", "",
         Mistake("ends", "H for H - 1", "scales boxes by H instead of H - 1")),
    _one("spread", "corners over bins", "divides by crop_size", "",
         Mistake("ends", "crop_size for crop_size - 1",
                 "divides by crop_size instead of crop_size - 1")),
    _one("nearest", "half away", "takes the nearest cell, halves away from zero"),
    _one("nearest", "half even", "rounds halves to even in nearest sampling", "",
         Mistake("ends", "nearest, half to even",
                 "rounds halves to even instead of away from zero in nearest sampling")),
    _one("nearest", "floor", "floors positions in nearest sampling", "",
         Mistake("ends", "nearest floored",
                 "floors positions in nearest sampling instead of rounding them")),
)  # fmt: skip


def alternative(field: str, value: Any) -> Alternative | None:
    """Return the alternative of a rule's value; None for arbitrary numbers, such as of `empty`."""
    return _BY_VALUE.get((field, value))


_BY_VALUE = {(one.field, one.value): one for one in ALTERNATIVES}
