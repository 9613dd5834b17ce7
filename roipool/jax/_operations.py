"""The public operations for JAX arrays, made from the table ``OPS`` and NumPy's signatures."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roipool import _arguments as check
from roipool import _levels
from roipool._arrays import NUMPY
from roipool._by_class import OffsetsByClass
from roipool._definitions import Op
from roipool._dtypes import BYTES, FLOATS, dtype_name, real_dtype
from roipool._layout import (
    AXES,
    MAP_LAYOUTS,
    Layout,
    Shape4,
    VolumeLayout,
    cells,
    merged,
    merged_shape,
    nchw_view,
    nhwc_view,
    volume_channels,
    volume_of,
    volume_size,
)
from roipool._requests import Arguments, Request, RequestsOf, bins_of, public_functions
from roipool.jax._primitives import bind
from roipool.ops import multilevel_roi_align

Array = Any


# ---- Arrays


# With 64-bit types off, JAX cuts NumPy's numbers to 32 bits. So values of NumPy arrays and lists
# are checked before they become JAX arrays.


def array(name: str, value: Any) -> Array:
    """Return an argument as a JAX array, or as the NumPy array that it is."""
    if isinstance(value, jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
            raise TypeError(f"{name} must hold real numbers, got dtype {value.dtype}")
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        numbers = check.number_array(name, np.asanyarray(value))
        return numbers if numbers.dtype.isnative else numbers.astype(numbers.dtype.newbyteorder())
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"{name} must be a JAX array, as other arguments are, or NumPy's; got {kind}")


def float_maps(name: str, value: Any, dtypes: Sequence[str] = FLOATS, dimensions: int = 4) -> Array:
    """Return maps or pooled values, checked; `dtypes` may add bytes."""
    maps = jnp.asarray(array(name, value))
    if dtype_name(maps.dtype) not in dtypes:
        raise TypeError(f"{name} must have dtype {', '.join(dtypes)}, got {maps.dtype}")
    if maps.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, got shape {maps.shape}")
    return maps


def chosen_dtype(given: Arguments, features: Array) -> str | None:
    """Return the name of the dtype that pooled values are to have, if the caller chooses it."""
    if given.get("dtype") is None:
        return None
    name = check.pooled_dtype(given["dtype"], dtype_name(features.dtype))
    if jax.dtypes.canonicalize_dtype(name) != jnp.dtype(name):
        raise TypeError(
            f"dtype must not be {name} with JAX's 32-bit types; "
            'jax.config.update("jax_enable_x64", True) has it'
        )
    return name


def rounded(values: Array, dtype: str | None) -> Array:
    """Return pooled values in another dtype, as `roipool._arrays.Library.store_rounded` does."""
    if dtype is None:
        return values
    if dtype in BYTES:
        limits = jnp.iinfo(dtype)
        values = jnp.rint(jnp.clip(jnp.nan_to_num(values), limits.min, limits.max))
    return values.astype(dtype)


def number_table(name: str, value: Any) -> Array:
    """Return real numbers as a JAX array, or NumPy's where they are NumPy's or nested sequences."""
    if isinstance(value, (list, tuple)):
        return check.number_array(name, value)
    table = array(name, value)
    if not jnp.issubdtype(table.dtype, jnp.floating) and table.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold real numbers, got dtype {table.dtype}")
    return table


def host_values(value: Array) -> np.ndarray[Any, Any] | None:
    """Return the values of an array where they are known, and on the host; else None."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, jax.core.Tracer):
        return None
    if any(device.platform != "cpu" for device in value.devices()):
        return None
    return np.asarray(value)


def coordinates(table: Array, dtype: Any) -> Array:
    """Return box coordinates as a JAX array; NumPy's are rounded once, as those of NumPy calls."""
    if isinstance(table, np.ndarray):
        return jnp.asarray(check.cast(table, np.dtype(real_dtype(dtype))))
    return table


def integers(values: Array, least: int, most: int) -> Array:
    """Return checked integers as a JAX array; NumPy's beyond these bounds become the bounds."""
    if isinstance(values, np.ndarray):
        low, high = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
        return jnp.asarray(values.clip(max(least, low), min(most, high)).astype(np.int32))
    return values


# ---- Operations


