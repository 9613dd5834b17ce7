"""RoIAlign.pytorch (longcw): TensorFlow's crop_and_resize in NCHW, and ROI align built on it.

A box index outside the batch aborts the process in the original; here it is a ValueError. Unlike in
:func:`roipool.crop_and_resize`, rounding can move the last row or column of a box that ends at 0 or
1 outside the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import Array
from roipool._front_ends import for_every_array
from roipool._pooling import Call
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._conventions import TENSORFLOW_CROPS
from roipool.compat._layers import Layer

FORM = _boxes.CROPS._replace(
    indices="box_ind",
    size="crop_height and crop_width",
    features="image",
    grad_output="grad_outputs",
    input_shape="image_size",
)
_CROP = TENSORFLOW_CROPS["bilinear"]


@for_every_array
def crop_and_resize(
    image: ArrayT,
    boxes: ArrayLike,
    box_ind: ArrayLike,
    crop_height: int,
    crop_width: int,
    extrapolation_value: float = 0,
) -> ArrayT:
    """Crop and resize like ``CropAndResizeFunction``.

    Parameters
    ----------
    image : ndarray
        Shape (N, C, H, W).
    boxes : array_like
        Shape (K, 4), rows y1, x1, y2, x2 as fractions of the image.
    box_ind : array_like of int
        Shape (K,): the image of each box.
    crop_height, crop_width : int
        Size of the crops.
    extrapolation_value : float
        Value outside the image.

    Returns
    -------
    ndarray
        Shape (K, C, crop_height, crop_width).

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import roialign_pytorch
    >>> image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> roialign_pytorch.crop_and_resize(image, [[0, 0, 1, 1]], [0], 2, 2)
    array([[[[0., 2.],
             [6., 8.]]]], dtype=float32)
    """
    with Call(FORM, image=image, boxes=boxes, box_ind=box_ind) as call:
        filling = check.any_float("extrapolation_value", extrapolation_value)
        return call.averages(call.request(_CROP, (crop_height, crop_width), empty_value=filling))


@for_every_array
def crop_and_resize_backward(
    grad_outputs: ArrayT, boxes: ArrayLike, box_ind: ArrayLike, image_size: Sequence[int]
) -> ArrayT:
    """Return the gradient of :func:`crop_and_resize` with respect to the image.

    Parameters
    ----------
    grad_outputs : ndarray
        Shape (K, C, crop_height, crop_width).
    image_size : sequence of int
        (N, C, H, W).
    """
    with Call(FORM, grad_outputs=grad_outputs, boxes=boxes, box_ind=box_ind) as call:
        return call.average_backward(*call.checked_backward(_CROP, image_size))


@dataclass(eq=False, repr=False)
class CropAndResize(Layer):
    """``CropAndResize(crop_height, crop_width, extrapolation_value=0)``; boxes are normalised."""

    crop_height: int
    crop_width: int
    extrapolation_value: float = 0

    def forward(self, image: ArrayT, boxes: ArrayLike, box_ind: ArrayLike) -> ArrayT:
        """Crop `boxes` from `image`."""
        return crop_and_resize(
            image, boxes, box_ind, self.crop_height, self.crop_width, self.extrapolation_value
        )

    if TYPE_CHECKING:
        __call__ = forward

    def backward(
        self,
        grad_outputs: ArrayT,
        boxes: ArrayLike,
        box_ind: ArrayLike,
        image_size: Sequence[int],
    ) -> ArrayT:
        """Return the gradient with respect to `image`."""
        return crop_and_resize_backward(grad_outputs, boxes, box_ind, image_size)


def _normalised(
    boxes: Any,
    bins: tuple[int, int],
    sizes: tuple[int, int],
    transform_fpcoor: bool,
    dtype: np.dtype[Any],
) -> Array:
    """Return y1, x1, y2, x2 as fractions of maps of such sizes, in the original's order."""
    table = _boxes.coordinates(check.number_array("boxes", boxes), dtype)
    if 0 in table.shape:
        return table.reshape(0, 4)
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"boxes must have shape (K, 4): x1, y1, x2, y2; got {tuple(table.shape)}")
    real = conventions.scalar_of(table)
    (y1, y2), (x1, x2) = (
        _ends(table[:, first], table[:, first + 2], cells, size, transform_fpcoor, real)
        for first, cells, size in zip((1, 0), bins, sizes, strict=True)
    )
    return conventions.library_of(table).xp().stack([y1, x1, y2, x2], axis=1)


