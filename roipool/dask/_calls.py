"""Calls of public functions on Dask arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool import _arguments as check
from roipool import _boxes
from roipool._arrays import parts_of
from roipool._errors import with_name
from roipool._gradients import features_of, signature_of
from roipool.dask._library import check_call, check_known, chunk_of

Array = Any  # of Dask, which has no types
Function = Callable[..., Any]

# Functions of boxes alone, by the names of these.
BOXES = ("rois", "fpn_rois")


def chunk_order(features: Array | Sequence[Array], batch_indices: Any) -> NDArray[np.int64]:
    """Return the numbers of the boxes in the order of the chunks that hold their images.

    Results are in the order of the boxes. If those are not sorted by image, that shuffles results
    between machines; boxes in this order stay where they are computed.

    Parameters
    ----------
    features : dask.array.Array or sequence of them
        The maps; of several, the first says how images are chunked.
    batch_indices : array_like of int
        Shape (K,): the image of each box.

    Returns
    -------
    ndarray of int64
        Shape (K,): the boxes of the first chunk, then those of the next.

    Examples
    --------
    >>> import dask.array as da, numpy as np, roipool.dask
    >>> features = da.zeros((4, 1, 8, 8), chunks=(2, 1, 8, 8))
    >>> rois = np.array([[3, 0, 0, 4, 4], [0, 0, 0, 4, 4], [1, 0, 0, 4, 4], [2, 0, 0, 4, 4]])
    >>> order = roipool.dask.chunk_order(features, rois[:, 0])
    >>> order
    array([1, 2, 0, 3])
    >>> pooled = roipool.roi_align(features, rois[order], 2)
    >>> pooled.chunks[0]  # row i is that of the box order[i]
    (2, 2)
    """
    first, *_ = parts_of(features)
    check_known({"batch_indices": batch_indices})
    numbers = check.number_array("batch_indices", batch_indices)
    indices = _boxes.batch_indices("batch_indices", numbers, numbers.size, first.shape[0])
    return np.argsort(chunk_of(first, indices), kind="stable")


def call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function lazily; errors begin with its name."""
    _refuse_boxes_and_gradients(function)
    try:
        bound = _checked(function, args, kwargs)
        return function(*bound.args, **bound.kwargs)
    except (TypeError, ValueError) as error:
        raise with_name(error, function.__name__) from None


def _refuse_boxes_and_gradients(function: Function) -> None:
    """Raise TypeError for a function of boxes alone, or of gradients."""
    name, is_of_boxes = function.__name__, features_of(function) in BOXES
    if is_of_boxes or "_backward" in name:
        why = ": boxes are NumPy arrays" if is_of_boxes else ", which have no gradients"
        raise TypeError(f"{name} takes no Dask arrays{why}: compute them, or call it on each chunk")


def _checked(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments, of which only the features are Dask arrays."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    if given.get("out") is not None:
        raise TypeError("out must be None for a Dask array, which is lazy")
    features = features_of(function)
    check_known({name: value for name, value in given.items() if name != features})
    maps = given[features]
    if not isinstance(maps, Mapping):  # the function chooses among those, and names them
        check_call({features: maps})
    return bound
