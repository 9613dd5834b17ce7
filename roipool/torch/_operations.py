"""The public operations for tensors, made from the table ``OPS`` and NumPy's signatures."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool._definitions import Op
from roipool._requests import (
    Arguments,
    choices_of,
    numpy_functions,
    public_functions,
    variant_of,
)
from roipool.ops import multilevel_roi_align as multilevel
from roipool.torch._cuda import CUDA
from roipool.torch._fast_path import AtOnce, at_once, is_without_transforms
from roipool.torch._functions import Request, call, device_of_plain, recorded
from roipool.torch._memory import FLOATS, INTEGERS, Bridge, is_channels_last
from roipool.torch._operators import FAMILIES, Family, Settings, on_device
from roipool.torch._pyramid_functions import forward_request
from roipool.torch._pyramids import ALL_FAMILIES, PYRAMID_FAMILIES


class Plan(NamedTuple):
    """A forward with its options checked."""

    operator: str
    request: Request
    layout: str
    wants_argmax: bool
    at_once: AtOnce | None


class Operation:
    """One operation's public functions for tensors.

    Attributes
    ----------
    op : Op
        The operation.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self._families = {
            is_maximum: FAMILIES[name]
            for is_maximum, name in ((False, op.forward), (True, f"{op.forward}_max"))
            if name in FAMILIES
        }
        if len(self._families) == 1:
            (only,) = self._families.values()
            self._families = {only.is_maximum: only}
        tensors = {"features", op.boxes, op.indices, "out"}
        parameters = inspect.signature(getattr(numpy_functions(op), op.forward)).parameters
        self._option_names = tuple(name for name in parameters if name not in tensors)
        self._options = operator.itemgetter(*self._option_names)
        self._cached_plan = functools.lru_cache(maxsize=1024, typed=True)(self._make_plan)
        self._choices = choices_of(op)

    # ---- The functions

    def forward(self, given: Arguments) -> Any:
        """Pool maps."""
        features, plan = given["features"], self._plan(given)
        if plan.at_once is not None and given[self.op.indices] is None and given["out"] is None:
            both = (features, given[self.op.boxes])
            if torch.autograd._profiler_enabled():
                pooled = recorded(plan.request.family, "average", plan.at_once, *both)
            else:
                pooled = plan.at_once(*both)
            if pooled is not None:
                return pooled
        boxes, indices = self._boxes(given, "features")
        self._check_out(given)
        pooled = call(plan.operator, to_nchw(features, plan.layout), boxes, indices, plan.request)
        if plan.operator == "average":
            return from_nchw(pooled, plan.layout)
        values, argmax = (from_nchw(each, plan.layout) for each in pooled)
        return (values, argmax) if plan.wants_argmax else values

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
        """Return a forward's plan; `types` tell options apart that are equal, but not all right."""
        given = dict(zip(self._option_names, options, strict=True))
        family = self._family(given)
        size, filling = given[self.op.size], given.get(str(self.op.filling), 0.0)
        request = Request(family, settings(family.name, size, placing(family, given), filling))
        wants_argmax = check.flag("return_argmax", given.get("return_argmax", False))
        if wants_argmax and not family.is_maximum:
            raise ValueError("return_argmax must be False with mode='avg': an average has none")
        kind = "maximum" if family.is_maximum else "average"
        order, short = check.layout(given["layout"]), None
        if order == "NCHW" and not family.is_maximum and not torch.compiler.is_compiling():
            short = at_once(self.op, family.pooling(False, request.settings))
        return Plan(kind, request, order, wants_argmax, short)

    def backward(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the features."""
        family, order = self._family(given), check.layout(given["layout"])
        boxes, indices = self._boxes(given, "grad_output")
        self._check_out(given)
        gradient = to_nchw(given["grad_output"], order)
        shape = check.map_shape("input_shape", given["input_shape"], order)
        if order == "NHWC":
            shape = (shape[0], shape[3], shape[1], shape[2])
        # A maximum of cells needs no more than its argmax.
        values = placing(family, {"spatial_scale": 1.0, **given})
        request = Request(family, settings(family.name, 1, values)[1 : 1 + len(values)])
        argmax, form = given.get("argmax"), (shape, is_channels_last(gradient))
        if not family.is_maximum:
            if argmax is not None:
                raise ValueError("argmax must not be given with mode='avg': an average has none")
            return from_nchw(
                call("average_backward", gradient, boxes, indices, *form, request), order
            )
        if not isinstance(argmax, Tensor):
            raise TypeError(f"argmax must be the tensor that {self.op.forward} returned")
        chosen = to_nchw(argmax, order)
        return from_nchw(
            call("maximum_backward", gradient, chosen, boxes, indices, *form, request), order
        )

    def backward_boxes(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the boxes."""
        given = {**{name: values[0] for name, values in self._choices.items()}, **given}
        family, order = self._family(given), check.layout(given["layout"])
        boxes, indices = self._boxes(given, "features")
        values = placing(family, given)
        request = Request(family, settings(family.name, 1, values)[1 : 1 + len(values)])
        gradient, features = (to_nchw(given[name], order) for name in ("grad_output", "features"))
        slopes = call("average_backward_boxes", gradient, features, boxes, indices, request)
        return slopes[:, boxes.shape[1] - self.op.columns :]

    # ---- Arguments

    def _family(self, given: Arguments) -> Family:
        return self._families[variant_of(self.op, self._choices, given).has_argmax]

    def _check_out(self, given: Arguments) -> None:
        if given.get("out") is not None:
            raise TypeError("out must be None for tensors")

    def _boxes(self, given: Arguments, maps: str) -> tuple[Tensor, Tensor | None]:
        """Return boxes and indices as operators take them; all arrays must be tensors."""
        op, boxes, indices = self.op, given[self.op.boxes], given[self.op.indices]
        if type(given[maps]) is type(boxes) is Tensor and indices is None:
            return boxes, None
        for name in (maps, *(["grad_output"] if "grad_output" in given else [])):
            if not isinstance(given[name], Tensor):
                self._refuse(name, given[name])
        if indices is not None and not isinstance(indices, Tensor):
            self._refuse(op.indices, indices)
        if isinstance(boxes, Tensor):
            return boxes, indices
        if not isinstance(boxes, (list, tuple)) or op.form.is_normalised:
            self._refuse(op.boxes, boxes)
        for image, part in enumerate(boxes):
            if not isinstance(part, Tensor):
                self._refuse(f"{op.boxes}[{image}]", part)
            if part.dim() != 2 or part.shape[1] != op.columns:
                raise ValueError(
                    f"{op.boxes}[{image}] must have shape (L, {op.columns}); "
                    f"got {tuple(part.shape)}"
                )
        return self._joined(boxes, given, maps)

    def _joined(
        self, parts: Sequence[Tensor], given: Arguments, maps: str
    ) -> tuple[Tensor, Tensor]:
        """Return the boxes of several images, one table each, as one table."""
        op = self.op
        if given[op.indices] is not None:
            raise ValueError(
                f"{op.indices} must not be given with {op.boxes} as one tensor per image"
            )
        shape = given["features"].shape if "features" in given else given["input_shape"]
        count = shape[0]
        if len(parts) != count:
            raise ValueError(
                f"{op.boxes} as a sequence must hold one tensor per image: got {len(parts)} for "
                f"{count}"
            )
        if not parts:
            like = given[maps]
            return like.new_empty((0, op.columns)), like.new_empty(0, dtype=torch.int64)
        numbers = [
            torch.full((part.shape[0],), image, dtype=torch.int64, device=part.device)
            for image, part in enumerate(parts)
        ]
        return torch.cat(list(parts)), torch.cat(numbers)

    def _refuse(self, name: str, value: Any) -> None:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"{name} must be a tensor, as other arguments are; got {kind}")


class PyramidOperation(Operation):
    """The public functions of an operation that pools each box from one of several maps."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self._family_of_all = PYRAMID_FAMILIES[op.forward]

    def forward(self, given: Arguments) -> Tensor:
        """Pool maps."""
        self._check_out(given)
        features, order = self._maps("features", given["features"]), check.layout(given["layout"])
        boxes, indices = self._boxes({**given, "features": features[0]}, "features")
        request = forward_request(
            self._request(given), check.size_pair(self.op.size, given[self.op.size])
        )
        levels = self._levels(given, boxes, features[0])
        maps = [to_nchw(each, order) for each in features]
        return from_nchw(call("average_levels", *maps, boxes, indices, levels, request), order)

    def backward(self, given: Arguments) -> list[Tensor]:
        """Return the gradients with respect to the features."""
        order = check.layout(given["layout"])
        shapes = [
            check.map_shape(name, shape, order)
            for name, shape in check.numbered("input_shapes", given["input_shapes"]).items()
        ]
        if not shapes:
            raise ValueError("input_shapes must hold one map at least, got none")
        boxes, indices = self._boxes({**given, "input_shape": shapes[0]}, "grad_output")
        levels = self._levels(given, boxes, given["grad_output"])
        gradient = to_nchw(given["grad_output"], order)
        if order == "NHWC":
            shapes = [(shape[0], shape[3], shape[1], shape[2]) for shape in shapes]
        form = ([size for shape in shapes for size in shape], is_channels_last(gradient))
        request = self._request(given)
        found = call("average_levels_backward", gradient, boxes, indices, levels, *form, request)
        return [from_nchw(each, order) for each in found]

    def backward_boxes(self, given: Arguments) -> Tensor:
        """Return the gradient with respect to the boxes."""
        features, order = self._maps("features", given["features"]), check.layout(given["layout"])
        boxes, indices = self._boxes({**given, "features": features[0]}, "features")
        levels = self._levels(given, boxes, features[0])
        gradient, *maps = (to_nchw(each, order) for each in (given["grad_output"], *features))
        slopes = call(
            "average_levels_backward_boxes", gradient, *maps, boxes, indices, levels,
            self._request(given),
        )  # fmt: skip
        return slopes[:, boxes.shape[1] - self.op.columns :]

    def _request(self, given: Arguments) -> Request:
        family = self._family_of_all
        values = placing(family, given)
        return Request(family, family.placing_of(settings(family.name, 1, values)))

    def _maps(self, name: str, values: Any) -> list[Tensor]:
        """Return a sequence of tensors."""
        maps = check.numbered(name, values)
        for each, value in maps.items():
            if not isinstance(value, Tensor):
                self._refuse(each, value)
        if not maps:
            raise ValueError(f"{name} must hold one map at least, got none")
        return [*maps.values()]

    def _levels(self, given: Arguments, boxes: Tensor, maps: Tensor) -> Tensor:
        """Return the index of each box's map; checked where operators are computed."""
        levels = given["levels"]
        if levels is not None:
            if not isinstance(levels, Tensor):
                self._refuse("levels", levels)
            return levels
        real = torch.float64 if maps.dtype is torch.float64 else torch.float32
        corners = boxes.detach()[:, boxes.shape[1] - 4 :].to(real)
        scales = check.sequence("spatial_scales", given["spatial_scales"])
        return levels_of(corners, *multilevel.levels_of_scales(scales))


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
    options = {name: value for name, value in given.items() if name != "rois"}
    return levels_of(rois.detach()[:, rois.shape[1] - 4 :], **options)


def levels_of(corners: Tensor, *levels: int, **options: Any) -> Tensor:
    """Return the level of each box, of its corners; the rest is that of `assign_levels`."""
    areas = multilevel.level_areas(*levels, **{**multilevel.USUAL, **options})
    is_eager = not torch.compiler.is_compiling() and is_without_transforms()
    if is_eager and device_of_plain(corners) == "CUDA":
        return on_device(CUDA, levels_at_once)(corners, areas)
    none = corners.new_zeros(corners.shape[0], dtype=torch.int64)
    found: Tensor = multilevel.levels_by_area(corners.double(), none, areas)
    return found


def levels_at_once(bridge: Bridge, corners: Tensor, areas: Sequence[float]) -> Tensor:
    """Return them by one kernel, rather than a dozen of torch's."""
    is_narrow = corners.is_floating_point() and corners.dtype is not torch.float64
    boxes = bridge.array(corners.to(torch.float32 if is_narrow else torch.float64))
    return bridge.tensor(bridge.engine().assign_levels(boxes, areas))


def placing(family: Family, given: Arguments) -> Settings:
    """Return the options that place bins and samples, pairs as tuples."""
    values = (given[name] for name in family.placing)
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)


def settings(name: str, size: Any, values: Settings, filling: Any = 0.0) -> Settings:
    """Return the settings of an operator of a family.

    Numbers of a program that is compiled may be symbols: they are only brought into the form of
    the operator's schema. The operator checks them, when the program is traced and when it runs.
    """
    if any(isinstance(each, Tensor) for each in (size, *values, filling)):
        raise TypeError("only maps, boxes and indices may be tensors")
    family = ALL_FAMILIES[name]
    if torch.compiler.is_compiling():
        return family.unchecked_settings(size, values, filling)
    return family.settings(size, values, filling)


def types_within(options: tuple[Any, ...]) -> tuple[type, ...]:
    """Return the types of what is in tuples among options: a cache takes (7.0, 7.0) for (7, 7)."""
    found: tuple[type, ...] = ()
    for option in options:
        if isinstance(option, tuple):
            found += tuple(map(type, option))
    return found


def to_nchw(maps: Tensor, order: str) -> Tensor:
    """Return maps as (N, C, H, W), without a copy."""
    return maps.permute(0, 3, 1, 2) if order == "NHWC" else maps


def from_nchw(maps: Tensor, order: str) -> Tensor:
    """Return (N, C, H, W) in the order of the caller."""
    return maps.permute(0, 2, 3, 1) if order == "NHWC" else maps


FUNCTIONS = public_functions(
    Operation, PyramidOperation, assign_levels, "roipool.torch", "tensors",
    is_compiling=torch.compiler.is_compiling,
)  # fmt: skip