def _ends(low: Array, high: Array, cells: int, size: int, transform: bool, real: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if not transform:
            return low / (size - 1), high / (size - 1)
        spacing = (high - low) / real(cells)
        first = (low + spacing / real(2) - real(0.5)) / (size - 1)
        return first, first + spacing * real(cells - 1) / (size - 1)


@for_every_array
def _roi_align(
    featuremap: ArrayT,
    boxes: ArrayLike,
    box_ind: ArrayLike,
    crop_height: int,
    crop_width: int,
    extrapolation_value: float,
    transform_fpcoor: bool,
) -> ArrayT:
    """Return what the layer :class:`RoIAlign` with these options returns."""
    with Call(featuremap=featuremap, boxes=boxes, box_ind=box_ind):
        maps = check.float_array("featuremap", featuremap, layout="NCHW")
        bins, sizes = (crop_height, crop_width), (maps.shape[2], maps.shape[3])
        normalised = _normalised(boxes, bins, sizes, transform_fpcoor, check.dtype_of(maps))
        return crop_and_resize(maps, normalised, box_ind, *bins, extrapolation_value)


@for_every_array
def _roi_align_backward(
    grad_outputs: ArrayT,
    boxes: ArrayLike,
    box_ind: ArrayLike,
    featuremap_size: Sequence[int],
    crop_height: int,
    crop_width: int,
    transform_fpcoor: bool,
) -> ArrayT:
    """Return the gradient of :func:`_roi_align` with respect to the maps."""
    with Call(grad_outputs=grad_outputs, boxes=boxes, box_ind=box_ind):
        gradient = check.float_array("grad_outputs", grad_outputs)
        shape = check.map_shape("featuremap_size", featuremap_size)
        bins, sizes = (crop_height, crop_width), (shape[2], shape[3])
        normalised = _normalised(boxes, bins, sizes, transform_fpcoor, check.dtype_of(gradient))
        conventions.check_bins("grad_outputs", gradient, bins, "crop_height, crop_width")
        return crop_and_resize_backward(gradient, normalised, box_ind, shape)


class RoIAlign(Layer):
    """``RoIAlign(crop_height, crop_width, extrapolation_value=0, transform_fpcoor=True)``.

    Boxes are x1, y1, x2, y2 in map cells. With `transform_fpcoor` each output cell is one sample at
    its bin's centre, with cell centres at half-integer coordinates; without it the coordinates are
    divided by the map's size minus one. On a map one cell wide or high, for which the original
    divides by 0, the result is `extrapolation_value`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import roialign_pytorch
    >>> featuremap = np.arange(49, dtype=np.float32).reshape(1, 1, 7, 7)
    >>> roialign_pytorch.RoIAlign(2, 2)(featuremap, [[1, 0, 5, 4]], [0]).round(4)
    array([[[[ 5.,  7.],
             [19., 21.]]]], dtype=float32)
    """

    def __init__(
        self,
        crop_height: int,
        crop_width: int,
        extrapolation_value: float = 0,
        transform_fpcoor: bool = True,
    ) -> None:
        self.crop_height: int
        self.crop_width: int
        self.crop_height, self.crop_width = check.size_pair(FORM.size, (crop_height, crop_width))
        self.extrapolation_value: float = check.any_float(
            "extrapolation_value", extrapolation_value
        )
        self.transform_fpcoor: bool = check.flag("transform_fpcoor", transform_fpcoor)

    def forward(self, featuremap: ArrayT, boxes: ArrayLike, box_ind: ArrayLike) -> ArrayT:
        """Pool `boxes` from `featuremap`."""
        bins = self.crop_height, self.crop_width
        options = self.extrapolation_value, self.transform_fpcoor
        return _roi_align(featuremap, boxes, box_ind, *bins, *options)

    if TYPE_CHECKING:
        __call__ = forward

    def backward(
        self,
        grad_outputs: ArrayT,
        boxes: ArrayLike,
        box_ind: ArrayLike,
        featuremap_size: Sequence[int],
    ) -> ArrayT:
        """Return the gradient with respect to `featuremap`, of shape `featuremap_size`."""
        options = self.crop_height, self.crop_width, self.transform_fpcoor
        return _roi_align_backward(grad_outputs, boxes, box_ind, featuremap_size, *options)
