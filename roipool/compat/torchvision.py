"""torchvision's ROI operations (torchvision/ops), as its CPU kernels compute them.

Differences to the original: NaN and infinite boxes, which crash or leak memory there, pool to 0;
cells of weight 0 are not read, even if NaN (see `roi_align`). float16 maps are computed with
float32 coordinates; torchvision's CPU kernel rounds coordinates to float16, except under autocast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roipool import _arguments as check
from roipool import _levels
from roipool._boxes import Regions
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._layout import Shape4
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._layers import Layer, is_compiled, is_recorded
from roipool.compat._torchvision_masks import (
    paste_masks_in_image,
    paste_masks_in_image_backward,
    project_masks_on_boxes,
)
from roipool.compat._torchvision_ps import (
    FORM,
    PSRoIAlign,
    PSRoIPool,
    ps_roi_align,
    ps_roi_align_backward,
    ps_roi_pool,
    ps_roi_pool_backward,
)
from roipool.compat._torchvision_quantised import QUANTISED_FORM, qroi_align

__all__ = [
    "FORM",
    "QUANTISED_FORM",
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
    "paste_masks_in_image",
    "paste_masks_in_image_backward",
    "project_masks_on_boxes",
    "ps_roi_align",
    "ps_roi_align_backward",
    "ps_roi_pool",
    "ps_roi_pool_backward",
    "qroi_align",
    "roi_align",
    "roi_align_backward",
    "roi_pool",
    "roi_pool_backward",
]


def _align(spatial_scale: float, sampling_ratio: int, aligned: bool) -> Definition:
    return conventions.roi_align_definition(
        check.real_number("spatial_scale", spatial_scale), sampling_ratio, aligned
    )


@for_every_array
def roi_align(
    input: ArrayT,
    boxes: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> ArrayT:
    """Average ROI align like ``torchvision.ops.roi_align``.

    Parameters
    ----------
    boxes : array_like or sequence of array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels; or a
        list of (L, 4), one for each image.
    spatial_scale : float
        Map cells per image pixel.

    Notes
    -----
    Cells with a weight of exactly 0 are not read: the next row or column of cells, if a sample lies
    exactly on cell centres along that axis or before the first cell. The original multiplies such
    cells by 0, so that a NaN or infinite cell makes the average NaN. The same applies to the map's
    first cell, which it reads with weight 0 for samples outside the map, and to NaN or infinite
    gradients in the backward.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> torchvision.roi_align(input, [[0, 1, 1, 3, 3]], 2, sampling_ratio=2)
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    with Call(FORM, input=input, boxes=boxes) as call:
        placed = _align(spatial_scale, sampling_ratio, aligned)
        return call.averages(call.request(placed, output_size))


