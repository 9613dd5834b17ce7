"""detectron2's layers ``ROIAlign`` and ``ROIAlignRotated``, and ``ROIPooler`` over a pyramid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool import _boxes, _levels
from roipool._arrays import Array
from roipool._boxes import Form, Regions
from roipool._definitions import Definition
from roipool._dtypes import real_dtype
from roipool._front_ends import for_every_array
from roipool._layout import Shape4
from roipool._masks import request as mask_arguments
from roipool._masks.paste import pasted
from roipool._masks.request import Pasting
from roipool._pooling import Call
from roipool._request import Pooling, check_sizes
from roipool._types import ArrayT, Numbers
from roipool.compat import _conventions as conventions
from roipool.compat import _detectron2_rotated, _rotated, torchvision
from roipool.compat._layers import Layer


def _rounded_boxes(rois: Any, _: None, images: int, dtype: np.dtype[Any], form: Form) -> Regions:
    rounded = check.cast(check.number_array(form.boxes, rois), dtype)
    return conventions.boxes_of_images(rounded, None, images, dtype, form)


FORM = Form(features="input", read=_rounded_boxes)


@for_every_array
def _roi_align(
    input: ArrayT,
    rois: Any,
    output_size: int | Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> ArrayT:
    """Return what :class:`ROIAlign` with these options returns."""
    with Call(FORM, input=input, rois=rois) as call:
        definition = _align(spatial_scale, sampling_ratio, aligned)
        return call.averages(call.request(definition, output_size))


@for_every_array
def _roi_align_backward(
    grad_output: ArrayT,
    rois: Any,
    input_shape: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> ArrayT:
    """Return the gradient of :func:`_roi_align` with respect to the maps."""
    with Call(FORM, grad_output=grad_output, rois=rois) as call:
        definition = _align(spatial_scale, sampling_ratio, aligned)
        return call.average_backward(*call.checked_backward(definition, input_shape))


def _align(spatial_scale: float, sampling_ratio: int, aligned: bool) -> Definition:
    scale = check.real_number("spatial_scale", spatial_scale)
    return conventions.roi_align_definition(scale, sampling_ratio, aligned)


@dataclass(eq=False, repr=False)
class ROIAlign(torchvision.RoIAlign):
    """``detectron2.layers.ROIAlign(output_size, spatial_scale, sampling_ratio, aligned=True)``.

    As in detectron2, boxes are rounded to the type of the maps: coordinates above 1024 lose up to
    half a pixel with float16 maps. As in :func:`roipool.compat.torchvision.roi_align`, cells of
    weight 0 are not read, so that NaN and infinite cells of weight 0 have no effect.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import detectron2
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> detectron2.ROIAlign(2, 1.0, 0)(input, [[0, 1, 1, 3, 3]])
    array([[[[ 7.,  8.],
             [12., 13.]]]], dtype=float32)
    """

    aligned: bool = True

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois`, shape (K, 5), from `input`, shape (N, C, H, W)."""
        options = self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned
        return _roi_align(input, rois, *options)

    def backward(self, grad_output: ArrayT, rois: Any, input_shape: Sequence[int]) -> ArrayT:
        """Return the gradient with respect to `input`."""
        options = self.spatial_scale, self.sampling_ratio, self.aligned
        return _roi_align_backward(grad_output, rois, input_shape, *options)


