"""PyTorch's guises: tensors of various memory formats and types, and torch's transformations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

import roipool
import roipool.torch  # must precede the compilation of programs
from roipool.systems import SYSTEMS
from roipool.systems.case import Array, Case, in_layout
from roipool.verification.call import FunctionCall, Results, bound, run
from roipool.verification.relations import Comparisons, close

from . import Guise
from ._tensors import stored, to_numpy, to_tensor
from .adapters import (
    ARRAYS,
    MAPS,
    Adapter,
    Arguments,
    boxes_of,
    calls_of,
    compared,
    differentiable,
    each_of,
    flat,
    given_boxes,
    is_batched,
    is_derivative,
    kind_of,
    moved_maps,
    named,
    paired,
    parts_of,
    retyped,
    same_as_a_layout,
    same_in_type,
    tangent,
    unflat,
    with_boxes,
    with_subnormals,
)

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
HALVES = (torch.float16, torch.bfloat16)


# ---- Calls


class Eager(Adapter):
    """Functions called without transformations.

    Parameters
    ----------
    store : callable
        Returns a tensor in some memory format.
    """

    def __init__(
        self,
        case: Case,
        around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        store: Callable[[Tensor, np.random.Generator], Tensor] = lambda tensor, _: tensor,
    ) -> None:
        super().__init__(case)
        self.around, self.store = around, store

    def array(self, name: str, value: Any) -> Tensor:
        """Return an argument's array as a tensor."""
        array = self._any_integers(value) if name == "argmax" else self.table(value)
        return self.store(to_tensor(array), self.rng)

    def _any_integers(self, argmax: Array) -> Array:
        """Return an argmax in one of the types that hold it."""
        most = int(argmax.max(initial=0))
        kinds = [np.dtype(name) for name in INTEGERS[:-1]]
        held = [kind for kind in kinds if np.iinfo(kind).max >= most]
        return argmax.astype(held[int(self.rng.integers(len(held)))])

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a function of tensors."""
        with self.around():
            return super().call(name, arguments)

    def numpy(self, array: Tensor) -> Array:
        """Return a tensor's values."""
        return to_numpy(array)


