"""torchvision's own operators, computed by roipool: no change to a model."""

from __future__ import annotations

import copy
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from roipool.compat._conventions import CELLS_FROM_LOWEST_FLOAT32
from roipool.torch._memory import Bridge, is_channels_last
from roipool.torch._operators import BRIDGES, FAMILIES, kernel

LOGGER = logging.getLogger("roipool")

# Maxima as torchvision starts them.
ROI_POOL = copy.copy(FAMILIES["roi_pool"])
ROI_POOL.rules = CELLS_FROM_LOWEST_FLOAT32
ROI_ALIGN = FAMILIES["roi_align"]


# ---- torchvision's operators, in terms of roipool's


def _boxes(rois: Tensor) -> tuple[Tensor, Tensor]:
    """Return boxes and batch indices; torchvision cuts those to whole numbers."""
    return rois[:, 1:], rois[:, 0].trunc()


def roi_align(
    bridge: Bridge, input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
    pooled_width: int, sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    """Compute ``torchvision::roi_align``."""
    sampling = (max(sampling_ratio, 0),) * 2
    size = (pooled_height, pooled_width)
    return ROI_ALIGN.average(bridge, input, *_boxes(rois), size, spatial_scale, sampling, aligned)


def roi_align_backward(
    bridge: Bridge, grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
    pooled_width: int, batch_size: int, channels: int, height: int, width: int,
    sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    """Compute ``torchvision::_roi_align_backward``."""
    form = ((batch_size, channels, height, width), is_channels_last(grad))
    sampling = (max(sampling_ratio, 0),) * 2
    return ROI_ALIGN.average_backward(
        bridge, grad, *_boxes(rois), *form, spatial_scale, sampling, aligned
    )


def roi_pool(
    bridge: Bridge, input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
    pooled_width: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute ``torchvision::roi_pool``."""
    return ROI_POOL.maximum(
        bridge, input, *_boxes(rois), (pooled_height, pooled_width), spatial_scale
    )


def roi_pool_backward(
    bridge: Bridge, grad: Tensor, rois: Tensor, argmax: Tensor, spatial_scale: float,
    pooled_height: int, pooled_width: int, batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    """Compute ``torchvision::_roi_pool_backward``."""
    form = ((batch_size, channels, height, width), is_channels_last(grad))
    return ROI_POOL.maximum_backward(bridge, grad, argmax, *_boxes(rois), *form, spatial_scale)


KERNELS: dict[str, Callable[..., Any]] = {
    "roi_align": roi_align,
    "_roi_align_backward": roi_align_backward,
    "roi_pool": roi_pool,
    "_roi_pool_backward": roi_pool_backward,
}


# ---- The override

_lock = threading.Lock()
_depth = 0
_library: Any = None


@contextmanager
def override_torchvision() -> Iterator[None]:
    """Let roipool compute torchvision's ``roi_align`` and ``roi_pool``, forward and backward.

    Within the context torchvision's own operators, on the CPU, and on GPUs where there is CuPy, are
    computed by roipool, for all threads of the process; after it by torchvision again. Models stay
    as they are: autograd, autocast, export and TorchScript go on as before. It is logged, because
    numbers change by a few units in the last place. Contexts may be nested.

    torchvision's ``MultiScaleRoIAlign`` is computed as it is written, level by level:
    :class:`roipool.torch.nn.MultiScaleRoIAlign` in its place is one call.

    A box whose batch index names no image, for which torchvision reads other memory, is a
    ValueError. NaN and infinite boxes pool nothing.

    Raises
    ------
    ImportError
        If torchvision is not installed.

    Examples
    --------
    >>> import roipool.torch
    >>> with roipool.torch.override_torchvision():  # doctest: +SKIP
    ...     detections = model(images)
    """
    import torchvision  # noqa: F401  # registers the operators

    global _depth, _library
    with _lock:
        if _depth == 0:
            _library = _registered()
            LOGGER.warning("torchvision's roi_align and roi_pool are computed by roipool")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _library._destroy()
                _library = None
                LOGGER.warning("torchvision's roi_align and roi_pool are its own again")


def _registered() -> Any:
    library = torch.library.Library("torchvision", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that a kernel is replaced: we log it
        for device, bridge in BRIDGES.items():
            for name, compute in KERNELS.items():
                library.impl(name, kernel(bridge, name, compute), device, allow_override=True)
    return library