@for_every_array
def roi_align_backward(
    grad_output: ArrayT,
    boxes: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`roi_align` with respect to `input`."""
    with Call(FORM, grad_output=grad_output, boxes=boxes) as call:
        placed = _align(spatial_scale, sampling_ratio, aligned)
        return call.average_backward(*call.checked_backward(placed, input_shape))


@for_every_array
def roi_pool(
    input: ArrayT,
    boxes: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Max ROI pooling like ``torchvision.ops.roi_pool``.

    A bin whose cells are all NaN, or below -3.4e38 (also in float64), is -3.4e38 with argmax -1.

    Parameters
    ----------
    input, boxes, output_size, spatial_scale
        As in :func:`roi_align`.
    return_argmax : bool
        Also return the argmax (``y * W + x``, -1 for none), which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); the argmax is int32.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> torchvision.roi_pool(input, [[0, 3, 3, 1, 1]], 2)
    array([[[[19., 19.],
             [19., 19.]]]], dtype=float32)
    """
    with Call(FORM, input=input, boxes=boxes) as call:
        placed = Definition("roi_pool", check.real_number("spatial_scale", spatial_scale))
        pooling = call.request(placed, output_size, rules=conventions.CELLS_FROM_LOWEST_FLOAT32)
        want_argmax = check.flag("return_argmax", return_argmax)
        return call.maxima(pooling, return_argmax=want_argmax)


@for_every_array
def roi_pool_backward(
    grad_output: ArrayT, argmax: ArrayT, boxes: Any, input_shape: Sequence[int]
) -> ArrayT:
    """Return the gradient of :func:`roi_pool` with respect to `input`."""
    with Call(FORM, grad_output=grad_output, argmax=argmax, boxes=boxes) as call:
        checked = call.checked_backward(
            Definition("roi_pool"), input_shape, rules=conventions.CELLS_FROM_LOWEST_FLOAT32
        )
        gradient, regions, pooling, shape = checked
        return call.maximum_backward(gradient, argmax, regions, pooling, shape)


@dataclass(eq=False, repr=False)
class RoIAlign(Layer):
    """``torchvision.ops.RoIAlign``: :func:`roi_align` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float
    sampling_ratio: int
    aligned: bool = False

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        return roi_align(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned
        )

    if TYPE_CHECKING:
        __call__ = forward

    def backward(self, grad_output: ArrayT, rois: Any, input_shape: Sequence[int]) -> ArrayT:
        """Return the gradient with respect to `input`."""
        return roi_align_backward(
            grad_output, rois, input_shape, self.spatial_scale, self.sampling_ratio, self.aligned
        )


@dataclass(eq=False, repr=False)
class RoIPool(Layer):
    """``torchvision.ops.RoIPool``: :func:`roi_pool` with fixed options."""

    output_size: int | Sequence[int]
    spatial_scale: float

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`."""
        pooled = roi_pool(input, rois, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward


def _heights(names: Iterable[str], shapes: Sequence[Shape4]) -> dict[str, int]:
    return {name: shape[2] for name, shape in zip(names, shapes, strict=True)}


def _on_levels(regions: Regions, scales: Sequence[float], canonical: tuple[float, int]) -> Regions:
    """Return boxes with the index of each box's map."""
    boxes = regions.boxes
    if len(scales) == 1:  # a single map, for boxes of any size
        return regions._replace(
            levels=conventions.library_of(boxes).xp().zeros(boxes.shape[0], np.int64)
        )
    with np.errstate(invalid="ignore", over="ignore"):
        width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    first, *_, last = (-round(math.log2(scale)) for scale in scales)
    levels = conventions.level_by_logarithm(
        width, height, (first, last), canonical, add_to_level=1e-6
    )
    return regions._replace(levels=levels)


@for_every_array
def _multi_scale_roi_align(
    x: Mapping[str, ArrayT],
    boxes: Sequence[Any],
    image_shapes: Sequence[tuple[int, int]],
    featmap_names: Sequence[str],
    output_size: tuple[int, int],
    sampling_ratio: int,
    canonical_scale: float,
    canonical_level: int,
    scales: list[float] | None,
) -> ArrayT:
    """Return what :class:`MultiScaleRoIAlign` with these options returns."""
    named = conventions.maps_of_names("x", x, featmap_names)
    with Call(FORM, x=list(named.values()), boxes=boxes) as call:
        maps = check.pyramid("x", named)
        heights = _heights(named, [one.shape for one in maps])
        scales = conventions.scales_of_first_call(scales, "x", heights, image_shapes)
        definition = _align(scales[0], sampling_ratio, False)
        pooling = Pooling(definition, output_size, scales=tuple(scales))
        regions = call.regions(maps[0].shape[0], check.dtype_of(maps[0]))
        regions = _on_levels(regions, scales, (canonical_scale, canonical_level))
        return call.average(maps, regions, pooling)


@for_every_array
def _multi_scale_roi_align_backward(
    grad_output: ArrayT,
    input_shapes: Mapping[str, Sequence[int]],
    boxes: Sequence[Any],
    image_shapes: Sequence[tuple[int, int]],
    featmap_names: Sequence[str],
    output_size: tuple[int, int],
    sampling_ratio: int,
    canonical_scale: float,
    canonical_level: int,
    scales: list[float] | None,
) -> dict[str, ArrayT]:
    """Return the gradients of :func:`_multi_scale_roi_align` with respect to the maps."""
    name = "input_shapes"
    named = conventions.maps_of_names(name, input_shapes, featmap_names)
    shapes = check.pyramid_shapes(name, named)
    with Call(FORM, grad_output=grad_output, boxes=boxes) as call:
        heights = _heights(named, shapes)
        scales = conventions.scales_of_first_call(scales, name, heights, image_shapes)
        definition = _align(scales[0], sampling_ratio, False)
        pooling = Pooling(definition, output_size, scales=tuple(scales))
        gradient, regions, _ = call.checked_gradient(name, shapes[0], definition)
        conventions.check_bins("grad_output", gradient, output_size)
        regions = _on_levels(regions, scales, (canonical_scale, canonical_level))
        found = call.average_backward_of_maps(gradient, regions, pooling, shapes)
        return dict(
            zip((each for each in input_shapes if each in featmap_names), found, strict=True)
        )


class MultiScaleRoIAlign(Layer):
    """``torchvision.ops.MultiScaleRoIAlign``: pools each box from a map chosen by its size.

    All maps are pooled in one call. As in the original, scales are computed at the first call: the
    powers of two nearest to the maps' heights over the largest image's height; a warning says where
    those of their widths are others. They are in the attribute `scales`, which may be set instead.

    Parameters
    ----------
    featmap_names : sequence of str
        Names of the maps to pool.
    output_size : int or (int, int)
        Bins: rows and columns.
    sampling_ratio : int
        Samples per bin and axis; 0 or less is adaptive.
    canonical_scale : float
        Side in image pixels of a box that is pooled from `canonical_level`.
    canonical_level : int
        The level of such a box; level k has 2**-k map cells per image pixel.

    Notes
    -----
    With several maps, boxes with a negative area or NaN pool to 0; in the original their level
    comes from an undefined conversion. As in the original, levels are logarithms in the boxes' type
    plus 1e-6.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> maps = {"fine": np.zeros((1, 1, 64, 64)), "coarse": np.ones((1, 1, 32, 32))}
    >>> pooler = torchvision.MultiScaleRoIAlign(["fine", "coarse"], 1, 2)
    >>> boxes = [np.array([[0.0, 0, 50, 50], [0, 0, 250, 250]])]
    >>> pooler(maps, boxes, [(512, 512)]).ravel()
    array([0., 1.])
    """

    def __init__(
        self,
        featmap_names: Sequence[str],
        output_size: int | Sequence[int],
        sampling_ratio: int,
        *,
        canonical_scale: float = 224,
        canonical_level: int = 4,
    ) -> None:
        self.featmap_names: list[str] = conventions.names_of_maps(featmap_names)
        self.output_size: tuple[int, int] = check.size_pair("output_size", output_size)
        self.sampling_ratio = sampling_ratio
        self.canonical_scale: float = _levels.size_of_level("canonical_scale", canonical_scale)
        self.canonical_level: int = _levels.level("canonical_level", canonical_level)
        self.scales: list[float] | None = None

    def forward(
        self, x: Mapping[str, ArrayT], boxes: Sequence[Any], image_shapes: Sequence[tuple[int, int]]
    ) -> ArrayT:
        """Pool boxes from a pyramid.

        Parameters
        ----------
        x : mapping of str to ndarray
            Maps, shape (N, C, H, W) each, the finest first.
        boxes : sequence of ndarray
            For each image, shape (L, 4): x1, y1, x2, y2 in image pixels.
        image_shapes : sequence of (int, int)
            Height and width of each image, in pixels.

        Returns
        -------
        ndarray
            Shape (K, C, rows, columns), in the order of the boxes.
        """
        pooled = _multi_scale_roi_align(x, boxes, image_shapes, *self._options())
        self._keep_scales(x, image_shapes)
        return pooled

    if TYPE_CHECKING:
        __call__ = forward

    def backward(
        self,
        grad_output: ArrayT,
        input_shapes: Mapping[str, Sequence[int]],
        boxes: Sequence[Any],
        image_shapes: Sequence[tuple[int, int]],
    ) -> dict[str, ArrayT]:
        """Return the gradients with respect to the maps, by name.

        Parameters
        ----------
        grad_output : ndarray
            Shape (K, C, rows, columns).
        input_shapes : mapping of str to sequence of int
            (N, C, H, W) of each map, in the order of the maps.
        boxes, image_shapes
            As in `forward`.

        Returns
        -------
        dict of str to ndarray
            Gradients with the shapes of the pooled maps.
        """
        options = self._options()
        found = _multi_scale_roi_align_backward(
            grad_output, input_shapes, boxes, image_shapes, *options
        )
        self._keep_scales(input_shapes, image_shapes)
        return found

    def _options(self) -> tuple[Any, ...]:
        own = self.featmap_names, self.output_size, self.sampling_ratio
        return *own, self.canonical_scale, self.canonical_level, self.scales

    def _keep_scales(self, maps: Any, image_shapes: Sequence[tuple[int, int]]) -> None:
        """Keep the scales of the first call, unless torch.fx records it; arguments are checked."""
        if self.scales is None and not is_recorded(maps):
            named = conventions.maps_of_names("x", maps, self.featmap_names)
            shapes = {name: getattr(one, "shape", one) for name, one in named.items()}
            heights = _heights(named, [*shapes.values()])
            self.scales = conventions.scales_of_first_call(None, "x", heights, image_shapes)
            if not is_compiled():
                conventions.warn_of_scales(self.scales, shapes, image_shapes)

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"featmap_names={self.featmap_names}, output_size={self.output_size}, "
            f"sampling_ratio={self.sampling_ratio}"
        )
