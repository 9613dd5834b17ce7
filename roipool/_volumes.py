"""Calls on volumes: engines get them as maps whose rows are those of all planes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roipool import _arguments as check
from roipool._arrays import NUMPY, Array
from roipool._boxes import VOLUMES, Form, Regions
from roipool._definitions import Definition, Depth
from roipool._dtypes import FLOATS
from roipool._layout import (
    MAP_LAYOUTS,
    Shape5,
    VolumeLayout,
    merged,
    merged_shape,
    volume_channels,
    volume_of,
    volume_size,
)
from roipool._pooling import Call, Result
from roipool._request import Pooling

Options = tuple[Any, Any, Any]  # spatial_scale, sampling_ratio, aligned


def place(
    spatial_scale: Sequence[float],
    sampling_ratio: Sequence[int],
    aligned: bool,
    planes: int,
    bins: int,
) -> Definition:
    """Return the definition of ROI align for volumes, from checked options of each axis."""
    deep_scale, row_scale, scale = spatial_scale
    deep_sampling, *sampling = sampling_ratio
    depth = Depth(planes, bins, deep_sampling, deep_scale, row_scale)
    rows, columns = sampling
    return Definition("roi_align", scale, (rows, columns), aligned, depth=depth)


class VolumeCall(Call):
    """A call on volumes.

    Parameters
    ----------
    layout : {"NCDHW", "NDHWC"}
        Axes of the volumes, not checked.
    options : tuple
        The arguments `spatial_scale`, `sampling_ratio` and `aligned`, not checked.
    form : Form
        How the arguments are named and the boxes given.
    **arrays
        As for :class:`Call`.
    """

    __slots__ = ("_layout", "_options")

    _layout: VolumeLayout

    def __init__(
        self, layout: Any, options: Options, form: Form = VOLUMES, /, **arrays: Any
    ) -> None:
        super().__init__(form, **arrays)
        scale, ratio, aligned = options
        self._layout = check.volume_layout(layout)
        self._options = (
            check.scale_triple("spatial_scale", scale),
            check.sampling_triple("sampling_ratio", ratio),
            check.flag("aligned", aligned),
        )

    def forward(self, output_size: Any, dtypes: Sequence[str] = FLOATS) -> Result:
        """Return values pooled from volumes of one of these dtypes."""
        features = self._volumes(dtypes)
        regions = self.regions(features.shape[0], self.library.dtype(features))
        size = check.size_triple(self._form.size, output_size)
        pooling = self._pooling(features.shape, size)
        count = volume_channels(features.shape, self._layout)
        shape = volume_of(regions.boxes.shape[0], count, size, self._layout)
        if self.verbs is not None:
            own = [merged(features, self._layout)]
            return self._returned(self.verbs.average(own, regions, pooling).reshape(shape))
        result = self._result(shape, [features], pooling.layout)
        maps: Sequence[Array] = [merged(features, self._layout)]
        if features.size == 0:
            maps, regions = self._single_empty_image(maps, regions)
        self.engine.average(maps, regions, pooling, merged(result, self._layout))
        return self._filled(result)

    def backward(self, input_shape: Any) -> Result:
        """Return the gradient with respect to the volumes."""
        shape = check.volume_shape(self._form.input_shape, input_shape, self._layout)
        gradient, regions, pooling = self._gradient(shape)
        if self.verbs is not None:
            own, shapes = merged(gradient, self._layout), [merged_shape(shape, self._layout)]
            found = self.verbs.average_backward(own, regions, pooling, shapes)
            return self._returned(found[0].reshape(shape))
        result = self._result(shape, [gradient], pooling.layout)
        grad_output = merged(gradient, self._layout)
        outs = [merged(result, self._layout)]
        self.engine.average_backward(grad_output, regions, pooling, outs)
        return self._filled(result)

    def backward_boxes(self) -> Result:
        """Return the gradient with respect to the boxes."""
        features, form = self._volumes(FLOATS), self._form
        gradient, regions, pooling = self._gradient(features.shape)
        check.same_dtype(form.grad_output, gradient, form.features, features)
        grad_output, maps = (merged(each, self._layout) for each in (gradient, features))
        return self.average_backward_boxes(grad_output, [maps], regions, pooling)

    def _volumes(self, dtypes: Sequence[str]) -> Array:
        """Return the volumes, checked."""
        name = self._form.features
        return self._mergeable(check.volumes(name, self._arrays[name], self._layout, dtypes))

    def _mergeable(self, volumes: Array) -> Array:
        """Return volumes in the memory layout of maps that the library's engine reads."""
        is_read = self.library is NUMPY or self.verbs is not None
        return volumes if is_read else self.library.xp().ascontiguousarray(volumes)

    def _gradient(self, shape: Shape5) -> tuple[Array, Regions, Pooling]:
        """Return the gradient of values pooled from such volumes, the boxes, and the request."""
        name = self._form.grad_output
        gradient = self._mergeable(check.float_array(name, self._arrays[name], dimensions=5))
        regions = self.regions(shape[0], self.library.dtype(gradient))
        channels = volume_channels(shape, self._layout)
        boxes = regions.boxes.shape[0]
        size = check.volume_gradient(name, gradient.shape, boxes, channels, self._layout)
        return gradient, regions, self._pooling(shape, size)

    def _pooling(self, shape: Shape5, size: tuple[int, int, int]) -> Pooling:
        """Return an engine's request for volumes of a shape."""
        planes, *_ = volume_size(shape, self._layout)
        depth, rows, columns = size
        definition = place(*self._options, planes, depth)
        return Pooling(definition, (depth * rows, columns), MAP_LAYOUTS[self._layout])
