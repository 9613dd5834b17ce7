"""detectron2's ``ROIAlign`` layer, aligned by default, and its ``ROIPooler`` over a pyramid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._arrays import Array
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._layout import Shape4
from roipool._messages import shown
from roipool._pooling import Call, Pooling, check_sizes
from roipool.compat import _conventions as conventions
from roipool.compat import torchvision


def _regions(call: Call, rois: Any, images: int, dtype: np.dtype[Any]) -> Regions:
    rounded = check.cast(check.number_array("rois", rois), dtype)
    return conventions.boxes_of_images(call, rounded, images, dtype, name="rois")


class ROIAlign(torchvision.RoIAlign):
    """``detectron2.layers.ROIAlign(output_size, spatial_scale, sampling_ratio, aligned=True)``.

    Boxes are first rounded to the maps' type, as the original does: with float16 maps, boxes
    lose up to half a pixel beyond 1024. Cells of weight 0 are not read, NaN and infinite ones
    included, as in :func:`roipool.compat.torchvision.roi_align`.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import detectron2
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> detectron2.ROIAlign(2, 1.0, 0)(input, [[0, 1, 1, 3, 3]])
    array([[[[ 7.,  8.],
             [12., 13.]]]], dtype=float32)
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        spatial_scale: float,
        sampling_ratio: int,
        aligned: bool = True,
    ) -> None:
        super().__init__(output_size, spatial_scale, sampling_ratio, aligned)

    def _definition(self) -> Definition:
        scale = check.real_number("spatial_scale", self.spatial_scale)
        return conventions.roi_align_definition(scale, self.sampling_ratio, self.aligned)

    def forward(self, input: Array, rois: Any) -> Array:
        """Pool `rois`, shape (K, 5), from `input`, shape (N, C, H, W)."""
        with Call(input=input, rois=rois) as call:
            maps = check.features("input", input)
            regions = _regions(call, rois, maps.shape[0], maps.dtype)
            size = check.size_pair("output_size", self.output_size)
            return call.average([maps], regions, Pooling(self._definition(), size))

    __call__ = forward

    def backward(self, grad_output: Array, rois: Any, input_shape: Sequence[int]) -> Array:
        """Return the gradient with respect to `input`."""
        with Call(grad_output=grad_output, rois=rois) as call:
            gradient = check.float_array("grad_output", grad_output)
            shape = check.map_shape("input_shape", input_shape)
            regions = _regions(call, rois, shape[0], gradient.dtype)
            return conventions.average_backward(
                call, "grad_output", gradient, regions, self._definition(), shape
            )


# By the name of a pooler: the definition, whether it is aligned, and the numbers of a box.
_POOLERS = {
    "ROIAlign": ("roi_align", False, 4),
    "ROIAlignV2": ("roi_align", True, 4),
    "ROIAlignRotated": ("roi_align_rotated", True, 5),
}