@dataclass(eq=False, repr=False)
class ROIAlignRotated(Layer):
    """``detectron2.layers.ROIAlignRotated(output_size, spatial_scale, sampling_ratio)``.

    Angles are degrees, counter-clockwise in the displayed image; boxes are always shifted
    by half a cell. A negative side, which detectron2 refuses on a CPU, mirrors the box with a fixed
    `sampling_ratio` and makes it 0 with an adaptive one.

    Parameters
    ----------
    output_size : int or (int, int)
        Bins: rows and columns.
    spatial_scale : float
        Map cells per image pixel, kept in float32.
    sampling_ratio : int
        Samples per bin and axis; 0 or less is adaptive.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import detectron2
    >>> input = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    >>> detectron2.ROIAlignRotated(2, 1.0, 2)(input, [[0, 2, 2, 2, 2, 90]])
    array([[[[12.,  7.],
             [13.,  8.]]]], dtype=float32)
    """

    output_size: int | Sequence[int]
    spatial_scale: float
    sampling_ratio: int

    def forward(self, input: ArrayT, rois: Any) -> ArrayT:
        """Pool `rois` from `input`.

        Parameters
        ----------
        input : ndarray
            Maps, shape (N, C, H, W).
        rois : array_like
            Shape (K, 6): batch index (cut to a whole number), centre x, centre y, width, height in
            image pixels, and the angle in degrees.

        Returns
        -------
        ndarray
            Shape (K, C, rows, columns).
        """
        options = self.output_size, self.spatial_scale, self.sampling_ratio
        return _detectron2_rotated.roi_align_rotated(input, rois, *options)

    if TYPE_CHECKING:
        __call__ = forward

    def backward(self, grad_output: ArrayT, rois: Any, input_shape: Sequence[int]) -> ArrayT:
        """Return the gradient with respect to `input`."""
        return _detectron2_rotated.roi_align_rotated_backward(
            grad_output, rois, input_shape, self.spatial_scale, self.sampling_ratio
        )


# By the name of a pooler: the definition, whether it is aligned, and the numbers of a box.
PoolerType: TypeAlias = Literal["ROIAlignV2", "ROIAlign", "ROIAlignRotated", "ROIPool"]
_POOLERS: dict[PoolerType, tuple[str, bool, int]] = {
    "ROIAlign": ("roi_align", False, 4),
    "ROIAlignV2": ("roi_align", True, 4),
    "ROIAlignRotated": ("roi_align_rotated", True, 5),
    "ROIPool": ("roi_pool", False, 4),
}


