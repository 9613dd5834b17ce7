"""Modules, with the names and arguments of torchvision's, mmcv's and PreciseRoIPooling's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from roipool._definitions import OPS
from roipool._types import Border, Method, Mode
from roipool.torch.nn._deformed import (
    DeformRoIPool,
    DeformRoIPoolPack,
    ModulatedDeformRoIPoolPack,
)
from roipool.torch.nn._multi_scale import MultiScaleRoIAlign
from roipool.torch.nn._options import OptionsModule, Size, samples
from roipool.torch.nn._riroi import RiRoIAlignRotated

__all__ = [
    "CropAndResize",
    "DeformRoIPool",
    "DeformRoIPoolPack",
    "ModulatedDeformRoIPoolPack",
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "PrRoIPool",
    "PrRoIPool2D",
    "RiRoIAlignRotated",
    "RoIAlign",
    "RoIAlignRotated",
    "RoIPool",
]
_FUNCTIONS = {name: getattr(importlib.import_module(f"roipool.ops.{name}"), name) for name in OPS}
Boxes: TypeAlias = Tensor | Sequence[Tensor]  # all, or those of each image


# torch.fx records calls of wrapped functions as they are, as it does for torchvision's modules.
@torch.fx.wrap  # type: ignore[untyped-decorator]
def _call(operation: str, *args: Any, **options: Any) -> Tensor:
    """Compute an operation by its name."""
    result: Tensor = _FUNCTIONS[operation](*args, **options)
    return result


@dataclass(eq=False, repr=False)
class RoIAlign(OptionsModule):
    """ROI align, :func:`roipool.roi_align` as a module.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
    spatial_scale : float
        Map cells per image pixel.
    sampling_ratio : int or (int, int)
        Samples per bin; adaptive if 0 or, as torchvision writes it, negative.
    pool_mode : {"avg", "max"}
        How the samples of a bin are reduced.
    aligned : bool
        Shift boxes by half a cell. True is mmcv's default and detectron2's; torchvision's is False.
    use_torchvision : bool
        Ignored; accepted because mmcv's configurations may set it.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RoIAlign(2, sampling_ratio=2)
    >>> pool(torch.arange(1, 26.0).reshape(1, 1, 5, 5), torch.tensor([[0, 1, 1, 3, 3.0]]))
    tensor([[[[ 7.,  8.],
              [12., 13.]]]])
    """

    output_size: Size
    spatial_scale: float = 1.0
    sampling_ratio: Size = 0
    pool_mode: Mode = "avg"
    aligned: bool = True
    use_torchvision: bool = field(default=False, repr=False)

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
        pooled: Tensor = _call(
            "roi_align",
            input,
            rois,
            self.output_size,
            self.spatial_scale,
            samples(self.sampling_ratio),
            aligned=self.aligned,
            mode=self.pool_mode,
        )
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward


@dataclass(eq=False, repr=False)
class RoIAlignRotated(OptionsModule):
    """ROI align of rotated boxes, :func:`roipool.roi_align_rotated` as a module.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
    spatial_scale : float
        Map cells per image pixel.
    sampling_ratio : int or (int, int)
        Samples per bin; adaptive if 0 or negative.
    aligned : bool
        Shift boxes by half a cell. False also makes sides at least one cell long.
    clockwise : bool
        Whether angles, in radians, grow clockwise in the displayed image; by default
        counter-clockwise.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RoIAlignRotated(2, 1.0, 2)
    >>> box = torch.tensor([[0, 2, 2, 2, 2, torch.pi / 2]])
    >>> pool(torch.arange(1, 26.0).reshape(1, 1, 5, 5), box)
    tensor([[[[12.,  7.],
              [13.,  8.]]]])
    """

    output_size: Size
    spatial_scale: float
    sampling_ratio: Size = 0
    aligned: bool = True
    clockwise: bool = False

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps, as :meth:`RoIAlign.forward`.

        `rois` have the shape (K, 6) with rows batch index, centre x, centre y, width, height in
        image pixels, and the angle; or they are one tensor of shape (L, 5) for each image.
        """
        pooled: Tensor = _call(
            "roi_align_rotated",
            input,
            rois,
            self.output_size,
            self.spatial_scale,
            samples(self.sampling_ratio),
            aligned=self.aligned,
            clockwise=self.clockwise,
        )
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward


@dataclass(eq=False, repr=False)
class RoIPool(OptionsModule):
    """ROI pooling by the maximum, :func:`roipool.roi_pool` as a module.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
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

    output_size: Size
    spatial_scale: float = 1.0

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = _call("roi_pool", input, rois, self.output_size, self.spatial_scale)
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward


@dataclass(eq=False, repr=False)
class PSRoIPool(OptionsModule):
    """Position-sensitive ROI pooling, :func:`roipool.ps_roi_pool` as a module.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
    spatial_scale : float
        Map cells per image pixel.
    group_size : int or (int, int)
        Groups of bins, (down, across); 0: as many as bins.

    See Also
    --------
    roipool.torch.override_torchvision : Computes torchvision's module of this name, which rounds
        boxes to map cells.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.PSRoIPool(2)
    >>> pool(torch.arange(1, 101.0).reshape(1, 4, 5, 5), torch.tensor([[0, 0, 0, 3, 3.0]]))
    tensor([[[[ 4., 31.],
              [64., 91.]]]])
    """

    output_size: Size
    spatial_scale: float = 1.0
    group_size: Size = 0

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = _call(
            "ps_roi_pool",
            input,
            rois,
            self.output_size,
            self.spatial_scale,
            group_size=self.group_size,
        )
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward


@dataclass(eq=False, repr=False)
class PSRoIAlign(OptionsModule):
    """Position-sensitive ROI align, :func:`roipool.ps_roi_align` as a module.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
    spatial_scale : float
        Map cells per image pixel.
    sampling_ratio : int or (int, int)
        Samples per bin; adaptive if 0 or negative.
    aligned : bool
        Shift boxes by half a cell, as torchvision always does.
    group_size : int or (int, int)
        Groups of bins, (down, across); 0: as many as bins.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.PSRoIAlign(2, 1.0, 2)
    >>> pool(torch.arange(1, 101.0).reshape(1, 4, 5, 5), torch.tensor([[0, 0, 0, 5, 5.0]]))
    tensor([[[[ 5.5000, 33.0000],
              [68.0000, 95.5000]]]])
    """

    output_size: Size
    spatial_scale: float = 1.0
    sampling_ratio: Size = 0
    aligned: bool = True
    group_size: Size = 0

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = _call(
            "ps_roi_align",
            input,
            rois,
            self.output_size,
            self.spatial_scale,
            samples(self.sampling_ratio),
            aligned=self.aligned,
            group_size=self.group_size,
        )
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward


@dataclass(eq=False, repr=False)
class PrRoIPool(OptionsModule):
    """Precise ROI pooling, :func:`roipool.precise_roi_pool` as a module, under mmcv's name.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
    spatial_scale : float
        Map cells per image pixel.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.PrRoIPool(2)
    >>> pool(torch.tensor([[[[1, 2], [3, 4.0]]]]), torch.tensor([[0, 0, 0, 1, 1.0]]))
    tensor([[[[1.7500, 2.2500],
              [2.7500, 3.2500]]]])
    """

    output_size: Size
    spatial_scale: float = 1.0

    def forward(self, features: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = _call(
            "precise_roi_pool", features, rois, self.output_size, self.spatial_scale
        )
        return pooled

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward


class PrRoIPool2D(PrRoIPool):
    """Precise ROI pooling with the arguments of PreciseRoIPooling's own module.

    Parameters
    ----------
    pooled_height, pooled_width : int
        Bins of the output: rows and columns.
    spatial_scale : float
        Map cells per image pixel.

    Examples
    --------
    Boxes have a gradient:

    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.PrRoIPool2D(2, 2, 1.0)
    >>> rois = torch.tensor([[0, 0, 0, 1, 1.0]], requires_grad=True)
    >>> pool(torch.tensor([[[[1, 2], [3, 4.0]]]]), rois).sum().backward()
    >>> rois.grad
    tensor([[0., 2., 4., 2., 4.]])
    """

    pooled_height: int
    pooled_width: int

    def __init__(self, pooled_height: int, pooled_width: int, spatial_scale: float) -> None:
        super().__init__((pooled_height, pooled_width), spatial_scale)
        self.pooled_height = pooled_height
        self.pooled_width = pooled_width

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"kernel_size=({self.pooled_height}, {self.pooled_width}), "
            f"spatial_scale={self.spatial_scale}"
        )


@dataclass(eq=False, repr=False)
class CropAndResize(OptionsModule):
    """Crop and resize, :func:`roipool.crop_and_resize` as a module.

    Parameters
    ----------
    crop_size : int or (int, int)
        Cells of a crop, (rows, columns); an int sets both.
    method : {"bilinear", "nearest"}
        How to interpolate.
    extrapolation_value : float
        Value of cells outside the map.
    antialias : bool
        Whether bilinear crops that make smaller read all cells.
    border : {"constant", "edge"}
        Value of cells outside the map: `extrapolation_value`, or the cell at the edge.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> crop = roipool.torch.nn.CropAndResize(2)
    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> crop(image, torch.tensor([[0, 0, 1, 1.0]]), torch.tensor([0]))
    tensor([[[[0., 2.],
              [6., 8.]]]])
    """

    crop_size: Size
    method: Method = "bilinear"
    extrapolation_value: float = 0.0
    antialias: bool = False
    border: Border = "constant"

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
        crops: Tensor = _call(
            "crop_and_resize",
            image,
            boxes,
            box_indices,
            self.crop_size,
            method=self.method,
            extrapolation_value=self.extrapolation_value,
            antialias=self.antialias,
            border=self.border,
        )
        return crops

    if TYPE_CHECKING:  # torch declares the results of modules as Any
        __call__ = forward
