"""Tensors as a library of ``roipool._arrays``, whose functions are those of its `Library`.

Calls on tensors are checked as those on NumPy's arrays are, and computed by the operators, which
autograd, compilers and transforms know. Values are read where they are known: those of tensors on
the CPU, outside of programs that are traced or batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import _C, Tensor

from roipool import _cpu, _levels
from roipool._boxes import Regions
from roipool._dtypes import INTEGERS, numpy_dtype
from roipool._layout import Layout, Shape4, nchw_view, nhwc_view
from roipool._masks.request import Pasting
from roipool._request import Pooling
from roipool.torch import _namespace
from roipool.torch._autograd import call, device_of_plain, transforms_are_active
from roipool.torch._checks import checked_numbers
from roipool.torch._cuda import CUDA
from roipool.torch._families import AVERAGE, AVERAGE_OF_MAPS, MAXIMUM, Settings
from roipool.torch._memory import Bridge, check_memory, is_channels_last, with_values
from roipool.torch._namespace import DTYPES, tensor_dtype
from roipool.torch._namespace import concatenate as join
from roipool.torch._operators import on_device
from roipool.torch._positions import argmax_at, argmax_positions
from roipool.torch._rows import filled_rows

NAMES = {dtype: name for name, dtype in DTYPES.items()}
OTHERS = {torch.complex64: "complex64", torch.complex128: "complex128"}

engine = None
array = "tensor"
to_float32 = ".float()"
beside: tuple[type, ...] = ()


def xp() -> ModuleType:
    """Return the namespace whose functions are named as NumPy's."""
    return _namespace


def dtype(tensor: Tensor) -> np.dtype[Any]:
    """Return the dtype of a tensor as NumPy's."""
    name = NAMES.get(tensor.dtype) or OTHERS.get(tensor.dtype)
    return np.dtype(object) if name is None else numpy_dtype(name)