class _Pooler(NamedTuple):
    """The checked options of a :class:`ROIPooler`, and pooling by them."""

    output_size: tuple[int, int]
    scales: tuple[float, ...]
    sampling_ratio: int
    pooler_type: PoolerType
    canonical_box_size: float
    canonical_level: int

    def forward(
        self, x: Sequence[ArrayT], box_lists: Sequence[Any], return_argmax: bool
    ) -> ArrayT | tuple[ArrayT, ArrayT]:
        """Pool boxes from a pyramid."""
        with Call(self._form(), x=check.sequence("x", x), box_lists=box_lists) as call:
            maps = check.pyramid("x", check.numbered("x", x))
            regions = call.regions(maps[0].shape[0], check.dtype_of(maps[0]))
            pooling = self._pooling("x", [one.shape for one in maps])
            want_argmax = check.flag("return_argmax", return_argmax)
            if self.pooler_type == "ROIPool":
                return self._maxima(call, maps, regions, pooling, want_argmax)
            if want_argmax:
                raise ValueError(
                    f"return_argmax must be False with pooler_type={self.pooler_type!r}"
                )
            return call.average(maps, regions, pooling)

    def backward(
        self,
        grad_output: ArrayT,
        input_shapes: Sequence[Sequence[int]],
        box_lists: Sequence[Any],
        argmax: ArrayT | None,
    ) -> list[ArrayT]:
        """Return the gradients with respect to the maps."""
        if (argmax is not None) != (self.pooler_type == "ROIPool"):
            must = "be given" if argmax is None else "be None"
            raise TypeError(f"argmax must {must} with pooler_type={self.pooler_type!r}")
        with Call(
            self._form(), grad_output=grad_output, box_lists=box_lists, argmax=argmax
        ) as call:
            named = check.numbered("input_shapes", input_shapes)
            shapes = check.pyramid_shapes("input_shapes", named)
            pooling = self._pooling("input_shapes", shapes)
            gradient, regions, _ = call.checked_gradient(
                "input_shapes", shapes[0], pooling.definition
            )
            conventions.check_bins("grad_output", gradient, self.output_size)
            if argmax is None:
                return call.average_backward_of_maps(gradient, regions, pooling, shapes)
            cells = check.same_shape("argmax", argmax, gradient)
            where, none = call.library.xp().where, conventions.scalar_of(cells)(-1)
            return [
                call.maximum_backward(gradient, where(own, cells, none), boxes, request, shape)
                for shape, (own, boxes, request) in zip(
                    shapes, self._by_level(call, regions, pooling), strict=True
                )
            ]

    def _maxima(
        self,
        call: Call,
        maps: Sequence[Array],
        regions: Regions,
        pooling: Pooling,
        return_argmax: bool,
    ) -> Array | tuple[Array, Array]:
        """Return the maxima of each box in its map, and their argmax if it is asked for."""
        found: list[Array] = []
        requests = self._by_level(call, regions, pooling)
        for one, (own, boxes, request) in zip(maps, requests, strict=True):
            pooled, argmax = call.maximum(one, boxes, request, return_argmax=return_argmax)
            parts = [pooled, argmax] if return_argmax else [pooled]
            found = [
                call.library.xp().where(own, part, before)
                for part, before in zip(parts, found or parts, strict=True)
            ]
        return (found[0], found[1]) if return_argmax else found[0]

    def _by_level(
        self, call: Call, regions: Regions, pooling: Pooling
    ) -> Iterator[tuple[Array, Regions, Pooling]]:
        """Yield of each map which boxes are on it, and the request without the others."""
        indices, levels = regions.batch_indices, regions.levels
        assert levels is not None
        for level, scale in enumerate(self.scales):
            own = levels == level
            rest = call.library.xp().where(own, indices, conventions.scalar_of(indices)(-1))
            request = pooling._replace(
                definition=pooling.definition._replace(scale=scale),
                rules=conventions.CELLS_FROM_LOWEST_FLOAT32,
                scales=(),
            )
            yield own[:, None, None, None], Regions(regions.boxes, rest), request

    def _pooling(self, argument: str, shapes: Sequence[Shape4]) -> Pooling:
        """Return what an engine is asked for, of an argument's maps of these shapes."""
        if len(shapes) != len(self.scales):
            raise ValueError(
                f"{argument} must hold one map for each of {len(self.scales)} scales: {len(shapes)}"
            )
        name, aligned, _ = _POOLERS[self.pooler_type]
        samples = conventions.adaptive_if_not_positive("sampling_ratio", self.sampling_ratio)
        definition = Definition(name, self.scales[0], samples, aligned)
        pooling = Pooling(definition, self.output_size, scales=self.scales)
        for i, shape in enumerate(shapes):
            check_sizes(f"{argument}[{i}]", shape, "output_size", pooling)
        return pooling

    def _form(self) -> Form:
        return Form(boxes="box_lists", features="x", read=self._regions)

    def _regions(
        self, box_lists: Any, _: None, images: int, dtype: np.dtype[Any], form: Form
    ) -> Regions:
        """Return the boxes and the index of each one's map.

        Boxes are rounded to the maps' type, but for rotated ones, whose angles become radians.
        """
        columns = _POOLERS[self.pooler_type][2]
        tables = _boxes.tables(form.boxes, check.sequence(form.boxes, box_lists), columns)
        if len(tables) != images:
            raise ValueError(f"box_lists must hold one table per image: {len(tables)} for {images}")
        exact = _boxes.joined_regions(tables, columns, check.FLOAT64)
        boxes = check.cast(exact.boxes, real_dtype(dtype))
        with np.errstate(invalid="ignore", over="ignore"):
            sides = boxes[:, 2:4] if columns == 5 else boxes[:, 2:4] - boxes[:, 0:2]
        own = _rotated.in_radians(boxes) if columns == 5 else check.cast(boxes, dtype)
        rounded = _boxes.coordinates(own, dtype)
        if len(self.scales) == 1:
            return Regions(rounded, exact.batch_indices, exact.batch_indices * 0)
        first = -round(math.log2(self.scales[0]))
        levels = conventions.level_by_logarithm(
            sides[:, 0],
            sides[:, 1],
            (first, first + len(self.scales) - 1),
            (self.canonical_box_size, self.canonical_level),
            add_to_ratio=1e-8,
        )
        return Regions(rounded, exact.batch_indices, levels)


