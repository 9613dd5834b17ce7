"""Interfaces of what computes requests: engines that fill arrays, and verbs that return results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from roipool._arrays import Array
from roipool._boxes import Regions
from roipool._layout import Shape4
from roipool._masks.request import Pasting
from roipool._request import Pooling, needs_no_boxes


class Engine(Protocol):
    """Engine for one kind of device: a module with these functions.

    Arguments are checked and converted: arrays are in native byte layout, on one device; `out` is
    of the right shape and dtype and overlaps nothing. On a host arrays are C-contiguous, and the
    regions the call's own, so that no thread changes them while plans are made. On a GPU maps may
    have any strides, and what is written to is C-contiguous, or, beside (or of) NCHW maps that lie
    in memory as NHWC, lies as they do. A box whose batch index is negative pools nothing and gets
    no gradient; on a GPU so does one whose index names no image.
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
        """Write the gradient of a maximum with respect to the features, by the boxes' samples."""

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

    def paste(self, masks: Array, boxes: Array, pasting: Pasting, out: Array) -> None:
        """Paste masks, (K, h, w), into a picture each."""

    def paste_backward(
        self, grad_output: Array, boxes: Array, pasting: Pasting, out: Array
    ) -> None:
        """Write the gradient of pasted masks with respect to the masks."""

    def paste_backward_boxes(
        self, grad_output: Array, masks: Array, boxes: Array, pasting: Pasting, out: Array
    ) -> None:
        """Write the gradient of pasted masks with respect to the numbers of their boxes."""


class DeviceEngine(Engine, Protocol):
    """The engine of a GPU, which also does what arithmetic of arrays does well on a host."""

    def assign_levels(self, boxes: Array, areas: Sequence[float]) -> Array:
        """Return the level of each box, (K,) int64, from its corners: ``roipool.assign_levels``."""


class Verbs(Protocol):
    """What computes results for a library whose arrays are traced or differentiated.

    Arguments are checked as those of an :class:`Engine` are, but lie in memory as the caller gave
    them. Results are new arrays of the library, which it differentiates as it does its own.
    """

    def average(self, features: Sequence[Any], regions: Regions, pooling: Pooling) -> Any:
        """Return pooled values: weighted averages, from the map of each box's level."""

    def average_backward(
        self, grad_output: Any, regions: Regions, pooling: Pooling, shapes: Sequence[Shape4]
    ) -> list[Any]:
        """Return the gradient of an average with respect to each of the maps of such shapes."""

    def average_backward_boxes(
        self, grad_output: Any, features: Sequence[Any], regions: Regions, pooling: Pooling
    ) -> Any:
        """Return the gradient of an average with respect to each number of each box."""

    def maximum(self, features: Any, regions: Regions, pooling: Pooling) -> tuple[Any, Any]:
        """Return maxima and their argmax."""

    def maximum_backward(
        self, grad_output: Any, argmax: Any, regions: Regions, pooling: Pooling, shape: Shape4
    ) -> Any:
        """Return the gradient of a maximum with respect to the features, however argmax counts."""

    def argmax_positions(
        self, argmax: Any, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> tuple[Any, Any]:
        """Return the positions y and x, in map cells, of samples given by index; NCHW."""

    def argmax_at(
        self, y: Any, x: Any, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Any:
        """Return the indices of the samples at positions, -1 where there is none; NCHW."""

    def assign_levels(self, boxes: Any, areas: Sequence[float]) -> Any:
        """Return the level of each box, (K,) int64, from its corners: ``roipool.assign_levels``."""

    def filled(
        self,
        function: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        arrays: Sequence[Any],
        request: Pasting,
    ) -> Any:
        """Return an array that a function of an engine fills, a row for each row of `arrays`."""

    def rounded(self, values: Any, dtype: np.dtype[Any]) -> Any:
        """Return pooled values in another dtype, as ``Library.store_rounded`` does."""


def maximum_backward(
    engine: Engine,
    grad_output: Array,
    argmax: Array,
    regions: Regions,
    pooling: Pooling,
    out: Array,
) -> None:
    """Write the gradient of a maximum with respect to the features, however its argmax counts."""
    if needs_no_boxes(pooling):
        engine.unpool(grad_output, argmax, regions.batch_indices, pooling.layout, out)
    else:
        engine.maximum_backward(grad_output, argmax, regions, pooling, out)
