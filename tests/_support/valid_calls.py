"""A valid call of every function of every operation, derived from the tables of operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import roipool
from _support.catalogue import Array
from _support.compare import assert_same_bits
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op, Variant

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(2, 3, 6, 7)).astype(np.float32)
ROIS = np.array([[0, 1.25, 0.5, 5.5, 4], [1, -2, 1, 3, 6.75], [0, 2, 2, 5, 5]])
IMAGES = ROIS[:, 0].astype(np.int64)
BOXES = ROIS[:, [2, 1, 4, 3]] / 6
GRAD = RNG.normal(size=(3, 3, 2, 2)).astype(np.float32)
OFFSETS = RNG.normal(size=(3, 2, 2, 2)).astype(np.float32)
MASK = RNG.random(size=(3, 1, 2, 2)).astype(np.float32)
_, ARGMAX = roipool.roi_pool(FEATURES, ROIS, 2, return_argmax=True)
_, SAMPLES = roipool.roi_align(FEATURES, ROIS, 2, mode="max", return_argmax=True)

PYRAMID = [FEATURES, np.ascontiguousarray(FEATURES[:, :, ::2, ::2])]
# Valid boxes of each operation, without the batch index.
DEEP = np.column_stack([ROIS[:, :3], [0.25, -1, 1], ROIS[:, 3:], [1.5, 1, 2]])
TABLES = {4: ROIS, 5: np.column_stack([ROIS, [0.3, -2.0, 1.5]]), 6: DEEP}


def calls_of(op: Op, variant: Variant) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Yield each public function of an operation with a valid value for each argument."""
    is_pyramid = op.forward in PYRAMID_OPS
    boxes = {"rois": TABLES[op.columns]}
    if op.boxes == "boxes":
        boxes = {"boxes": BOXES, "box_indices": IMAGES}
    values = {
        "features": PYRAMID if is_pyramid else FEATURES,
        "grad_output": GRAD,
        "input_shape": FEATURES.shape,
        "input_shapes": [maps.shape for maps in PYRAMID],
        "spatial_scales": (1.0, 0.5),
        "levels": np.array([0, 1, 0]),
        op.size: 2,
        **boxes,
        **variant.options,
    }
    if op.is_of_volumes:
        volumes, grad = FEATURES.reshape(2, 3, 2, 3, 7), GRAD.reshape(3, 3, 1, 2, 2)
        values |= {"features": volumes, "grad_output": grad, "input_shape": volumes.shape}
        values[op.size] = (1, 2, 2)
    if op.is_deformable:
        values |= {"offsets": OFFSETS, "mask": MASK, "samples": 2}
    if op.is_position_sensitive:
        values |= {"group_size": (1, 3), "grad_output": GRAD[:, :1].copy()}
    if variant.has_argmax:
        values["argmax"] = ARGMAX if variant.bin_value == "cell" else SAMPLES
    for attribute, name in op.functions.items():
        if attribute == "backward_boxes" and not variant.by_boxes:
            continue
        function = getattr(roipool, name)
        taken = inspect.signature(function).parameters
        yield function, {key: value for key, value in values.items() if key in taken}


# One valid call of every function of every operation, with keyword arguments. The first variant has
# the function's name; other variants add their own.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    f"{function.__name__} {key}" if number else function.__name__: (function, arguments)
    for op in (OPS | PYRAMID_OPS | VOLUME_OPS).values()
    for number, (key, variant) in enumerate(op.variants.items())
    for function, arguments in calls_of(op, variant)
}


def arrays_of(value: Any) -> list[Array]:
    """Return the arrays of a value, which is an array, a list of arrays or something else."""
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if isinstance(part, np.ndarray)]


def changed(value: Any, change: Callable[[Array], Array]) -> Any:
    """Return a value with a change applied to its arrays."""
    if isinstance(value, list):
        return [changed(part, change) for part in value]
    return change(value) if isinstance(value, np.ndarray) else value


def assert_same_arrays(got: Any, expected: Any) -> None:
    """Compare results, which are arrays or lists of arrays."""
    for one, other in zip(arrays_of(got), arrays_of(expected), strict=True):
        assert_same_bits(one, other)


def filled_out(function: Callable[..., Any], arguments: dict[str, Any]) -> Array | None:
    """Return an `out` filled with 7 for a call, or None if the function has no such argument."""
    if "out" not in inspect.signature(function).parameters:
        return None
    result = function(**arguments)
    return np.full_like(result, 7)