class Operation:
    """One operation's public functions for JAX arrays."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self._requests = RequestsOf(op)

    def forward(self, given: Arguments) -> Any:
        """Pool maps."""
        op = self.op
        self._check_out(given)
        order = check.layout(given["layout"])
        features = float_maps("features", given["features"], op.dtypes)
        dtype = chosen_dtype(given, features)
        size = check.size_pair(op.size, given[op.size])
        is_maximum = self._requests.has_argmax(given)
        request = self._requests.request(given, features.shape, size)
        wants_argmax = check.flag("return_argmax", given.get("return_argmax", False))
        boxes, indices = self._boxes(given, features.shape[0], features.dtype)
        if not is_maximum:
            if wants_argmax:
                raise ValueError("return_argmax must be False with mode='avg': an average has none")
            return rounded(average(features, boxes, indices, request=request), dtype)
        if request.pooling.rules.argmax_is_cell:
            self._check_cells("features", features.shape, order)
        values, argmax = maximum(features, boxes, indices, request=request)
        values = rounded(values, dtype)
        return (values, argmax) if wants_argmax else values

    def backward(self, given: Arguments) -> Array:
        """Return the gradient with respect to the features."""
        self._check_out(given)
        order = check.layout(given["layout"])
        gradient = float_maps("grad_output", given["grad_output"])
        shape = check.map_shape("input_shape", given["input_shape"], order)
        is_maximum = self._requests.has_argmax(given)
        boxes, indices = self._boxes(given, shape[0], gradient.dtype)
        size = self._check_gradient(given, gradient, boxes, shape, order)
        request = self._requests.request(given, shape, size)
        argmax = given.get("argmax")
        if not is_maximum:
            if argmax is not None:
                raise ValueError("argmax must not be given with mode='avg': an average has none")
            return average_backward(gradient, boxes, indices, request=request, shape=shape)
        if argmax is None:
            raise TypeError(f"argmax must be given with mode='max': {self.op.forward} returns it")
        limit = None
        if request.pooling.rules.argmax_is_cell:
            limit = self._check_cells("input_shape", shape, order)
        chosen = self._argmax(argmax, gradient, limit)
        return maximum_backward(
            gradient, chosen, boxes, indices, request=request, shape=shape, limit=limit
        )

    def backward_boxes(self, given: Arguments) -> Array:
        """Return the gradient with respect to the boxes."""
        order = check.layout(given["layout"])
        gradient = float_maps("grad_output", given["grad_output"])
        features = float_maps("features", given["features"])
        check.same_dtype("grad_output", gradient, "features", features)
        boxes, indices = self._boxes(given, features.shape[0], features.dtype)
        size = self._check_gradient(given, gradient, boxes, features.shape, order)
        request = self._requests.request(given, features.shape, size)
        slopes = box_gradient(gradient, features, boxes, indices, request=request)
        return slopes[:, boxes.shape[1] - request.columns :]

    # ---- Arguments

    def _check_out(self, given: Arguments) -> None:
        if given.get("out") is not None:
            raise TypeError("out must be None for JAX arrays, which do not change")

    def _check_gradient(
        self, given: Arguments, gradient: Array, boxes: Array, shape: Shape4, order: Layout
    ) -> tuple[int, int]:
        groups = check.sampling_pair("group_size", given.get("group_size", 1))
        return check.grad_output("grad_output", gradient, boxes.shape[0], shape, order, groups)

    def _check_cells(self, name: str, shape: Shape4, order: Layout) -> int:
        count = cells(shape, order)
        if count > check.MAX_AXIS:
            raise ValueError(f"{name} has {count} cells; JAX arrays allow {check.MAX_AXIS}")
        return count

    def _argmax(self, value: Any, gradient: Array, limit: int | None) -> Array:
        chosen = array("argmax", value)
        if chosen.dtype.kind not in "iu":
            raise TypeError(f"argmax must be an integer array, got {chosen.dtype}")
        if chosen.shape != gradient.shape:
            raise ValueError(
                f"argmax must have grad_output's shape {gradient.shape}, got {chosen.shape}"
            )
        values = host_values(chosen)
        if values is not None:
            check.argmax(NUMPY, values, gradient.shape, limit)
        return integers(chosen, -1, check.MAX_AXIS)

    def _boxes(self, given: Arguments, images: int, dtype: Any) -> tuple[Array, Array | None]:
        """Return boxes, with their batch indices unless those are in a column of theirs.

        `dtype` is that of the maps.
        """
        op, boxes, indices = self.op, given[self.op.boxes], given[self.op.indices]
        is_sequence = isinstance(boxes, (list, tuple)) and not op.form.is_normalised
        if is_sequence and any(getattr(part, "ndim", 0) == 2 for part in boxes):
            check.one_per_image(op.form, boxes, indices, images)
            return self._joined(boxes, dtype)
        table = number_table(op.boxes, boxes)
        if table.shape == (0,):  # an empty list has no rows
            table = table.reshape(0, op.columns if indices is not None else op.columns + 1)
        widths = (op.columns,) if op.form.is_normalised else (op.columns, op.columns + 1)
        if table.ndim != 2 or table.shape[1] not in widths:
            forms = " or ".join(f"(K, {width})" for width in reversed(widths))
            raise ValueError(f"{op.boxes} must have shape {forms}; got {table.shape}")
        if table.shape[1] == op.columns:
            return coordinates(table, dtype), self._indices(table, indices, images)
        if indices is not None:
            raise ValueError(
                f"{op.boxes} of shape {table.shape} hold batch indices already; give {op.indices} "
                f"only with {op.boxes} of shape (K, {op.columns})"
            )
        numbers = self._checked_images(op.boxes, table[:, 0], images, ", 0")
        if isinstance(table, np.ndarray):
            return coordinates(table[:, 1:], dtype), numbers
        return table, None

    def _indices(self, table: Array, indices: Any, images: int) -> Array:
        op = self.op
        if indices is None:
            raise ValueError(
                f"{op.boxes} of shape {table.shape} need {op.indices}; without it {op.boxes} must "
                f"have shape (K, {op.columns + 1}), batch indices first"
            )
        numbers = number_table(op.indices, indices)
        if numbers.shape != table.shape[:1]:
            raise ValueError(
                f"{op.indices} must have shape ({table.shape[0]},), got {numbers.shape}"
            )
        return self._checked_images(op.indices, numbers, images)

    def _checked_images(self, name: str, numbers: Array, images: int, column: str = "") -> Array:
        """Return batch indices; values that are known are checked, others may pool nothing."""
        values = host_values(numbers)
        if values is None:
            return numbers
        checked = check.batch_indices(name, values, len(values), images, column)
        return jnp.asarray(checked.astype(np.int32)) if values is numbers else numbers

    def _joined(self, parts: Sequence[Any], dtype: Any) -> tuple[Array, Array]:
        """Return the boxes of several images, one table each, as one table."""
        op = self.op
        tables = [number_table(f"{op.boxes}[{n}]", part) for n, part in enumerate(parts)]
        for n, table in enumerate(tables):
            if table.ndim != 2 or table.shape[1] != op.columns:
                raise ValueError(
                    f"{op.boxes}[{n}] must have shape (L, {op.columns}); got {table.shape}"
                )
        counts = [len(table) for table in tables]
        real = real_dtype(dtype)
        joined = jnp.concatenate([coordinates(table, dtype).astype(real) for table in tables])
        return joined, jnp.repeat(
            jnp.arange(len(parts), dtype=jnp.int32),
            np.array(counts),
            total_repeat_length=sum(counts),
        )


class DeformedOperation(Operation):
    """The public functions of an operation whose bins are moved.

    Primitives get the offsets behind the corners of the boxes, so that the gradient of this table
    is that of both. The mask is multiplied here.
    """

    def forward(self, given: Arguments) -> Array:
        """Pool maps."""
        return self._masked(super().forward(given), given)

    def backward(self, given: Arguments) -> Array:
        """Return the gradient with respect to the features."""
        return super().backward(self._with_masked_gradient(given))

    def backward_boxes(self, given: Arguments) -> Array:
        """Return the gradient with respect to the boxes."""
        slopes = super().backward_boxes(self._with_masked_gradient(given))
        return slopes[:, : self.op.columns]

    def backward_offsets(self, given: Arguments) -> Array:
        """Return the gradient with respect to the offsets."""
        slopes = super().backward_boxes(self._with_masked_gradient(given))
        moved = slopes[:, self.op.columns :].reshape(len(slopes), 2, *bins_of(self.op, given))
        return nhwc_view(moved) if given["layout"] == "NHWC" else moved

    def backward_mask(self, given: Arguments) -> Array:
        """Return the gradient with respect to the mask."""
        gradient = float_maps("grad_output", given["grad_output"])
        own = {**given, "mask": None, "out": None, self.op.size: bins_of(self.op, given)}
        channel, *_ = AXES[check.layout(given["layout"])]
        return (gradient * self.forward(own)).sum(channel, keepdims=True, dtype=gradient.dtype)

    def _masked(self, values: Array, given: Arguments) -> Array:
        if given["mask"] is None:
            return values
        mask = self._of_bins("mask", 1, given, values.shape[0], values.dtype)
        return values * mask.astype(values.dtype)

    def _with_masked_gradient(self, given: Arguments) -> Arguments:
        gradient = float_maps("grad_output", given["grad_output"])
        return {**given, "grad_output": self._masked(gradient, given)}

    def _of_bins(self, name: str, channels: int, given: Arguments, boxes: int, dtype: Any) -> Array:
        """Return an array that holds some numbers for each bin, checked."""
        values, size = number_table(name, given[name]), bins_of(self.op, given)
        check.per_bin(name, values.shape, channels, boxes, size, given["layout"])
        return coordinates(values, dtype)

    def _boxes(self, given: Arguments, images: int, dtype: Any) -> tuple[Array, Array]:
        """Return boxes with the offsets of their bins, and indices."""
        boxes, indices = super()._boxes(given, images, dtype)
        if indices is None:
            boxes, indices = boxes[:, 1:], boxes[:, 0]
        offsets = self._of_bins("offsets", 2, given, len(boxes), dtype)
        offsets = nchw_view(offsets) if given["layout"] == "NHWC" else offsets
        real = real_dtype(dtype)
        columns = offsets.astype(real).reshape(len(boxes), 2 * math.prod(bins_of(self.op, given)))
        return jnp.concatenate([boxes.astype(real), columns], axis=1), indices


class VolumeOperation(Operation):
    """The public functions of an operation on volumes.

    Primitives get volumes, and what is pooled from them, as maps whose rows are those of all
    planes: other shapes of the same arrays, which JAX differentiates itself.
    """

    def forward(self, given: Arguments) -> Array:
        """Pool volumes."""
        order = check.volume_layout(given["layout"])
        features = volumes_of("features", given["features"], order)
        depth, rows, columns = check.size_triple(self.op.size, given[self.op.size])
        own = self._of_maps(given, features.shape, depth, order)
        own |= {"features": merged(features, order), self.op.size: (depth * rows, columns)}
        pooled = super().forward(own)
        channels = volume_channels(features.shape, order)
        return pooled.reshape(volume_of(len(pooled), channels, (depth, rows, columns), order))

    def backward(self, given: Arguments) -> Array:
        """Return the gradient with respect to the features."""
        order = check.volume_layout(given["layout"])
        shape = check.volume_shape("input_shape", given["input_shape"], order)
        gradient, bins = self._gradient(given, shape, order)
        own = self._of_maps(given, shape, bins, order)
        own |= {"grad_output": gradient, "input_shape": merged_shape(shape, order)}
        return super().backward(own).reshape(shape)

    def backward_boxes(self, given: Arguments) -> Array:
        """Return the gradient with respect to the boxes."""
        order = check.volume_layout(given["layout"])
        features = volumes_of("features", given["features"], order)
        gradient, bins = self._gradient(given, features.shape, order)
        own = self._of_maps(given, features.shape, bins, order)
        own |= {"grad_output": gradient, "features": merged(features, order)}
        return super().backward_boxes(own)

    def _of_maps(
        self, given: Arguments, shape: Sequence[int], depth: int, order: VolumeLayout
    ) -> dict[str, Any]:
        """Return the arguments of the same call on maps, but for arrays and sizes."""
        planes, *_ = volume_size(shape, order)
        return {
            **given,
            "layout": MAP_LAYOUTS[order],
            "spatial_scale": check.scale_triple("spatial_scale", given["spatial_scale"]),
            "sampling_ratio": check.sampling_triple("sampling_ratio", given["sampling_ratio"]),
            "planes": planes,
            "depth": depth,
        }

    def _gradient(
        self, given: Arguments, shape: Sequence[int], order: VolumeLayout
    ) -> tuple[Array, int]:
        """Return the gradient of pooled values as that of maps, and its bins along depth."""
        gradient = volumes_of("grad_output", given["grad_output"], order)
        boxes, _ = self._boxes(given, shape[0], gradient.dtype)
        channels = volume_channels(shape, order)
        name = "grad_output"
        depth, *_ = check.volume_gradient(name, gradient.shape, len(boxes), channels, order)
        return merged(gradient, order), depth


def volumes_of(name: str, value: Any, order: VolumeLayout) -> Array:
    """Return volumes, or what is pooled from them, checked."""
    volumes = float_maps(name, value, dimensions=5)
    check.map_shape(name, merged_shape(volumes.shape, order))
    return volumes


class OperationByClass(OffsetsByClass, DeformedOperation):
    """The public functions of an operation whose offsets are those of parts and classes."""

    _join = staticmethod(jnp.concatenate)

    def _bins(self, given: Arguments) -> tuple[int, int]:
        return bins_of(self.op, given)

    def _array(self, name: str, given: Arguments) -> Array:
        """Return an array of pooled values or maps."""
        return float_maps(name, given[name])

    def _with_table(self, given: Arguments, images: int, like: Array) -> Arguments:
        """Return the arguments with boxes in one table, and with offsets as a JAX array.

        Boxes are rounded, and have no gradient.
        """
        boxes, indices = Operation._boxes(self, given, images, like.dtype)
        own = {self.op.boxes: jax.lax.stop_gradient(boxes), self.op.indices: indices}
        # Offsets of all types are added up as kernels compute them.
        offsets = coordinates(number_table("offsets", given["offsets"]), like.dtype)
        return {**given, **own, "offsets": offsets.astype(real_dtype(like.dtype))}


class PyramidOperation(Operation):
    """The public functions of an operation that pools each box from one of several maps."""

    def forward(self, given: Arguments) -> Array:
        """Pool maps."""
        self._check_out(given)
        features, given = self._pyramid(given)
        size = check.size_pair(self.op.size, given[self.op.size])
        request = self._requests.request(given, features[0].shape, size)
        at = self._at(given, features[0])
        return average_levels(features, *at, request=request)

    def backward(self, given: Arguments) -> list[Array]:
        """Return the gradients with respect to the features."""
        order = check.layout(given["layout"])
        named = check.numbered("input_shapes", given["input_shapes"])
        shapes = check.pyramid_shapes("input_shapes", named, order)
        given = self._scaled(given, len(shapes))
        gradient = float_maps("grad_output", given["grad_output"])
        boxes, indices, levels = self._at(given, gradient, shapes[0][0])
        size = self._check_gradient(given, gradient, boxes, shapes[0], order)
        request = self._requests.request(given, shapes[0], size)
        return average_levels_backward(
            gradient, boxes, indices, levels, request=request, shapes=tuple(shapes)
        )

    def backward_boxes(self, given: Arguments) -> Array:
        """Return the gradient with respect to the boxes."""
        features, given = self._pyramid(given)
        gradient = float_maps("grad_output", given["grad_output"])
        check.same_dtype("grad_output", gradient, "features[0]", features[0])
        boxes, indices, levels = self._at(given, features[0])
        shape, order = features[0].shape, check.layout(given["layout"])
        size = self._check_gradient(given, gradient, boxes, shape, order)
        request = self._requests.request(given, shape, size)
        slopes = levels_box_gradient(gradient, features, boxes, indices, levels, request=request)
        return slopes[:, boxes.shape[1] - request.columns :]

    def _pyramid(self, given: Arguments) -> tuple[list[Array], Arguments]:
        """Return the maps, checked, and the arguments with a scale for each."""
        order = check.layout(given["layout"])
        named = check.numbered("features", given["features"])
        maps = {name: float_maps(name, value) for name, value in named.items()}
        check.pyramid_shapes("features", {name: one.shape for name, one in maps.items()}, order)
        first = maps["features[0]"]
        for name, one in maps.items():
            check.same_dtype(name, one, "features[0]", first)
        return [*maps.values()], self._scaled(given, len(maps))

    def _scaled(self, given: Arguments, maps: int) -> Arguments:
        scales = check.scales("spatial_scales", given["spatial_scales"], maps)
        return {**given, "spatial_scales": scales}

    def _at(
        self, given: Arguments, maps: Array, images: int | None = None
    ) -> tuple[Array, Array | None, Array]:
        """Return boxes, indices, and the index of each box's map."""
        images = maps.shape[0] if images is None else images
        boxes, indices = self._boxes(given, images, maps.dtype)
        scales = given["spatial_scales"]
        if given["levels"] is None:
            corners = boxes[:, boxes.shape[1] - 4 :].astype(real_dtype(maps.dtype))
            return boxes, indices, levels_of(corners, *_levels.levels_of_scales(scales))
        levels = number_table("levels", given["levels"])
        if levels.dtype.kind not in "iu":
            raise TypeError(f"levels must hold integers, got dtype {levels.dtype}")
        if levels.shape != boxes.shape[:1]:
            raise ValueError(f"levels must have shape ({boxes.shape[0]},), got {levels.shape}")
        values = host_values(levels)
        if values is not None:
            check.levels("levels", values, len(values), len(scales))
        return boxes, indices, integers(levels, 0, len(scales))


