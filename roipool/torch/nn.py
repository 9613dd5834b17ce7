"""Modules, with the names and arguments of torchvision's and mmcv's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roipool.torch._operations import FUNCTIONS

Size = int | Sequence[int]
Boxes = Any  # a tensor, or one for each image


class RoIAlign(torch.nn.Module):  # type: ignore[misc]  # no types where no torch is
    """ROI align, :func:`roipool.roi_align`, with its options kept.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); one int for both.
    spatial_scale : float
        Map cells per image pixel.
    sampling_ratio : int or (int, int)
        Samples per bin; adaptive if 0 or, as torchvision writes it, negative.
    pool_mode : {"avg", "max"}
        What to take over a bin's samples.
    aligned : bool
        Shift boxes by half a cell. True is mmcv's default and detectron2's; torchvision's is False.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RoIAlign(2, sampling_ratio=2)
    >>> pool(torch.arange(1, 26.0).reshape(1, 1, 5, 5), torch.tensor([[0, 1, 1, 3, 3.0]]))
    tensor([[[[ 7.,  8.],
              [12., 13.]]]])
    """

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float = 1.0,
        sampling_ratio: Size = 0,
        pool_mode: str = "avg",
        aligned: bool = True,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.pool_mode = pool_mode
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps.

        Parameters
        ----------
        input : Tensor
            Maps, shape (N, C, H, W).
        rois : Tensor or sequence of Tensor
            Boxes in image pixels: shape (K, 5) with rows batch index, x1, y1, x2, y2; or one
            tensor of shape (L, 4) for each image.

        Returns
        -------
        Tensor
            Shape (K, C, rows, columns).
        """
        ratio = self.sampling_ratio
        if isinstance(ratio, int):
            ratio = max(ratio, 0)
        pooled: Tensor = FUNCTIONS["roi_align"](
            input, rois, self.output_size, self.spatial_scale, ratio,
            aligned=self.aligned, mode=self.pool_mode,
        )  # fmt: skip
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, pool_mode={self.pool_mode!r}, "
            f"aligned={self.aligned}"
        )


class RoIPool(torch.nn.Module):  # type: ignore[misc]
    """ROI pooling by the maximum, :func:`roipool.roi_pool`, with its options kept.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); one int for both.
    spatial_scale : float
        Map cells per image pixel.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RoIPool(2)
    >>> pool(torch.arange(1, 26.0).reshape(1, 1, 5, 5), torch.tensor([[0, 1, 1, 3, 3.0]]))
    tensor([[[[13., 14.],
              [18., 19.]]]])
    """

    def __init__(self, output_size: Size, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; arguments as those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = FUNCTIONS["roi_pool"](input, rois, self.output_size, self.spatial_scale)
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}"


class CropAndResize(torch.nn.Module):  # type: ignore[misc]
    """Crop and resize, :func:`roipool.crop_and_resize`, with its options kept.

    Parameters
    ----------
    crop_size : int or (int, int)
        Cells of a crop, (rows, columns); one int for both.
    method : {"bilinear", "nearest"}
        How to interpolate.
    extrapolation_value : float
        Value of cells outside the map.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> crop = roipool.torch.nn.CropAndResize(2)
    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> crop(image, torch.tensor([[0, 0, 1, 1.0]]), torch.tensor([0]))
    tensor([[[[0., 2.],
              [6., 8.]]]])
    """

    def __init__(
        self, crop_size: Size, method: str = "bilinear", extrapolation_value: float = 0.0
    ) -> None:
        super().__init__()
        self.crop_size = crop_size
        self.method = method
        self.extrapolation_value = extrapolation_value

    def forward(self, image: Tensor, boxes: Tensor, box_indices: Tensor) -> Tensor:
        """Cut boxes out of maps.

        Parameters
        ----------
        image : Tensor
            Maps, shape (N, C, H, W).
        boxes : Tensor
            Shape (K, 4), rows y1, x1, y2, x2 as fractions of the map.
        box_indices : Tensor of int
            Shape (K,): the image of each box.

        Returns
        -------
        Tensor
            Shape (K, C, rows, columns).
        """
        crops: Tensor = FUNCTIONS["crop_and_resize"](
            image, boxes, box_indices, self.crop_size,
            method=self.method, extrapolation_value=self.extrapolation_value,
        )  # fmt: skip
        return crops

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"crop_size={self.crop_size}, method={self.method!r}, "
            f"extrapolation_value={self.extrapolation_value}"
        )
