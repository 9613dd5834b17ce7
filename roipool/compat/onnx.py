"""ONNX's ``RoiAlign`` (opsets 10 and 16) and ``MaxRoiPool``, as ONNX Runtime computes them.

ONNX has no gradients for these; those given here are the derivatives of the forward. RoiAlign's
maximum ignores NaN cells; ONNX Runtime does too, unless the bin's very first corner is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Array, Regions
from roipool._geometry import Geometry
from roipool._layout import height_width, real_type
from roipool.compat import _steps as steps

_COORDINATES = ("half_pixel", "output_half_pixel")


def _boxes(rois: Any, batch_indices: Any, images: int, dtype: np.dtype[Any]) -> Regions:
    regions = check.regions(check.number_array("rois", rois), batch_indices, images, dtype)
    steps.check_finite("rois", regions.boxes)
    return regions


def _align(
    mode: str, sampling_ratio: int, spatial_scale: float, coordinate_transformation_mode: str
) -> Geometry:
    coordinates = check.choice(
        "coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES
    )
    definition = {"avg": "roi_align", "max": "onnx_roi_align_max"}
    return Geometry(
        definition[check.choice("mode", mode, tuple(definition))],
        steps.single("spatial_scale", spatial_scale),
        check.sampling_pair(sampling_ratio),
        coordinates == "half_pixel",
    )


@steps.arrays("X", "rois", "batch_indices")
def RoiAlign(  # noqa: N802 - ONNX's name
    X: Array,  # noqa: N803
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """ROI align as the ONNX operator.

    Parameters
    ----------
    X : ndarray
        Maps, shape (N, C, H, W).
    rois : array_like
        Shape (K, 4): x1, y1, x2, y2 in image pixels; finite.
    batch_indices : array_like of int
        Shape (K,): the image of each box.
    coordinate_transformation_mode : {"half_pixel", "output_half_pixel"}
        "half_pixel" shifts by half a cell: the default since opset 16. Opset 10 has no such
        attribute and computes "output_half_pixel".
    mode : {"avg", "max"}
        "max" is the operator's own: the greatest of all samples' four weighted corners, each
        weight times its cell, rather than the greatest interpolated sample.
    output_height, output_width : int
        Bins: rows and columns.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive.
    spatial_scale : float
        Map cells per image pixel, kept in float32.

    Returns
    -------
    ndarray
        Shape (K, C, output_height, output_width).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    A cell whose weight in a sample is exactly 0 is not read: the next row or column of cells where
    a sample lies exactly on cell centres along that axis, or before the map's first. ONNX Runtime
    reads it times 0: where it is NaN or infinite, the average is NaN there. So it is with the
    plane's first cell, which a sample outside the map reads times 0 there.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import onnx
    >>> X = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> bins = dict(output_height=2, output_width=2, sampling_ratio=2)
    >>> onnx.RoiAlign(X, [[1, 1, 3, 3]], [0], mode="max", **bins)
    array([[[[3.9375, 4.5   ],
             [6.75  , 7.3125]]]], dtype=float32)
    """
    maps = check.features("X", X, "NCHW")
    regions = _boxes(rois, batch_indices, maps.shape[0], maps.dtype)
    geometry = _align(mode, sampling_ratio, spatial_scale, coordinate_transformation_mode)
    size = check.size_pair("output_height and output_width", (output_height, output_width))
    if mode == "avg":
        return steps.pool_average(maps, regions, geometry, size)
    return _corner_maximum(maps, regions, geometry, size, return_argmax=False)[0]


def _corner_maximum(
    maps: Array,
    regions: Regions,
    geometry: Geometry,
    size: tuple[int, int],
    *,
    return_argmax: bool = True,
) -> tuple[Array, Any]:
    return steps.pool_maximum(
        maps,
        regions,
        geometry,
        size,
        lowest=-np.inf,
        outside_is_zero=True,
        return_argmax=return_argmax,
    )


@steps.arrays("grad_output", "X", "rois", "batch_indices")
def RoiAlign_backward(  # noqa: N802
    grad_output: Array,
    X: Array,  # noqa: N803
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Return the gradient of :func:`RoiAlign` by `X`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, output_height, output_width), in X's dtype.
    X, rois, batch_indices, coordinate_transformation_mode, mode, sampling_ratio, spatial_scale
        As in the forward.

    Returns
    -------
    ndarray
        X's shape.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("grad_output", grad_output)
    maps = check.features("X", X, "NCHW")
    check.same_dtype(gradient, maps)
    regions = _boxes(rois, batch_indices, maps.shape[0], maps.dtype)
    geometry = _align(mode, sampling_ratio, spatial_scale, coordinate_transformation_mode)
    if mode == "avg":
        return steps.spread_average(gradient, regions, geometry, maps.shape)
    check.match_gradient(gradient, len(regions.boxes), maps.shape, "NCHW")
    size = height_width(gradient.shape, "NCHW")
    _, argmax = _corner_maximum(maps, regions, geometry, size)
    return steps.spread_maximum(gradient, argmax, regions, geometry, maps.shape)


@steps.arrays("X", "rois")
def MaxRoiPool(  # noqa: N802
    X: Array,  # noqa: N803
    rois: Any,
    pooled_shape: Sequence[int],
    spatial_scale: float = 1.0,
) -> Array:
    """Max ROI pooling as the ONNX operator.

    As in ONNX Runtime a NaN forgets the maximum before it and gives way to the next cell: a bin is
    the maximum of what follows its last NaN, and NaN only if that is its last cell.

    Parameters
    ----------
    X : ndarray
        Maps, shape (N, C, H, W).
    rois : array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels.
    pooled_shape : (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, above 0, kept in float32.

    Returns
    -------
    ndarray
        Shape (K, C, rows, columns).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import onnx
    >>> X = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> onnx.MaxRoiPool(X, [[0, 1, 1, 3, 3]], (2, 2))
    array([[[[13., 14.],
             [18., 19.]]]], dtype=float32)
    """
    return _max_roi_pool(X, rois, pooled_shape, spatial_scale)[0]


def _max_roi_pool(
    X: Array,  # noqa: N803
    rois: Any,
    pooled_shape: Sequence[int],
    spatial_scale: float,
) -> tuple[Array, Array]:
    maps = check.features("X", X, "NCHW")
    regions = steps.numbered_boxes("rois", rois, maps.shape[0], maps.dtype)
    scale = steps.single("spatial_scale", spatial_scale)
    if scale <= 0:
        raise ValueError(f"spatial_scale must be above 0, got {spatial_scale}")
    size = check.size_pair("pooled_shape", pooled_shape)
    geometry = Geometry("roi_pool", scale)
    lowest = float(np.finfo(real_type(maps.dtype)).min)
    return steps.pool_maximum(
        maps, regions, geometry, size, lowest=lowest, winner_is_cell=True, nan_restarts=True
    )


@steps.arrays("grad_output", "X", "rois")
def MaxRoiPool_backward(  # noqa: N802
    grad_output: Array,
    X: Array,  # noqa: N803
    rois: Any,
    spatial_scale: float = 1.0,
) -> Array:
    """Return the gradient of :func:`MaxRoiPool` by `X`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns), in X's dtype.
    X, rois, spatial_scale
        As in the forward.

    Returns
    -------
    ndarray
        X's shape.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("grad_output", grad_output)
    maps = check.features("X", X, "NCHW")
    check.same_dtype(gradient, maps)
    regions = steps.numbered_boxes("rois", rois, maps.shape[0], maps.dtype)
    check.match_gradient(gradient, len(regions.boxes), maps.shape, "NCHW")
    _, argmax = _max_roi_pool(maps, rois, gradient.shape[2:], spatial_scale)
    return steps.spread_maximum(gradient, argmax, regions, None, maps.shape, winner_is_cell=True)
