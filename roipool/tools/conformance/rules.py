"""Known mistakes of implementations: each rule is the oracle with one thing changed.

An implementation follows a rule if both its wrong and its right results are those of the changed
oracle. Most rows of the table `RULES` are alternatives of the oracle's own rules
(`roipool.tools.alternatives`); the others change a call's arguments or results. A row applies to
the operations whose oracle has the thing that it changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from roipool.systems.oracles import LOWEST_FLOAT32
from roipool.tools.alternatives import ALTERNATIVES

from .mutants import (
    Vary,
    argument,
    by_rule,
    change_argmax,
    change_case,
    change_results,
    empty_argmax,
    empty_bins,
    ends,
    finite,
    first_image,
    from_zero,
    in_all_channels,
    nan_spreads,
    negated,
    option,
    sides_as_corners,
    transposed,
    transposed_bins,
    turned,
    y_first,
)


class Rule(NamedTuple):
    """A rule that an implementation may follow instead of the right one."""

    name: str  # a short name for programs and tables
    words: str  # a description of what the implementation does, and of what is right
    # Returns an operation's oracle with the change, or None if the change does not apply.
    vary: Vary


# ---- The table

# Alternatives of the oracle's rules.
_ALTERNATIVES = tuple(
    Rule(mistake.name, mistake.words, by_rule(mistake.samples, **{one.field: one.value}))
    for one in ALTERNATIVES
    for mistake in one.mistakes
)
_OF_ARGUMENTS = (
    Rule("batch index ignored", "ignores the batch index: every box is on the first image",
         change_case(first_image)),
    Rule("x and y swapped", "swaps x and y of boxes: reads y1, x1, y2, x2 instead of x1, y1, x2, "
         "y2, or the reverse", change_case(y_first)),
    Rule("corners as sides", "reads the last two numbers of a box as width and height instead of "
         "a corner", change_case(sides_as_corners)),
    Rule("scale ignored", "ignores spatial_scale", option("spatial_scale", 1.0)),
    Rule("aligned ignored", "treats aligned=True as False: no half-pixel shift, and sides of at "
         "least one cell", option("aligned", False)),
    Rule("always aligned", "treats aligned=False as True: a half-pixel shift, and sides of any "
         "length", option("aligned", True)),
    Rule("mode ignored", "treats half_pixel as output_half_pixel",
         option("coordinate_transformation_mode", "output_half_pixel")),
    Rule("last end floored", "floors x2 and y2 to whole cells, and leaves x1 and y1 as they are",
         ends(None, np.floor)),
    Rule("first end floored", "floors x1 and y1 to whole cells, and leaves x2 and y2 as they are",
         ends(np.floor, None)),
    Rule("last end raised", "takes the ceiling of x2 and y2 in whole cells, and leaves x1 and y1 "
         "as they are", ends(None, np.ceil)),
    Rule("box to whole cells outside", "floors x1 and y1 to whole cells and takes the ceiling of "
         "x2 and y2", ends(np.floor, np.ceil)),
    Rule("turns the other way", "turns boxes clockwise instead of counter-clockwise",
         change_case(turned)),
    Rule("not finite is 0", "treats NaN and infinite coordinates as 0 instead of pooling "
         "nothing", finite(0.0, 0.0, 0.0)),
    Rule("not finite is the lowest", "treats NaN and infinite coordinates as the lowest integer "
         "instead of pooling nothing", finite(-(2.0**31), -(2.0**31), -(2.0**31))),
    Rule("not finite is cut", "treats NaN as 0 and infinity as the largest integer instead of "
         "pooling nothing", finite(0.0, 2.0**31, -(2.0**31))),
    Rule("float16", "computes coordinates in float16",
         argument("coordinate_dtype", np.float16, None)),
    Rule("float64", "computes coordinates in float64, not in the features' type",
         argument("coordinate_dtype", np.float64, None)),
    Rule("maximum for average", "takes the maximum of samples, not their average",
         argument("mode", "max", "avg")),
    Rule("edges in float64", "computes the edges of bins in float64",
         argument("edge_dtype", np.float64, None)),
    Rule("extrapolation_value ignored", "ignores extrapolation_value and uses 0",
         option("extrapolation_value", 0.0)),
    Rule("last cell not pinned", "places the last cell by rounding instead of exactly on the "
         "box's edge", argument("pinned", False, True)),
    Rule("last cell pinned", "places the last cell exactly on the box's edge instead of by "
         "rounding", argument("pinned", True, True)),
)  # fmt: skip
_OF_RESULTS = (
    Rule("sign of the gradient", "returns the gradient with the opposite sign",
         negated("gradient")),
    Rule("sign of the box gradient", "returns the gradient of boxes with the opposite sign",
         negated("box_gradient")),
    Rule("maximum from 0", "starts the running maximum at 0: negative values are lost",
         change_results(from_zero)),
    Rule("NaN spreads", "propagates NaN in a maximum, like np.max, instead of ignoring it",
         nan_spreads),
    Rule("empty bin lowest", "returns the lowest float32 instead of 0 for bins without cells",
         empty_bins(LOWEST_FLOAT32)),
    Rule("empty bin -inf", "returns -inf instead of 0 for bins without cells",
         empty_bins(-math.inf)),
    Rule("transposed argmax", "returns the argmax as x * H + y instead of y * W + x",
         change_argmax(transposed)),
    Rule("argmax in all channels", "returns the argmax as an index into the whole batch instead "
         "of one map", change_argmax(in_all_channels)),
    Rule("argmax 0 for none", "returns the argmax 0 instead of -1 for empty bins",
         change_results(empty_argmax)),
    Rule("transposed bins", "transposes the bins: rows for columns",
         change_results(transposed_bins)),
)  # fmt: skip
RULES: tuple[Rule, ...] = (*_ALTERNATIVES, *_OF_ARGUMENTS, *_OF_RESULTS)