class ROIPooler:
    """``detectron2.modeling.poolers.ROIPooler``: each box from a map of the pyramid, by its size.

    All maps are pooled in one call.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins: rows and columns.
    scales : sequence of float
        Map cells per image pixel of each map: powers of two, each half of the one before.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive.
    pooler_type : {"ROIAlignV2", "ROIAlign", "ROIAlignRotated"}
        Aligned, not aligned, or of rotated boxes. "ROIPool", which takes maxima, is not offered:
        pool its levels by :func:`roipool.compat.torchvision.roi_pool`.
    canonical_box_size : float
        Side of a box that is pooled from `canonical_level`, in image pixels.
    canonical_level : int
        Its level: level k has 2**-k map cells per image pixel.

    Notes
    -----
    A box with an area below zero, or NaN, pools to 0; in the original its level is that of an
    undefined conversion. Levels come from logarithms in the boxes' type, of ratios plus 1e-8.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import detectron2
    >>> maps = [np.zeros((1, 1, 64, 64)), np.ones((1, 1, 32, 32))]
    >>> pooler = detectron2.ROIPooler(1, (1 / 8, 1 / 16), 0, "ROIAlignV2")
    >>> pooler(maps, [np.array([[0.0, 0, 50, 50], [0, 0, 250, 250]])]).ravel()
    array([0., 1.])
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        scales: Sequence[float],
        sampling_ratio: int,
        pooler_type: str,
        canonical_box_size: float = 224,
        canonical_level: int = 4,
    ) -> None:
        self.output_size = check.size_pair("output_size", output_size)
        self.scales = _powers_of_two(scales)
        self.sampling_ratio = sampling_ratio
        self.pooler_type = check.choice("pooler_type", pooler_type, tuple(_POOLERS))
        self.canonical_box_size = check.canonical_size("canonical_box_size", canonical_box_size)
        self.canonical_level = check.level("canonical_level", canonical_level)

    def forward(self, x: Sequence[Array], box_lists: Sequence[Any]) -> Array:
        """Pool boxes from a pyramid.

        Parameters
        ----------
        x : sequence of ndarray
            Maps, shape (N, C, H, W) each, as many as there are scales.
        box_lists : sequence of ndarray
            For each image, shape (L, 4): x1, y1, x2, y2 in image pixels; rotated: (L, 5), centre x,
            centre y, width, height and the angle in degrees, counter-clockwise.

        Returns
        -------
        ndarray
            Shape (K, C, rows, columns), in the order of the boxes.
        """
        with Call(x=check.sequence("x", x), box_lists=box_lists) as call:
            maps = check.pyramid("x", check.numbered("x", x))
            regions = self._regions(call, box_lists, maps[0].shape[0], maps[0].dtype)
            pooling = self._pooling("x", [one.shape for one in maps])
            return call.average(maps, regions, pooling)

    __call__ = forward

    def backward(
        self,
        grad_output: Array,
        input_shapes: Sequence[Sequence[int]],
        box_lists: Sequence[Any],
    ) -> list[Array]:
        """Return the gradients with respect to the maps.

        Parameters
        ----------
        grad_output : ndarray
            Shape (K, C, rows, columns).
        input_shapes : sequence of sequence of int
            (N, C, H, W) of each map.
        box_lists
            As in the forward.

        Returns
        -------
        list of ndarray
            Of the maps' shapes.
        """
        with Call(grad_output=grad_output, box_lists=box_lists) as call:
            gradient = check.float_array("grad_output", grad_output)
            shapes = check.pyramid_shapes(
                "input_shapes", check.numbered("input_shapes", input_shapes)
            )
            regions = self._regions(call, box_lists, shapes[0][0], gradient.dtype)
            conventions.grad_output_of_bins(
                "grad_output", gradient, len(regions.boxes), shapes[0], self.output_size,
                "output_size",
            )  # fmt: skip
            pooling = self._pooling("input_shapes", shapes)
            return call.average_backward_of_maps(gradient, regions, pooling, shapes)

    def _pooling(self, argument: str, shapes: Sequence[Shape4]) -> Pooling:
        """Return what an engine is asked for, of an argument's maps of these shapes."""
        if len(shapes) != len(self.scales):
            raise ValueError(
                f"{argument} must hold one map for each of {len(self.scales)} scales: {len(shapes)}"
            )
        name, aligned, _ = _POOLERS[self.pooler_type]
        samples = conventions.adaptive_if_not_positive("sampling_ratio", self.sampling_ratio)
        definition = Definition(name, self.scales[0], samples, aligned, math.pi / 180)
        pooling = Pooling(definition, self.output_size, scales=self.scales)
        for i, shape in enumerate(shapes):
            check_sizes(f"{argument}[{i}]", shape, "output_size", pooling)
        return pooling

    def _regions(
        self, call: Call, box_lists: Sequence[Any], images: int, dtype: np.dtype[Any]
    ) -> Regions:
        """Return the boxes, rounded to the maps' type, and the index of each one's map."""
        columns = _POOLERS[self.pooler_type][2]
        tables = check.tables("box_lists", check.sequence("box_lists", box_lists), columns)
        if len(tables) != images:
            raise ValueError(f"box_lists must hold one table per image: {len(tables)} for {images}")
        exact = check.joined_regions(tables, columns, np.dtype(np.float64))
        boxes = check.cast(exact.boxes, real_dtype(dtype))
        with np.errstate(invalid="ignore", over="ignore"):
            sides = boxes[:, 2:4] if columns == 5 else boxes[:, 2:4] - boxes[:, 0:2]
        rounded = check.coordinates(check.cast(boxes, dtype), dtype)
        if len(self.scales) == 1:
            return Regions(rounded, exact.batch_indices, exact.batch_indices * 0)
        first = -round(math.log2(self.scales[0]))
        levels = conventions.level_by_logarithm(
            call, sides[:, 0], sides[:, 1], (first, first + len(self.scales) - 1),
            (self.canonical_box_size, self.canonical_level), add_to_ratio=1e-8,
        )  # fmt: skip
        return Regions(rounded, exact.batch_indices, levels)

    def __repr__(self) -> str:
        return (
            f"ROIPooler(output_size={self.output_size}, scales={self.scales}, "
            f"sampling_ratio={self.sampling_ratio}, pooler_type={self.pooler_type!r})"
        )


def _powers_of_two(scales: Sequence[float]) -> tuple[float, ...]:
    """Return a pyramid's scales, checked."""
    numbers = tuple(
        check.real_number(f"scales[{i}]", scale)
        for i, scale in enumerate(check.sequence("scales", scales))
    )
    halves = all(later == first / 2 for first, later in itertools.pairwise(numbers))
    if not numbers or numbers[0] <= 0 or math.frexp(numbers[0])[0] != 0.5 or not halves:
        raise ValueError(
            f"scales must be powers of two, each half of the one before, got {shown(scales)}"
        )
    return numbers
