"""ROI align over the maps of a feature pyramid, each box from one of them, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array
from roipool._boxes import Regions
from roipool._dtypes import real_dtype
from roipool._errors import shown
from roipool._front_ends import by_front_end_of_sequences
from roipool._layout import Layout
from roipool._levels import USUAL_SIZE, areas_of_scales, level_areas, levels_by_area
from roipool._pooling import Call
from roipool._request import Pooling
from roipool._types import AnyArray, ArrayT, Boxes, Numbers
from roipool.ops.roi_align import definition


@overload
def assign_levels(
    rois: NDArray[Any] | Sequence[Sequence[float]],
    min_level: int,
    max_level: int,
    canonical_size: float = ...,
    canonical_level: int = ...,
) -> NDArray[np.int64]: ...
@overload
def assign_levels(
    rois: ArrayT,
    min_level: int,
    max_level: int,
    canonical_size: float = ...,
    canonical_level: int = ...,
) -> ArrayT: ...
@by_front_end_of_sequences
def assign_levels(
    rois: Numbers,
    min_level: int,
    max_level: int,
    canonical_size: float = USUAL_SIZE,
    canonical_level: int = 4,
) -> Any:
    """Choose a level of a feature pyramid for each box, by its size.

    A square box with side `canonical_size` gets `canonical_level`. A box with twice this side gets
    the next level, whose map has half the resolution. Levels are limited to those of the pyramid.

    Parameters
    ----------
    rois : array_like
        Boxes in image pixels: shape (K, 5) with rows batch index, x1, y1, x2, y2; or (K, 4) with
        rows x1, y1, x2, y2.
    min_level, max_level : int
        The first and last level of the pyramid, from -100 to 100. Level k has 2**-k map cells per
        image pixel.
    canonical_size : float
        Side of a square box on `canonical_level`, in image pixels; from 2**-100 to 2**100.
    canonical_level : int
        The level of such a box, from -100 to 100.

    Returns
    -------
    ndarray of int64
        Shape (K,): for each box, the index of the map of its level; 0 is the map of `min_level`.
        Boxes without an area, reversed boxes and boxes with NaN get 0.

    See Also
    --------
    multilevel_roi_align : The operation that uses these levels.

    Notes
    -----
    Definition: Lin et al., "Feature Pyramid Networks" (2017), equation 1,
    ``floor(canonical_level + log2(sqrt(width * height) / canonical_size))``. It is computed by
    comparing areas in float64, so a box exactly twice as long is always on the next level,
    independent of the rounding of a logarithm. torchvision and detectron2 compute the logarithm in
    float32 and add a small number: :class:`roipool.compat.torchvision.MultiScaleRoIAlign`,
    :class:`roipool.compat.detectron2.ROIPooler`.

    Examples
    --------
    >>> import roipool
    >>> roipool.assign_levels([[0, 0, 112, 112], [0, 0, 223, 224], [0, 0, 500, 500]], 2, 5)
    array([1, 1, 3])
    """
    with Call(rois=rois) as call:
        table = _boxes.box_table("rois", rois, (5, 4))
        areas = level_areas(min_level, max_level, canonical_size, canonical_level)
        return _levels_of(call, table[:, -4:], areas)


def _levels_of(call: Call, corners: Array, areas: Sequence[float]) -> Any:
    """Return the level of each box from its corners, and from the areas between levels."""
    if not isinstance(corners, np.ndarray):  # on a GPU: in one launch, rather than a dozen
        dtype = call.library.dtype(corners)
        real = check.FLOAT64 if dtype.kind in "iu" else real_dtype(dtype)
        computing: Any = call.engine if call.verbs is None else call.verbs
        return computing.assign_levels(call.library.table(corners, real), areas)
    with np.errstate(over="ignore", invalid="ignore"):
        none = np.zeros(len(corners), np.int64)
        return levels_by_area(corners.astype(np.float64), none, areas)


@by_front_end_of_sequences
def multilevel_roi_align(
    features: Sequence[ArrayT],
    rois: Boxes,
    output_size: int | Sequence[int],
    spatial_scales: Sequence[float | Sequence[float]],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Numbers | None = None,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
    out: ArrayT | None = None,
) -> ArrayT:
    """Pool each box from one map of a feature pyramid by the average of :func:`roi_align`.

    All boxes are pooled in one call, and the results are in the order of the boxes.

    Parameters
    ----------
    features : sequence of ndarray
        The maps of the pyramid, arrays of NumPy, CuPy, PyTorch, JAX or Dask: each of shape
        (N, C, H, W) or, with ``layout="NHWC"``, (N, H, W, C), with different H and W; float16,
        bfloat16, float32 or float64.
    spatial_scales : sequence of float or of pairs
        Map cells per image pixel, for each map, for example (1/4, 1/8, 1/16, 1/32); a pair has the
        scales of (rows, columns).
    sampling_ratio : int or pair of int
        Samples per bin, (vertical, horizontal), up to 32768; 0 is adaptive: as many as the bin is
        long in map cells, rounded up.
    levels : array_like of int, optional
        Shape (K,): the index in `features` of the map of each box. By default
        ``assign_levels(rois, first, last)``, where ``spatial_scales[0]`` is ``2**-first``, with
        boxes in float64 for float64 maps, otherwise in float32. Levels are then from -100 to 100,
        and the scales must be powers of two, each half of the previous one, without pairs.
    aligned : bool
        Shift boxes by half a cell.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns), or (K, rows, columns, C) for NHWC, in the order of the boxes
        and the features' dtype. On a GPU, levels are not checked, and a box with an invalid level
        pools 0.

    See Also
    --------
    assign_levels : The level of each box.
    multilevel_roi_align_backward, multilevel_roi_align_backward_rois : The gradients.
    roi_align : ROI align on one map.
    roipool.compat.torchvision.MultiScaleRoIAlign : torchvision's pooler.
    roipool.compat.detectron2.ROIPooler : detectron2's pooler.

    Notes
    -----
    The results are bitwise those of :func:`roi_align` for the boxes of each level. Definition: Lin
    et al., "Feature Pyramid Networks" (2017), with :func:`roi_align` instead of ROI pooling.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> fine, coarse = np.ones((1, 1, 64, 64), np.float32), np.full((1, 1, 32, 32), 2, np.float32)
    >>> rois = [[0, 0, 0, 300, 300], [0, 0, 0, 50, 50]]
    >>> roipool.multilevel_roi_align([fine, coarse], rois, 1, (1 / 8, 1 / 16), 2).ravel()
    array([2., 1.], dtype=float32)
    """
    with Call(
        features=check.sequence("features", features),
        rois=rois,
        batch_indices=batch_indices,
        levels=levels,
        out=out,
    ) as call:
        layout = check.layout(layout)
        maps = check.pyramid("features", check.numbered("features", features), layout)
        scales, pairs = _scales(len(maps), spatial_scales)
        placed = definition(scales[0], sampling_ratio, aligned)
        size = check.size_pair("output_size", output_size)
        regions = call.regions(maps[0].shape[0], call.library.dtype(maps[0]))
        regions = _on_levels(call, regions, levels, scales, pairs)
        pooling = Pooling(placed, size, layout, scales=scales)
        return call.average(maps, regions, pooling)


@by_front_end_of_sequences
def multilevel_roi_align_backward(
    grad_output: ArrayT,
    rois: Boxes,
    input_shapes: Sequence[Sequence[int]],
    spatial_scales: Sequence[float | Sequence[float]],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Numbers | None = None,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> list[ArrayT]:
    """Return the gradients of :func:`multilevel_roi_align` with respect to the features.

    Parameters
    ----------
    input_shapes : sequence of sequence of int
        Shape of each map, in the order of `layout`.

    Returns
    -------
    list of ndarray
        One gradient for each map, with the shape of the map and grad_output's dtype.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 1, 1, 1), np.float32)
    >>> shapes = [(1, 1, 2, 2), (1, 1, 1, 1)]
    >>> roipool.multilevel_roi_align_backward(grad_output, [[0, 0, 0, 2, 2]], shapes, (1, 1 / 2))
    [array([[[[0.25, 0.25],
             [0.25, 0.25]]]], dtype=float32), array([[[[0.]]]], dtype=float32)]
    """
    with Call(
        grad_output=grad_output, rois=rois, batch_indices=batch_indices, levels=levels
    ) as call:
        layout = check.layout(layout)
        named = check.numbered("input_shapes", input_shapes)
        shapes = check.pyramid_shapes("input_shapes", named, layout)
        scales, pairs = _scales(len(shapes), spatial_scales)
        placed = definition(scales[0], sampling_ratio, aligned)
        gradient, regions, pooling = call.checked_gradient(
            "input_shapes", shapes[0], placed, layout, scales=scales
        )
        regions = _on_levels(call, regions, levels, scales, pairs)
        return call.average_backward_of_maps(gradient, regions, pooling, shapes)


@overload
def multilevel_roi_align_backward_rois(
    grad_output: NDArray[Any],
    features: Sequence[AnyArray],
    rois: Boxes,
    spatial_scales: Sequence[float | Sequence[float]],
    sampling_ratio: int | Sequence[int] = ...,
    *,
    levels: Numbers | None = ...,
    aligned: bool = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> NDArray[np.floating[Any]]: ...
@overload
def multilevel_roi_align_backward_rois(
    grad_output: ArrayT,
    features: Sequence[AnyArray],
    rois: Boxes,
    spatial_scales: Sequence[float | Sequence[float]],
    sampling_ratio: int | Sequence[int] = ...,
    *,
    levels: Numbers | None = ...,
    aligned: bool = ...,
    batch_indices: Numbers | None = ...,
    layout: Layout = ...,
) -> ArrayT: ...
@by_front_end_of_sequences
def multilevel_roi_align_backward_rois(
    grad_output: ArrayT,
    features: Sequence[AnyArray],
    rois: Boxes,
    spatial_scales: Sequence[float | Sequence[float]],
    sampling_ratio: int | Sequence[int] = 0,
    *,
    levels: Numbers | None = None,
    aligned: bool = True,
    batch_indices: Numbers | None = None,
    layout: Layout = "NCHW",
) -> ArrayT:
    """Return the gradient of :func:`multilevel_roi_align` with respect to the boxes.

    The level of a box counts as constant.

    Parameters
    ----------
    features : sequence of ndarray
        The maps, as in :func:`multilevel_roi_align`, in grad_output's dtype.

    Returns
    -------
    ndarray
        Shape (K, 4): the gradient by x1, y1, x2, y2 in image pixels; float64 for float64 maps,
        else float32.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> features = [np.tile(np.arange(5.0), (1, 1, 5, 1)), np.zeros((1, 1, 3, 3))]
    >>> grad_output, box = np.ones((1, 1, 1, 1)), [[0, 1, 1, 3, 3]]
    >>> roipool.multilevel_roi_align_backward_rois(grad_output, features, box, (1, 1 / 2))
    array([[0.5, 0. , 0.5, 0. ]])
    """
    with Call(
        grad_output=grad_output,
        features=check.sequence("features", features),
        rois=rois,
        batch_indices=batch_indices,
        levels=levels,
    ) as call:
        layout = check.layout(layout)
        maps = check.pyramid("features", check.numbered("features", features), layout)
        scales, pairs = _scales(len(maps), spatial_scales)
        placed = definition(scales[0], sampling_ratio, aligned)
        gradient, regions, pooling = call.checked_gradient(
            "features", maps[0].shape, placed, layout, scales=scales
        )
        check.same_dtype("grad_output", gradient, "features[0]", maps[0])
        regions = _on_levels(call, regions, levels, scales, pairs)
        return call.average_backward_boxes(gradient, maps, regions, pooling)


def _scales(
    maps: int, spatial_scales: Any
) -> tuple[tuple[float, ...], tuple[check.Scale, ...] | None]:
    """Return the scales of maps that engines get, and all, if rows and columns have their own."""
    scales = check.scales("spatial_scales", spatial_scales, maps, check.map_scale)
    numbers = tuple([scale for scale in scales if not isinstance(scale, tuple)])
    return (numbers, None) if len(numbers) == maps else ((1.0,) * maps, scales)


def _on_levels(
    call: Call,
    regions: Regions,
    levels: Numbers | None,
    scales: tuple[float, ...],
    pairs: tuple[check.Scale, ...] | None,
) -> Regions:
    """Return boxes with the index of each one's map, in its cells if that has a pair of scales."""
    if levels is not None:
        count = regions.boxes.shape[0]
        numbers = _boxes.levels("levels", levels, count, len(scales))
    elif pairs is not None:
        raise ValueError(
            "levels must be given where spatial_scales differ for rows and columns, for example "
            f"by assign_levels: the area of a box is no guide there, got {shown(pairs)}"
        )
    else:
        numbers = _levels_of(call, regions.boxes, areas_of_scales(scales))
    own = regions._replace(levels=numbers)
    return own if pairs is None else call.in_cells(own, pairs)
