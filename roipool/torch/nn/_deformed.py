"""Modules of deformable ROI pooling, with the names, arguments and weights of mmcv's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool.ops.deform_roi_pool import deform_roi_pool
from roipool.ops.roi_align import roi_align
from roipool.torch.nn._options import Scale, Size, samples


# torch.fx records calls of wrapped functions as they are.
@torch.fx.wrap  # type: ignore[untyped-decorator]
def _pooled(
    input: Tensor,
    rois: Any,
    offset: Tensor | None,
    size: tuple[int, int],
    scale: Scale,
    ratio: Size,
    gamma: float,
    mask: Tensor | None = None,
) -> Tensor:
    """Pool boxes, with their bins moved if there are offsets."""
    pooled: Tensor
    if offset is None:
        pooled = roi_align(input, rois, size, scale, samples(ratio), aligned=True)
    else:
        pooled = deform_roi_pool(
            input, rois, offset, size, scale, samples(ratio), gamma=gamma, mask=mask
        )
    return pooled


class _Deformed(torch.nn.Module):  # type: ignore[misc]  # no types where no torch is
    """The options of a module, and pooling by them."""

    output_size: tuple[int, int]
    spatial_scale: Scale
    sampling_ratio: Size
    gamma: float

    def __init__(
        self, output_size: Size, spatial_scale: Scale, sampling_ratio: Size, gamma: float
    ) -> None:
        super().__init__()
        self.output_size = check.size_pair("output_size", output_size)
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.gamma = gamma

    def _pool(
        self, input: Tensor, rois: Any, offset: Tensor | None, mask: Tensor | None = None
    ) -> Tensor:
        options = self.output_size, self.spatial_scale, self.sampling_ratio, self.gamma
        pooled: Tensor = _pooled(input, rois, offset, *options, mask)
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, gamma={self.gamma}"
        )


class DeformRoIPool(_Deformed):
    """Deformable ROI pooling, :func:`roipool.deform_roi_pool` as a module.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.DeformRoIPool((1, 2))
    >>> input, rois = torch.arange(9.0).expand(1, 1, 9, 9), torch.tensor([[0, 2, 2, 6, 6.0]])
    >>> pool(input, rois, torch.ones(1, 2, 1, 2))
    tensor([[[[2.9000, 4.9000]]]])
    """

    def __init__(
        self,
        output_size: Size,
        spatial_scale: Scale = 1.0,
        sampling_ratio: Size = 0,
        gamma: float = 0.1,
    ) -> None:
        super().__init__(output_size, spatial_scale, sampling_ratio, gamma)

    def forward(self, input: Tensor, rois: Any, offset: Tensor | None = None) -> Tensor:
        """Pool boxes from maps.

        Parameters
        ----------
        input : Tensor
            Maps, shape (N, C, H, W).
        rois : Tensor or list of Tensor
            Shape (K, 5) with rows batch index, x1, y1, x2, y2, or for each image (L, 4).
        offset : Tensor, optional
            Offsets of bins to the right and down, shape (K, 2, rows, columns); None moves no bin.

        Returns
        -------
        Tensor
            Shape (K, C, rows, columns).
        """
        return self._pool(input, rois, offset)

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, input: Tensor, rois: Any, offset: Tensor | None = None) -> Tensor:
            """Return the result of `forward`."""


class DeformRoIPoolPack(_Deformed):
    """Deformable ROI pooling that predicts the offsets itself, from a first pooling without any.

    Its weights have the names and shapes of mmcv's; at first all offsets are 0.

    Parameters
    ----------
    output_channels : int
        Channels of the maps.
    deform_fc_channels : int
        Channels of the hidden layers.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.DeformRoIPoolPack(2, output_channels=3, deform_fc_channels=8)
    >>> pool(torch.ones(1, 3, 9, 9), torch.tensor([[0, 2, 2, 6, 6.0]])).shape
    torch.Size([1, 3, 2, 2])
    """

    output_channels: int
    deform_fc_channels: int
    offset_fc: torch.nn.Sequential

    def __init__(
        self,
        output_size: Size,
        output_channels: int,
        deform_fc_channels: int = 1024,
        spatial_scale: Scale = 1.0,
        sampling_ratio: Size = 0,
        gamma: float = 0.1,
    ) -> None:
        super().__init__(output_size, spatial_scale, sampling_ratio, gamma)
        self.output_channels = output_channels
        self.deform_fc_channels = deform_fc_channels
        hidden = deform_fc_channels
        self.offset_fc = torch.nn.Sequential(
            self._first_layer(),
            torch.nn.ReLU(inplace=True),
            torch.nn.Linear(hidden, hidden),
            torch.nn.ReLU(inplace=True),
            self._last_layer(2),
        )

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`DeformRoIPool.forward`."""
        values = self._pool(input, rois, None).flatten(1)
        return self._pool(input, rois, self._of_bins(self.offset_fc, values))

    def _bins(self) -> int:
        return math.prod(self.output_size)

    def _first_layer(self) -> torch.nn.Linear:
        return torch.nn.Linear(self._bins() * self.output_channels, self.deform_fc_channels)

    def _last_layer(self, numbers: int) -> torch.nn.Linear:
        """Return a layer that yields so many numbers for each bin, at first zeros."""
        layer = torch.nn.Linear(self.deform_fc_channels, self._bins() * numbers)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return layer

    def _of_bins(self, layers: torch.nn.Sequential, values: Tensor) -> Tensor:
        predicted: Tensor = layers(values).unflatten(1, (-1, *self.output_size))
        return predicted

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, input: Tensor, rois: Any) -> Tensor:
            """Return the result of `forward`."""


class ModulatedDeformRoIPoolPack(DeformRoIPoolPack):
    """The same, which also predicts a weight for each bin, from 0 to 1 and at first 1/2.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.ModulatedDeformRoIPoolPack(1, 3, deform_fc_channels=8)
    >>> pool(torch.ones(1, 3, 9, 9), torch.tensor([[0, 2, 2, 6, 6.0]])).flatten().tolist()
    [0.5, 0.5, 0.5]
    """

    mask_fc: torch.nn.Sequential

    def __init__(
        self,
        output_size: Size,
        output_channels: int,
        deform_fc_channels: int = 1024,
        spatial_scale: Scale = 1.0,
        sampling_ratio: Size = 0,
        gamma: float = 0.1,
    ) -> None:
        super().__init__(
            output_size, output_channels, deform_fc_channels, spatial_scale, sampling_ratio, gamma
        )
        self.mask_fc = torch.nn.Sequential(
            self._first_layer(),
            torch.nn.ReLU(inplace=True),
            self._last_layer(1),
            torch.nn.Sigmoid(),
        )

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`DeformRoIPool.forward`."""
        values = self._pool(input, rois, None).flatten(1)
        offset, mask = (self._of_bins(each, values) for each in (self.offset_fc, self.mask_fc))
        return self._pool(input, rois, offset, mask)
