"""JAX's guises: its transformations and settings, and arguments other than JAX arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import roipool
from roipool._dtypes import INTEGERS as INTEGER_MAPS
from roipool.systems import SYSTEMS, System
from roipool.systems.case import Case, held_by
from roipool.verification.call import Results, run
from roipool.verification.relations import Comparisons, close

from . import Guise
from .adapters import (
    ARRAYS,
    MAPS,
    Adapter,
    Arguments,
    boxes_of,
    calls_of,
    differentiable,
    each_of,
    flat,
    is_batched,
    is_derivative,
    kind_of,
    moved_maps,
    named,
    paired,
    retyped,
    same_in_type,
    tangent,
    unflat,
    with_boxes,
    with_subnormals,
)

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
DEVICES = 2


class OnJax(Adapter):
    """Functions called without transformations.

    Parameters
    ----------
    keeps_numpy : bool
        Whether to leave some arguments as NumPy arrays and lists.
    """

    def __init__(self, case: Case, keeps_numpy: bool = False) -> None:
        super().__init__(case)
        self.keeps_numpy = keeps_numpy

    def array(self, name: str, value: Any) -> Any:
        """Convert an argument's array to JAX, unless it may stay as it is."""
        if self.keeps_numpy and name not in MAPS and self.rng.random() < 0.7:
            return value
        if name == "argmax":
            value = _any_integers(value, self.rng)
        return to_jax(self.table(value))


def to_jax(array: np.ndarray[Any, Any]) -> Any:
    """Convert a NumPy array to JAX and its type here; JAX would compile it for every shape."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("="))
    with np.errstate(over="ignore"):
        return jnp.asarray(array.astype(dtype, copy=False))


def _any_integers(argmax: np.ndarray[Any, Any], rng: np.random.Generator) -> Any:
    """Return an argmax in a random type that holds it."""
    low, high = int(argmax.min(initial=0)), int(argmax.max(initial=0))
    kinds = [np.dtype(name) for name in INTEGERS]
    held = [kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    return argmax.astype(held[int(rng.integers(len(held)))])


class Jitted(OnJax):
    """Compiled functions, with some arrays as constants of the program."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Compile and call a function of arrays."""
        given = self.converted(arguments)
        traced = [each for each in _arrays_of(given) if self.rng.random() < 0.8]

        def program(*arrays: Any) -> Any:
            return self.public(name)(**unflat(given, traced, arrays))

        return jax.jit(program)(*flat(given, traced))


def _arrays_of(given: Arguments) -> list[str]:
    return [name for name in given if name in ARRAYS and given[name] is not None]


class Differentiated(OnJax):
    """Forwards differentiated by `vjp`, whose results the backwards return."""

    count: int
    pull: Callable[..., Any]

    @property
    def has_offsets(self) -> bool:
        """Whether the operation has a gradient with respect to offsets."""
        return bool(SYSTEMS[self.case.operation].offset_gradient)

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a forward, or differentiate the last one."""
        kind = kind_of(self.case, name)
        if kind == "forward":
            return self._forward(name, arguments)
        gradients = self.pull(self.array("grad_output", arguments["grad_output"]))
        if kind == "backward_offsets":
            return gradients[-1]
        if kind == "backward_boxes":
            by_boxes = gradients[self.count : -1 if self.has_offsets else None]
            return np.concatenate([np.asarray(each) for each in by_boxes])
        maps = gradients[: self.count]
        return list(maps) if SYSTEMS[self.case.operation].pyramid else maps[0]

    def _forward(self, name: str, arguments: Arguments) -> Any:
        given = self.converted(arguments)
        box_name = boxes_of(given)
        names = ["features"]
        if SYSTEMS[self.case.operation].box_gradient and all(
            jnp.issubdtype(each.dtype, jnp.floating) for each in flat(given, [box_name])
        ):
            names.append(box_name)
        if self.has_offsets:  # by which it can be differentiated whatever its boxes are
            names.append("offsets")
        function = self.program(_with_all_results(self.public(name)), given, names)
        self.count = len(list(flat(given, ["features"])))
        leaves = list(flat(given, names))
        pooled, self.pull, others = jax.vjp(function, *leaves, has_aux=True)
        return (pooled, *others) if others else pooled

    def program(self, function: Any, given: Arguments, names: list[str]) -> Callable[..., Any]:
        """Return a function of the arrays that are differentiated by."""
        program = lambda *arrays: function(**unflat(given, names, arrays))  # noqa: E731
        return jax.jit(program) if self.rng.random() < 0.7 else program


def _with_all_results(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a forward's pooled values, and of the results after them."""

    def both(**given: Any) -> tuple[Any, tuple[Any, ...]]:
        results = function(**given)
        return (results[0], results[1:]) if isinstance(results, tuple) else (results, ())

    return both


class Sharded(Differentiated):
    """Forwards within `shard_map`, with replicated maps and boxes on several devices."""

    def program(self, function: Any, given: Arguments, names: list[str]) -> Callable[..., Any]:
        """Return a function of the arrays that are differentiated by."""
        shared, split = PartitionSpec(), PartitionSpec("devices")
        all_names = _arrays_of(given)
        maps = () if SYSTEMS[self.case.operation].masks == "pasted" else MAPS  # a mask for each box
        specs = tuple(shared if each in maps else split for each in named(given, all_names))
        mesh = Mesh(np.array(jax.devices("cpu")[:DEVICES]), ("devices",))
        sharded = jax.shard_map(
            lambda *arrays: function(**unflat(given, all_names, arrays)),
            mesh=mesh,
            in_specs=specs,
            out_specs=split,
        )
        return jax.jit(lambda *arrays: sharded(*flat(unflat(given, names, arrays), all_names)))


class BatchedOnJax(OnJax):
    """Two calls combined by ``vmap``; returns the results of one of them."""

    def __init__(self, case: Case, others: Any, batched: frozenset[str], place: int) -> None:
        super().__init__(case)
        self.others, self.batched, self.place = others, batched, place

    def array(self, name: str, value: Any) -> Any:
        """Convert an argument's array to JAX; both arrays of a pair have the same type."""
        return to_jax(value) if name == "argmax" else super().array(name, value)

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a function once for both calls."""
        own, other = self.converted(arguments), self.converted(self.others[name].arguments)
        names = _arrays_of(own)
        dims: list[int | None] = []
        stacked: list[Any] = []
        for each, mine, its in zip(
            named(own, names), flat(own, names), flat(other, names), strict=True
        ):
            if not is_batched(each, self.batched, kind_of(self.case, name)):
                dims.append(None)
                stacked.append(mine)
                continue
            dim = int(self.rng.integers(mine.ndim + 1))
            dims.append(dim)
            both = [mine, its] if self.place == 0 else [its, mine]
            stacked.append(jnp.asarray(np.stack(list(map(np.asarray, both)), dim)))

        def one(*arrays: Any) -> Any:
            return self.public(name)(**unflat(own, names, arrays))

        if all(dim is None for dim in dims):
            return one(*stacked)
        results = jax.jit(jax.vmap(one, tuple(dims)))(*stacked)
        return each_of(results, lambda each: np.asarray(each)[self.place])


class ForwardModeOnJax(OnJax):
    """Forwards that return their derivative."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Return the derivative of pooled values along `moved_maps`."""
        given = self.converted(arguments)
        moved = calls_of(replace(self.case, maps=moved_maps(self.case)))[name].arguments
        tangents = [to_jax(each) for each in flat(moved, ["features"])]

        def pool(*maps: Any) -> Any:
            pooled = self.public(name)(**unflat(given, ["features"], maps))
            return pooled[0] if isinstance(pooled, tuple) else pooled

        if self.rng.random() < 0.7:
            pool = jax.jit(pool)
        return jax.jvp(pool, tuple(flat(given, ["features"])), tuple(tangents))[1]


# ---- Settings


@contextlib.contextmanager
def _settings(case: Case) -> Iterator[Case]:
    """Set JAX's settings by the case's variation; yield the case restricted to them.

    Systems of `compat` compute in the type of their boxes, which must not be cut to 32 bits.
    """
    rng = np.random.default_rng((2, case.variation))
    wide, strict, slow = (rng.random() < part for part in (0.5, 0.3, 0.15))
    wide = wide or "." in case.operation
    if case.dtype == "float64" and not wide:
        case = held_by(case, "float32")
    if rng.random() < 0.1 and case.dtype not in INTEGER_MAPS:
        case = with_subnormals(case)
    promotion = jax.numpy_dtype_promotion("strict" if strict else "standard")
    device = jax.default_device(jax.devices("cpu")[0])
    with jax.enable_x64(wide), promotion, jax.disable_jit(slow), device:
        yield replace(case, out="new")