class Derivatives(Eager):
    """Forwards differentiated by autograd, whose results the backwards return."""

    pooled: Tensor
    leaves: list[Tensor]
    boxes: list[Tensor]
    offsets: list[Tensor]

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a forward, or differentiate the last one."""
        kind = kind_of(self.case, name)
        if kind == "forward":
            return self._forward(name, arguments)
        grad = self.array("grad_output", arguments["grad_output"])
        by_what = {
            "backward": self.leaves,
            "backward_boxes": self.boxes,
            "backward_offsets": self.offsets,
        }
        gradients = torch.autograd.grad(self.pooled, by_what[kind], grad, retain_graph=True)
        if kind == "backward_boxes":
            return torch.cat(gradients)
        is_pyramid = kind == "backward" and SYSTEMS[self.case.operation].pyramid
        return list(gradients) if is_pyramid else gradients[0]

    def _forward(self, name: str, arguments: Arguments) -> Any:
        given = self.converted(arguments)
        box_name = boxes_of(given)
        self.leaves = self._leaves(given)
        boxes = list(flat(given, [box_name]))
        self.boxes = boxes if is_differentiable(given, box_name) else []
        self._require_slopes(given)
        with self.around():
            results = self.public(name)(**given)
        self.pooled = results[0] if isinstance(results, tuple) else results
        return results

    def _leaves(self, given: Arguments) -> list[Tensor]:
        learns = bool(SYSTEMS[self.case.operation].backward)
        return [each.requires_grad_(learns) for each in flat(given, ["features"])]

    def _require_slopes(self, given: Arguments) -> None:
        has_slopes = SYSTEMS[self.case.operation].offset_gradient
        self.offsets = [given["offsets"]] if has_slopes else []
        for each in self.boxes:
            each.requires_grad_(moves(self.case))
        for each in self.offsets:
            each.requires_grad_()


def moves(case: Case) -> bool:
    """Return whether an operation has a gradient with respect to boxes."""
    return bool(SYSTEMS[case.operation].box_gradient)


def is_differentiable(arguments: Arguments, name: str) -> bool:
    """Return whether the type of the boxes can have a gradient."""
    boxes = list(flat(arguments, [name]))
    return bool(boxes) and all(each.is_floating_point() for each in boxes)


def _generator(case: Case) -> np.random.Generator:
    return np.random.default_rng((1, case.variation))


def any_types(case: Case) -> Arguments:
    """Return the arguments that hold the boxes, in random types of tensors."""
    return retyped(case, FLOATS, INTEGERS, _generator(case))


# ---- Guises


def fast_path(case: Case, got: Results, library: Any) -> Comparisons:
    """Plain tensors without gradients."""
    yield from compared(case, SYSTEMS[case.operation], Eager(case, torch.no_grad))


def inference(case: Case, got: Results, library: Any) -> Comparisons:
    """Tensors in inference mode."""
    operation = with_boxes(case, any_types(case))
    yield from compared(case, operation, Eager(case, torch.inference_mode))


def memory(case: Case, got: Results, library: Any) -> Comparisons:
    """Views with various strides and offsets, negative bits or channels last."""
    operation = with_boxes(case, any_types(case))
    yield from same_as_a_layout(case, operation, Eager(case, store=stored))


def types(case: Case, got: Results, library: Any) -> Comparisons:
    """Maps, boxes, indices and argmax of various types."""
    yield from compared(case, with_boxes(case, any_types(case)), Eager(case))


def gradient(case: Case, got: Results, library: Any) -> Comparisons:
    """Gradients by autograd."""
    given = any_types(case)
    yield from compared(case, differentiable(case, given), Derivatives(case))


def gradient_of_views(case: Case, got: Results, library: Any) -> Comparisons:
    """Gradients by autograd of tensors in various memory formats."""
    operation = differentiable(case, any_types(case))
    yield from same_as_a_layout(case, operation, Derivatives(case, store=stored))


class Expanded(Derivatives):
    """All images are views of the same memory, and so are the gradients of all boxes."""

    def array(self, name: str, value: Any) -> Tensor:
        """Return an argument's array as a tensor."""
        tensor = super().array(name, value)
        return tensor[:1].expand(tensor.shape) if name in MAPS and len(tensor) else tensor


def expanded(case: Case, got: Results, library: Any) -> Comparisons:
    """Tensors whose images share memory."""
    maps, grad = (np.repeat(each[:1], len(each), 0) for each in (case.maps, case.grad))
    same = replace(case, maps=maps, grad=grad)
    yield from same_as_a_layout(same, differentiable(same, given_boxes(same)), Expanded(same))


def autocast(case: Case, got: Results, library: Any) -> Comparisons:
    """Autocast does not round anything."""
    half = HALVES[case.variation % 2]
    adapter = Derivatives(case, lambda: torch.autocast("cpu", dtype=half))
    yield from compared(case, differentiable(case, given_boxes(case)), adapter)


@contextlib.contextmanager
def _flushing() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def flushing(case: Case, got: Results, library: Any) -> Comparisons:
    """Subnormal numbers are kept even if the processor's mode flushes them to 0.

    What systems of `compat` do with them is torch's own arithmetic.
    """
    if "." in case.operation:
        return
    small = with_subnormals(case)
    yield from compared(small, SYSTEMS[case.operation], Eager(small, _flushing))


class _Quiet(TorchDispatchMode):  # type: ignore[misc]  # no types where no torch is
    """A dispatch mode that passes every operator through."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def dispatch_mode(case: Case, got: Results, library: Any) -> Comparisons:
    """Calls within a dispatch mode, as used by tools."""
    operation = differentiable(case, any_types(case))
    yield from compared(case, operation, Derivatives(case, _Quiet))


class Named(torch.Tensor):  # type: ignore[misc]  # no types where no torch is
    """A tensor subclass, like torchvision's boxes."""


