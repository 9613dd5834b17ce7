"""The request of a call: what is pooled and how, as engines get it beside arrays."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from roipool._boxes import Regions
from roipool._definitions import BACKWARD_ONLY, POINTWISE, Definition
from roipool._layout import Layout, Shape4, channels, groups_of_bins, height_width, pooled_channels


class MaxRules(NamedTuple):
    """The options of a maximum."""

    lowest: float = -np.inf  # start of the running maximum
    # Whether argmax is the cell ``y * W + x`` rather than the index of a sample in its bin.
    argmax_is_cell: bool = False
    outside_is_zero: bool = False  # whether a sample outside the map takes part, as 0
    # Whether a NaN replaces the maximum, and the next sample replaces the NaN.
    nan_restarts: bool = False


DEFAULT_RULES = MaxRules()


class Pooling(NamedTuple):
    """All arguments of an engine besides arrays."""

    definition: Definition  # places of bins and samples
    output_size: tuple[int, int]  # bins: rows and columns
    layout: Layout = "NCHW"  # "NCHW" or "NHWC", of features and pooled values
    empty_value: float = 0.0  # value of a bin that has nothing to pool
    rules: MaxRules = DEFAULT_RULES  # rules of a maximum
    # Scales of the maps of a pyramid, instead of the definition's; otherwise empty.
    scales: tuple[float, ...] = ()

    @property
    def group_size(self) -> tuple[int, int]:
        """Groups of bins, down and across."""
        return groups_of_bins(self.definition.group_size, self.output_size)

    @property
    def map_scales(self) -> tuple[float, ...]:
        """The scale of each map."""
        return self.scales or (cast(float, self.definition.scale),)


# Arguments of `PreparedCall`: how boxes are read, and which maximum it is, if it is one.
KIND = {"cuts": False, "is_maximum": False, "returns_argmax": False}


class Computed(NamedTuple):
    """How a call was computed: an average or a maximum of the caller's arrays, or its gradient."""

    results: tuple[Any, ...]  # pooled values and argmax, or the gradient
    # The maps or the gradient of pooled values, the boxes, and their levels if they have any, as
    # the caller gave them.
    given: tuple[Any, ...]
    indices: Any  # batch indices beside boxes, as the caller gave them, or None
    pooling: Pooling  # the request
    columns: int  # numbers of a box
    shapes: tuple[Shape4, ...] | None  # the shapes of the maps, of a gradient
    kind: dict[str, bool]  # `KIND`, and other arguments of `PreparedCall`
    maps: Sequence[Any]  # the maps of a forward, as the engine read them
    regions: Regions  # the boxes as the engine read them
    is_kept: bool  # whether others can be computed like it: see ``roipool._kept``
    prepared: Any = None  # what computed it, if that computes small calls


class _Last(threading.local):
    """The last call of this thread, told to who asks for it."""

    is_asked_for = False
    needs_boxes = False  # who asks needs them, unless they are one table
    call: Computed | None = None


LAST = _Last()


def needs_no_boxes(pooling: Pooling) -> bool:
    """Return whether the argmax alone says which cell gets a gradient of a maximum."""
    return pooling.rules.argmax_is_cell and pooling.definition.name not in BACKWARD_ONLY


def check_sizes(name: str, shape: Sequence[int], bins: str, pooling: Pooling) -> None:
    """Check that groups divide the channels, and of a pointwise definition the numbers of cells.

    A pointwise definition numbers all cells and all bins in 32 bits.
    """
    if pooling.definition.group_size != (1, 1):
        pooled_channels(name, channels(shape, pooling.layout), pooling.group_size)
    if pooling.definition.name not in POINTWISE:
        return
    limit = np.iinfo(np.int32).max
    extent = height_width(shape, pooling.layout)
    for what, sizes, units in ((name, extent, "cells"), (bins, pooling.output_size, "bins")):
        if math.prod(sizes) > limit:
            raise ValueError(
                f"{what} has {sizes[0]} x {sizes[1]} {units}; rotated boxes allow at most {limit}"
            )


def pooled_shape(
    maps: Sequence[int],
    boxes: int,
    size: tuple[int, int],
    layout: Layout,
    group_size: Sequence[int] = (1, 1),
) -> Shape4:
    """Return the shape of pooled values: the maps', with boxes for images and bins for cells."""
    # No calls, for the sake of small inputs.
    count = maps[3] if layout == "NHWC" else maps[1]
    if group_size != (1, 1):
        count //= math.prod(groups_of_bins(group_size, size))
    return (boxes, *size, count) if layout == "NHWC" else (boxes, count, *size)