def _any_types(case: Case) -> Arguments:
    return retyped(case, FLOATS, INTEGERS, np.random.default_rng(case.variation))


def _typed(case: Case) -> System:
    return with_boxes(case, _any_types(case))


def _compared(case: Case, operation: System, adapter: Adapter) -> Comparisons:
    expected = run(case, roipool, operation)
    yield from same_in_type(run(case, adapter, operation), expected)


# ---- Guises


def plain(case: Case, got: Results, library: Any) -> Comparisons:
    """Arrays of various types."""
    with _settings(case) as allowed:
        yield from _compared(allowed, _typed(allowed), OnJax(allowed))


def numpy_arguments(case: Case, got: Results, library: Any) -> Comparisons:
    """NumPy arrays and lists among JAX's arrays."""
    with _settings(case) as allowed:
        yield from _compared(allowed, _typed(allowed), OnJax(allowed, keeps_numpy=True))


def jit(case: Case, got: Results, library: Any) -> Comparisons:
    """A compiled program."""
    with _settings(case) as allowed:
        yield from _compared(allowed, _typed(allowed), Jitted(allowed))


def gradient(case: Case, got: Results, library: Any) -> Comparisons:
    """Gradients by `vjp`."""
    if not SYSTEMS[case.operation].backward:
        return
    with _settings(case) as allowed:
        operation = differentiable(allowed, _any_types(allowed))
        yield from _compared(allowed, operation, Differentiated(allowed))


def forward_mode(case: Case, got: Results, library: Any) -> Comparisons:
    """Derivatives by `jvp`."""
    with _settings(case) as allowed:
        operation = SYSTEMS[allowed.operation]
        expected = tangent(allowed, operation)
        if expected is not None and is_derivative(allowed):
            alone = operation.only_forward._replace(returns=("pooled",))
            yield from same_in_type(run(allowed, ForwardModeOnJax(allowed), alone), expected)


def vmap(case: Case, got: Results, library: Any) -> Comparisons:
    """A batch of calls equals a loop over them, except for the order of sums."""
    rng = np.random.default_rng((1, case.variation))
    with _settings(case) as allowed:
        (first, second), batched = paired(allowed, rng)
        own, other = (first, second) if rng.random() < 0.5 else (second, first)
        adapter = BatchedOnJax(own, calls_of(other), batched, int(rng.integers(2)))
        yield from close(own, run(own, adapter), run(own, roipool), roipool)


def shard_map(case: Case, got: Results, library: Any) -> Comparisons:
    """Boxes on two devices; a gradient of maps is a sum over both.

    XLA sums it in the type of the maps and flushes subnormal numbers to 0, so it is not compared.
    Systems of `compat` are left out: not all have boxes that can be divided.
    """
    even = len(case.rois) // DEVICES * DEVICES
    if not even or not case.maps.size:  # JAX cannot combine arrays without elements
        return
    if "." in case.operation:
        return
    if SYSTEMS[case.operation].masks == "cut":  # without gradients
        return
    form = "batch indices"
    case = replace(case, form=form, rois=case.rois[:even], grad=case.grad[:even])
    with _settings(case) as allowed, jax.disable_jit(False):
        results, expected = run(allowed, Sharded(allowed)), run(allowed, roipool)
        gradient = {"gradient": results.pop("gradient")}
        yield from same_in_type(results, expected)
        if allowed.dtype in ("float32", "float64") and allowed.maps is case.maps:
            yield from close(allowed, gradient, expected, roipool)


GUISES = {
    "plain": Guise(plain, takes_integers=True),
    "NumPy arguments": Guise(numpy_arguments, takes_integers=True),
    "jit": Guise(jit, takes_integers=True),
    "gradient": Guise(gradient),
    "forward mode": Guise(forward_mode),
    "vmap": Guise(vmap),
    "shard_map": Guise(shard_map, seldom=10),
}