def assign_levels(given: Arguments) -> Array:
    """Return a level of a feature pyramid for each box."""
    rois = number_table("rois", given["rois"])
    if rois.ndim != 2 or rois.shape[1] not in (4, 5):
        raise ValueError(f"rois must have shape (K, 5) or (K, 4); got {rois.shape}")
    options = {name: value for name, value in given.items() if name != "rois"}
    if isinstance(rois, np.ndarray):
        return jnp.asarray(multilevel_roi_align.assign_levels(rois, **options))
    return levels_of(rois[:, rois.shape[1] - 4 :], **options)


def levels_of(corners: Array, *levels: int, **options: Any) -> Array:
    """Return the level of each box, of its corners; the rest is that of `assign_levels`."""
    areas = _levels.level_areas(*levels, **{**_levels.USUAL, **options})
    return levels_by_area(corners, areas=tuple(areas))


@functools.partial(jax.jit, static_argnames=("areas",))
def levels_by_area(corners: Array, *, areas: tuple[float, ...]) -> Array:
    """Return the level of each box, by areas in float64 whatever JAX's own setting."""
    integer = jnp.asarray(0).dtype
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        exact = jax.lax.stop_gradient(corners).astype(jnp.float64)
        none = jnp.zeros(corners.shape[0], jnp.int64)
        return _levels.levels_by_area(exact, none, areas).astype(integer)


