"""torchvision's ``MultiScaleRoIAlign``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool import _levels
from roipool.compat import _conventions as conventions
from roipool.ops.multilevel_roi_align import multilevel_roi_align
from roipool.torch._core import check_box_format
from roipool.torch._memory import check_memory
from roipool.torch.nn._options import Size, pair, samples


class MultiScaleRoIAlign(torch.nn.Module):  # type: ignore[misc]
    """``torchvision.ops.MultiScaleRoIAlign``: pool each box from the map for its size.

    All maps are pooled in one call, :func:`roipool.multilevel_roi_align`. As in torchvision, the
    scales are determined in the first call, unless they are given: the powers of two nearest to the
    heights of the maps divided by that of the largest picture. A warning says where the widths give
    others.

    Parameters
    ----------
    featmap_names : sequence of str
        Which of the maps are pooled.
    aligned : bool
        Shift boxes by half a cell. The default is torchvision's; the name is mmcv's.
    scales : sequence of float, optional
        Map cells per image pixel of each map: powers of two, each half of the one before. Those of
        a first call with a low, wide picture, padded to a multiple of 32 pixels, may be too large.

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
        scales: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.featmap_names = conventions.names_of_maps(featmap_names)
        self.output_size = pair(output_size)
        self.sampling_ratio = sampling_ratio
        self.canonical_scale = _levels.size_of_level("canonical_scale", canonical_scale)
        self.canonical_level = _levels.level("canonical_level", canonical_level)
        self.aligned = aligned
        self.scales = None
        if scales is not None:
            self.scales = [*check.scales("scales", scales, len(self.featmap_names))]
            _levels.successive_halves("scales", self.scales)

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
    known = scales
    scales = conventions.scales_of_first_call(known, "x", heights, image_shapes)
    if not known and not torch.compiler.is_compiling():  # which cannot warn
        shapes = {name: each.shape for name, each in named.items()}
        conventions.warn_of_scales(scales, shapes, image_shapes)
    # Under autocast maps may come from layers of several types.
    first, *_ = named.values()
    maps = [each.to(first.dtype) for each in named.values()]
    tables = check.sequence("boxes", boxes)
    if not tables:
        raise ValueError("boxes must hold one tensor for each image, got none")
    for name, table in check.numbered("boxes", tables).items():
        _check_tensor(name, table, 2, "(L, 4)")
        check_box_format(name, table)
    levels = _levels_by_logarithm(torch.cat(tables), scales, canonical_scale, canonical_level)
    known = (levels >= 0)[:, None].split([table.shape[0] for table in tables])
    tables = [table.where(row, torch.nan) for table, row in zip(tables, known, strict=True)]
    pooled = multilevel_roi_align(
        maps, tables, size, scales, samples(ratio), levels=levels.clamp(min=0), aligned=aligned
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


def _check_tensor(name: str, value: Any, dimensions: int, form: str) -> None:
    """Check that a value is a tensor of a shape; of boxes, that they have four numbers each."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if not torch.compiler.is_compiling():
        check_memory(**{name: value})
    if value.dim() != dimensions or (dimensions == 2 and value.shape[1] != 4):
        raise ValueError(f"{name} must have shape {form}; got {tuple(value.shape)}")