class Subclassed(Derivatives):
    """Functions with some arguments of a subclass."""

    def array(self, name: str, value: Any) -> Tensor:
        """Return an argument's array as a tensor."""
        tensor = super().array(name, value)
        return tensor.as_subclass(Named) if self.rng.random() < 0.5 else tensor


def subclasses(case: Case, got: Results, library: Any) -> Comparisons:
    """Tensors of a subclass among plain tensors."""
    yield from compared(case, differentiable(case, any_types(case)), Subclassed(case))


class Fake(Eager):
    """Fake tensors, as compilers trace with, with results replaced by zeros."""

    def __init__(self, case: Case) -> None:
        self.mode = FakeTensorMode()
        super().__init__(case, lambda: self.mode)

    def array(self, name: str, value: Any) -> Tensor:
        """Return an argument's array as a tensor."""
        return self.mode.from_tensor(super().array(name, value))

    def numpy(self, array: Tensor) -> Array:
        """Return zeros."""
        return to_numpy(torch.zeros(array.shape, dtype=array.dtype))


class Meta(Eager):
    """Tensors on the meta device, with results replaced by zeros."""

    def array(self, name: str, value: Any) -> Tensor:
        """Return an argument's array as a tensor."""
        return super().array(name, value).to("meta")

    def numpy(self, array: Tensor) -> Array:
        """Return zeros."""
        if array.device.type != "meta":
            raise AssertionError(f"a result is on {array.device}")
        return to_numpy(torch.zeros(array.shape, dtype=array.dtype))


def meta(case: Case, got: Results, library: Any) -> Comparisons:
    """The meta device and fake tensors return the right shapes and types."""
    adapter = (Meta, Fake)[case.variation % 2](case)
    operation, plain = with_boxes(case, any_types(case)), replace(case, out="new")
    expected = run(plain, roipool, operation)
    results = run(plain, adapter, operation)
    zeros = {name: np.zeros_like(array) for name, array in expected.items()}
    yield from same_in_type(results, zeros)


class BatchedTensors(Eager):
    """Two calls combined by ``vmap``; returns the results of one of them."""

    def __init__(self, case: Case, others: Any, batched: frozenset[str], place: int) -> None:
        super().__init__(case)
        self.others, self.batched, self.place = others, batched, place

    def _any_integers(self, argmax: Array) -> Array:
        return argmax  # both of a pair are stacked

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a function once for both calls."""
        own, other = self.converted(arguments), self.converted(self.others[name].arguments)
        names = [each for each in own if each in ARRAYS and own[each] is not None]
        dims: list[int | None] = []
        stacked: list[Tensor] = []
        pairs = zip(named(own, names), flat(own, names), flat(other, names), strict=True)
        for each, mine, its in pairs:
            if not is_batched(each, self.batched, kind_of(self.case, name)):
                dims.append(None)
                stacked.append(mine)
                continue
            dim = int(self.rng.integers(mine.dim() + 1))
            dims.append(dim)
            stacked.append(torch.stack([mine, its] if self.place == 0 else [its, mine], dim))
        if all(dim is None for dim in dims):
            return self.public(name)(**own)

        def one(*arrays: Tensor) -> Any:
            return self.public(name)(**unflat(own, names, arrays))

        results = torch.func.vmap(one, tuple(dims))(*stacked)
        return each_of(results, lambda each: each[self.place])


def vmap(case: Case, got: Results, library: Any) -> Comparisons:
    """A batch of calls equals a loop over them, except for the order of sums."""
    rng = _generator(case)
    (first, second), batched = paired(case, rng)
    own, other = (first, second) if rng.random() < 0.5 else (second, first)
    place = int(rng.integers(2))
    results = run(own, BatchedTensors(own, calls_of(other), batched, place))
    yield from close(own, results, run(own, roipool), roipool)


class Functional(Derivatives):
    """Gradients by ``torch.func``, batched: a second call has the opposite ``grad_output``."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a forward, or differentiate the last one."""
        if kind_of(self.case, name) == "forward":
            self.forward = name, self.converted(arguments)
            return self.public(name)(**self.forward[1])
        forward, given = self.forward

        def pool(*maps: Tensor) -> Tensor:
            results = self.public(forward)(**unflat(given, ["features"], maps))
            return results[0] if isinstance(results, tuple) else results

        def gradients(grad: Tensor, *maps: Tensor) -> Any:
            return torch.func.vjp(pool, *maps)[1](grad)

        maps = [torch.stack([each, each]) for each in flat(given, ["features"])]
        grad = self.array("grad_output", arguments["grad_output"])
        found = torch.func.vmap(gradients)(torch.stack([-grad, grad]), *maps)
        is_pyramid = bool(SYSTEMS[self.case.operation].pyramid)
        return [each[1] for each in found] if is_pyramid else found[0][1]