# ---- What is compiled: boxes as primitives take them, then one primitive


def regions(
    boxes: Array, indices: Array | None, images: int, maps: Array, request: Request
) -> tuple[Array, Array]:
    """Return boxes and batch indices as primitives take them."""
    corners = boxes[:, boxes.shape[1] - request.columns :].astype(real_dtype(maps.dtype))
    if request.operation == "crop_and_resize":
        corners = check.swap_xy(corners)
    return corners, image_numbers(boxes[:, 0] if indices is None else indices, images)


def image_numbers(numbers: Array, images: int) -> Array:
    """Return batch indices as int32, -1 where they name no image."""
    numbers = jax.lax.stop_gradient(numbers)
    if numbers.dtype.itemsize < 4:  # may not hold the number of images
        is_float = jnp.issubdtype(numbers.dtype, jnp.floating)
        numbers = numbers.astype(jnp.float32 if is_float else jnp.int32)
    is_image = (numbers >= 0) & (numbers < images)
    if jnp.issubdtype(numbers.dtype, jnp.floating):
        is_image &= numbers == jnp.floor(numbers)
    return jnp.where(is_image, numbers, 0).astype(jnp.int32) - (~is_image).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames=("request",))
def average(features: Array, boxes: Array, indices: Array | None, *, request: Request) -> Array:
    """Pool maps by an average."""
    at = regions(boxes, indices, features.shape[0], features, request)
    return bind("average", request, features, *at)[0]


@functools.partial(jax.jit, static_argnames=("request",))
def maximum(features: Array, boxes: Array, indices: Array | None, *, request: Request) -> Any:
    """Pool maps by a maximum; return its argmax, too."""
    at = regions(boxes, indices, features.shape[0], features, request)
    return bind("maximum", request, features, *at)


@functools.partial(jax.jit, static_argnames=("request", "shape"))
def average_backward(
    grad: Array, boxes: Array, indices: Array | None, *, request: Request, shape: Shape4
) -> Array:
    """Return the gradient of an average with respect to the features."""
    at = regions(boxes, indices, shape[0], grad, request)
    return bind("average_backward", request, grad, *at, shapes=(shape,))[0]


@functools.partial(jax.jit, static_argnames=("request",))
def box_gradient(
    grad: Array, features: Array, boxes: Array, indices: Array | None, *, request: Request
) -> Array:
    """Return the gradient of an average with respect to the boxes, in their shape."""
    corners, numbers = regions(boxes, indices, features.shape[0], features, request)
    (slopes,) = bind("box_gradient", request, grad, features, corners, numbers)
    if request.operation == "crop_and_resize":
        slopes = check.swap_xy(slopes)
    return in_columns_of(boxes, slopes, request)


def in_columns_of(boxes: Array, slopes: Array, request: Request) -> Array:
    """Return slopes with a column of zeros for the batch index, where boxes have one."""
    return jnp.pad(slopes, ((0, 0), (boxes.shape[1] - request.columns, 0)))