@for_every_array
def _roi_pooler(
    x: Sequence[ArrayT], box_lists: Sequence[Any], return_argmax: bool, *options: Any
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Return what :class:`ROIPooler` with these options returns."""
    return _Pooler(*options).forward(x, box_lists, return_argmax)


@for_every_array
def _roi_pooler_backward(
    grad_output: ArrayT,
    input_shapes: Sequence[Sequence[int]],
    box_lists: Sequence[Any],
    argmax: ArrayT | None,
    *options: Any,
) -> list[ArrayT]:
    """Return the gradients of :func:`_roi_pooler` with respect to the maps."""
    return _Pooler(*options).backward(grad_output, input_shapes, box_lists, argmax)


class ROIPooler(Layer):
    """``detectron2.modeling.poolers.ROIPooler``: pool each box from the map for its size.

    All maps are pooled in one call, except by "ROIPool".

    Parameters
    ----------
    output_size : int or (int, int)
        Bins: rows and columns.
    scales : sequence of float
        Map cells per image pixel of each map: powers of two, each half of the one before.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive. "ROIPool" has none.
    pooler_type : {"ROIAlignV2", "ROIAlign", "ROIAlignRotated", "ROIPool"}
        Aligned, not aligned, or of rotated boxes; or the maxima of
        :func:`roipool.compat.torchvision.roi_pool`.
    canonical_box_size : float
        Side of a box that is pooled from `canonical_level`, in image pixels.
    canonical_level : int
        Its level: level k has 2**-k map cells per image pixel.

    Notes
    -----
    With several maps, a box whose area is negative or NaN is pooled to 0; in detectron2 its level
    results from an undefined conversion. Levels come from logarithms in the boxes' type, of ratios
    plus 1e-8.

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
        pooler_type: PoolerType,
        canonical_box_size: float = 224,
        canonical_level: int = 4,
    ) -> None:
        self.output_size: tuple[int, int] = check.size_pair("output_size", output_size)
        self.scales: tuple[float, ...] = _powers_of_two(scales)
        self.sampling_ratio = sampling_ratio
        self.pooler_type: PoolerType = check.choice("pooler_type", pooler_type, tuple(_POOLERS))
        self.canonical_box_size: float = _levels.size_of_level(
            "canonical_box_size", canonical_box_size
        )
        self.canonical_level: int = _levels.level("canonical_level", canonical_level)

    def forward(
        self, x: Sequence[ArrayT], box_lists: Sequence[Any], *, return_argmax: bool = False
    ) -> ArrayT | tuple[ArrayT, ArrayT]:
        """Pool boxes from a pyramid.

        Parameters
        ----------
        x : sequence of ndarray
            Maps, shape (N, C, H, W) each, as many as there are scales.
        box_lists : sequence of ndarray
            For each image, shape (L, 4): x1, y1, x2, y2 in image pixels; rotated: (L, 5), centre x,
            centre y, width, height and the angle in degrees, counter-clockwise.
        return_argmax : bool
            Also return the argmax, which the backward of "ROIPool" needs.

        Returns
        -------
        ndarray or (ndarray, ndarray)
            Shape (K, C, rows, columns), in the order of the boxes; the argmax is int32
            ``y * W + x`` in the map of each box, -1 for none.
        """
        return _roi_pooler(x, box_lists, return_argmax, *self._options())

    if TYPE_CHECKING:
        __call__ = forward

    def backward(
        self,
        grad_output: ArrayT,
        input_shapes: Sequence[Sequence[int]],
        box_lists: Sequence[Any],
        argmax: ArrayT | None = None,
    ) -> list[ArrayT]:
        """Return the gradients with respect to the maps.

        Parameters
        ----------
        grad_output : ndarray
            Shape (K, C, rows, columns).
        input_shapes : sequence of sequence of int
            (N, C, H, W) of each map.
        box_lists
            As in `forward`.
        argmax : ndarray of int, optional
            The argmax from the forward, with "ROIPool" only.

        Returns
        -------
        list of ndarray
            Of the maps' shapes.
        """
        options = self._options()
        return _roi_pooler_backward(grad_output, input_shapes, box_lists, argmax, *options)

    def _options(self) -> tuple[Any, ...]:
        canonical = self.canonical_box_size, self.canonical_level
        return self.output_size, self.scales, self.sampling_ratio, self.pooler_type, *canonical

    def extra_repr(self) -> str:
        """Return the options."""
        return (
            f"output_size={self.output_size}, scales={self.scales}, "
            f"sampling_ratio={self.sampling_ratio}, pooler_type={self.pooler_type!r}"
        )


