"""Offsets of parts and classes, of arrays of any library.

Each class of channels has offsets, and therefore a call, of its own. All bins in a part of a box
share an offset. Slices, joins and sums are the library's own, so that it differentiates them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array
from roipool._boxes import DEFORMED_BY_CLASS, Form, Regions
from roipool._layout import (
    AXES,
    Layout,
    Shape4,
    channels,
    is_in_c_order,
    nchw_view,
)
from roipool._pooling import Call, Result
from roipool._request import Pooling, pooled_shape

Join: TypeAlias = Callable[[list[Any], int], Any]  # arrays along an axis
PartRule: TypeAlias = Callable[[int, int], list[int]]  # from the numbers of bins and of parts
Arguments: TypeAlias = Mapping[str, Any]
ChannelsOf: TypeAlias = Callable[[Array], Array]


class Parts(NamedTuple):
    """The offsets of a call: of `classes` of channels, for rows and columns of parts of a box."""

    classes: int
    rows: int
    columns: int
    rule: PartRule

    def of_class(self, array: Array, number: int, layout: Layout) -> Array:
        """Return the channels of one class."""
        channel, *_ = AXES[layout]
        each = array.shape[channel] // self.classes
        own = slice(number * each, (number + 1) * each)
        return array[:, own] if layout == "NCHW" else array[..., own]

    def offsets_of_bins(
        self, offsets: Array, number: int, bins: Sequence[int], layout: Layout, join: Join
    ) -> Array:
        """Return the offsets of bins in one class, in the layout."""
        own = self.of_class(offsets, number, layout)
        for axis, count in zip(AXES[layout][1:], bins, strict=True):
            owners = self._owners(count, own.shape[axis])
            if owners is not None:
                before = (slice(None),) * axis
                own = join([own[(*before, slice(part, part + 1))] for part in owners], axis)
        return own

    def sums_of_parts(self, gradients: Array, layout: Layout, join: Join) -> Array:
        """Return the gradient by the offsets of parts, of one class, from that by those of bins.

        Columns first: it is the transpose of `offsets_of_bins`, as libraries that differentiate
        compute it.
        """
        sums, (_, row, column) = gradients, AXES[layout]
        for axis, parts in ((column, self.columns), (row, self.rows)):
            owners = self._owners(sums.shape[axis], parts)
            if owners is not None:
                before = (slice(None),) * axis
                first = [sum(owner < part for owner in owners) for part in range(parts + 1)]
                each = [sums[(*before, slice(at, at + 1))] for at in range(len(owners))]
                none = sums[(*before, slice(0, 0))].sum(axis=axis, keepdims=True)
                pieces = [  # from the last bin on
                    reduce(operator.add, reversed(each[start:end])) if start < end else none
                    for start, end in itertools.pairwise(first)
                ]
                sums = join(pieces, axis)
        return sums

    def _owners(self, bins: int, parts: int) -> list[int] | None:
        """Return the part of each bin along an axis; None where each has one of its own."""
        if self.rule is part_of_each and bins == parts:  # a loop would compile for one number only
            return None
        owners = self.rule(bins, parts)
        return None if owners == [*range(parts)] else owners


def part_of_each(bins: int, parts: int) -> list[int]:
    """Return the part of each bin along an axis."""
    return [number * parts // bins for number in range(bins)]


def parts_of(
    name: str,
    shape: Sequence[int],
    boxes: int,
    pooled_channels: int,
    layout: Layout,
    rule: PartRule = part_of_each,
) -> Parts:
    """Return the parts and classes of offsets of such a shape, which are argument `name`."""
    sizes, (channel, row, column) = tuple(shape), AXES[layout]
    form = "rows, columns, 2 * classes" if layout == "NHWC" else "2 * classes, rows, columns"
    is_right = len(sizes) == 4 and sizes[0] == boxes and sizes[channel] % 2 == 0
    if not is_right or min(sizes[1:]) < 1:
        raise ValueError(
            f"{name} must have shape ({boxes}, {form}), with at least one of each, got {sizes}"
        )
    classes = sizes[channel] // 2
    if pooled_channels % classes:
        raise ValueError(
            f"{name} of shape {sizes} are those of {classes} classes, which must divide the "
            f"{pooled_channels} channels of pooled values"
        )
    return Parts(classes, sizes[row], sizes[column], rule)


class CallByClass(Call):
    """A call whose offsets are those of parts and classes; the rest is that of `Call`."""

    __slots__ = ("_offsets", "_parts")

    def __init__(self, form: Form = DEFORMED_BY_CLASS, /, **arrays: Any) -> None:
        super().__init__(form, **arrays)

    def _given_offsets(self, name: str, boxes: int) -> Array:
        return check.number_array(name, self._arrays[name])

    def _part_rule(self, real: np.dtype[Any]) -> PartRule:
        """Return the part of each bin along an axis, for coordinates of a type."""
        return part_of_each

    def _with_offsets(self, regions: Regions, pooling: Pooling, maps: Shape4) -> Regions:
        """Check the offsets; `_classes` gives boxes those of each class."""
        name, layout, count = str(self._form.offsets), pooling.layout, regions.boxes.shape[0]
        # Before the parts are spread: gradients are summed in the type of the computation.
        real = self.library.dtype(regions.boxes)
        self._offsets = check.cast(self._given_offsets(name, count), real)
        shape = pooled_shape(maps, count, pooling.output_size, layout, pooling.group_size)
        rule, pooled = self._part_rule(real), channels(shape, layout)
        self._parts = parts_of(name, self._offsets.shape, count, pooled, layout, rule)
        return regions

    def _classes(self, regions: Regions, pooling: Pooling) -> Iterator[tuple[Regions, ChannelsOf]]:
        """Yield for each class boxes with offsets, and a function to an array's own channels."""
        layout, parts = pooling.layout, self._parts
        for number in range(parts.classes):
            at = number, pooling.output_size, layout, self._join
            offsets = parts.offsets_of_bins(self._offsets, *at)
            moved = nchw_view(offsets) if layout == "NHWC" else offsets
            of_class = partial(parts.of_class, number=number, layout=layout)
            yield _boxes.with_offsets(moved, regions), of_class

    def _join(self, pieces: list[Array], axis: int) -> Array:
        return self.library.xp().concatenate(pieces, axis=axis)

    def _contiguous(self, array: Array) -> Array:
        return self.library.xp().ascontiguousarray(array)

    def average(self, features: Sequence[Array], regions: Regions, pooling: Pooling) -> Result:
        """Average forward."""
        classes = [*self._classes(regions, pooling)]
        if len(classes) == 1:
            return super().average(features, classes[0][0], pooling)
        (maps,), layout, groups = features, pooling.layout, pooling.group_size
        if self.verbs is not None:
            parts = [self.verbs.average([own(maps)], moved, pooling) for moved, own in classes]
            return self._returned(self._join(parts, AXES[layout][0]))
        shape = pooled_shape(maps.shape, len(regions.boxes), pooling.output_size, layout, groups)
        result = self._result(shape, features, layout)
        for moved, of_class in classes:
            own: Sequence[Array] = [self._contiguous(of_class(maps))]
            if maps.size == 0:
                own, moved = self._single_empty_image(own, moved)
            with self._in_c_order(of_class(result)) as filled:
                self.engine.average(own, moved, pooling, filled)
        return self._filled(result)

    def average_backward(
        self, grad_output: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Result:
        """Average backward."""
        classes = [*self._classes(regions, pooling)]
        if len(classes) == 1:
            return super().average_backward(grad_output, classes[0][0], pooling, input_shape)
        if self.verbs is not None:
            return self._returned(self._joined_gradient(grad_output, classes, pooling, input_shape))
        result = self._result(input_shape, [grad_output], pooling.layout)
        for moved, of_class in classes:
            gradient = self._contiguous(of_class(grad_output))
            with self._in_c_order(of_class(result)) as filled:
                self.engine.average_backward(gradient, moved, pooling, [filled])
        return self._filled(result)

    def moved_backward_offsets(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Result:
        """Average backward with respect to the offsets of parts."""
        (maps,), layout, found = features, pooling.layout, []
        for moved, of_class in self._classes(regions, pooling):
            own, gradient = (self._contiguous(of_class(each)) for each in (maps, grad_output))
            of_bins = super().moved_backward_offsets(gradient, [own], moved, pooling)
            with np.errstate(invalid="ignore"):  # infinities of both signs
                found.append(self._parts.sums_of_parts(of_bins, layout, self._join))
        channel, *_ = AXES[layout]
        return self._contiguous(self._join(found, channel))

    def _joined_gradient(
        self,
        grad_output: Array,
        classes: Sequence[tuple[Regions, ChannelsOf]],
        pooling: Pooling,
        input_shape: Shape4,
    ) -> Result:
        """Return the gradient with respect to the features as an array made of each class's."""
        assert self.verbs is not None
        channel, *_ = AXES[pooling.layout]
        first, second, third, fourth = (
            size // len(classes) if axis == channel else size
            for axis, size in enumerate(input_shape)
        )
        shapes = [(first, second, third, fourth)]
        found = [
            self.verbs.average_backward(own(grad_output), moved, pooling, shapes)[0]
            for moved, own in classes
        ]
        return self._join(found, channel)

    @contextmanager
    def _in_c_order(self, target: Array) -> Iterator[Array]:
        """Give an array in C order to fill: the target, or one whose values it then gets."""
        filled = target if is_in_c_order(target) else self.library.empty(target.shape, target.dtype)
        yield filled
        if filled is not target:
            target[...] = filled