def astype(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return a tensor in a dtype: the same one if it has it already."""
    own = tensor_dtype(dtype)
    if tensor.dtype is torch.float64 and own is torch.float16:
        tensor = _odd_float32(tensor)
    widens = tensor.dtype is torch.float16 and own is torch.float64
    if widens and torch.is_grad_enabled() and tensor.requires_grad:
        return _Widened.apply(tensor)
    return tensor.to(own)


class _Widened(torch.autograd.Function):  # type: ignore[misc]  # no types where no torch is
    """float16 numbers in float64, with a gradient that is rounded once, as `astype` does it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return tensor.double()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return astype(gradients[0], np.dtype(np.float16))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return tangents[0].double()


def _odd_float32(tensor: Tensor) -> Tensor:
    """Return float64 numbers in float32, rounded to odd: to be rounded to float16 once.

    Torch rounds to float32 and then to float16, which is wrong for a number beside a tie.
    """
    near = tensor.to(torch.float32)
    known, exact = near.detach(), tensor.detach()
    rest, bits = exact - known.double(), known.contiguous().view(torch.int32)
    is_even = (rest != 0) & (bits % 2 == 0) & torch.isfinite(known) & (known != 0)
    step = torch.where((rest > 0) == (known > 0), 1, -1)  # by one, away from 0 or to it
    odd = (bits + step.to(torch.int32)).view(torch.float32)
    return torch.where(is_even, near + (odd - known), near)


def device(tensor: Tensor) -> AbstractContextManager[Any] | None:
    """Return a context in which new tensors lie on the device of a tensor."""
    return None if tensor.device.type == "cpu" else tensor.device


def device_number(tensor: Tensor) -> Any:
    """Return the device that holds a tensor."""
    return tensor.device


def check_address(name: str, tensor: Tensor) -> None:
    """Raise an error if a tensor has no memory of its own that can be read as an array."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        kind, way = str(tensor.layout).removeprefix("torch."), ": use .to_dense()"
        if tensor.is_nested:
            kind, way = "nested", ": use a list, as .unbind() gives, for boxes"
        elif tensor.is_quantized:
            kind, way = "quantized", ": use .dequantize()"
        raise TypeError(f"{name} must be a dense tensor, got a {kind} one{way}")
    if device_of_plain(tensor) is not None:
        check_memory(**{name: tensor})


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a tensor of bool as its bytes."""
    return tensor.view(torch.uint8)


def plain(tensor: Tensor) -> Tensor:
    """Return the tensor."""
    return tensor


def readable(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return a tensor in a dtype; operators take any strides."""
    return tensor.to(tensor_dtype(dtype))


table = readable
owned = torch.as_tensor  # on the device of the context, which from_numpy ignores


def swapped_pairs(table: Tensor) -> Tensor:
    """Return a table with the two columns of each pair exchanged."""
    return table.unflatten(1, (2, 2)).flip(2).flatten(1)


def boxes_and_images(rows: Tensor, images: int) -> tuple[Tensor, Tensor | None, int]:
    """Return the boxes and the batch indices of a table, and the first wrong row, or -1."""
    if not _is_known(rows):
        return rows[:, 1:], None, -1
    _, indices, wrong = _cpu.boxes_and_images(host_copy(rows), images)
    return rows[:, 1:], torch.from_numpy(indices), wrong


def checked_values(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """Return a tensor's values on the host where they are known, else None."""
    return host_copy(tensor) if _is_known(tensor) else None


def _is_known(tensor: Tensor) -> bool:
    """Return whether a tensor has values on the host that do not change when a program runs."""
    if torch.compiler.is_compiling() or _C._is_tracing() or _C._len_torch_dispatch_stack():
        return False
    return device_of_plain(tensor) == "CPU"


def checked_later(tensor: Tensor, rule: str, name: str, limit: int, column: str = "") -> Tensor:
    """Return whole numbers that a rule of ``_boxes`` checks when a program is run."""
    if not tensor.is_cpu or _C._are_functorch_transforms_active():
        return tensor
    return checked_numbers(tensor.detach(), rule, name, limit, column)


def host_copy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's values on the host."""
    with torch._C._DisableFuncTorch():  # whose operators would wrap what they return
        values = with_values(tensor.detach().cpu())
        return (values.float() if values.dtype is torch.bfloat16 else values).numpy()


def concatenate(parts: Sequence[Tensor], columns: int, dtype: Any) -> tuple[Tensor, Tensor]:
    """Return tables one below the other, and for each row the index of its table."""
    if not parts:
        return torch.empty(0, columns, dtype=tensor_dtype(dtype)), torch.empty(0, dtype=torch.int64)
    numbers = [
        torch.full((part.shape[0],), number, dtype=torch.int64, device=part.device)
        for number, part in enumerate(parts)
    ]
    return join(parts), torch.cat(numbers)


# ---- What operators compute


def _in_order(maps: Tensor, layout: Layout) -> Tensor:
    return nchw_view(maps) if layout == "NHWC" else maps


def _from_nchw(maps: Tensor, layout: Layout) -> Tensor:
    return nhwc_view(maps) if layout == "NHWC" else maps


class _VerbsOfTorch:
    """The functions of ``roipool._engines.Verbs``, by the operators of any request."""

    argmax_positions = staticmethod(argmax_positions)
    argmax_at = staticmethod(argmax_at)

    def average(
        self, features: Sequence[Tensor], regions: Regions, pooling: Pooling, *, cuts: bool = False
    ) -> Tensor:
        """Return pooled values: weighted averages, from the map of each box's level."""
        maps = [_in_order(each, pooling.layout) for each in features]
        settings = _average_settings(pooling)._replace(cuts=cuts)
        pooled = call("average", settings, *regions, *maps)
        return _from_nchw(pooled, pooling.layout)

    def average_backward(
        self,
        grad_output: Tensor,
        regions: Regions,
        pooling: Pooling,
        shapes: Sequence[Shape4],
        *,
        cuts: bool = False,
    ) -> list[Tensor]:
        """Return the gradient of an average with respect to each of the maps of such shapes."""
        gradient = _in_order(grad_output, pooling.layout)
        settings = _gradient_settings(_average_settings(pooling), gradient, pooling, shapes)
        found = call("average_backward", settings._replace(cuts=cuts), *regions, gradient)
        return [_from_nchw(each, pooling.layout) for each in found]

    def average_backward_boxes(
        self, grad_output: Tensor, features: Sequence[Tensor], regions: Regions, pooling: Pooling
    ) -> Tensor:
        """Return the gradient of an average with respect to each number of each box."""
        arrays = [_in_order(each, pooling.layout) for each in (grad_output, *features)]
        slopes: Tensor = call(
            "average_backward_boxes", _average_settings(pooling), *regions, *arrays
        )
        return slopes

    def maximum(
        self, features: Tensor, regions: Regions, pooling: Pooling, *, cuts: bool = False
    ) -> tuple[Any, Any]:
        """Return maxima and their argmax."""
        maps = _in_order(features, pooling.layout)
        settings = MAXIMUM.settings_of(pooling)._replace(cuts=cuts)
        found = call("maximum", settings, *regions, maps)
        pooled, argmax = (_from_nchw(each, pooling.layout) for each in found)
        return pooled, argmax

    def maximum_backward(
        self,
        grad_output: Tensor,
        argmax: Tensor,
        regions: Regions,
        pooling: Pooling,
        shape: Shape4,
    ) -> Tensor:
        """Return the gradient of a maximum with respect to the features."""
        gradient, chosen = (_in_order(each, pooling.layout) for each in (grad_output, argmax))
        own = MAXIMUM.settings_of(pooling)
        settings = _gradient_settings(own, gradient, pooling, [shape])
        (found,) = call("maximum_backward", settings, *regions, gradient, chosen)
        return _from_nchw(found, pooling.layout)

    def assign_levels(self, boxes: Tensor, areas: Sequence[float]) -> Tensor:
        """Return the level of each box, (K,) int64, from its corners."""
        corners = boxes.detach()
        is_plain = not (transforms_are_active() or _C._is_tracing())
        if is_plain and device_of_plain(corners) == "CUDA":
            return on_device(CUDA, levels_at_once)(corners, areas)
        none = corners.new_zeros(corners.shape[0], dtype=torch.int64)
        found: Tensor = _levels.levels_by_area(corners.double(), none, areas)
        return found

    def filled(
        self,
        function: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        arrays: Sequence[Tensor],
        request: Pasting,
    ) -> Tensor:
        """Return a tensor that a function of an engine fills, a row for each row of `arrays`."""
        own = tensor_dtype(dtype)
        is_recorded = own.is_floating_point and torch.is_grad_enabled()
        if is_recorded and any(each.requires_grad for each in arrays):
            raise TypeError("tensors must not require a gradient here: detach them")
        return filled_rows(function, request, shape, own, arrays)

    def rounded(self, values: Tensor, dtype: np.dtype[Any]) -> Tensor:
        """Return pooled values in another dtype, as ``Library.store_rounded`` does."""
        own = tensor_dtype(dtype)
        if dtype.name in INTEGERS:
            limits = torch.iinfo(own)
            values = values.nan_to_num().clamp(limits.min, limits.max).round()
        return values.to(own)


def levels_at_once(bridge: Bridge, corners: Tensor, areas: Sequence[float]) -> Tensor:
    """Return the levels, computed by one kernel instead of a dozen of torch's."""
    return bridge.tensor(bridge.engine().assign_levels(bridge.array(corners), areas))


def _average_settings(pooling: Pooling) -> Settings:
    return (AVERAGE_OF_MAPS if pooling.scales else AVERAGE).settings_of(pooling)


def _gradient_settings(
    settings: Settings, gradient: Tensor, pooling: Pooling, shapes: Sequence[Shape4]
) -> Settings:
    """Return the settings of a gradient with respect to maps of such shapes."""
    if pooling.layout == "NHWC":
        shapes = [(shape[0], shape[3], shape[1], shape[2]) for shape in shapes]
    sizes = tuple([(shape[0], shape[1], shape[2], shape[3]) for shape in shapes])
    return settings._replace(shapes=sizes, channels_last=is_channels_last(gradient))


verbs = _VerbsOfTorch()
