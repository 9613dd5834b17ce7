"""Modules, with the names and arguments of torchvision's, mmcv's and PreciseRoIPooling's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool import _levels
from roipool._types import Method, Mode
from roipool.compat import _conventions as conventions
from roipool.torch._memory import check_memory
from roipool.torch._operations import FUNCTIONS

Size: TypeAlias = int | Sequence[int]
Boxes: TypeAlias = Tensor | Sequence[Tensor]  # all, or those of each image


# torch.fx records calls of wrapped functions as they are, as it does for torchvision's modules.
@torch.fx.wrap  # type: ignore[untyped-decorator]
def _call(operation: str, *args: Any, **options: Any) -> Tensor:
    """Compute an operation by its name."""
    result: Tensor = FUNCTIONS[operation](*args, **options)
    return result


def _pair(size: Size) -> Size:
    """Return one number for both axes as a pair, as torchvision and mmcv keep it."""
    return size if isinstance(size, Sequence) else (size, size)


class RoIAlign(torch.nn.Module):  # type: ignore[misc]  # no types where no torch is
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
    spatial_scale: float
    sampling_ratio: Size
    pool_mode: Mode
    aligned: bool

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float = 1.0,
        sampling_ratio: Size = 0,
        pool_mode: Mode = "avg",
        aligned: bool = True,
        use_torchvision: bool = False,
    ) -> None:
        super().__init__()
        del use_torchvision
        self.output_size = _pair(output_size)
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
        pooled: Tensor = _call(
            "roi_align",
            input,
            rois,
            self.output_size,
            self.spatial_scale,
            _samples(self.sampling_ratio),
            aligned=self.aligned,
            mode=self.pool_mode,
        )
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, pool_mode={self.pool_mode!r}, "
            f"aligned={self.aligned}"
        )

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, input: Tensor, rois: Boxes) -> Tensor:
            """Return the result of `forward`."""


class RoIAlignRotated(torch.nn.Module):  # type: ignore[misc]
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
    sampling_ratio: Size
    aligned: bool
    clockwise: bool

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float,
        sampling_ratio: Size = 0,
        aligned: bool = True,
        clockwise: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned
        self.clockwise = clockwise

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
            _samples(self.sampling_ratio),
            aligned=self.aligned,
            clockwise=self.clockwise,
        )
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned}, "
            f"clockwise={self.clockwise}"
        )

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, input: Tensor, rois: Boxes) -> Tensor:
            """Return the result of `forward`."""


class RoIPool(torch.nn.Module):  # type: ignore[misc]
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
    spatial_scale: float

    def __init__(self, output_size: Size, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = spatial_scale

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = _call("roi_pool", input, rois, self.output_size, self.spatial_scale)
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}"

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, input: Tensor, rois: Boxes) -> Tensor:
            """Return the result of `forward`."""


class PrRoIPool(torch.nn.Module):  # type: ignore[misc]
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
    spatial_scale: float

    def __init__(self, output_size: Size, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = spatial_scale

    def forward(self, features: Tensor, rois: Boxes) -> Tensor:
        """Pool boxes from maps; the arguments are those of :meth:`RoIAlign.forward`."""
        pooled: Tensor = _call(
            "precise_roi_pool", features, rois, self.output_size, self.spatial_scale
        )
        return pooled

    def extra_repr(self) -> str:
        """Return the options."""
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}"

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, features: Tensor, rois: Boxes) -> Tensor:
            """Return the result of `forward`."""


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


class CropAndResize(torch.nn.Module):  # type: ignore[misc]
    """Crop and resize, :func:`roipool.crop_and_resize` as a module.

    Parameters
    ----------
    crop_size : int or (int, int)
        Cells of a crop, (rows, columns); an int sets both.
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

    crop_size: Size
    method: Method
    extrapolation_value: float

    def __init__(
        self, crop_size: Size, method: Method = "bilinear", extrapolation_value: float = 0.0
    ) -> None:
        super().__init__()
        self.crop_size = _pair(crop_size)
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
        crops: Tensor = _call(
            "crop_and_resize",
            image,
            boxes,
            box_indices,
            self.crop_size,
            method=self.method,
            extrapolation_value=self.extrapolation_value,
        )
        return crops

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"crop_size={self.crop_size}, method={self.method!r}, "
            f"extrapolation_value={self.extrapolation_value}"
        )

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(self, image: Tensor, boxes: Tensor, box_indices: Tensor) -> Tensor:
            """Return the result of `forward`."""


