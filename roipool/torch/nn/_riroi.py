"""mmcv's rotation-invariant ROI align as a module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from roipool.ops.roi_align_rotated import roi_align_rotated
from roipool.torch.nn._options import OptionsModule, Size

Boxes: TypeAlias = Tensor | Sequence[Tensor]
_FARTHEST = 2.0**30  # orientations; a box with a larger angle is pooled to 0


# As one call, which torch.fx records.
@torch.fx.wrap  # type: ignore[untyped-decorator]
def _riroi_align_rotated(
    features: Tensor, rois: Boxes, size: Size, scale: float, samples: int, count: int, turn: bool
) -> Tensor:
    """Pool boxes and turn their channels; half-precision maps are computed in float32."""
    if features.shape[1] % count:
        raise ValueError(
            f"features must have a multiple of {count} channels (num_orientations), got "
            f"{features.shape[1]}"
        )
    wide = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    pooled = roi_align_rotated(
        wide, rois, size, scale, max(samples, 0), aligned=False, clockwise=turn
    )
    table = rois if isinstance(rois, Tensor) else torch.cat(list(rois))
    turned: Tensor = _turned(pooled, table[:, -1].to(pooled.dtype), count).to(features.dtype)
    return turned


def _turned(pooled: Tensor, angles: Tensor, count: int) -> Tensor:
    """Return the channels of each box, interpolated between those of two orientations."""
    place = ((angles * count).double() / (2 * math.pi)).to(pooled.dtype)
    place = torch.where(place.abs() <= _FARTHEST, place, torch.zeros_like(place))
    first = place.detach().floor()
    share = (place - first)[:, None, None, None, None]
    index = torch.arange(count, device=pooled.device) - first.long()[:, None]
    grouped = pooled.unflatten(1, (pooled.shape[1] // count, count))
    near, far = (
        grouped.take_along_dim((one % count)[:, None, :, None, None], dim=2)
        for one in (index, index + 1)
    )
    return ((1 - share) * near + share * far).flatten(1, 2)


@dataclass(eq=False, repr=False)
class RiRoIAlignRotated(OptionsModule):
    """:func:`roipool.compat.mmcv.riroi_align_rotated` as a module, with mmcv's arguments.

    Channels come in groups of `num_orientations`, one for each direction, and turn with the box.

    As in mmcv, channels turn by the given angle whether or not `clockwise`.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RiRoIAlignRotated(1, 1.0, 2, num_orientations=4)
    >>> box = torch.tensor([[0, 2, 2, 2, 2, torch.pi / 2]])
    >>> pool(torch.arange(4.0).reshape(1, 4, 1, 1) * torch.ones(5, 5), box).flatten()
    tensor([3., 0., 1., 2.])
    """

    out_size: Size
    spatial_scale: float
    num_samples: int = 0
    num_orientations: int = 8
    clockwise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_orientations < 1:
            raise ValueError(f"num_orientations must be at least 1, got {self.num_orientations}")

    def forward(self, features: Tensor, rois: Boxes) -> Tensor:
        """Pool the boxes; gradients for `features` and `rois`.

        `rois` are those of :meth:`RoIAlignRotated.forward`.
        """
        pooled: Tensor = _riroi_align_rotated(
            features,
            rois,
            self.out_size,
            self.spatial_scale,
            self.num_samples,
            self.num_orientations,
            self.clockwise,
        )
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward
