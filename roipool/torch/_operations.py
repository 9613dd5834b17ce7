"""The public operations for tensors, made from the table ``OPS`` and NumPy's signatures."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool import _levels
from roipool._by_class import OffsetsByClass
from roipool._definitions import PYRAMID_OPS, Op
from roipool._layout import AXES, Layout, Shape4, VolumeLayout, from_ncdhw, in_ncdhw
from roipool._requests import (
    Arguments,
    bins_of,
    choices_of,
    numpy_functions,
    public_functions,
    variant_of,
)
from roipool.torch._autograd import call, call_fast, device_of_plain, transforms_are_active
from roipool.torch._cuda import CUDA
from roipool.torch._families import FAMILIES, Family, Settings, as_pair
from roipool.torch._fast_path import FastAverage, fast_average
from roipool.torch._kernels import check_device, check_tensors
from roipool.torch._memory import BYTES, FLOATS, INTEGERS, Bridge, check_memory, is_channels_last
from roipool.torch._operators import on_device


def joined(tensors: list[Tensor], axis: int) -> Tensor:
    """Return tensors side by side; autocast would refuse some half types."""
    first, *others = tensors
    if not others:
        return first
    kind = first.device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return torch.cat(tensors, axis)
    with torch.autocast(kind, enabled=False):
        return torch.cat(tensors, axis)


class Plan(NamedTuple):
    """A forward with its options checked."""

    verb: str
    settings: Settings
    layout: str
    wants_argmax: bool
    fast: FastAverage | None


class Operation:
    """One operation's public functions for tensors.

    Attributes
    ----------
    op : Op
        The operation.
    is_pyramid : bool
        Whether it pools each box from one of several maps. Other operations have one.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.is_pyramid = op.forward in PYRAMID_OPS
        self._families = {
            family.is_maximum: family for family in FAMILIES.values() if family.op is op
        }
        tensors = {"features", op.boxes, op.indices, "levels", "dtype", "out"}
        parameters = inspect.signature(getattr(numpy_functions(op), op.forward)).parameters
        self._option_names = tuple(name for name in parameters if name not in tensors)
        self._options = operator.itemgetter(*self._option_names)
        self._cached_plan = functools.lru_cache(maxsize=1024, typed=True)(self._make_plan)
        self._choices = choices_of(op)

    # ---- The functions

    def forward(self, given: Arguments) -> Any:
        """Pool maps."""
        if given.get("dtype") is None:
            return self._pooled(given)
        dtype = self._dtype(given)
        pooled = self._pooled(given)
        if isinstance(pooled, tuple):
            values, argmax = pooled
            return rounded(values, dtype), argmax
        return rounded(pooled, dtype)

    def _dtype(self, given: Arguments) -> torch.dtype:
        """Return the type that pooled values are to have."""
        own, chosen = name_of(check_tensor("features", given["features"]).dtype), given["dtype"]
        if own not in self.op.dtypes:  # which is the mistake to tell
            return torch.float32
        name = name_of(chosen) if isinstance(chosen, torch.dtype) else chosen
        dtype: torch.dtype = getattr(torch, check.pooled_dtype(name, own))
        return dtype

    def _pooled(self, given: Arguments) -> Any:
        """Pool maps to the type that operators compute."""
        verb, settings, order, wants_argmax, fast = self._plan(given)
        form = self.op.form
        if fast is not None and given[form.indices] is None and given["out"] is None:
            pooled = call_fast(fast, settings, given["features"], given[form.boxes])
            if pooled is not None:
                return pooled
        if given["out"] is not None:
            self._refuse_out()
        features = self._features(given) if self.is_pyramid else (given["features"],)
        boxes, indices = self._boxes(given, *features)
        levels = self._levels(given, boxes, features[0]) if self.is_pyramid else None
        if order == "NCHW":
            pooled = call(verb, settings, boxes, indices, levels, *features)
            return pooled if verb == "average" or wants_argmax else pooled[0]
        pooled = call(verb, settings, boxes, indices, levels, *map(to_nchw, features))
        if verb == "average":
            return to_nhwc(pooled)
        values, argmax = map(to_nhwc, pooled)
        return (values, argmax) if wants_argmax else values

    def _plan(self, given: Arguments) -> Plan:
        """Return the checked options of a forward, cached by their values."""
        if torch.compiler.is_compiling():
            return self._make_plan((), *(given[name] for name in self._option_names))
        options = self._options(given)
        try:
            return self._cached_plan(types_within(options), *options)
        except TypeError:  # a list, or a mistake, which is found again
            return self._make_plan((), *options)

    def _make_plan(self, types: tuple[Any, ...], /, *options: Any) -> Plan:
        """Return a forward's plan; `types` keeps 1, 1.0 and True apart in the cache."""
        given = dict(zip(self._option_names, options, strict=True))
        family, filling = self._family(given), given.get(str(self.op.filling), 0.0)
        settings = family.settings(placing(family, given), given[self.op.size], filling)
        wants_argmax = check.flag("return_argmax", given.get("return_argmax", False))
        if wants_argmax and not family.is_maximum:
            raise ValueError("return_argmax must be False with mode='avg': an average has none")
        verb = "maximum" if family.is_maximum else "average"
        order = check.layout(given["layout"])
        fast = None
        if verb == "average" and order == "NCHW" and not torch.compiler.is_compiling():
            fast = fast_average(settings)
        return Plan(verb, settings, order, wants_argmax, fast)

    def backward(self, given: Arguments) -> Any:
        """Return the gradient with respect to the features, or to each map of a pyramid."""
        family, order = self._family(given), check.layout(given["layout"])
        if given.get("out") is not None:
            self._refuse_out()
        shapes = self._shapes(given, order)
        boxes, indices = self._boxes({**given, "input_shape": shapes[0]}, given["grad_output"])
        levels = self._levels(given, boxes, given["grad_output"]) if self.is_pyramid else None
        gradient = in_nchw(given["grad_output"], order)
        if order == "NHWC":
            shapes = [(shape[0], shape[3], shape[1], shape[2]) for shape in shapes]
        # A maximum of cells needs no more than its argmax.
        settings = family.settings(placing(family, {"spatial_scale": 1.0, **given}))
        settings = settings._replace(shapes=tuple(shapes), channels_last=is_channels_last(gradient))
        at, argmax = (settings, boxes, indices, levels), given.get("argmax")
        if family.is_maximum:
            if not isinstance(argmax, Tensor):
                raise TypeError(f"argmax must be the tensor that {self.op.forward} returned")
            found = call("maximum_backward", *at, gradient, in_nchw(argmax, order))
        elif argmax is not None:
            raise ValueError("argmax must not be given with mode='avg': an average has none")
        else:
            found = call("average_backward", *at, gradient)
        results = [to_nhwc(each) if order == "NHWC" else each for each in found]
        return results if self.is_pyramid else results[0]

    def backward_boxes(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the boxes."""
        given = {**{name: values[0] for name, values in self._choices.items()}, **given}
        family, order = self._family(given), check.layout(given["layout"])
        features = self._features(given) if self.is_pyramid else [given["features"]]
        boxes, indices = self._boxes(given, *features)
        levels = self._levels(given, boxes, features[0]) if self.is_pyramid else None
        arrays = [in_nchw(each, order) for each in (given["grad_output"], *features)]
        settings = family.settings(placing(family, given))
        slopes = call("average_backward_boxes", settings, boxes, indices, levels, *arrays)
        return slopes[:, boxes.shape[1] - self.op.form.numbers(arrays[0].shape[2:]) :]

    # ---- Arguments

    def _family(self, given: Arguments) -> Family:
        return self._families[variant_of(self.op, self._choices, given).has_argmax]

    def _refuse_out(self) -> NoReturn:
        raise TypeError("out must be None for tensors")

    def _features(self, given: Arguments) -> list[Tensor]:
        """Return the maps of a pyramid."""
        maps = check.numbered("features", given["features"])
        for name, value in maps.items():
            check_tensor(name, value)
        if not maps:
            raise ValueError("features must hold one map at least, got none")
        return [*maps.values()]

    def _shapes(self, given: Arguments, order: Layout) -> list[Shape4]:
        """Return the shapes of the maps."""
        if not self.is_pyramid:
            return [check.map_shape("input_shape", given["input_shape"], order)]
        named = check.numbered("input_shapes", given["input_shapes"])
        shapes = [check.map_shape(name, shape, order) for name, shape in named.items()]
        if not shapes:
            raise ValueError("input_shapes must hold one map at least, got none")
        return shapes

    def _boxes(self, given: Arguments, maps: Any, *_: Any) -> tuple[Tensor, Tensor | None]:
        """Return boxes and indices in the form for operators; all arrays must be tensors."""
        form = self.op.form
        boxes, indices = given[form.boxes], given[form.indices]
        check_tensor("features" if "features" in given else "grad_output", maps)
        if "grad_output" in given:
            check_tensor("grad_output", given["grad_output"])
        if indices is not None:
            check_tensor(form.indices, indices)
        if isinstance(boxes, (list, tuple)) and not form.is_normalised:
            return self._joined(boxes, given, maps)
        check_box_format(form.boxes, check_tensor(form.boxes, boxes), self._box_format(given))
        return boxes, indices

    def _box_format(self, given: Arguments) -> str:
        """Return the format of torchvision's `BoundingBoxes` that has the meaning of the boxes."""
        if self.op.is_rotated:
            turns_alike = given["angle_unit"] == "degrees" and not given["clockwise"]
            return "CXCYWHR" if turns_alike else "CXCYWHR with angle_unit='degrees'"
        return "y1, x1, y2, x2 as fractions" if self.op.form.is_normalised else "XYXY"

    def _joined(
        self, parts: Sequence[Tensor], given: Arguments, maps: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the boxes of several images, one table each, as one table."""
        op = self.op
        for image, part in enumerate(parts):
            name = f"{op.boxes}[{image}]"
            check_box_format(name, check_tensor(name, part), self._box_format(given))
            if part.dim() != 2 or part.shape[1] != op.columns:
                raise ValueError(
                    f"{name} must have shape (L, {op.columns}); got {tuple(part.shape)}"
                )
        shape = given.get("input_shape", maps.shape)
        check.one_per_image(op.form, parts, given[op.indices], shape[0], "tensor")
        if not parts:
            return maps.new_empty((0, op.columns)), maps.new_empty(0, dtype=torch.int64)
        numbers = [
            torch.full((part.shape[0],), image, dtype=torch.int64, device=part.device)
            for image, part in enumerate(parts)
        ]
        return joined(list(parts), 0), torch.cat(numbers)

    def _levels(self, given: Arguments, boxes: Tensor, maps: Tensor) -> Tensor:
        """Return the index of each box's map; the kernels check the values."""
        levels = given["levels"]
        if levels is not None:
            return check_tensor("levels", levels)
        corners = boxes.detach()[:, boxes.shape[1] - 4 :].to(real_type(maps))
        scales = check.sequence("spatial_scales", given["spatial_scales"])
        return levels_of(corners, *_levels.levels_of_scales(scales))


class DeformedOperation(Operation):
    """The public functions of an operation whose bins are moved.

    Operators get the offsets behind the corners of the boxes, so that the gradient of this table
    is that of both. The mask is multiplied here.
    """

    def forward(self, given: Arguments) -> Tensor:
        """Pool maps."""
        pooled: Tensor = super().forward(given)
        return self._masked(pooled, given)

    def backward(self, given: Arguments) -> Any:
        """Return the gradient with respect to the features."""
        return super().backward(self._with_masked_gradient(given))

    def backward_boxes(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the boxes."""
        slopes = super().backward_boxes(self._with_masked_gradient(given))[:, : self.op.columns]
        return in_type_of(slopes, given[self.op.boxes])

    def backward_offsets(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the offsets."""
        slopes = super().backward_boxes(self._with_masked_gradient(given))
        moved = slopes[:, self.op.columns :].unflatten(1, (2, *self._bins(given)))
        moved = to_nhwc(moved) if given["layout"] == "NHWC" else moved
        return in_type_of(moved, given["offsets"])

    def backward_mask(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the mask."""
        gradient = readable("grad_output", given["grad_output"])
        own = {**given, "mask": None, "out": None, self.op.size: self._bins(given)}
        channel, *_ = AXES[check.layout(given["layout"])]
        return (gradient * self.forward(own)).sum(channel, keepdim=True)

    def _bins(self, given: Arguments) -> tuple[int, int]:
        """Return the bins, which may be symbols in a program that is compiled."""
        if torch.compiler.is_compiling() and self.op.size in given:
            rows, columns = as_pair(given[self.op.size])
            return rows, columns
        return bins_of(self.op, given)

    def _masked(self, values: Tensor, given: Arguments) -> Tensor:
        if given["mask"] is None:
            return values
        return values * self._of_bins("mask", 1, given, values.shape[0]).to(values.dtype)

    def _with_masked_gradient(self, given: Arguments) -> Arguments:
        if given["mask"] is None:
            return given
        gradient = readable("grad_output", given["grad_output"])
        if gradient.dim() != 4:
            raise ValueError(f"grad_output must have 4 dimensions, got {tuple(gradient.shape)}")
        return {**given, "grad_output": self._masked(gradient, given)}

    def _of_bins(self, name: str, channels: int, given: Arguments, boxes: int) -> Tensor:
        """Return a tensor that holds some numbers for each bin, checked."""
        values, size = readable(name, given[name]), self._bins(given)
        if values.dtype not in FLOATS and values.dtype not in INTEGERS:
            raise TypeError(f"{name} must hold real numbers, got {values.dtype}")
        check.per_bin(name, values.shape, channels, boxes, size, given["layout"])
        return values

    def _boxes(self, given: Arguments, maps: Any, *others: Any) -> tuple[Tensor, Tensor | None]:
        """Return boxes with the offsets of their bins, and indices."""
        boxes, indices = super()._boxes(given, maps, *others)
        form, name = self.op.form, "features" if "features" in given else "grad_output"
        check_tensors(form, name, maps, readable(form.boxes, boxes), indices)
        width = len(form.columns) + (indices is None)
        if boxes.shape[1] != width:
            raise ValueError(f"{form.boxes} must have shape (K, {width}); got {tuple(boxes.shape)}")
        offsets = self._of_bins("offsets", 2, given, boxes.shape[0])
        check_device("offsets", offsets, name, maps)
        offsets = to_nchw(offsets) if given["layout"] == "NHWC" else offsets
        real = real_type(maps)
        return torch.cat([boxes.to(real), offsets.to(real).flatten(1)], 1), indices


class VolumeOperation(Operation):
    """The public functions of an operation on volumes.

    Operators get volumes, and what is pooled from them, as maps whose rows are those of all planes:
    views, which torch differentiates itself.
    """

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self._option_names = (*self._option_names, "planes", "depth")
        self._options = operator.itemgetter(*self._option_names)

    def forward(self, given: Arguments) -> Tensor:
        """Pool volumes."""
        order = check.volume_layout(given["layout"])
        features = volumes_of("features", given["features"], order)
        depth, rows, columns = as_checked_triple(check.size_triple, self.op.size, given)
        own = self._of_maps(given, features.shape[2], depth)
        own |= {"features": features.flatten(2, 3), self.op.size: (depth * rows, columns)}
        return in_order(super().forward(own).unflatten(2, (depth, rows)), order)

    def backward(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the features."""
        order = check.volume_layout(given["layout"])
        shape = check.volume_shape("input_shape", given["input_shape"], order)
        images, channels, planes, rows, columns = in_ncdhw(shape, order)
        gradient, bins = self._gradient(given, channels, order)
        own = self._of_maps(given, planes, bins)
        own |= {"grad_output": gradient, "input_shape": (images, channels, planes * rows, columns)}
        found: Tensor = super().backward(own)
        return in_order(found.unflatten(2, (planes, rows)), order)

    def backward_boxes(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the boxes."""
        order = check.volume_layout(given["layout"])
        features = volumes_of("features", given["features"], order)
        gradient, bins = self._gradient(given, features.shape[1], order)
        own = self._of_maps(given, features.shape[2], bins)
        return super().backward_boxes(
            {**own, "grad_output": gradient, "features": features.flatten(2, 3)}
        )

    def _of_maps(self, given: Arguments, planes: int, depth: int) -> dict[str, Any]:
        """Return the arguments of the same call on maps, but for arrays and sizes."""
        scale = as_checked_triple(check.scale_triple, "spatial_scale", given)
        ratio = as_checked_triple(check.sampling_triple, "sampling_ratio", given)
        options = {"layout": "NCHW", "planes": planes, "depth": depth}
        return {**given, **options, "spatial_scale": scale, "sampling_ratio": ratio}

    def _gradient(self, given: Arguments, channels: int, order: VolumeLayout) -> tuple[Tensor, int]:
        """Return the gradient of pooled values as that of maps, and its bins along depth."""
        gradient, rois = volumes_of("grad_output", given["grad_output"], order), given["rois"]
        parts = rois if isinstance(rois, (list, tuple)) else [rois]
        boxes = sum([len(part) for part in parts if isinstance(part, Tensor)])
        shape = from_ncdhw(gradient.shape, order)
        depth, *_ = check.volume_gradient("grad_output", shape, boxes, channels, order)
        return gradient.flatten(2, 3), depth


def volumes_of(name: str, value: Any, order: VolumeLayout) -> Tensor:
    """Return checked volumes of either order as (N, C, D, H, W), without a copy."""
    volumes = check_tensor(name, value)
    if volumes.dtype not in FLOATS:
        raise TypeError(
            f"{name} must be a tensor of dtype float16, bfloat16, float32 or float64, "
            f"got {volumes.dtype}"
        )
    if volumes.dim() != 5:
        raise ValueError(f"{name} must have 5 dimensions, got shape {tuple(volumes.shape)}")
    return volumes.permute(0, 4, 1, 2, 3) if order == "NDHWC" else volumes


def in_order(volumes: Tensor, order: VolumeLayout) -> Tensor:
    """Return (N, C, D, H, W) volumes in either order, without a copy."""
    return volumes.permute(0, 2, 3, 4, 1) if order == "NDHWC" else volumes


def as_checked_triple(
    checked: Callable[[str, Any], tuple[Any, Any, Any]], name: str, given: Arguments
) -> tuple[Any, Any, Any]:
    """Return an option by axis, checked unless a program is compiled: it may be symbols there."""
    value = given[name]
    if not torch.compiler.is_compiling():
        return checked(name, value)
    first, second, third = value if isinstance(value, (list, tuple)) else (value, value, value)
    return first, second, third


class OperationByClass(OffsetsByClass, DeformedOperation):
    """The public functions of an operation whose offsets are those of parts and classes."""

    _join = staticmethod(joined)
    _bins = DeformedOperation._bins

    def _array(self, name: str, given: Arguments) -> Tensor:
        """Return a tensor of pooled values or maps."""
        values = readable(name, given[name])
        if values.dim() != 4:
            raise ValueError(f"{name} must have 4 dimensions, got {tuple(values.shape)}")
        return values

    def _with_table(self, given: Arguments, images: int, like: Tensor) -> Arguments:
        """Return the arguments with boxes in one table, and with readable offsets.

        Boxes are rounded, and have no gradient.
        """
        boxes, indices = Operation._boxes(self, {**given, "input_shape": (images,)}, like)
        table = check_tensor(self.op.boxes, boxes).detach()
        own = {self.op.boxes: table, self.op.indices: indices}
        # Offsets of all types are added up as kernels compute them.
        offsets = readable("offsets", given["offsets"]).to(real_type(like))
        return {**given, **own, "offsets": offsets}

    def backward_offsets(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the offsets."""
        return in_type_of(super().backward_offsets(given), given["offsets"])


def real_type(maps: Tensor) -> torch.dtype:
    """Return the type in which kernels compute positions on maps."""
    return torch.float64 if maps.dtype is torch.float64 else torch.float32


def name_of(dtype: torch.dtype) -> str:
    """Return a type's name in NumPy."""
    return str(dtype).removeprefix("torch.")


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return pooled values in another type, as `roipool._arrays.Library.store_rounded` does."""
    if dtype in BYTES:
        limits = torch.iinfo(dtype)
        values = values.nan_to_num().clamp(limits.min, limits.max).round()
    return values.to(dtype)


def readable(name: str, value: Any) -> Tensor:
    """Return a tensor whose elements may be read here; a kernel checks by itself."""
    tensor = check_tensor(name, value)
    if not torch.compiler.is_compiling() and device_of_plain(tensor) is not None:
        check_memory(**{name: tensor})
    return tensor


def in_type_of(gradient: Tensor, values: Any) -> Tensor:
    """Return a gradient in the type of what it is the gradient of, if that is floating-point."""
    first = values[0] if isinstance(values, (list, tuple)) and values else values
    is_real = isinstance(first, Tensor) and first.is_floating_point()
    return gradient.to(first.dtype) if is_real else gradient


def operation_of(op: Op) -> Operation:
    """Return the public functions of an operation of one map."""
    if op.form.moves_by_class:
        return OperationByClass(op)
    return DeformedOperation(op) if op.is_deformable else Operation(op)


def check_tensor(name: str, value: Any) -> Tensor:
    """Return a tensor of dense storage; anything else is an error."""
    if isinstance(value, Tensor):
        if value.is_nested or value.layout is not torch.strided:
            kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
            way = "a list, as .unbind() gives, for boxes" if value.is_nested else ".to_dense()"
            raise TypeError(f"{name} must be a dense tensor, got a {kind} one: use {way}")
        return value
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"{name} must be a tensor, as other arguments are; got {kind}")


def check_box_format(name: str, boxes: Tensor, allowed: str = "XYXY") -> None:
    """Check that torchvision's `BoundingBoxes`, which have a format, are of the allowed one."""
    if type(boxes) is Tensor:
        return
    own = getattr(getattr(boxes, "format", None), "name", allowed)
    if own != allowed:
        raise ValueError(f"{name} of BoundingBoxes must have the format {allowed}, got {own}")


def assign_levels(given: Arguments) -> Tensor:
    """Return a level of a feature pyramid for each box."""
    rois = given["rois"]
    if not isinstance(rois, Tensor):
        kind = f"{type(rois).__module__}.{type(rois).__qualname__}"
        raise TypeError(f"rois must be a tensor, got {kind}")
    if rois.dtype not in FLOATS and rois.dtype not in INTEGERS:
        raise TypeError(f"rois must hold real numbers, got {rois.dtype}")
    if rois.dim() != 2 or rois.shape[1] not in (4, 5):
        raise ValueError(f"rois must have shape (K, 5) or (K, 4); got {tuple(rois.shape)}")
    check_box_format("rois", rois)
    options = {name: value for name, value in given.items() if name != "rois"}
    return levels_of(rois.detach()[:, rois.shape[1] - 4 :], **options)


def levels_of(corners: Tensor, *levels: int, **options: Any) -> Tensor:
    """Return the level of each box from its corners; other arguments as in `assign_levels`."""
    areas = _levels.level_areas(*levels, **{**_levels.USUAL, **options})
    is_eager = not (torch.compiler.is_compiling() or torch._C._is_tracing())
    if is_eager and not transforms_are_active() and device_of_plain(corners) == "CUDA":
        return on_device(CUDA, levels_at_once)(corners, areas)
    none = corners.new_zeros(corners.shape[0], dtype=torch.int64)
    found: Tensor = _levels.levels_by_area(corners.double(), none, areas)
    return found


def levels_at_once(bridge: Bridge, corners: Tensor, areas: Sequence[float]) -> Tensor:
    """Return the levels, computed by one kernel instead of a dozen of torch's."""
    is_narrow = corners.is_floating_point() and corners.dtype is not torch.float64
    boxes = bridge.array(corners.to(torch.float32 if is_narrow else torch.float64))
    return bridge.tensor(bridge.engine().assign_levels(boxes, areas))


def placing(family: Family, given: Arguments) -> tuple[Any, ...]:
    """Return the options that place bins and samples, pairs as tuples."""
    values = (given[name] for name in family.placing)
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)


def types_within(options: tuple[Any, ...]) -> tuple[type, ...]:
    """Return the types of the items of tuples: for a cache (7.0, 7.0) equals (7, 7)."""
    found: tuple[type, ...] = ()
    for option in options:
        if isinstance(option, tuple):
            found += tuple(map(type, option))
    return found


def to_nchw(maps: Tensor) -> Tensor:
    """Return (N, H, W, C) maps as (N, C, H, W), without a copy."""
    return maps.permute(0, 3, 1, 2)


def to_nhwc(maps: Tensor) -> Tensor:
    """Return (N, C, H, W) maps as (N, H, W, C), without a copy."""
    return maps.permute(0, 2, 3, 1)


def in_nchw(maps: Tensor, order: str) -> Tensor:
    """Return maps of either order as (N, C, H, W), without a copy."""
    return to_nchw(maps) if order == "NHWC" else maps


FUNCTIONS = public_functions(
    operation_of,
    Operation,
    VolumeOperation,
    assign_levels,
    "roipool.torch",
    "tensors",
    is_compiling=torch.compiler.is_compiling,
)
