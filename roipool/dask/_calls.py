"""Calls of public functions on Dask arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool import _arguments as check
from roipool._arrays import parts_of
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op
from roipool._errors import with_name
from roipool._gradients import features_of, signature_of
from roipool.dask._library import check_call, check_known, chunk_of

Array = Any  # of Dask, which has no types
Function = Callable[..., Any]

OP_OF = {op.forward: op for op in (OPS | PYRAMID_OPS | VOLUME_OPS).values()}
# Functions of boxes alone, by the names of these.
BOXES = ("rois", "fpn_rois")


def chunk_order(features: Array | Sequence[Array], batch_indices: Any) -> NDArray[np.int64]:
    """Return the numbers of the boxes in the order of results that are not put in order.

    Parameters
    ----------
    features : dask.array.Array or sequence of them
        The maps; of several, the first says how images are chunked.
    batch_indices : array_like of int
        Shape (K,): the image of each box.

    Returns
    -------
    ndarray of int64
        Shape (K,): row i of the results is that of this box.

    Examples
    --------
    >>> import dask.array as da, roipool.dask
    >>> features = da.zeros((4, 1, 8, 8), chunks=(2, 1, 8, 8))
    >>> roipool.dask.chunk_order(features, [3, 0, 1, 2])
    array([1, 2, 0, 3])
    """
    first, *_ = parts_of(features)
    check_known({"batch_indices": batch_indices})
    numbers = check.number_array("batch_indices", batch_indices)
    indices = check.batch_indices("batch_indices", numbers, numbers.size, first.shape[0])
    return np.argsort(chunk_of(first, indices), kind="stable")


def call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function lazily; errors begin with its name.

    The forwards of ``roipool`` have one more argument, `keep_order`.
    """
    _refuse_boxes_and_gradients(function)
    try:
        options = dict(kwargs)
        is_core = function.__module__.startswith("roipool.ops.")
        keep_order = check.flag("keep_order", options.pop("keep_order", True) if is_core else True)
        bound = _checked(function, args, options)
        if not keep_order:
            rows = _in_order_of_chunks(OP_OF[function.__name__], bound.arguments)
            bound.arguments.update(rows)
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


def _in_order_of_chunks(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with a row for each box, in the order of the chunks of their images."""
    maps = parts_of(given["features"])
    images, dtype = maps[0].shape[0], maps[0].dtype
    boxes, indices, _ = op.form.read(given[op.boxes], given[op.indices], images, dtype, op.form)
    rows = {op.boxes: check.swap_xy(boxes) if op.form.is_normalised else boxes, op.indices: indices}
    for name in filter(None, (op.form.offsets, op.form.mask, "levels")):
        if given.get(name) is not None:
            rows[name] = check.number_array(name, given[name])
    order = np.argsort(chunk_of(maps[0], indices), kind="stable")
    ordered = {name: table[order] for name, table in rows.items() if len(table) == len(order)}
    return rows | ordered


# ---- The functions of ``roipool.dask``


def _lazy_forward(op: Op) -> Function:
    """Return an operation's forward for Dask arrays."""
    core = inspect.unwrap(getattr(roipool, op.forward))
    signature = inspect.signature(core)

    @functools.wraps(core, assigned=("__name__", "__qualname__"))
    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(core, args, kwargs)

    forward.__doc__ = f"Pool boxes from a Dask array, lazily, as :func:`roipool.{op.forward}` does."
    keep_order = inspect.Parameter("keep_order", inspect.Parameter.KEYWORD_ONLY, default=True)
    forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), keep_order]
    )
    return forward


FORWARDS = {name: _lazy_forward(op) for name, op in OP_OF.items()}