@functools.partial(jax.jit, static_argnames=("request", "shape", "limit"))
def maximum_backward(
    grad: Array,
    argmax: Array,
    boxes: Array,
    indices: Array | None,
    *,
    request: Request,
    shape: Shape4,
    limit: int | None,
) -> Array:
    """Return the gradient of a maximum with respect to the features.

    `limit` is how many cells argmax may name; what is beyond it gets nothing.
    """
    at = regions(boxes, indices, shape[0], grad, request)
    # A number beyond 32 bits must not wrap to another index.
    held = jnp.iinfo(argmax.dtype)
    chosen = jnp.clip(argmax, max(held.min, -2), min(held.max, check.MAX_AXIS)).astype(jnp.int32)
    # Below -1 and beyond the map nothing may be written; the kernels check samples themselves.
    beyond = chosen < -1 if limit is None else (chosen < 0) | (chosen >= limit)
    chosen = jnp.where(beyond, -1, chosen)
    return bind("maximum_backward", request, grad, chosen, *at, shapes=(shape,))[0]


@functools.partial(jax.jit, static_argnames=("request",))
def average_levels(
    features: list[Array], boxes: Array, indices: Array | None, levels: Array, *, request: Request
) -> Array:
    """Pool maps of a pyramid by an average."""
    at = regions(boxes, indices, features[0].shape[0], features[0], request)
    return bind("average", request, *features, *at, level_numbers(levels))[0]


