"""Deformable position-sensitive pooling of MXNet, OpenVINO and MegEngine: one rule, three names."""

from __future__ import annotations

from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arrays import Array
from roipool._by_class import CallByClass, PartRule
from roipool._definitions import Definition


def _in_floats(real: np.dtype[Any]) -> PartRule:
    """Return MXNet's rule for the part of a bin, which is not exact from 22 bins on."""
    number = real.type

    def part_of_each(bins: int, parts: int) -> list[int]:
        return [int(number(of) / number(bins) * number(parts)) for of in range(bins)]

    return part_of_each


class ExactCall(CallByClass):
    """A call that may have no offsets: then no bin moves."""

    __slots__ = ()

    def _given_offsets(self, name: str, boxes: int) -> Array:
        if self._arrays[name] is None:
            return self.library.xp().zeros((boxes, 2, 1, 1), np.float32)
        return super()._given_offsets(name, boxes)

    def check_part_size(self, part_size: tuple[int, int]) -> None:
        """Check the parts of a call that has offsets; the size is that of the array."""
        name = str(self._form.offsets)
        parts = self._parts.rows, self._parts.columns
        if self._arrays[name] is not None and parts != part_size:
            raise ValueError(
                f"part_size must be that of {name}, {parts[0]} x {parts[1]}; "
                f"got {part_size[0]} x {part_size[1]}"
            )


class FloatCall(ExactCall):
    """A call whose rule for the part of a bin is MXNet's."""

    __slots__ = ()

    def _part_rule(self, real: np.dtype[Any]) -> PartRule:
        return _in_floats(real)


def placed(
    scale: float, samples: tuple[int, int], groups: tuple[int, int], offset_factor: float
) -> Definition:
    """Return the definition with checked options."""
    return Definition(
        "deformable_ps_roi_pool",
        scale,
        samples,
        offset_factor=offset_factor,
        group_size=groups,
    )


def offsets_unless(none: bool, name: str, given: Any) -> Any:
    """Return the offsets, or None where `none` says that no bin moves."""
    if check.flag("no_trans", none):
        return None
    if given is None:
        raise TypeError(f"{name} must be an array unless no_trans is True, got None")
    return given
