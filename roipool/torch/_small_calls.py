"""Small calls on tensors: those with the options of an earlier call skip all checks.

See ``roipool._kept``. Calls that are traced or batched take the general path before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _C, Tensor

from roipool._request import Computed
from roipool.torch import _launches
from roipool.torch._autograd import FUNCTIONS, device_of_plain, recorded, run
from roipool.torch._families import (
    AVERAGE,
    AVERAGE_OF_MAPS,
    FAMILIES,
    MAXIMUM,
    Family,
    UnknownImageError,
)
from roipool.torch._fast_path import FastAverage
from roipool.torch._memory import FLOATS


class SmallCall:
    """Computes calls on one map of the CPU for boxes in one table."""

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
        self._fast = FastAverage(computed.pooling, cuts=computed.kind["cuts"])

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


def _fits(features: Tensor, rois: Tensor) -> bool:
    """Return whether kernels take tensors of such shapes and types without further checks."""
    own = torch.float64 if features.dtype is torch.float64 else torch.float32
    is_known = features.dtype in FLOATS and rois.dtype is own
    is_known = is_known and device_of_plain(features, rois) == "CPU"
    return is_known and features.dim() == 4 and rois.dim() == 2 and rois.shape[1] == 5


class SmallCallOnGpu:
    """Computes calls on CUDA tensors, of one map or a pyramid, for boxes in one table."""

    def __init__(self, computed: Computed) -> None:
        self._is_pyramid = bool(computed.pooling.scales)
        self._is_maximum = computed.kind["is_maximum"]
        self._returns_argmax = computed.kind["returns_argmax"]
        self._verb = "maximum" if self._is_maximum else "average"
        family = AVERAGE_OF_MAPS if self._is_pyramid else FAMILIES[self._verb]
        settings = family.settings_of(computed.pooling)
        self._settings = settings._replace(cuts=computed.kind["cuts"])
        self._count = len(settings.scales)  # of maps
        self._compute = getattr(_launches, self._verb)

    def __call__(self, features: Any, rois: Any, levels: Any, shapes: None) -> Any:
        """Return the results, or None if the call needs the general path."""
        maps = features if self._is_pyramid else (features,)
        if type(maps) not in (list, tuple) or (levels is None) is self._is_pyramid:
            return None
        arguments = self._settings, rois, None, levels, *maps
        if torch.is_grad_enabled() and _C._any_requires_grad(rois, *maps):
            read = _launches.READER.read(maps, rois, None, levels)
            if read is None or not read.is_usual or len(maps) != self._count or rois.requires_grad:
                return None
            results = FUNCTIONS[self._verb].apply_plainly(*arguments)
        elif torch.autograd._profiler_enabled():
            results = recorded(self._verb, self._settings, self._compute, *arguments)
        else:
            results = self._compute(*arguments)
        is_pair = self._is_maximum and results is not None
        return results[0] if is_pair and not self._returns_argmax else results


def small_call(computed: Computed) -> SmallCall | None:
    """Return what computes calls on CPU tensors, if calls like that one are small."""
    if not _is_small(computed) or computed.pooling.scales:
        return None
    return SmallMaximum(computed) if computed.kind["is_maximum"] else SmallAverage(computed)


def small_call_on_gpu(computed: Computed) -> SmallCallOnGpu | None:
    """Return what computes calls on CUDA tensors, if calls like that one are small."""
    has_levels = len(computed.given) > 2
    is_small = _is_small(computed) and (has_levels or not computed.pooling.scales)
    return SmallCallOnGpu(computed) if is_small else None


def _is_small(computed: Computed) -> bool:
    is_forward, pooling = computed.shapes is None, computed.pooling
    return is_forward and computed.columns == 4 and pooling.layout == "NCHW"
