"""torchvision's ``roi_align`` and ``roi_pool`` (torchvision/ops), as its CPU kernels compute them.

Beyond the original: NaN and infinite boxes, which crash or leak memory there, pool to 0; a sample
outside the map is 0 even where the plane's first cell is NaN. float16 maps are computed with
float32 coordinates; torchvision's CPU kernel rounds those to float16 too, unlike under autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Array, Regions
from roipool._arrays import joined, values_of
from roipool._geometry import Geometry
from roipool._layout import real_type
from roipool.compat import _steps as steps


def _boxes(boxes: Any, images: int, dtype: np.dtype[Any]) -> Regions:
    """Take (K, 5) boxes, or a list of (L, 4), one for each of the first images."""
    if isinstance(boxes, (list, tuple)) and any(check.rank(item) == 2 for item in boxes):
        return _boxes_per_image(boxes, images, dtype)
    table = check.number_array("boxes", boxes)
    known = values_of(table)
    if known is not None and known.ndim == 2 and known.shape[1] == 5 and (known[:, 0] < 0).any():
        row = int(np.flatnonzero(known[:, 0] < 0)[0])
        raise ValueError(f"boxes[{row}, 0] is {known[row, 0]}, but it must not be negative")
    return steps.numbered_boxes("boxes", table, images, dtype)


def _boxes_per_image(boxes: Sequence[Any], images: int, dtype: np.dtype[Any]) -> Regions:
    parts = [check.number_array(f"boxes[{image}]", item) for image, item in enumerate(boxes)]
    for image, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1] != 4:
            raise ValueError(f"boxes[{image}] must have shape (L, 4), got {part.shape}")
        if image >= images and len(part) > 0:
            raise ValueError(f"boxes[{image}] holds boxes, but the batch holds {images} images")
    real = real_type(dtype)
    return Regions(*joined([check.coordinates(part, dtype) for part in parts], 4, real))


def _align(spatial_scale: float, sampling_ratio: int, aligned: bool) -> Geometry:
    return steps.align_geometry(
        check.real_number("spatial_scale", spatial_scale), sampling_ratio, aligned
    )


@steps.arrays("input", "boxes")
def roi_align(
    input: Array,
    boxes: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Array:
    """Average ROI align as ``torchvision.ops.roi_align``.

    Parameters
    ----------
    input : ndarray
        Maps, shape (N, C, H, W).
    boxes : array_like or sequence of array_like
        Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels; or a
        list of (L, 4), one for each image.
    output_size : int or (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel.
    sampling_ratio : int
        Samples per bin and axis; 0 or less is adaptive.
    aligned : bool
        Shift by half a cell.

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
    >>> from roipool.compat import torchvision
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> torchvision.roi_align(input, [[0, 1, 1, 3, 3]], 2, sampling_ratio=2)
    array([[[[10., 11.],
             [15., 16.]]]], dtype=float32)
    """
    maps = check.features("input", input, "NCHW")
    regions = _boxes(boxes, maps.shape[0], maps.dtype)
    geometry = _align(spatial_scale, sampling_ratio, aligned)
    return steps.pool_average(maps, regions, geometry, check.size_pair("output_size", output_size))


@steps.arrays("grad_output", "boxes")
def roi_align_backward(
    grad_output: Array,
    boxes: Any,
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Array:
    """Return the gradient of :func:`roi_align` with respect to `input`, shape `input_shape`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns).
    boxes, spatial_scale, sampling_ratio, aligned
        As in the forward.
    input_shape : sequence of int
        (N, C, H, W).

    Returns
    -------
    ndarray
        The gradient, in grad_output's dtype.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("grad_output", grad_output)
    shape = check.map_shape("input_shape", input_shape, "NCHW")
    regions = _boxes(boxes, shape[0], gradient.dtype)
    return steps.spread_average(
        gradient, regions, _align(spatial_scale, sampling_ratio, aligned), shape
    )


@steps.arrays("input", "boxes")
def roi_pool(
    input: Array,
    boxes: Any,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> Array | tuple[Array, Array]:
    """Max ROI pooling as ``torchvision.ops.roi_pool``.

    A bin whose cells are all NaN, or below -3.4e38 (in float64 too), gives -3.4e38 and argmax -1.

    Parameters
    ----------
    input, boxes, output_size, spatial_scale
        As in :func:`roi_align`.
    return_argmax : bool
        Also return the winners (``y * W + x``, -1 for none), which the backward needs.

    Returns
    -------
    ndarray or (ndarray, ndarray)
        Shape (K, C, rows, columns); the winners are int32.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import torchvision
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> torchvision.roi_pool(input, [[0, 3, 3, 1, 1]], 2)
    array([[[[19., 19.],
             [19., 19.]]]], dtype=float32)
    """
    maps = check.features("input", input, "NCHW")
    regions = _boxes(boxes, maps.shape[0], maps.dtype)
    geometry = Geometry("roi_pool", check.real_number("spatial_scale", spatial_scale))
    size = check.size_pair("output_size", output_size)
    pooled, argmax = steps.pool_maximum(maps, regions, geometry, size, winner_is_cell=True)
    return (pooled, argmax) if check.flag("return_argmax", return_argmax) else pooled


@steps.arrays("grad_output", "argmax", "boxes")
def roi_pool_backward(
    grad_output: Array, argmax: Array, boxes: Any, input_shape: Sequence[int]
) -> Array:
    """Return the gradient of :func:`roi_pool` with respect to `input`.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, C, rows, columns).
    argmax : ndarray of int
        The winners from the forward.
    boxes : array_like
        As in the forward.
    input_shape : sequence of int
        (N, C, H, W).

    Returns
    -------
    ndarray
        Shape `input_shape`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    gradient = check.float_array("grad_output", grad_output)
    shape = check.map_shape("input_shape", input_shape, "NCHW")
    regions = _boxes(boxes, shape[0], gradient.dtype)
    return steps.spread_maximum(gradient, argmax, regions, None, shape, winner_is_cell=True)


class RoIAlign:
    """``torchvision.ops.RoIAlign``: :func:`roi_align` with its options kept."""

    def __init__(
        self,
        output_size: int | Sequence[int],
        spatial_scale: float,
        sampling_ratio: int,
        aligned: bool = False,
    ) -> None:
        self.output_size = output_size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned

    def forward(self, input: Array, rois: Any) -> Array:
        """Pool `rois` from `input`."""
        return roi_align(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned
        )

    __call__ = forward

    def backward(self, grad_output: Array, rois: Any, input_shape: Sequence[int]) -> Array:
        """Return the gradient with respect to `input`."""
        return roi_align_backward(
            grad_output, rois, input_shape, self.spatial_scale, self.sampling_ratio, self.aligned
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_size={self.output_size}, "
            f"spatial_scale={self.spatial_scale}, sampling_ratio={self.sampling_ratio}, "
            f"aligned={self.aligned})"
        )


class RoIPool:
    """``torchvision.ops.RoIPool``: :func:`roi_pool` with its options kept."""

    def __init__(self, output_size: int | Sequence[int], spatial_scale: float) -> None:
        self.output_size = output_size
        self.spatial_scale = spatial_scale

    def forward(self, input: Array, rois: Any) -> Array:
        """Pool `rois` from `input`."""
        pooled = roi_pool(input, rois, self.output_size, self.spatial_scale)
        assert not isinstance(pooled, tuple)
        return pooled

    __call__ = forward

    def __repr__(self) -> str:
        return f"RoIPool(output_size={self.output_size}, spatial_scale={self.spatial_scale})"
