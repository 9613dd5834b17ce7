"""Small calls on tensors: those with the options of an earlier call skip all checks.

See ``roipool._kept``. Calls that are traced or batched take the general path before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _C, Tensor

from roipool._request import Computed
from roipool.torch._autograd import FUNCTIONS, device_of_plain, recorded, run
from roipool.torch._families import (
    AVERAGE,
    AVERAGE_OF_MAPS,
    MAXIMUM,
    Family,
    UnknownImageError,
)
from roipool.torch._fast_path import TYPES, FastAverage


class SmallCall:
    """Computes calls on one map for boxes in one table; None is a call for the general path."""

    verb: str
    family: Family = AVERAGE

    def __init__(self, computed: Computed) -> None:
        cuts = computed.kind["cuts"]
        self._settings = self.family.settings_of(computed.pooling)._replace(cuts=cuts)

    def __call__(self, features: Tensor, rois: Tensor, levels: None, shapes: None) -> Any:
        """Return the results, or None if the call needs the general path."""
        if not (type(features) is type(rois) is Tensor) or levels is not None:
            return None
        try:
            if (features.requires_grad or rois.requires_grad) and torch.is_grad_enabled():
                return None if rois.requires_grad else self._recorded(features, rois)
            return self._computed(features, rois)
        except UnknownImageError:
            return None

    def _recorded(self, features: Tensor, rois: Tensor) -> Any:
        """Return the results, recorded for autograd."""
        plainly = FUNCTIONS[self.verb].apply_plainly
        return plainly(self._settings, rois, None, None, features)

    def _computed(self, features: Tensor, rois: Tensor) -> Any:
        """Return the results without derivatives."""
        raise NotImplementedError


class SmallAverage(SmallCall):
    """Calls of an average."""

    verb = "average"

    def __init__(self, computed: Computed) -> None:
        super().__init__(computed)
        kind = computed.kind
        self._fast = FastAverage(computed.pooling, computed.columns, cuts=kind["cuts"])

    def _computed(self, features: Tensor, rois: Tensor) -> Any:
        if torch.autograd._profiler_enabled():
            return recorded(self.verb, self._settings, self._fast, features, rois)
        return self._fast(features, rois)


class SmallMaximum(SmallCall):
    """Calls of a maximum."""

    verb, family = "maximum", MAXIMUM

    def __init__(self, computed: Computed) -> None:
        super().__init__(computed)
        self._returns_argmax = computed.kind["returns_argmax"]

    def _recorded(self, features: Tensor, rois: Tensor) -> Any:
        return self._asked(super()._recorded(features, rois)) if _fits(features, rois) else None

    def _computed(self, features: Tensor, rois: Tensor) -> Any:
        if not _fits(features, rois):
            return None
        return self._asked(run(self.verb, self._settings, rois, None, None, features))

    def _asked(self, results: Any) -> Any:
        return results if self._returns_argmax else results[0]


class SmallPyramid(SmallCall):
    """Calls of an average of several maps on a GPU, with the levels of boxes."""

    verb, family = "average", AVERAGE_OF_MAPS

    def __call__(self, features: Any, rois: Tensor, levels: Any, shapes: None) -> Any:
        """Return pooled values, or None if the call needs the general path."""
        if type(features) not in (list, tuple) or len(features) != len(self._settings.scales):
            return None
        tensors = rois, levels, *features
        if set(map(type, tensors)) != {Tensor}:
            return None
        if device_of_plain(*tensors) != "CUDA" or not _fits(features[0], rois):
            return None
        dtype, shape = features[0].dtype, features[0].shape
        for each in features:
            if each.dtype is not dtype or each.dim() != 4 or each.shape[:2] != shape[:2]:
                return None
        if levels.dtype is not torch.int64 or levels.shape != rois.shape[:1]:
            return None
        arguments = self._settings, rois, None, levels, *features
        if torch.is_grad_enabled() and _C._any_requires_grad(*tensors):
            plainly = FUNCTIONS[self.verb].apply_plainly
            return None if rois.requires_grad else plainly(*arguments)
        return run(self.verb, *arguments)


def _fits(features: Tensor, rois: Tensor) -> bool:
    """Return whether kernels take tensors of such shapes and types without further checks."""
    types = TYPES.get(features.dtype)
    is_known = types is not None and rois.dtype is types[1]
    is_known = is_known and device_of_plain(features, rois) is not None
    return is_known and features.dim() == 4 and rois.dim() == 2 and rois.shape[1] == 5


def small_call(computed: Computed) -> SmallCall | None:
    """Return what computes calls on tensors, if calls like that one are small."""
    if computed.shapes is not None or computed.columns != 4 or computed.pooling.layout != "NCHW":
        return None
    if computed.pooling.scales:
        return SmallPyramid(computed) if len(computed.given) > 2 else None
    is_maximum = computed.kind.get("is_maximum", False)
    return SmallMaximum(computed) if is_maximum else SmallAverage(computed)
