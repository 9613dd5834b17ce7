"""Adapters: objects like roipool, whose functions convert NumPy arrays to another library's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import roipool
from roipool._gradients import published_of
from roipool.systems import SYSTEMS, System
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.case import Array, Case, dtypes, held_by, in_layout
from roipool.verification.call import FunctionCall, Results, function_of, run, to_nchw
from roipool.verification.oracle import SLOPES, bin_value_of
from roipool.verification.relations import Comparisons
from roipool.verification.tolerance import compare_bits

Arguments = dict[str, Any]
MAPS = ("features", "grad_output")
BOXES_OF_IMAGES = ("boxes", "box_lists")  # a list of these has a table for each image, or none
BOXES = ("rois", *BOXES_OF_IMAGES)
INDICES = ("batch_indices", "box_indices")
ARGMAXES = ("argmax", "argmax_y", "argmax_x")
ARRAYS = (*MAPS, *BOXES, *INDICES, *ARGMAXES, "boxes_num", "offsets", "levels")
WIDEST = 1000  # largest integer coordinate of a box, which any type of at least 16 bits holds


def kind_of(case: Case, function: str) -> str:
    """Return which of its system's functions one is, as in `Op.functions`."""
    row = SYSTEMS[case.operation]
    kinds = {
        row.offset_gradient: "backward_offsets",
        row.box_gradient: "backward_boxes",
        row.backward: "backward",
        row.forward: "forward",
    }
    return kinds[function]


def boxes_of(arguments: Arguments) -> str:
    """Return the name of the argument that holds the boxes."""
    return next(name for name in BOXES if name in arguments)


