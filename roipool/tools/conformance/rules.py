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
    columns,
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
)


class Rule(NamedTuple):
    """A rule that an implementation may follow instead of the right one.

    Attributes
    ----------
    name : str
        A short name for programs and tables.
    words : str
        A description of what the implementation does, and of what is right.
    vary : callable
        Returns an operation's oracle with the change, or None if the change does not apply.
    """

    name: str
    words: str
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
    Rule("x and y swapped", "takes boxes as y1, x1, y2, x2 where they are x1, y1, x2, y2, or the "
         "other way round", columns([0, 2, 1, 4, 3])),
    Rule("corners as sides", "takes the last two numbers of a box for its width and height; they "
         "are a corner", change_case(sides_as_corners)),
    Rule("scale ignored", "ignores spatial_scale", option("spatial_scale", 1.0)),
    Rule("aligned ignored", "takes aligned=True for False: no half-pixel shift, and sides of at "
         "least one cell", option("aligned", False)),
    Rule("always aligned", "takes aligned=False for True: a half-pixel shift, and sides of any "
         "length", option("aligned", True)),
    Rule("mode ignored", "takes half_pixel for output_half_pixel",
         option("coordinate_transformation_mode", "output_half_pixel")),
    Rule("last end floored", "floors x2 and y2 to whole cells, and leaves x1 and y1 as they are",
         ends(None, np.floor)),
    Rule("first end floored", "floors x1 and y1 to whole cells, and leaves x2 and y2 as they are",
         ends(np.floor, None)),
    Rule("last end raised", "takes the ceiling of x2 and y2 in whole cells, and leaves x1 and y1 "
         "as they are", ends(None, np.ceil)),
    Rule("box to whole cells outside", "floors x1 and y1 to whole cells and takes the ceiling of "
         "x2 and y2", ends(np.floor, np.ceil)),
    Rule("turns the other way", "turns boxes the other way: clockwise for counter-clockwise",
         change_case(turned)),
    Rule("not finite is 0", "takes coordinates that are not finite for 0; such a box pools to "
         "nothing", finite(0.0, 0.0, 0.0)),
    Rule("not finite is the lowest", "takes coordinates that are not finite for the lowest "
         "integer; such a box pools to nothing", finite(-(2.0**31), -(2.0**31), -(2.0**31))),
    Rule("not finite is cut", "takes NaN for 0 and infinity for the largest integer; such a box "
         "pools to nothing", finite(0.0, 2.0**31, -(2.0**31))),
    Rule("float16", "computes coordinates in float16",
         argument("coordinate_dtype", np.float16, None)),
    Rule("float64", "computes coordinates in float64, not in the features' type",
         argument("coordinate_dtype", np.float64, None)),
    Rule("maximum for average", "takes the maximum of samples, not their average",
         argument("mode", "max", "avg")),
    Rule("edges in float64", "computes the edges of bins in float64",
         argument("edge_dtype", np.float64, None)),
    Rule("extrapolation_value ignored", "ignores extrapolation_value: it is 0",
         option("extrapolation_value", 0.0)),
    Rule("last cell not pinned", "leaves the last cell where rounding puts it; it is exactly on "
         "the box's edge", argument("pinned", False, True)),
    Rule("last cell pinned", "puts the last cell exactly on the box's edge; it is where rounding "
         "puts it", argument("pinned", True, True)),
)  # fmt: skip
_OF_RESULTS = (
    Rule("sign of the gradient", "the sign of the gradient is reversed", negated("gradient")),
    Rule("sign of the box gradient", "the sign of the gradient of boxes is reversed",
         negated("box_gradient")),
    Rule("maximum from 0", "starts the running maximum at 0: negative values are lost",
         change_results(from_zero)),
    Rule("NaN spreads", "lets NaN win a maximum, as np.max does; here it never wins",
         nan_spreads),
    Rule("empty bin lowest", "leaves the lowest float32 in bins without cells; they are 0",
         empty_bins(LOWEST_FLOAT32)),
    Rule("empty bin -inf", "leaves -inf in bins without cells; they are 0", empty_bins(-math.inf)),
    Rule("transposed argmax", "returns the argmax as x * H + y; it is y * W + x",
         change_argmax(transposed)),
    Rule("argmax in all channels", "counts the argmax over all images and channels; it is an index "
         "into one map", change_argmax(in_all_channels)),
    Rule("argmax 0 for none", "returns the argmax 0 for bins without one; it is -1",
         change_results(empty_argmax)),
    Rule("transposed bins", "transposes the bins: rows for columns",
         change_results(transposed_bins)),
)  # fmt: skip
RULES: tuple[Rule, ...] = (*_ALTERNATIVES, *_OF_ARGUMENTS, *_OF_RESULTS)
