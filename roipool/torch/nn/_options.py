"""Modules with fixed options, and sizes as torchvision and mmcv write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeAlias, cast

import torch

from roipool import _arguments as check

Size: TypeAlias = int | Sequence[int]
Scale: TypeAlias = float | Sequence[float]
_SIZES = ("output_size", "out_size", "crop_size")


class OptionsModule(torch.nn.Module):  # type: ignore[misc]  # no types where no torch is
    """A module whose options are its fields: subclasses are data classes."""

    def __post_init__(self) -> None:
        super().__init__()
        for name in _SIZES:
            if hasattr(self, name):
                setattr(self, name, pair(getattr(self, name)))

    def extra_repr(self) -> str:
        """Return the options."""
        options = {
            each.name: getattr(self, each.name) for each in fields(cast(Any, self)) if each.repr
        }
        return ", ".join(
            f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
            for name, value in options.items()
        )


def pair(size: Size) -> Size:
    """Return one number for both axes as a pair, as torchvision and mmcv keep it."""
    return size if isinstance(size, Sequence) else check.items(size, 2)


def samples(ratio: Size) -> Size:
    """Return a sampling ratio, 0 for torchvision's negative ones."""
    if isinstance(ratio, int):
        return max(ratio, 0)
    return tuple(max(each, 0) for each in check.items(ratio, 2))
