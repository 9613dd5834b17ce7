"""Pasted masks as COCO's run lengths, without pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, overload

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool import _cpu
from roipool._arrays import is_lazy
from roipool._front_ends import for_every_array
from roipool._masks import request
from roipool._masks.request import Pasting
from roipool._pooling import Call
from roipool._types import AnyArray, Numbers


class RunLengths(TypedDict):
    """A mask in the format of ``pycocotools``: rows and columns, and compressed run lengths."""

    size: list[int]
    counts: bytes


@overload
def masks_to_rle(
    masks: AnyArray,
    boxes: Numbers,
    image_size: int | Sequence[int],
    threshold: float = ...,
    *,
    areas: Literal[False] = ...,
) -> list[RunLengths]: ...
@overload
def masks_to_rle(
    masks: AnyArray,
    boxes: Numbers,
    image_size: int | Sequence[int],
    threshold: float = ...,
    *,
    areas: Literal[True],
) -> tuple[list[RunLengths], NDArray[np.int64]]: ...
@for_every_array
def masks_to_rle(
    masks: AnyArray,
    boxes: Numbers,
    image_size: int | Sequence[int],
    threshold: float = 0.5,
    *,
    areas: bool = False,
) -> list[RunLengths] | tuple[list[RunLengths], NDArray[np.int64]]:
    """Return masks in the boxes of a picture as COCO's run lengths.

    The result is that of encoding ``paste_masks(masks, boxes, image_size, threshold=threshold)``,
    bit for bit, but no array of the picture's size is made.

    Parameters
    ----------
    masks : ndarray
        Shape (K, h, w) or (K, 1, h, w); float16, bfloat16, float32, float64, uint8 or bool.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels of the picture.
    image_size : int or (int, int)
        Rows and columns of the picture.
    threshold : float
        Pixels with at least this value are set.
    areas : bool
        Also return the number of pixels of each mask.

    Returns
    -------
    list of dict, or (list of dict, ndarray of int64)
        For each mask ``{"size": [rows, columns], "counts": bytes}``, as ``pycocotools.mask.encode``
        returns it; and the areas, shape (K,).

    Raises
    ------
    TypeError
        If values are not yet known: Dask arrays, and arrays in a program that JAX compiles.

    See Also
    --------
    paste_masks

    Notes
    -----
    Masks on a GPU are encoded on the host, because they are small compared with pictures.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> masks = np.ones((1, 2, 2), np.float32)
    >>> roipool.masks_to_rle(masks, [[1, 1, 3, 3]], (4, 5), areas=True)
    ([{'size': [4, 5], 'counts': b'52207'}], array([4]))
    """
    with Call(masks=masks, boxes=boxes) as call:
        if is_lazy(call.library):
            raise TypeError("masks must be known, got a Dask array: compute them")
        cells, _ = request.masks("masks", masks)
        size = check.size_pair("image_size", image_size)
        limit = check.real_number("threshold", threshold)
        wants_areas = check.flag("areas", areas)
        table = request.boxes("boxes", boxes, cells.shape[0], call.library.dtype(cells))
        cells, table = (
            np.ascontiguousarray(call.library.host_copy(each)) for each in (cells, table)
        )
    counts, found = _cpu.run_lengths(cells, table, Pasting(size, threshold=limit))
    lengths: list[Any] = [{"size": list(size), "counts": each} for each in counts]
    return (lengths, found) if wants_areas else lengths