def functional(case: Case, got: Results, library: Any) -> Comparisons:
    """A batch of gradients of functions equals a loop over them, except for the order of sums."""
    own = replace(case, out="new")
    operation = differentiable(own, given_boxes(own))._replace(box_gradient="", offset_gradient="")
    results = run(own, Functional(own), operation)
    yield from close(own, results, run(own, roipool, operation), roipool)


def _tangents(case: Case) -> list[Tensor]:
    """Return `moved_maps` in the form of the call's maps."""
    moved = replace(case, maps=moved_maps(case))
    features = calls_of(moved)[SYSTEMS[case.operation].forward].arguments["features"]
    return [to_tensor(array) for array in parts_of(features)]


class DualTensors(Eager):
    """Forwards that return their derivative."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Return the derivative of pooled values along `moved_maps`."""
        given, tangents = self.converted(arguments), iter(_tangents(self.case))
        with forward_ad.dual_level():
            maps = [
                forward_ad.make_dual(each, next(tangents)) for each in flat(given, ["features"])
            ]
            results = self.public(name)(**unflat(given, ["features"], maps))
            pooled = results[0] if isinstance(results, tuple) else results
            return forward_ad.unpack_dual(pooled).tangent


def forward_mode(case: Case, got: Results, library: Any) -> Comparisons:
    """Derivatives in forward mode."""
    plain, operation = replace(case, out="new"), SYSTEMS[case.operation]
    expected = tangent(plain, operation)
    if expected is not None:
        alone = operation.only_forward._replace(returns=("pooled",))
        yield from same_in_type(run(plain, DualTensors(case), alone), expected)


class Twice(Derivatives):
    """Forwards that return the gradient of their backward with respect to grad_output."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Differentiate a forward, and then its gradient."""
        results = self._forward(name, arguments)
        grad = self.array("grad_output", in_layout(self.case.grad, self.case.layout))
        grad = grad.reshape(self.pooled.shape).to(self.pooled.dtype).requires_grad_()
        once = torch.autograd.grad(self.pooled, self.leaves, grad, create_graph=True)
        (again,) = torch.autograd.grad(once, grad, _tangents(self.case))
        return (again, *results[1:]) if isinstance(results, tuple) else again


def double_backward(case: Case, got: Results, library: Any) -> Comparisons:
    """The gradient of a backward is the forward."""
    plain, operation = replace(case, out="new"), SYSTEMS[case.operation]
    expected = tangent(plain, operation)
    if expected is not None and is_derivative(case):
        results = run(plain, Twice(case), operation.only_forward._replace(returns=("pooled",)))
        yield from same_in_type(results, expected)


