"""Masks pasted into the boxes of a picture, and the gradients of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool import _cpu
from roipool._arrays import Array, is_lazy
from roipool._dtypes import FLOATS
from roipool._front_ends import for_every_array
from roipool._gradients import publishes_gradient
from roipool._masks import request
from roipool._masks.request import Pasting
from roipool._pooling import Call, Result
from roipool._types import AnyArray, ArrayT, Numbers, PooledDType

Cropped = tuple[list[Any], NDArray[np.int64]]


@overload
def paste_masks(
    masks: ArrayT,
    boxes: Numbers,
    image_size: int | Sequence[int],
    *,
    threshold: float | None = ...,
    dtype: PooledDType | None = ...,
    crop: Literal[False] = ...,
    out: ArrayT | None = ...,
) -> ArrayT: ...
@overload
def paste_masks(
    masks: ArrayT,
    boxes: Numbers,
    image_size: int | Sequence[int],
    *,
    threshold: float | None = ...,
    dtype: PooledDType | None = ...,
    crop: Literal[True],
    out: None = ...,
) -> tuple[list[ArrayT], NDArray[np.int64]]: ...
@for_every_array
@publishes_gradient(when={"crop": False})
def paste_masks(
    masks: ArrayT,
    boxes: Numbers,
    image_size: int | Sequence[int],
    *,
    threshold: float | None = None,
    dtype: PooledDType | None = None,
    crop: bool = False,
    out: ArrayT | None = None,
) -> ArrayT | tuple[list[ArrayT], NDArray[np.int64]]:
    """Paste masks into the boxes of a picture, each into a picture of its own.

    Parameters
    ----------
    masks : ndarray
        Shape (K, h, w) or (K, 1, h, w); float16, bfloat16, float32, float64, uint8 or bool.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels of the picture.
    image_size : int or (int, int)
        Rows and columns of the picture.
    threshold : float, optional
        Return bool: whether a value is at least this.
    dtype : str or dtype, optional
        "uint8": values from 0 to 1 as 0 to 255, cut to whole numbers, as detectron2 cuts them;
        values of uint8 masks stay as they are. Values beyond a byte become its least or greatest,
        and NaN 0. By default the masks' dtype, float32 for uint8 and bool, or with a threshold
        bool.
    crop : bool
        Return only the pixels that masks reach, and where they lie.
    out : ndarray, optional
        Array for the result, with its shape and dtype. It is overwritten.

    Returns
    -------
    ndarray, or (list of ndarray, ndarray of int64)
        Shape (K, rows, columns), or (K, 1, rows, columns). With `crop`, an array of each mask's
        own size, (r, c) or (1, r, c), and the first row and column of each, shape (K, 2).

    Raises
    ------
    TypeError
        If a dtype cannot hold the values.

    See Also
    --------
    masks_to_rle : Run lengths instead of pictures.
    crop_masks : The opposite: masks of a picture, cut out for boxes.
    paste_masks_backward, paste_masks_backward_boxes : The gradients.
    roipool.compat.torchvision.paste_masks_in_image : With torchvision's names and numbers.
    roipool.compat.detectron2.paste_masks_in_image : With detectron2's names.

    Notes
    -----
    A pixel in column X has the bilinear value of the mask at ``(X + 0.5 - x1) / (x2 - x1) * w -
    0.5``, and so for rows. Cells outside the mask are 0 one by one, so that a mask fades out half
    of its cells beyond the box. It is the rule of detectron2 on GPUs, of mmdetection and of SAM 3:
    ``grid_sample`` with zeros outside and ``align_corners=False``. Values are computed inside the
    box alone, in float64 for float64 masks, else in float32, and are the same bits for any number
    of threads. Differences of neighbouring cells must be finite in that type.

    A box without area, or that is not finite, pastes nothing.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> masks = np.ones((1, 4, 4), np.float32)
    >>> roipool.paste_masks(masks, [[1, 1, 3, 3]], (4, 5), threshold=0.5).astype(int)
    array([[[0, 0, 0, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 0, 0, 0]]])
    >>> pieces, places = roipool.paste_masks(masks, [[1, 1, 3, 3]], (4, 5), crop=True)
    >>> pieces[0].shape, places.tolist()
    ((2, 2), [[1, 1]])
    """
    with Call(masks=masks, boxes=boxes, out=out) as call:
        cells, axes = request.masks("masks", masks)
        size = check.size_pair("image_size", image_size)
        limit = None if threshold is None else check.real_number("threshold", threshold)
        is_cropped = check.flag("crop", crop)
        kind = request.pasted_dtype(call.library, cells, dtype, limit)
        factor = request.factor_of(call.library, cells, kind)
        table = request.boxes("boxes", boxes, cells.shape[0], call.library.dtype(cells))
        pasting = Pasting(size, threshold=limit, factor=factor)
        if is_cropped:
            return _pieces(call, cells, axes, table, pasting, kind, out)
        return pasted(call, cells, axes, table, pasting, kind)


def pasted(
    call: Call,
    cells: Array,
    axes: Sequence[int],
    boxes: Array,
    pasting: Pasting,
    dtype: np.dtype[Any],
) -> Result:
    """Return pasted masks of checked arguments."""
    shape = (cells.shape[0], *axes, *pasting.size)
    check.check_elements("the result", shape)
    return call.filled("paste", shape, dtype, (cells, boxes), pasting)


def known_boxes(call: Call, boxes: Array) -> NDArray[Any]:
    """Return the values of boxes on the host."""
    if is_lazy(call.library):
        raise TypeError("masks must be known for results of their own sizes: compute them")
    return boxes if isinstance(boxes, np.ndarray) else call.library.host_copy(boxes)


def _pieces(
    call: Call,
    cells: Array,
    axes: Sequence[int],
    boxes: Array,
    pasting: Pasting,
    dtype: np.dtype[Any],
    out: Any,
) -> Cropped:
    """Return the part of each picture on which its mask has values, and where it lies."""
    if out is not None:
        raise TypeError("out must be None with crop=True: each piece has a size of its own")
    values = np.ascontiguousarray(known_boxes(call, boxes))
    windows = _cpu.paste_windows(tuple(cells.shape), values, pasting)
    pieces = []
    for mask, (top, left, bottom, right) in enumerate(windows.tolist()):
        is_empty = bottom == top or right == left
        size = (0, 0) if is_empty else (bottom - top, right - left)
        own = pasting._replace(size=size, origin=(top, left))
        one = slice(mask, mask + 1)
        pieces.append(pasted(call, cells[one], axes, boxes[one], own, dtype)[0])
    return pieces, windows[:, :2].copy()


@for_every_array
def paste_masks_backward(
    grad_output: ArrayT, boxes: Numbers, masks_shape: Sequence[int], *, out: ArrayT | None = None
) -> ArrayT:
    """Return the gradient of :func:`paste_masks` with respect to the masks.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pasted masks, shape (K, rows, columns) or (K, 1, rows, columns); float16,
        bfloat16, float32 or float64.
    masks_shape : sequence of int
        (K, h, w) or (K, 1, h, w).
    out : ndarray, optional
        Array for the gradient, of shape `masks_shape` and grad_output's dtype. It is overwritten.

    Returns
    -------
    ndarray
        Shape `masks_shape`, in grad_output's dtype; bitwise identical for any number of threads.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> grad_output = np.ones((1, 4, 4), np.float32)
    >>> roipool.paste_masks_backward(grad_output, [[0, 0, 4, 4]], (1, 2, 2))
    array([[[3.0625, 3.0625],
            [3.0625, 3.0625]]], dtype=float32)
    """
    with Call(grad_output=grad_output, boxes=boxes, out=out) as call:
        return pasted_backward(call, grad_output, boxes, masks_shape, Pasting((0, 0)))


def pasted_backward(
    call: Call, grad_output: Any, boxes: Any, masks_shape: Any, pasting: Pasting
) -> Result:
    """Return the gradient with respect to masks, pasted by any rule."""
    gradient, _ = request.masks("grad_output", grad_output, FLOATS)
    sizes = check.whole_sizes("masks_shape", masks_shape)  # once: an iterator ends
    shape = request.flat_shape("masks_shape", sizes)
    check.check_elements("masks_shape", shape)
    if shape[0] != gradient.shape[0]:
        raise ValueError(
            f"masks_shape must be of as many masks as grad_output, {gradient.shape[0]}, got {sizes}"
        )
    dtype = call.library.dtype(gradient)
    table = request.boxes("boxes", boxes, shape[0], dtype)
    own = pasting._replace(size=(gradient.shape[1], gradient.shape[2]))
    return call.filled("paste_backward", sizes, dtype, (gradient, table), own)


@for_every_array
def paste_masks_backward_boxes(grad_output: ArrayT, masks: AnyArray, boxes: Numbers) -> ArrayT:
    """Return the gradient of :func:`paste_masks` with respect to the boxes.

    Parameters
    ----------
    grad_output : ndarray
        Gradient of the pasted masks, shape (K, rows, columns) or (K, 1, rows, columns).
    masks : ndarray
        The masks, in grad_output's dtype.

    Returns
    -------
    ndarray
        Shape (K, 4): the gradient by x1, y1, x2, y2; float64 for float64 masks, else float32. A
        pixel in the middle of a cell has the slope to the next cell.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> masks, grad_output = np.ones((1, 2, 2)), np.ones((1, 4, 4))
    >>> roipool.paste_masks_backward_boxes(grad_output, masks, [[1.0, 1.0, 3.0, 3.0]])
    array([[-2., -2.,  2.,  2.]])
    """
    with Call(grad_output=grad_output, masks=masks, boxes=boxes) as call:
        gradient, axes = request.masks("grad_output", grad_output, FLOATS)
        cells, others = request.masks("masks", masks, FLOATS)
        check.same_dtype("grad_output", gradient, "masks", cells)
        if (gradient.shape[0], axes) != (cells.shape[0], others):
            raise ValueError(
                f"grad_output must be of as many masks as masks, {tuple(cells.shape)}, got "
                f"{tuple(gradient.shape)}"
            )
        table = request.boxes("boxes", boxes, cells.shape[0], call.library.dtype(cells))
        pasting = Pasting((gradient.shape[1], gradient.shape[2]))
        kind = check.dtype_of(table)
        arrays = gradient, cells, table
        return call.filled("paste_backward_boxes", tuple(table.shape), kind, arrays, pasting)