def _powers_of_two(scales: Sequence[float]) -> tuple[float, ...]:
    """Return a pyramid's scales, checked."""
    numbers = tuple(
        check.real_number(f"scales[{i}]", scale)
        for i, scale in enumerate(check.sequence("scales", scales))
    )
    _levels.successive_halves("scales", numbers)
    return numbers


@for_every_array
def _paste_masks_in_image(
    masks: ArrayT, boxes: Numbers, image_shape: Sequence[int], threshold: float
) -> ArrayT:
    """Return what :func:`paste_masks_in_image` returns, for a table of boxes."""
    with Call(masks=masks, boxes=boxes) as call:
        cells, _ = mask_arguments.masks("masks", masks)
        if cells.shape[1] != cells.shape[2]:
            raise ValueError(f"masks must be square, got shape {tuple(cells.shape)}")
        size = check.size_pair("image_shape", image_shape)
        limit = check.real_number("threshold", threshold)
        table = mask_arguments.boxes("boxes", boxes, cells.shape[0], call.library.dtype(cells))
        dtype = np.dtype(bool if limit >= 0 else np.uint8)
        pasting = Pasting(size, threshold=limit if limit >= 0 else None, factor=255.0)
        return pasted(call, cells, (), table, pasting, dtype)


def paste_masks_in_image(
    masks: ArrayT, boxes: Any, image_shape: Sequence[int], threshold: float = 0.5
) -> ArrayT:
    """Paste masks like ``detectron2.layers.paste_masks_in_image``.

    Parameters
    ----------
    masks : ndarray
        Shape (K, M, M) or (K, 1, M, M); float16, bfloat16, float32, float64, uint8 or bool.
    boxes : array_like
        Shape (K, 4): x1, y1, x2, y2 in pixels; or detectron2's ``Boxes``.
    image_shape : (int, int)
        Rows and columns of the picture.
    threshold : float
        The least value that is set. Below 0 values from 0 to 1 are returned as 0 to 255, cut to
        whole numbers.

    Returns
    -------
    ndarray
        Shape (K, rows, columns); bool, or uint8 for a threshold below 0.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type, shape or value.

    See Also
    --------
    roipool.paste_masks : To floats, or to a piece for each mask; with gradients.
    roipool.masks_to_rle : To run lengths.

    Notes
    -----
    Values are those of detectron2 on a GPU. On a CPU it cuts the fade of a mask at one pixel around
    its box: binary masks of thresholds from 0.5 on are the same, bytes differ beyond that pixel.
    Boxes without area, for which detectron2 divides by 0, paste nothing; values beyond a byte
    become its least or greatest. Of no masks the result is bool, too.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import detectron2
    >>> masks = np.ones((1, 2, 2), np.float32)
    >>> detectron2.paste_masks_in_image(masks, [[1, 1, 3, 3]], (4, 5)).astype(int)
    array([[[0, 0, 0, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 0, 0, 0]]])
    """
    return _paste_masks_in_image(masks, getattr(boxes, "tensor", boxes), image_shape, threshold)