class Compiled(Derivatives):
    """Forwards compiled by torch, with numbers as arguments of the program."""

    def _forward(self, name: str, arguments: Arguments) -> Any:
        given = self.converted(arguments)
        box_name = boxes_of(given)
        self.leaves = self._leaves(given)
        self.boxes = list(flat(given, [box_name]))
        self._require_slopes(given)
        torch._dynamo.reset()
        torch._functorch.config.donated_buffer = False  # allows two gradients of one forward
        function, own = bound(roipool, name, self.own_names(name, given))
        program = torch.compile(
            function,
            backend="aot_eager",
            fullgraph=True,
            dynamic=(None, True, False)[self.case.variation % 3],
        )
        results = program(**own)
        self.pooled = results[0] if isinstance(results, tuple) else results
        return results


def compiled(case: Case, got: Results, library: Any) -> Comparisons:
    """A compiled program, with static or dynamic shapes."""
    yield from same_as_a_layout(case, differentiable(case, given_boxes(case)), Compiled(case))


class Exported(Eager):
    """Programs exported for any number of boxes and size of maps, from calls with fewer and less.

    Parameters
    ----------
    others : mapping
        Those to export from.
    """

    def __init__(self, case: Case, others: Mapping[str, FunctionCall]) -> None:
        super().__init__(case)
        self.others = others

    def call(self, name: str, arguments: Arguments) -> Any:
        """Export a program and call it."""
        own, other = self.converted(arguments), self.converted(self.others[name].arguments)
        names = [each for each in own if each in ARRAYS and own[each] is not None]
        if any(own[each] != other[each] for each in own if each not in names):
            other = own  # as of the sizes of images, which are numbers

        class Program(torch.nn.Module):  # type: ignore[misc]  # no types where no torch is
            def forward(program, *arrays: Tensor) -> Any:  # noqa: N805
                return self.public(name)(**unflat(own, names, arrays))

        arrays = tuple(flat(other, names))
        sizes = tuple(
            {axis: Dim.AUTO for axis, size in enumerate(each.shape) if size > 1} for each in arrays
        )
        exported = torch.export.export(Program(), arrays, dynamic_shapes={"arrays": sizes})
        return exported.module()(*flat(own, names))


def exported(case: Case, got: Results, library: Any) -> Comparisons:
    """A program that is exported for any size, called with another."""
    operation = SYSTEMS[case.operation].only_forward
    less, more = (_enlarged(replace(case, out="new"), times) for times in (2, 3))
    if more.maps.size and len(more.rois):  # sizes of 0 are other programs
        results = run(more, Exported(more, calls_of(less)), operation)
        yield from same_in_type(results, run(more, roipool, operation))


def _enlarged(case: Case, times: int) -> Case:
    """Return a case with each box so many times, and maps so many times as wide, and as high."""
    row = SYSTEMS[case.operation]
    down = 1 if row.pyramid or row.is_volume else times  # whose rows are divided
    return replace(
        case,
        maps=np.tile(case.maps, (1, 1, down, times)),
        grad=np.repeat(case.grad, times, 0),
        rois=np.repeat(case.rois, times, 0),
    )


GUISES = {
    "fast path": Guise(fast_path, takes_integers=True),
    "inference mode": Guise(inference, takes_integers=True),
    "memory": Guise(memory, takes_integers=True),
    "types": Guise(types, takes_integers=True),
    "gradient": Guise(gradient),
    "gradient of views": Guise(gradient_of_views),
    "expanded": Guise(expanded),
    "autocast": Guise(autocast),
    "flush to zero": Guise(flushing),
    "dispatch mode": Guise(dispatch_mode),
    "subclasses": Guise(subclasses),
    "meta": Guise(meta, takes_integers=True),
    "vmap": Guise(vmap),
    "forward mode": Guise(forward_mode),
    "double backward": Guise(double_backward),
    "functional": Guise(functional),
    "compile": Guise(compiled, seldom=40),
    "export": Guise(exported, seldom=37, takes_integers=True),
}