class MultiScaleRoIAlign(torch.nn.Module):  # type: ignore[misc]
    """``torchvision.ops.MultiScaleRoIAlign``: pool each box from the map for its size.

    All maps are pooled in one call, :func:`roipool.multilevel_roi_align`. As in torchvision, the
    scales are determined in the first call: the powers of two nearest to the sizes of the maps
    divided by that of the largest picture.

    Parameters
    ----------
    featmap_names : sequence of str
        Which of the maps are pooled.
    output_size : int or (int, int)
        Bins of the output, (rows, columns); an int sets both.
    sampling_ratio : int or (int, int)
        Samples per bin; adaptive if 0 or, as torchvision writes it, negative.
    canonical_scale : float
        Side of a box that is pooled from `canonical_level`, in image pixels.
    canonical_level : int
        Its level: level k has 2**-k map cells per image pixel.
    aligned : bool
        Shift boxes by half a cell. The default is torchvision's; the name is mmcv's.

    Notes
    -----
    With several maps, a box whose area is negative or NaN is pooled to 0.

    Examples
    --------
    >>> import torch, roipool.torch.nn
    >>> maps = {"fine": torch.zeros(1, 1, 64, 64), "coarse": torch.ones(1, 1, 32, 32)}
    >>> pool = roipool.torch.nn.MultiScaleRoIAlign(["fine", "coarse"], 1, 2)
    >>> pool(maps, [torch.tensor([[0.0, 0, 50, 50], [0, 0, 250, 250]])], [(512, 512)]).flatten()
    tensor([0., 1.])
    """

    featmap_names: list[str]
    output_size: Size
    sampling_ratio: Size
    canonical_scale: float
    canonical_level: int
    aligned: bool
    scales: list[float] | None

    def __init__(
        self,
        featmap_names: Sequence[str],
        output_size: Size,
        sampling_ratio: Size,
        *,
        canonical_scale: float = 224,
        canonical_level: int = 4,
        aligned: bool = False,
    ) -> None:
        super().__init__()
        self.featmap_names = conventions.names_of_maps(featmap_names)
        self.output_size = _pair(output_size)
        self.sampling_ratio = sampling_ratio
        self.canonical_scale = _levels.size_of_level("canonical_scale", canonical_scale)
        self.canonical_level = _levels.level("canonical_level", canonical_level)
        self.aligned = aligned
        self.scales = None

    def forward(
        self,
        x: Mapping[str, Tensor],
        boxes: Sequence[Tensor],
        image_shapes: Sequence[tuple[int, int]],
    ) -> Tensor:
        """Pool boxes from a pyramid.

        Parameters
        ----------
        x : mapping of str to Tensor
            Maps, shape (N, C, H, W) each, the finest first.
        boxes : sequence of Tensor
            For each image, shape (L, 4): x1, y1, x2, y2 in image pixels.
        image_shapes : sequence of (int, int)
            Height and width of each picture, in pixels.

        Returns
        -------
        Tensor
            Shape (K, C, rows, columns), in the order of the boxes.
        """
        scales, pooled = _pool_pyramid(
            x,
            boxes,
            image_shapes,
            self.featmap_names,
            self.output_size,
            self.sampling_ratio,
            self.canonical_scale,
            self.canonical_level,
            self.aligned,
            self.scales,
        )
        if not isinstance(scales, torch.fx.Proxy):  # a program that is recorded infers them anew
            self.scales = scales
        result: Tensor = pooled
        return result

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"featmap_names={self.featmap_names}, output_size={self.output_size}, "
            f"sampling_ratio={self.sampling_ratio}"
        )

    if TYPE_CHECKING:  # torch declares the results of modules as Any

        def __call__(
            self,
            x: Mapping[str, Tensor],
            boxes: Sequence[Tensor],
            image_shapes: Sequence[tuple[int, int]],
        ) -> Tensor:
            """Return the result of `forward`."""


@torch.fx.wrap  # type: ignore[untyped-decorator]
def _pool_pyramid(
    x: Mapping[str, Tensor],
    boxes: Sequence[Tensor],
    image_shapes: Sequence[tuple[int, int]],
    names: Sequence[str],
    size: Size,
    ratio: Size,
    canonical_scale: float,
    canonical_level: int,
    aligned: bool,
    scales: list[float] | None,
) -> Any:
    """Return the scales of a pyramid's maps, and the pooled values of its boxes."""
    named = conventions.maps_of_names("x", x, names)
    for name, each in named.items():
        _check_tensor(name, each, 4, "(N, C, H, W)")
    heights = {name: each.shape[2] for name, each in named.items()}
    scales = conventions.scales_of_first_call(scales, "x", heights, image_shapes)
    # Under autocast maps may come from layers of several types.
    first, *_ = named.values()
    maps = [each.to(first.dtype) for each in named.values()]
    tables = check.sequence("boxes", boxes)
    if not tables:
        raise ValueError("boxes must hold one tensor for each image, got none")
    for name, table in check.numbered("boxes", tables).items():
        _check_tensor(name, table, 2, "(L, 4)")
    levels = _levels_by_logarithm(torch.cat(tables), scales, canonical_scale, canonical_level)
    known = (levels >= 0)[:, None].split([table.shape[0] for table in tables])
    tables = [table.where(row, torch.nan) for table, row in zip(tables, known, strict=True)]
    pooled = FUNCTIONS["multilevel_roi_align"](
        maps, tables, size, scales, _samples(ratio), levels=levels.clamp(min=0), aligned=aligned
    )
    return scales, pooled


def _levels_by_logarithm(
    boxes: Tensor, scales: Sequence[float], canonical_scale: float, canonical_level: int
) -> Tensor:
    """Return the index of each box's map by torchvision's formula, -1 for boxes without a map."""
    first, last = (-round(math.log2(scales[end])) for end in (0, -1))
    corners = _widened(boxes.detach())
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    level = torch.log2(areas.sqrt() / canonical_scale)
    level = (canonical_level + level + 1e-6).floor().clamp(first, last) - first
    if last == first:
        level = torch.zeros_like(level)
    return level.nan_to_num(-1.0).long()


def _widened(boxes: Tensor) -> Tensor:
    """Return boxes in torchvision's type for their areas."""
    if boxes.is_floating_point():
        return boxes if boxes.dtype is torch.float64 else boxes.float()
    return boxes if boxes.dtype is torch.int64 else boxes.int()


def _samples(ratio: Size) -> Size:
    """Return a sampling ratio, 0 for torchvision's negative ones."""
    if isinstance(ratio, Sequence):
        return tuple(max(each, 0) for each in ratio)
    return max(ratio, 0)


def _check_tensor(name: str, value: Any, dimensions: int, form: str) -> None:
    """Check that a value is a tensor of a shape; of boxes, that they have four numbers each."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if not torch.compiler.is_compiling():
        check_memory(**{name: value})
    if value.dim() != dimensions or (dimensions == 2 and value.shape[1] != 4):
        raise ValueError(f"{name} must have shape {form}; got {tuple(value.shape)}")
