"""One call on arrays of NumPy or CuPy, from its request to an engine's answer.

PyTorch's and JAX's front ends call engines with the same requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._arrays import NUMPY, Array, Library, common_library
from roipool._definitions import Definition
from roipool._layout import Layout, Shape4, cells


class MaxRules(NamedTuple):
    """The options of a maximum.

    Attributes
    ----------
    lowest : float
        Where the running maximum starts.
    argmax_is_cell : bool
        Whether argmax is the cell ``y * W + x`` rather than the index of a sample in its bin.
    outside_is_zero : bool
        Whether a sample outside the map takes part, as 0.
    nan_restarts : bool
        Whether a NaN replaces the maximum, and the next sample replaces the NaN.
    """

    lowest: float = -np.inf
    argmax_is_cell: bool = False
    outside_is_zero: bool = False
    nan_restarts: bool = False


class Pooling(NamedTuple):
    """All arguments of an engine besides arrays.

    Attributes
    ----------
    definition : Definition
        Where bins and samples lie.
    output_size : tuple of int
        Bins: rows and columns.
    layout : str
        "NCHW" or "NHWC", of features and pooled values.
    empty_value : float
        Of a bin that has nothing to pool.
    rules : MaxRules
        Of a maximum.
    scales : tuple of float
        Of a pyramid: the scale of each map, instead of the definition's; otherwise empty.
    """

    definition: Definition
    output_size: tuple[int, int]
    layout: Layout = "NCHW"
    empty_value: float = 0.0
    rules: MaxRules = MaxRules()
    scales: tuple[float, ...] = ()

    @property
    def map_scales(self) -> tuple[float, ...]:
        """The scale of each map."""
        return self.scales or (self.definition.scale,)


class Engine(Protocol):
    """What computes on one kind of device: a module with these functions.

    Arguments are checked and converted: arrays are C-contiguous, in native byte order, on one
    device; on a host the regions are the call's own, so that no thread changes them while plans are
    made; `out` is of the right shape and dtype and overlaps nothing. A box whose batch index
    is negative pools nothing and gets no gradient; on a GPU so does one whose index names no image.
    """

    def average(
        self, features: Sequence[Array], regions: Regions, pooling: Pooling, out: Array
    ) -> None:
        """Pool each box by weighted averages, from the map of its level."""

    def average_backward(
        self, grad_output: Array, regions: Regions, pooling: Pooling, outs: Sequence[Array]
    ) -> None:
        """Write the gradient of an average with respect to each of the maps."""

    def average_backward_boxes(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Array:
        """Return the gradient of an average with respect to each number of each box."""

    def maximum(
        self,
        features: Array,
        regions: Regions,
        pooling: Pooling,
        out: Array,
        *,
        return_argmax: bool,
    ) -> Array | None:
        """Pool by maxima; return the argmax if it is asked for."""

    def maximum_backward(
        self, grad_output: Array, argmax: Array, regions: Regions, pooling: Pooling, out: Array
    ) -> None:
        """Write the gradient of a maximum with respect to the features."""

    def unpool(
        self, grad_output: Array, argmax: Array, batch_indices: Array, layout: str, out: Array
    ) -> None:
        """Write the sums of all gradients at the cell of the map that their argmax names."""

    def argmax_positions(
        self, argmax: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> tuple[Array, Array]:
        """Return the positions y and x, in map cells, of samples given by index; NCHW."""

    def argmax_at(
        self, y: Array, x: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Array:
        """Return the indices of the samples at positions, -1 where there is none; NCHW."""


class DeviceEngine(Engine, Protocol):
    """The engine of a GPU, which also does what arithmetic of arrays does well on a host."""

    def assign_levels(self, boxes: Array, areas: Sequence[float]) -> Array:
        """Return the level of each box, (K,) int64, from its corners: ``roipool.assign_levels``."""


class Call:
    """A call on arrays of one library: finds it once, works on their device, calls its engine.

    Parameters
    ----------
    **arrays
        Every argument that may be an array, by name. What is computed goes to `out`, if there is
        one.
    """

    __slots__ = ("_arrays", "_device", "engine", "library")

    engine: Engine
    library: Library

    def __init__(self, **arrays: Any) -> None:
        self._arrays = arrays
        self.library, array = NUMPY, None
        for value in arrays.values():  # here, for the sake of small calls on NumPy arrays
            if type(value) is not np.ndarray and value is not None:
                self.library, array = common_library(arrays)
                break
        self.engine = self.library.engine
        self._device = None if array is None else self.library.device(array)

    def __enter__(self) -> Call:
        if self._device is not None:
            self._device.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._device is not None:
            self._device.__exit__(*error)

    def average(self, features: Sequence[Array], regions: Regions, pooling: Pooling) -> Array:
        """Average forward."""
        result = self._result(_shape_of(features[0], regions, pooling), features[0].dtype)
        features, regions = self._one_of_alike(features, regions)
        self.engine.average(features, regions, pooling, result)
        return self._filled(result)

    def average_backward(
        self, grad_output: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Array:
        """Average backward."""
        result = self._result(input_shape, grad_output.dtype)
        self.engine.average_backward(grad_output, regions, pooling, [result])
        return self._filled(result)

    def average_backward_of_maps(
        self,
        grad_output: Array,
        regions: Regions,
        pooling: Pooling,
        input_shapes: Sequence[Shape4],
    ) -> list[Array]:
        """Average backward with respect to each map of a pyramid."""
        results = [self.library.empty(shape, grad_output.dtype) for shape in input_shapes]
        self.engine.average_backward(grad_output, regions, pooling, results)
        return results

    def average_backward_boxes(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Array:
        """Average backward with respect to the boxes."""
        return self.engine.average_backward_boxes(grad_output, features, regions, pooling)

    def maximum(
        self, features: Array, regions: Regions, pooling: Pooling, *, return_argmax: bool = True
    ) -> tuple[Array, Any]:
        """Maximum forward: pooled values, and the argmax, or None without `return_argmax`."""
        result = self._result(_shape_of(features, regions, pooling), features.dtype)
        (features,), regions = self._one_of_alike([features], regions)
        argmax = self.engine.maximum(
            features, regions, pooling, result, return_argmax=return_argmax
        )
        return self._filled(result), argmax

    def maximum_backward(
        self,
        grad_output: Array,
        argmax: Any,
        regions: Regions,
        pooling: Pooling,
        input_shape: Shape4,
        *,
        name: str = "argmax",
    ) -> Array:
        """Maximum backward: each gradient goes to the cells of its sample, with their weights."""
        limit = cells(input_shape, pooling.layout) if pooling.rules.argmax_is_cell else None
        indices = check.argmax(self.library, name, argmax, grad_output.shape, limit)
        result = self._result(input_shape, grad_output.dtype)
        self.engine.maximum_backward(grad_output, indices, regions, pooling, result)
        return self._filled(result)

    def unpool(
        self,
        grad_output: Array,
        argmax: Any,
        batch_indices: Array,
        input_shape: Shape4,
        *,
        layout: Layout = "NCHW",
        name: str = "argmax",
    ) -> Array:
        """Maximum backward where argmax names cells: each gets the whole gradient."""
        chosen = check.argmax(
            self.library, name, argmax, grad_output.shape, cells(input_shape, layout)
        )
        result = self._result(input_shape, grad_output.dtype)
        self.engine.unpool(grad_output, chosen, batch_indices, layout, result)
        return self._filled(result)

    def _result(self, shape: Shape4, dtype: np.dtype[Any]) -> Array:
        """Return what the engine fills: the caller's `out`, or a new array if it cannot be that."""
        filled = None
        if self._arrays.get("out") is not None:
            filled = check.output(self.library, shape, dtype, **self._arrays)
        return self.library.empty(shape, dtype) if filled is None else filled

    def _one_of_alike(
        self, features: Sequence[Array], regions: Regions
    ) -> tuple[Sequence[Array], Regions]:
        """Return one image for many without cells: a plan on a host has an entry for each."""
        if self.library is not NUMPY or features[0].shape[0] <= 1:
            return features, regions
        if any(maps.size > 0 for maps in features):
            return features, regions
        images = np.minimum(regions.batch_indices, 0)
        return [maps[:1] for maps in features], regions._replace(batch_indices=images)

    def _filled(self, result: Array) -> Array:
        """Return the caller's `out`, filled, or the result where there is none."""
        out = self._arrays.get("out")
        if out is None or out is result:
            return result
        plain = self.library.plain(out)
        if not self.library.may_share_memory(result, plain):
            plain[...] = result
        return out

    def argmax_positions(
        self, argmax: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> tuple[Array, Array]:
        """Return y and x, in map cells, of samples given by index."""
        return self.engine.argmax_positions(argmax, regions, pooling, input_shape)

    def argmax_at(
        self, y: Array, x: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Array:
        """Return the indices of the samples nearest to y and x; -1 where there is none."""
        real = regions.boxes.dtype
        y, x = (self.library.contiguous(array, real) for array in (y, x))
        return self.engine.argmax_at(y, x, regions, pooling, input_shape)


def pooled_shape(maps: Sequence[int], boxes: int, size: tuple[int, int], layout: Layout) -> Shape4:
    """Return the shape of pooled values: the maps', with boxes for images and bins for cells."""
    return (boxes, *size, maps[3]) if layout == "NHWC" else (boxes, maps[1], *size)


def _shape_of(features: Array, regions: Regions, pooling: Pooling) -> Shape4:
    return pooled_shape(features.shape, len(regions.boxes), pooling.output_size, pooling.layout)