@functools.partial(jax.jit, static_argnames=("request", "shapes"))
def average_levels_backward(
    grad: Array,
    boxes: Array,
    indices: Array | None,
    levels: Array,
    *,
    request: Request,
    shapes: tuple[Shape4, ...],
) -> list[Array]:
    """Return the gradients of that with respect to each of the maps."""
    at = regions(boxes, indices, shapes[0][0], grad, request)
    return bind("average_backward", request, grad, *at, level_numbers(levels), shapes=shapes)


@functools.partial(jax.jit, static_argnames=("request",))
def levels_box_gradient(
    grad: Array,
    features: list[Array],
    boxes: Array,
    indices: Array | None,
    levels: Array,
    *,
    request: Request,
) -> Array:
    """Return the gradient of that with respect to the boxes, in their shape."""
    at = regions(boxes, indices, features[0].shape[0], features[0], request)
    (slopes,) = bind("box_gradient", request, grad, *features, *at, level_numbers(levels))
    return in_columns_of(boxes, slopes, request)


def level_numbers(levels: Array) -> Array:
    """Return levels as int32; those beyond it stay beyond all maps."""
    if levels.dtype.itemsize > 4 or levels.dtype == jnp.uint32:
        smallest = 0 if levels.dtype.kind == "u" else -1
        levels = levels.clip(smallest, check.MAX_AXIS)
    return levels.astype(jnp.int32)


def operation_of(op: Op) -> Operation:
    """Return the public functions of an operation of one map."""
    if op.form.moves_by_class:
        return OperationByClass(op)
    return DeformedOperation(op) if op.is_deformable else Operation(op)


FUNCTIONS = public_functions(
    operation_of, PyramidOperation, VolumeOperation, assign_levels, "roipool.jax", "JAX arrays"
)
