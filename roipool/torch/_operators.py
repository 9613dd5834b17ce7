"""torch operators for every operation of ``OPS``: schemas, kernels, shapes of traced results.

An operation is a family of operators: its values, their gradient with respect to the features, and
where there is one the gradient with respect to the boxes. They are functions of (N, C, H, W) maps
in either memory format; what differentiates and batches them is in ``_functions``.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._arrays import LIBRARY_OF
from roipool._definitions import OPS, Op
from roipool._errors import with_name
from roipool._layout import Layout
from roipool._pooling import MaxRules, Pooling, check_sizes, maximum_backward
from roipool._requests import numpy_functions
from roipool.torch._cuda import CUDA
from roipool.torch._fast_path import AtOnce, at_once
from roipool.torch._memory import (
    FLOATS,
    HOST,
    INTEGERS,
    Bridge,
    as_stored,
    check_memory,
    empty_maps,
    is_channels_last,
    map_array,
)

LIBRARY = torch.library.Library("roipool", "DEF")

Settings = tuple[Any, ...]  # the output size, what places bins and samples, and the filling

# The type of an operator's argument, for that of a public function's.
SCHEMA_TYPES = {
    "float": "float", "Sequence[float]": "float[]", "int | Sequence[int]": "int[2]", "bool": "bool",
    "str": "str",
}  # fmt: skip


class Family:
    """The operators of an operation that computes an average, or a maximum.

    Attributes
    ----------
    op : Op
        The operation.
    is_maximum : bool
        Whether the forward gives a maximum and its argmax.
    name : str
        What the operators' names begin with.
    placing : mapping of str to str
        The arguments that place bins and samples, and their types.
    """

    def __init__(self, op: Op, is_maximum: bool) -> None:
        module = numpy_functions(op)
        averages = [each for each in op.variants.values() if not each.has_argmax]
        self.op = op
        self.is_maximum = is_maximum
        self.name = f"{op.forward}_max" if is_maximum and averages else op.forward
        self.rules: MaxRules = getattr(module, "RULES", MaxRules())
        self._definition = module.definition
        parameters = inspect.signature(module.definition).parameters
        self.placing = {name: str(each.annotation) for name, each in parameters.items()}
        self._by_boxes = {each.by_boxes for each in op.variants.values()} - {None}
        self.overloads: dict[str, Any] = {}
        self.kernels: dict[tuple[str, str], Callable[..., Any]] = {}  # by operator and device

    # ---- What the arguments mean

    def settings(self, size: Any, placing: Sequence[Any], filling: Any = 0.0) -> Settings:
        """Return the settings of an operator, checked and in its types."""
        values = [
            CHECKS[kind](name, value)
            for (name, kind), value in zip(self.placing.items(), placing, strict=True)
        ]
        self._definition(*values)
        fillings = () if self.op.filling is None else (check.any_float(self.op.filling, filling),)
        return (check.size_pair(self.op.size, size), *values, *fillings)

    def unchecked_settings(self, size: Any, placing: Sequence[Any], filling: Any) -> Settings:
        """Return the settings of an operator in the form of its schema, not checked."""
        values = [
            as_pair(value) if kind == "int | Sequence[int]" else value
            for kind, value in zip(self.placing.values(), placing, strict=True)
        ]
        fillings = () if self.op.filling is None else (filling,)
        return (as_pair(size), *values, *fillings)

    def placing_of(self, settings: Settings) -> Settings:
        """Return the settings of a forward that its gradients take, too."""
        return settings[1 : 1 + len(self.placing)]

    def pooling(self, channels_last: bool, settings: Settings) -> Pooling:
        """Return an engine's request; the filling may be missing."""
        size, placing, fillings = settings[0], self.placing_of(settings), settings[1:]
        filling = fillings[len(placing)] if len(fillings) > len(placing) else 0.0
        layout: Layout = "NHWC" if channels_last else "NCHW"
        size = check.size_pair(self.op.size, tuple(size))
        return Pooling(self._definition(*placing), size, layout, filling, self.rules)

    def moves_with_boxes(self, placing: Settings) -> bool:
        """Return whether pooled values follow the boxes, or jump from cell to cell."""
        return self._definition(*placing).name in self._by_boxes

    def regions(self, boxes: Any, indices: Any, images: int, dtype: Any) -> Regions:
        """Return boxes as engines read them."""
        return self.op.form.read(boxes, indices, images, dtype, self.op.form)

    def check(self, name: str, maps: Tensor, boxes: Tensor, indices: Tensor | None) -> None:
        """Check types and devices, also of tensors without values; `name` is that of the maps."""
        if maps.dtype not in FLOATS or maps.dim() != 4:
            raise TypeError(
                f"{name} must be a (N, C, H, W) tensor of dtype float16, "
                f"bfloat16, float32 or float64, got {maps.dtype} of shape {tuple(maps.shape)}"
            )
        for table, values in ((self.op.boxes, boxes), (self.op.indices, indices)):
            if values is None:
                continue
            if values.dtype not in FLOATS and values.dtype not in INTEGERS:
                raise TypeError(f"{table} must hold real numbers, got {values.dtype}")
            self.check_device(table, values, name, maps)
        if boxes.dim() != 2:
            raise ValueError(
                f"{self.op.boxes} must have 2 dimensions, got shape {tuple(boxes.shape)}"
            )

    def check_device(self, name: str, tensor: Tensor, maps_name: str, maps: Tensor) -> None:
        """Check that a tensor is where maps are."""
        if tensor.device != maps.device:
            raise ValueError(
                f"{name} must be on the device of {maps_name}, {maps.device}, got {tensor.device}"
            )

    def check_memory(self, boxes: Tensor, indices: Tensor | None, **maps: Tensor) -> None:
        """Check that tensors with values hold them."""
        check_memory(**maps, **{self.op.boxes: boxes, self.op.indices: indices})

    # ---- Kernels: what an operator computes on one kind of device

    def average(
        self, bridge: Bridge, features: Tensor, boxes: Tensor, indices: Tensor | None,
        *settings: Any,
    ) -> Tensor:  # fmt: skip
        """Pool maps by an average."""
        if bridge is HOST and indices is None:
            short = _cached_at_once(self, hashable(settings))
            pooled = None if short is None else short.pool(features, boxes)
            if pooled is not None:
                return pooled
        maps, regions, pooling, out = self._prepare(bridge, features, boxes, indices, settings)
        result = bridge.array(as_stored(out, pooling.layout == "NHWC"))
        bridge.engine().average([maps], regions, pooling, result)
        return out

    def maximum(
        self, bridge: Bridge, features: Tensor, boxes: Tensor, indices: Tensor | None,
        *settings: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Pool maps by a maximum; return its argmax, too."""
        maps, regions, pooling, out = self._prepare(bridge, features, boxes, indices, settings)
        last = pooling.layout == "NHWC"
        result = bridge.array(as_stored(out, last))
        argmax = bridge.tensor(
            bridge.engine().maximum(maps, regions, pooling, result, return_argmax=True)
        )
        if argmax.dtype is not self.argmax_dtype(features.shape):
            argmax = self._narrow(argmax)
        return out, argmax.permute(0, 3, 1, 2) if last else argmax

    def _prepare(
        self, bridge: Bridge, features: Tensor, boxes: Tensor, indices: Tensor | None,
        settings: Settings,
    ) -> tuple[Any, Regions, Pooling, Tensor]:  # fmt: skip
        """Return the maps, the regions, the request, and a tensor for the pooled values."""
        self.check("features", features, boxes, indices)
        self.check_memory(boxes, indices, features=features)
        last = is_channels_last(features)
        pooling = cached_pooling(self, last, settings)
        self._check_sizes(features.shape, pooling)
        shape = (boxes.shape[0], features.shape[1], *pooling.output_size)
        maps = map_array(bridge, features, last)
        regions = self._regions(bridge, boxes, indices, features.shape[0], maps.dtype)
        return maps, regions, pooling, empty_maps(shape, features, last)

    def average_backward(
        self, bridge: Bridge, grad_output: Tensor, boxes: Tensor, indices: Tensor | None,
        input_shape: Sequence[int], channels_last: bool, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the gradient of an average with respect to the features."""
        gradient, regions, pooling, out = self._prepare_backward(
            bridge, grad_output, boxes, indices, input_shape, channels_last, placing
        )
        result = map_array(bridge, out, channels_last)
        bridge.engine().average_backward(gradient, regions, pooling, [result])
        return out

    def maximum_backward(
        self, bridge: Bridge, grad_output: Tensor, argmax: Tensor, boxes: Tensor,
        indices: Tensor | None, input_shape: Sequence[int], channels_last: bool, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the gradient of a maximum with respect to the features."""
        if argmax.dtype not in INTEGERS:
            raise TypeError(f"argmax must be an integer tensor, got {argmax.dtype}")
        check_memory(argmax=argmax)
        gradient, regions, pooling, out = self._prepare_backward(
            bridge, grad_output, boxes, indices, input_shape, channels_last, placing
        )
        result = map_array(bridge, out, channels_last)
        chosen = map_array(bridge, argmax, channels_last)
        cells = input_shape[2] * input_shape[3] if self.rules.argmax_is_cell else None
        library = LIBRARY_OF[type(chosen)]
        assert library is not None
        chosen = check.argmax(library, chosen, gradient.shape, cells)
        maximum_backward(bridge.engine(), gradient, chosen, regions, pooling, result)
        return out

    def average_backward_boxes(
        self, bridge: Bridge, grad_output: Tensor, features: Tensor, boxes: Tensor,
        indices: Tensor | None, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the gradient of an average with respect to the boxes, in their shape and dtype."""
        self.check("features", features, boxes, indices)
        self.check("grad_output", grad_output, boxes, indices)
        self.check_memory(boxes, indices, features=features, grad_output=grad_output)
        last = is_channels_last(features)
        maps, gradient = (map_array(bridge, each, last) for each in (features, grad_output))
        check.same_dtype("grad_output", gradient, "features", maps)
        pooling = cached_pooling(self, last, (tuple(grad_output.shape[2:]), *placing))
        self._check_sizes(features.shape, pooling)
        regions = self._regions(bridge, boxes, indices, features.shape[0], maps.dtype)
        check.grad_output("grad_output", gradient, len(regions.boxes), maps.shape, pooling.layout)
        slopes = bridge.engine().average_backward_boxes(gradient, [maps], regions, pooling)
        if self.op.form.is_normalised:
            slopes = check.swap_xy(slopes)
        return self._in_columns_of(boxes, bridge.tensor(slopes).to(self.box_dtype(boxes, features)))

    def _in_columns_of(self, boxes: Tensor, slopes: Tensor) -> Tensor:
        """Return slopes with a column of zeros for the batch index, where boxes have one."""
        has_index = boxes.shape[1] > self.op.columns
        return torch.nn.functional.pad(slopes, (1, 0)) if has_index else slopes

    def _prepare_backward(
        self, bridge: Bridge, grad_output: Tensor, boxes: Tensor, indices: Tensor | None,
        input_shape: Sequence[int], channels_last: bool, placing: Settings,
    ) -> tuple[Any, Regions, Pooling, Tensor]:  # fmt: skip
        """Return the gradient, the regions, the request, and new maps for the result."""
        self.check("grad_output", grad_output, boxes, indices)
        self.check_memory(boxes, indices, grad_output=grad_output)
        shape = check.map_shape("input_shape", input_shape)
        pooling = cached_pooling(self, channels_last, (tuple(grad_output.shape[2:]), *placing))
        self._check_sizes(shape, pooling)
        gradient = map_array(bridge, grad_output, channels_last)
        regions = self._regions(bridge, boxes, indices, shape[0], gradient.dtype)
        out = empty_maps(shape, grad_output, channels_last)
        stored = map_array(bridge, out, channels_last).shape
        check.grad_output("grad_output", gradient, len(regions.boxes), stored, pooling.layout)
        return gradient, regions, pooling, out

    def _regions(
        self, bridge: Bridge, boxes: Tensor, indices: Tensor | None, images: int, dtype: Any
    ) -> Regions:
        numbers = None if indices is None else bridge.array(_no_half(indices))
        return self.regions(bridge.array(_no_half(boxes)), numbers, images, dtype)

    def _check_sizes(self, shape: Sequence[int], pooling: Pooling) -> None:
        check_sizes("features", tuple(shape), self.op.size, pooling._replace(layout="NCHW"))

    def argmax_dtype(self, shape: Sequence[int]) -> torch.dtype:
        """Return the dtype of the argmax of maps of a shape."""
        if self.rules.argmax_is_cell and shape[2] * shape[3] > check.MAX_AXIS:
            return torch.int64
        return torch.int32

    def _narrow(self, argmax: Tensor) -> Tensor:
        """Return an argmax that numbers samples as int32."""
        if argmax.device.type == "cpu":  # the engine counted them: they do not fit
            raise ValueError(
                f"a bin's adaptive grid has more than {check.MAX_AXIS} samples; "
                "give a sampling_ratio"
            )
        return argmax.to(torch.int32)

    def box_dtype(self, boxes: Tensor, features: Tensor) -> torch.dtype:
        """Return the dtype of the gradient with respect to the boxes."""
        if boxes.dtype in FLOATS:
            return boxes.dtype
        return torch.float64 if features.dtype is torch.float64 else torch.float32

    # ---- Results of tensors without values

    def fake_average(
        self, features: Tensor, boxes: Tensor, indices: Tensor | None, *settings: Any
    ) -> Tensor:
        """Return the result of `average` without values."""
        self.check("features", features, boxes, indices)
        shape = (boxes.shape[0], features.shape[1], *settings[0])
        return empty_maps(shape, features, is_channels_last(features))

    def fake_maximum(
        self, features: Tensor, boxes: Tensor, indices: Tensor | None, *settings: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the results of `maximum` without values."""
        pooled = self.fake_average(features, boxes, indices, *settings)
        return pooled, torch.empty_like(pooled, dtype=self.argmax_dtype(features.shape))

    def fake_average_backward(
        self, grad_output: Tensor, boxes: Tensor, indices: Tensor | None,
        input_shape: Sequence[int], channels_last: bool, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of `average_backward` without values."""
        self.check("grad_output", grad_output, boxes, indices)
        return empty_maps(input_shape, grad_output, channels_last)

    def fake_maximum_backward(
        self, grad_output: Tensor, argmax: Tensor, boxes: Tensor, indices: Tensor | None,
        input_shape: Sequence[int], channels_last: bool, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of `maximum_backward` without values."""
        self.check_device("argmax", argmax, "grad_output", grad_output)
        return self.fake_average_backward(grad_output, boxes, indices, input_shape, channels_last)

    def fake_average_backward_boxes(
        self, grad_output: Tensor, features: Tensor, boxes: Tensor, indices: Tensor | None,
        *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of `average_backward_boxes` without values."""
        self.check("features", features, boxes, indices)
        self.check("grad_output", grad_output, boxes, indices)
        return boxes.new_empty(boxes.shape, dtype=self.box_dtype(boxes, features))


def as_pair(value: Any) -> Any:
    """Return one number for both axes as a pair."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "float": check.real_number,
    "int | Sequence[int]": check.sampling_pair,
    "bool": check.flag,
    "str": lambda name, value: value,  # the definition checks it
}


@functools.lru_cache(maxsize=1024)
def _cached_pooling(family: Family, channels_last: bool, settings: Settings) -> Pooling:
    return family.pooling(channels_last, settings)


@functools.lru_cache(maxsize=1024)
def _cached_at_once(family: Family, settings: Settings) -> AtOnce | None:
    return at_once(family.op, family.pooling(False, settings))


def _no_half(numbers: Tensor) -> Tensor:
    """Return boxes or indices in a type that NumPy has."""
    return numbers.float() if numbers.dtype is torch.bfloat16 else numbers


def cached_pooling(family: Family, channels_last: bool, settings: Settings) -> Pooling:
    """Return an engine's request for settings of the dispatcher's types."""
    return _cached_pooling(family, channels_last, hashable(settings))


def hashable(settings: Settings) -> Settings:
    """Return settings with tuples for the lists that operators get."""
    if list in map(type, settings):
        return tuple(tuple(each) if type(each) is list else each for each in settings)
    return settings


# ---- Registration

# By torch's name of the kind of device.
BRIDGES: dict[str, Bridge] = {"CPU": HOST, "CUDA": CUDA}


def on_device(bridge: Bridge, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors, or first a list of them; `compute` takes the bridge first."""
    if bridge is HOST:
        return functools.partial(compute, bridge)

    def located(first: Any, *args: Any) -> Any:
        with bridge.on_device_of(first[0] if isinstance(first, list) else first):
            return compute(bridge, first, *args)

    return located


def kernel(bridge: Bridge, name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return that as a kernel for torch: its errors begin with a name."""
    return naming_errors(name, on_device(bridge, compute))


class ForwardMode(threading.local):
    """Whether the caller computes the tangents of this thread's call of an operator."""

    computed = False


FORWARD_MODE = ForwardMode()


@contextmanager
def forward_mode_computed() -> Iterator[None]:
    """Call operators from a function that computes tangents itself."""
    before = FORWARD_MODE.computed
    FORWARD_MODE.computed = True
    try:
        yield
    finally:
        FORWARD_MODE.computed = before


def refuse_forward_mode(name: str) -> None:
    """Raise where torch would drop the tangents of an operator's arguments without a word.

    That is in compiled and exported programs, which call operators themselves. No kernel can see
    whether its own arguments have tangents; forward mode of any thread is torch's for the process.
    """
    if forward_ad._current_level >= 0 and not FORWARD_MODE.computed:
        raise NotImplementedError(
            f"{name}: operators, which compiled and exported programs call, have no forward mode; "
            "roipool's functions have, outside of such programs"
        )


def naming_errors(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose errors begin with a name."""

    def named(*args: Any) -> Any:
        refuse_forward_mode(name)
        try:
            return function(*args)
        except (TypeError, ValueError) as error:
            raise with_name(error, name) from None

    return named


def schemas(family: Family) -> dict[str, str]:
    """Return the operators of a family: what each computes, and its schema."""
    op, name = family.op, family.name
    boxes = f"Tensor {op.boxes}, Tensor? {op.indices}"
    placing = "".join(f", {SCHEMA_TYPES[kind]} {each}" for each, kind in family.placing.items())
    filling = "" if op.filling is None else f", float {op.filling}"
    shape = "SymInt[4] input_shape, bool channels_last"
    pooled = "(Tensor, Tensor)" if family.is_maximum else "Tensor"
    found = {
        "maximum"
        if family.is_maximum
        else "average": f"{name}(Tensor features, {boxes}, SymInt[2] {op.size}{placing}{filling})"
        f" -> {pooled}"
    }
    if family.is_maximum:
        found["maximum_backward"] = (
            f"{name}_backward(Tensor grad_output, Tensor argmax, {boxes}, {shape}{placing})"
            " -> Tensor"
        )
        return found
    found["average_backward"] = (
        f"{name}_backward(Tensor grad_output, {boxes}, {shape}{placing}) -> Tensor"
    )
    if op.backward_boxes is not None:
        found["average_backward_boxes"] = (
            f"{op.backward_boxes}(Tensor grad_output, Tensor features, {boxes}{placing}) -> Tensor"
        )
    return found


def register(family: Family, operators: Mapping[str, str]) -> None:
    """Register a family's operators, given their schemas."""
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    for what, schema in operators.items():
        name = schema.partition("(")[0]
        LIBRARY.define(schema, tags=tags)
        compute = getattr(family, what)
        for device, bridge in BRIDGES.items():
            LIBRARY.impl(name, kernel(bridge, family.op.forward, compute), device)
            family.kernels[what, device] = on_device(bridge, compute)
        fake = naming_errors(family.op.forward, getattr(family, f"fake_{what}"))
        torch.library.register_fake(f"roipool::{name}", fake, lib=LIBRARY)
        family.overloads[what] = getattr(torch.ops.roipool, name).default


FAMILIES = {
    family.name: family
    for op in OPS.values()
    for family in (
        Family(op, is_maximum)
        for is_maximum in sorted({each.has_argmax for each in op.variants.values()})
    )
}
for _family in FAMILIES.values():
    register(_family, schemas(_family))