class Adapter:
    """Has roipool's functions, with converted arguments and results.

    Parameters
    ----------
    case : Case
        The call; its `variation` seeds the adapter's choices.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rng = np.random.default_rng(case.variation)

    def __getattr__(self, name: str) -> Any:
        """Return a member of roipool."""
        return self.member(name)

    def member(self, path: str) -> Any:
        """Return a function with the arguments of roipool's, or a module or class of such."""
        own, names = function_of(roipool, path), SYSTEMS[self.case.operation].names
        if not inspect.isfunction(own):
            return _Members(self, path)

        @functools.wraps(own)
        def function(**arguments: Any) -> Any:
            named = {names.get(each, each): value for each, value in arguments.items()}
            return self.back(self.call(path, named))

        return function

    def public(self, name: str) -> Callable[..., Any]:
        """Return a public function that takes arguments by roipool's names."""
        return lambda **given: function_of(roipool, name)(**self.own_names(name, given))

    def own_names(self, name: str, given: Arguments) -> Arguments:
        """Return arguments by a function's own names."""
        names = SYSTEMS[self.case.operation].names
        parameters = inspect.signature(function_of(roipool, name)).parameters
        own = {names.get(each, each): each for each in parameters}
        return {own[each]: value for each, value in given.items()}

    def call(self, name: str, arguments: Arguments) -> Any:
        """Call a function with converted arguments; by default roipool's."""
        return self.public(name)(**self.converted(arguments))

    def converted(self, arguments: Arguments) -> Arguments:
        """Convert NumPy arrays among the arguments to the library's arrays."""
        return {
            name: self._converted(name, value) if name in ARRAYS else value
            for name, value in arguments.items()
        }

    def _converted(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if is_list_of_arrays(value) or isinstance(value, dict) or name in BOXES_OF_IMAGES:
            return each_of(value, functools.partial(self.array, name))
        return self.array(name, value)

    def table(self, value: Any) -> Array:
        """Return an array, or nested lists as a NumPy array."""
        if isinstance(value, np.ndarray):
            return value
        columns = given_boxes(replace(self.case, form="table"))["rois"].shape[1]
        return np.array(value, np.float64).reshape(len(value), columns)

    def array(self, name: str, value: Any) -> Any:
        """Convert an array of an argument, or nested lists, to the library's array."""
        raise NotImplementedError

    def numpy(self, array: Any) -> Array:
        """Convert the library's array to NumPy."""
        return np.asarray(array)

    def back(self, results: Any) -> Any:
        """Convert results to NumPy arrays."""
        return each_of(results, self.numpy)


def each_of(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with each of its arrays changed: it is one, or a list, tuple or dict."""
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    return type(value)(map(change, value)) if isinstance(value, (list, tuple)) else change(value)


class _Members:
    """A module or class of roipool, whose functions are an adapter's."""

    def __init__(self, adapter: Adapter, path: str) -> None:
        self._adapter, self._path = adapter, path

    def __getattr__(self, name: str) -> Any:
        """Return a member of the module or class."""
        return self._adapter.member(f"{self._path}.{name}")


def is_list_of_arrays(value: Any) -> bool:
    """Return whether an argument is a list of arrays, not nested lists of numbers."""
    return isinstance(value, list) and bool(value) and not isinstance(value[0], (list, float, int))


def are_integers(arguments: Arguments) -> bool:
    """Return whether boxes are integers, which have no gradient."""
    boxes = arguments[boxes_of(arguments)]
    if isinstance(boxes, list) and not is_list_of_arrays(boxes):
        return False
    arrays = boxes if isinstance(boxes, list) else [boxes]
    return any(array.dtype.kind in "iu" for array in arrays)


# ---- Cases and operations for guises


def given_boxes(case: Case) -> Arguments:
    """Return the arguments that hold the boxes, for NumPy."""
    return SYSTEMS[case.operation].boxes(case)


def with_boxes(case: Case, given: Arguments, **changes: Any) -> System:
    """Return a case's row with other arguments for boxes, and further changes."""
    return SYSTEMS[case.operation]._replace(boxes=lambda _: given, **changes)


def differentiable(case: Case, given: Arguments) -> System:
    """Return a case's row with the gradients of a library that differentiates its forward.

    They are those that the system publishes, whatever the case's `exact_gradient` is. Boxes of
    integers have none. Systems of `compat` round the gradient of offsets to the type of the maps.
    """
    row = SYSTEMS[case.operation]
    if row.offset_gradient and "." in case.operation:
        real = np.float64 if case.dtype == "float64" else np.float32
        given = {**given, "offsets": given["offsets"].astype(real)}
    changes = {"box_gradient": ""} if are_integers(given) else {}
    return with_boxes(case, given, names={**row.names, "exact_gradient": "not given"}, **changes)


def retyped(
    case: Case, floats: Sequence[str], integers: Sequence[str], rng: np.random.Generator
) -> Arguments:
    """Return the arguments that hold the boxes, with their arrays in random types.

    Values are rounded and clipped to the types here, for NumPy's call as well as the other.
    """
    cast = functools.partial(_cast, finite=SYSTEMS[case.operation].finite)
    known = dtypes()
    kinds = {"boxes": [*floats, *integers], "indices": [*integers, *floats], "levels": integers}
    chosen = {
        what: known.get(name := _pick(rng, names)) or np.dtype(name)
        for what, names in kinds.items()
    }
    arguments = dict(given_boxes(case))
    for name, value in arguments.items():
        what = "boxes" if name in BOXES else "indices" if name in INDICES else name
        if what in chosen and isinstance(value, np.ndarray):
            arguments[name] = cast(value, chosen[what])
        elif what in chosen and is_list_of_arrays(value):
            arguments[name] = [cast(array, chosen[what]) for array in value]
    return arguments


def _pick(rng: np.random.Generator, names: Sequence[str]) -> str:
    return names[int(rng.integers(len(names)))]


def _cast(array: Array, dtype: np.dtype[Any], finite: bool) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind not in "iu":
            held = array.astype(dtype)
            return np.nan_to_num(held) if finite and held.dtype == np.float16 else held
        limits = np.iinfo(dtype)
        low, high = max(limits.min, -WIDEST), min(limits.max, WIDEST)
        return np.nan_to_num(array).clip(low, high).astype(dtype)


# Powers of two that make most numbers of each type subnormal.
_SMALL = {"float16": -17, "bfloat16": -130, "float32": -132, "float64": -1030}


def with_subnormals(case: Case) -> Case:
    """Return a case with maps and gradients near the smallest number of their type."""
    factor = 2.0 ** _SMALL[case.dtype]
    return held_by(replace(case, maps=case.maps * factor, grad=case.grad * factor), case.dtype)


# ---- Comparisons


def compared(case: Case, operation: System, adapter: Any) -> Comparisons:
    """Make a call through an adapter and with NumPy, and compare bit for bit."""
    plain = replace(case, out="new")
    expected = run(plain, roipool, operation)
    yield from same_in_type(run(plain, adapter, operation), expected)


def same_in_type(got: Results, expected: Results) -> Comparisons:
    """Compare bit for bit; a gradient of boxes is rounded to the type of the boxes."""
    for name, array in got.items():
        wanted = expected[name]
        if name == "box_gradient" and array.shape[1] > wanted.shape[1]:
            yield name, compare_bits(array[:, :1], np.zeros_like(array[:, :1]))  # of the image
            array = array[:, 1:]
        if name in SLOPES:
            with np.errstate(over="ignore"):
                wanted = wanted.astype(array.dtype)
        yield name, compare_bits(array, wanted)


def same_as_a_layout(case: Case, operation: System, adapter: Any) -> Comparisons:
    """Compare with NumPy's call in either layout, since a library chooses by memory format."""
    plain = replace(case, out="new")
    got = run(plain, adapter, operation)
    first = list(same_in_type(got, run(plain, roipool, operation)))
    other = replace(plain, layout="NHWC" if case.layout == "NCHW" else "NCHW")
    second = None
    for number, (name, comparison) in enumerate(first):
        if comparison.problem is not None and other.layout in operation.layouts:
            moved = in_other_layout(operation, plain, other)
            second = second or list(same_in_type(got, run(other, roipool, moved)))
            if second[number][1].problem is None:
                comparison = second[number][1]
        yield name, comparison


def in_other_layout(operation: System, case: Case, other: Case) -> System:
    """Return a row whose offsets are in the layout of another case."""
    given = operation.boxes(case)
    if "offsets" not in given:
        return operation
    offsets = in_layout(to_nchw(given["offsets"], case.layout), other.layout)
    return operation._replace(boxes=lambda _: {**given, "offsets": offsets})


def is_derivative(case: Case) -> bool:
    """Return whether an operation's gradient is its forward's derivative, and not published.

    Layers of `compat` are left out: their functions are other rows.
    """
    row = SYSTEMS[case.operation]
    if row.forward.count(".") > 2 or not row.backward:
        return False
    return published_of(function_of(roipool, row.forward)) is None


def moved_maps(case: Case) -> Array:
    """Return maps of the same shape: a direction in which to change the maps."""
    return case.maps[..., ::-1, ::-1]


def tangent(case: Case, operation: System) -> Results | None:
    """Return the derivative of pooled values along `moved_maps`; None if NumPy cannot compute it.

    It consists of the pooled values of `moved_maps`, at the argmax of a maximum, and 0 outside.
    """
    options = case.options
    if operation.masks == "pasted":  # which have no forward mode
        return None
    if "extrapolation_value" in options:
        options = options | {"extrapolation_value": 0.0}
    change = replace(case, out="new", maps=moved_maps(case), options=options)
    alone = operation.only_forward
    is_core = "." not in case.operation
    if bin_value_of(case.operation) == "average" or (is_core and len(operation.returns) == 1):
        results = run(change, roipool, alone)
        if not is_core:  # a bin without samples may be NaN, whatever the maps are
            still = run(replace(change, maps=np.zeros_like(case.maps)), roipool, alone)["pooled"]
            results["pooled"][np.isnan(still)] = 0
        return results
    if case.operation != "roi_pool":
        return None
    argmax = run(replace(case, out="new"), roipool, alone)["argmax"]
    maps = change.maps.astype(dtypes()[case.dtype])
    if not maps.size:
        return {"pooled": np.zeros(argmax.shape, maps.dtype)}
    planes = maps.reshape(*maps.shape[:2], -1)
    images, channels = case.images[:, None, None, None], np.arange(argmax.shape[1])[:, None, None]
    values = planes[images, channels, np.maximum(argmax, 0)]
    return {"pooled": np.where(argmax < 0, np.zeros_like(values), values)}


# ---- Batches of calls


class CasePair(NamedTuple):
    """Two calls that differ in some operands and become one call of `vmap`."""

    cases: tuple[Case, Case]
    batched: frozenset[str]


def paired(case: Case, rng: np.random.Generator) -> CasePair:
    """Return a case and another that shares the operands that are not batched."""
    operation = SYSTEMS[case.operation]
    is_per_image = operation.forms == PER_IMAGE  # fixes the order of boxes
    form = case.form
    if not is_per_image and form in ("nested lists", "one array per image"):
        form = "table"
    case = replace(case, form=form, out="new")
    parts = ["maps"] if is_per_image else ["maps", "boxes"]
    if set(INDICES) & operation.boxes(case).keys():
        parts.append("indices")
    batched = {part for part in parts if rng.random() < 0.5} or {_pick(rng, parts)}
    if len(operation.returns) > 1:
        batched = set(parts)  # an argmax depends on all operands
    table = case.rois.copy()
    separate = "indices" in parts
    if "boxes" in batched:
        table[:, slice(1, 5) if separate else slice(0, 5)] = case.rois[
            ::-1, slice(1, 5) if separate else slice(0, 5)
        ]
    if "indices" in batched:
        table[:, 0] = case.rois[::-1, 0]
    maps = case.maps[..., ::-1] if "maps" in batched else case.maps
    other = replace(case, rois=table, maps=maps, grad=-case.grad)
    return CasePair((case, other), frozenset(batched | {"gradient"}))


def calls_of(case: Case) -> Mapping[str, FunctionCall]:
    """Return NumPy's calls of a case by function, with arguments by roipool's names."""
    calls: list[FunctionCall] = []
    run(case, roipool, calls=calls)
    names = SYSTEMS[case.operation].names
    return {
        call.function: call._replace(
            arguments={names.get(own, own): value for own, value in call.arguments.items()}
        )
        for call in calls
    }


def is_batched(name: str, batched: frozenset[str], kind: str) -> bool:
    """Return whether an argument of two calls may differ."""
    if name in ARGMAXES:
        return True
    part = {"features": "maps", "grad_output": "gradient"}.get(name)
    if name in BOXES:
        part = "boxes"
    elif name in INDICES:
        part = "indices"
    elif name in ("levels", "offsets"):
        part = "boxes"
    return part in batched and (name != "grad_output" or kind != "forward")


def parts_of(value: Any) -> list[Any]:
    """Return the arrays of an argument: it is one, or a list or dict of them."""
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else [value]


def flat(arguments: Arguments, names: Sequence[str]) -> Iterator[Any]:
    """Yield the arrays of some arguments."""
    for name in names:
        yield from parts_of(arguments[name])


def named(arguments: Arguments, names: Sequence[str]) -> Iterator[str]:
    """Yield the argument of each array that `flat` yields."""
    for name in names:
        yield from [name] * len(parts_of(arguments[name]))


def unflat(arguments: Arguments, names: Sequence[str], arrays: Sequence[Any]) -> Arguments:
    """Return arguments with the arrays that `flat` yields replaced."""
    rest, replaced = list(arrays), dict(arguments)
    for name in names:
        value, count = arguments[name], len(parts_of(arguments[name]))
        own, rest = rest[:count], rest[count:]
        if isinstance(value, dict):
            replaced[name] = dict(zip(value, own, strict=True))
        else:
            replaced[name] = own if isinstance(value, list) else own[0]
    return replaced
