"""Modules, with the names and arguments of torchvision's, mmcv's and PreciseRoIPooling's.

The options of a module are those of its function, which describes them; the modules themselves say
what differs. A `sampling_ratio` may be negative, as torchvision writes adaptive ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

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
from roipool.torch.nn._options import OptionsModule, Scale, Size, samples
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
_NAMES = {"pool_mode": "mode"}  # of options that functions name differently


def __dir__() -> list[str]:
    return __all__  # what a notebook completes by Tab


# torch.fx records calls of wrapped functions as they are, as it does for torchvision's modules.
@torch.fx.wrap  # type: ignore[untyped-decorator]
def _call(operation: str, *args: Any, **options: Any) -> Tensor:
    """Compute an operation by its name."""
    result: Tensor = _FUNCTIONS[operation](*args, **options)
    return result


class FunctionModule(OptionsModule):
    """A module whose options are those of its function."""

    _operation: ClassVar[str]
    _passed: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._passed = tuple(each.name for each in fields(cast(Any, self)) if each.repr)

    def _pooled(self, *arrays: Any) -> Tensor:
        """Return the result of the function for these arguments."""
        options = {_NAMES.get(name, name): getattr(self, name) for name in self._passed}
        if "sampling_ratio" in options:
            options["sampling_ratio"] = samples(options["sampling_ratio"])
        pooled: Tensor = _call(self._operation, *arrays, **options)
        return pooled


class PoolingModule(FunctionModule):
    """A module that pools boxes in image pixels."""

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps, as the function does.

        Parameters
        ----------
        input : Tensor
            Maps, shape (N, C, H, W).
        rois : Tensor or sequence of Tensor
            Boxes in image pixels: shape (K, 5) with rows batch index, x1, y1, x2, y2; or one
            tensor of shape (L, 4) for each image. Rotated boxes: shape (K, 6) or (L, 5).

        Returns
        -------
        Tensor
            Shape (K, C, rows, columns).
        """
        return self._pooled(input, rois)

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, input: Tensor, rois: Boxes) -> Tensor:
            """Return the result of `forward`."""


@dataclass(eq=False, repr=False)
class RoIAlign(PoolingModule):
    """ROI align, :func:`roipool.roi_align` as a module.

    Parameters
    ----------
    pool_mode : {"avg", "max"}
        The function's `mode`.
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

    _operation = "roi_align"

    output_size: Size
    spatial_scale: Scale = 1.0
    sampling_ratio: Size = 0
    pool_mode: Mode = "avg"
    aligned: bool = True
    use_torchvision: bool = field(default=False, repr=False)


@dataclass(eq=False, repr=False)
class RoIAlignRotated(PoolingModule):
    """ROI align of rotated boxes, :func:`roipool.roi_align_rotated` as a module.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RoIAlignRotated(2, 1.0, 2)
    >>> box = torch.tensor([[0, 2, 2, 2, 2, torch.pi / 2]])
    >>> pool(torch.arange(1, 26.0).reshape(1, 1, 5, 5), box)
    tensor([[[[12.,  7.],
              [13.,  8.]]]])
    """

    _operation = "roi_align_rotated"

    output_size: Size
    spatial_scale: float
    sampling_ratio: Size = 0
    aligned: bool = True
    clockwise: bool = False


@dataclass(eq=False, repr=False)
class RoIPool(PoolingModule):
    """ROI pooling by the maximum, :func:`roipool.roi_pool` as a module.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.RoIPool(2)
    >>> pool(torch.arange(1, 26.0).reshape(1, 1, 5, 5), torch.tensor([[0, 1, 1, 3, 3.0]]))
    tensor([[[[13., 14.],
              [18., 19.]]]])
    """

    _operation = "roi_pool"

    output_size: Size
    spatial_scale: Scale = 1.0


@dataclass(eq=False, repr=False)
class PSRoIPool(PoolingModule):
    """Position-sensitive ROI pooling, :func:`roipool.ps_roi_pool` as a module.

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

    _operation = "ps_roi_pool"

    output_size: Size
    spatial_scale: float = 1.0
    group_size: Size = 0


@dataclass(eq=False, repr=False)
class PSRoIAlign(PoolingModule):
    """Position-sensitive ROI align, :func:`roipool.ps_roi_align` as a module.

    Parameters
    ----------
    aligned : bool
        Shift boxes by half a cell, as torchvision always does.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.PSRoIAlign(2, 1.0, 2)
    >>> pool(torch.arange(1, 101.0).reshape(1, 4, 5, 5), torch.tensor([[0, 0, 0, 5, 5.0]]))
    tensor([[[[ 5.5000, 33.0000],
              [68.0000, 95.5000]]]])
    """

    _operation = "ps_roi_align"

    output_size: Size
    spatial_scale: Scale = 1.0
    sampling_ratio: Size = 0
    aligned: bool = True
    group_size: Size = 0


@dataclass(eq=False, repr=False)
class PrRoIPool(FunctionModule):
    """Precise ROI pooling, :func:`roipool.precise_roi_pool` as a module, under mmcv's name.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> pool = roipool.torch.nn.PrRoIPool(2)
    >>> pool(torch.tensor([[[[1, 2], [3, 4.0]]]]), torch.tensor([[0, 0, 0, 1, 1.0]]))
    tensor([[[[1.7500, 2.2500],
              [2.7500, 3.2500]]]])
    """

    _operation = "precise_roi_pool"

    output_size: Size
    spatial_scale: Scale = 1.0

    def forward(self, features: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        return self._pooled(features, rois)

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, features: Tensor, rois: Boxes) -> Tensor:
            """Return the result of `forward`."""


class PrRoIPool2D(PrRoIPool):
    """Precise ROI pooling with the arguments of PreciseRoIPooling's own module.

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
class CropAndResize(FunctionModule):
    """Crop and resize, :func:`roipool.crop_and_resize` as a module.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> crop = roipool.torch.nn.CropAndResize(2)
    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> crop(image, torch.tensor([[0, 0, 1, 1.0]]), torch.tensor([0]))
    tensor([[[[0., 2.],
              [6., 8.]]]])
    """

    _operation = "crop_and_resize"

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
        return self._pooled(image, boxes, box_indices)

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, image: Tensor, boxes: Tensor, box_indices: Tensor) -> Tensor:
            """Return the result of `forward`."""
