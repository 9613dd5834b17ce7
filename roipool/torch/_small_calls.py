"""Small calls on tensors: those with the options of an earlier call skip all checks.

See ``roipool._kept``. Any call that is traced or batched takes the general path.
"""

from __future__ import annotations

import torch
from torch import _C, Tensor
from torch.autograd import forward_ad

from roipool._pooling import Computed
from roipool.torch._autograd import Average, recorded
from roipool.torch._families import ANY_AVERAGE, UnknownImageError
from roipool.torch._fast_path import FastAverage


class SmallAverage:
    """Computes calls of an average on one map for boxes in one table."""

    def __init__(self, computed: Computed) -> None:
        self._settings = ANY_AVERAGE.settings_of(computed.pooling)
        self._fast = FastAverage(computed.pooling, computed.columns, cuts=computed.kind["cuts"])

    def __call__(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, or None if the call needs the general path."""
        if (
            not (type(features) is type(rois) is Tensor)
            or _C._len_torch_dispatch_stack()
            or _C._is_tracing()
            or _C._are_functorch_transforms_active()
            or forward_ad._current_level >= 0
        ):
            return None
        if (features.requires_grad or rois.requires_grad) and torch.is_grad_enabled():
            return None if rois.requires_grad else self._recorded(features, rois)
        if torch.autograd._profiler_enabled():
            return recorded(ANY_AVERAGE, "average", self._fast, features, rois)
        return self._fast(features, rois)

    def _recorded(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Return pooled values, recorded for autograd."""
        try:
            pooled: Tensor = Average.apply_plainly(self._settings, rois, None, None, features)
        except UnknownImageError:
            return None
        return pooled


def small_call(computed: Computed) -> SmallAverage | None:
    """Return what computes calls on tensors, if calls like that one are small."""
    is_average = computed.shape is None and not computed.kind.get("is_maximum", False)
    if is_average and computed.columns == 4 and computed.pooling.layout == "NCHW":
        return SmallAverage(computed)
    return None
