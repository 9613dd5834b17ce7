"""Families of operators: one per operation, with a common order of arguments.

Every function of this package, except the operators themselves, has the same arguments: the
settings, boxes, indices, levels, and then tensors of maps or pooled values. One map is a pyramid of
one, without levels. Operators have the arguments of their schemas: :meth:`Family.to_operator` and
:meth:`Family.from_operator` translate.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool import _cpu
from roipool._arguments import Form, Regions
from roipool._arrays import LIBRARY_OF, NUMPY
from roipool._definitions import (
    MOVES_WITH_BOXES,
    OPS,
    PYRAMID_OPS,
    VOLUME_OPS,
    Definition,
    Depth,
    Op,
    Variant,
)
from roipool._dtypes import FLOATS_AND_BYTES
from roipool._layout import Shape4
from roipool._pooling import MaxRules, Pooling
from roipool._requests import numpy_functions


class Verb(NamedTuple):
    """One of the computations of a family.

    Attributes
    ----------
    arrays : tuple of str
        The tensor arguments other than boxes, indices and levels. Features, one tensor or
        several, are last.
    result : {"pooled", "features", "boxes"}
        Pooled values, or the gradient with respect to all features or to the boxes.
    """

    arrays: tuple[str, ...]
    result: str


VERBS = {
    "average": Verb(("features",), "pooled"),
    "average_backward": Verb(("grad_output",), "features"),
    "average_backward_boxes": Verb(("grad_output", "features"), "boxes"),
    "maximum": Verb(("features",), "pooled"),
    "maximum_backward": Verb(("grad_output", "argmax"), "features"),
}


class Settings(NamedTuple):
    """The arguments of a computation that are not tensors.

    Attributes
    ----------
    family : Family
        The family of its operators.
    placing : tuple
        The values of the family's `placing`.
    size : tuple of int
        For a forward: the number of bins.
    filling : float
        For a forward: the value of bins outside the map.
    shapes : tuple of tuple of int
        For a gradient with respect to the features: their shapes, as (N, C, H, W).
    channels_last : bool
        For a gradient with respect to the features: whether it is stored channels last.
    """

    family: Family
    placing: tuple[Any, ...]
    size: tuple[int, int] = (1, 1)
    filling: float = 0.0
    shapes: tuple[Shape4, ...] = ()
    channels_last: bool = False

    @property
    def of_tangent(self) -> Settings:
        """The settings for a tangent of the maps: bins outside the maps have the tangent 0."""
        return self._replace(filling=0.0)

    @property
    def moves_with_boxes(self) -> bool:
        """Whether pooled values follow the boxes, rather than jump from cell to cell."""
        return self.family.moves_with_boxes(self.placing)

    @property
    def operation(self) -> str:
        """The name of the operation, for messages."""
        return self.family.operation(self.placing)

    @property
    def rules(self) -> MaxRules:
        """The options of a maximum."""
        return self.family.rules(self.placing)

    def refusal(self, what: str) -> NotImplementedError:
        """Return the error for a derivative that no kernel computes."""
        return NotImplementedError(f"{self.operation}: roipool computes no {what}")


# The type of an operator's argument, for that of a public function's.
SCHEMA_TYPES = {
    "float": "float",
    "Sequence[float]": "float[]",
    "Sequence[int]": "int[]",
    "int | Sequence[int]": "int[2]",
    "int": "SymInt",
    "bool": "bool",
    "str": "str",
}

CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "float": check.real_number,
    "Sequence[float]": lambda name, value: check.scales(
        name, value, len(check.sequence(name, value))
    ),
    "Sequence[int]": check.sampling_triple,
    "int | Sequence[int]": check.sampling_pair,
    "int": check.whole_number,
    "bool": check.flag,
    "str": lambda name, value: value,  # the definition checks it
}


class Family:
    """The operators of an operation that computes an average, or a maximum.

    Attributes
    ----------
    op : Op
        The operation.
    is_maximum : bool
        Whether the forward gives a maximum and its argmax.
    is_pyramid : bool
        Whether operators take a list of maps, and the level of each box.
    name : str
        What the operators' names begin with.
    placing : mapping of str to str
        The arguments that place bins and samples, and their types.
    define : callable
        Returns the definition of their values; of a pyramid, that of a map of one scale.
    overloads : mapping of str to callable
        The operators, by verb.
    kernels : mapping of tuple of str to callable
        What computes a verb for plain tensors, by verb and kind of device.
    """

    def __init__(self, op: Op, is_maximum: bool) -> None:
        module = numpy_functions(op)
        averages = [each for each in op.variants.values() if not each.has_argmax]
        self.op = op
        self.is_maximum = is_maximum
        self.is_pyramid = op.forward in PYRAMID_OPS
        self.name = f"{op.forward}_max" if is_maximum and averages else op.forward
        self.max_rules: MaxRules = getattr(module, "RULES", MaxRules())
        self.define = module.definition
        parameters = inspect.signature(module.definition).parameters
        self.placing = {name: str(each.annotation) for name, each in parameters.items()}
        if self.is_pyramid:
            types = {"spatial_scales": "Sequence[float]", **self.placing}
            self.placing = {name: types[name] for name in op.placing}
        self._by_numbers = {each.by_numbers for each in op.variants.values()} - {None}
        self.overloads: dict[str, Any] = {}
        self.kernels: dict[tuple[str, str], Callable[..., Any]] = {}

    @property
    def names(self) -> dict[str, str]:
        """The operators' names, by verb."""
        kind = "maximum" if self.is_maximum else "average"
        names = {kind: self.name, f"{kind}_backward": f"{self.name}_backward"}
        by_numbers = self.op.backward_boxes or self.op.backward_offsets
        if not self.is_maximum and by_numbers is not None:
            names["average_backward_boxes"] = by_numbers
        return names

    # ---- What the arguments mean

    def settings(self, placing: Sequence[Any], size: Any = (1, 1), filling: Any = 0.0) -> Settings:
        """Return the settings, checked.

        Under torch.compile, sizes may be SymInts: they are only brought into the form of the
        operator's schema. The operator checks them, when the program is traced and when it runs.
        """
        if any(isinstance(each, Tensor) for each in (size, *placing, filling)):
            raise TypeError("only maps, boxes and indices may be tensors")
        named = zip(self.placing.items(), placing, strict=True)
        if torch.compiler.is_compiling():
            values = [
                as_pair(value) if kind == "int | Sequence[int]" else value
                for (_, kind), value in named
            ]
            return Settings(self, tuple(values), as_pair(size), filling)
        values = [CHECKS[kind](name, value) for (name, kind), value in named]
        if not self.is_pyramid:
            self.define(*values)
        if self.op.filling is not None:
            filling = check.any_float(self.op.filling, filling)
        return Settings(self, tuple(values), check.size_pair(self.op.size, size), filling)

    def definition(self, placing: Sequence[Any]) -> Definition:
        """Return the definition; of a pyramid, that of the first map."""
        if self.is_pyramid:
            (scale, *_), *placing = placing
            placing = (scale, *placing)
        definition: Definition = self.define(*placing)
        return definition

    def operation(self, placing: Sequence[Any]) -> str:
        """Return the name of the operation, for messages."""
        return self.op.forward

    def rules(self, placing: Sequence[Any]) -> MaxRules:
        """Return the options of a maximum."""
        return self.max_rules

    def scales(self, placing: Sequence[Any]) -> Sequence[float]:
        """Return the scale of each map of a pyramid."""
        scales: Sequence[float] = placing[0]
        return scales

    def columns(self, boxes: Tensor, indices: Tensor | None, size: Sequence[int]) -> int:
        """Return the numbers of a box without its batch index, for so many rows and columns."""
        return self.op.form.numbers(size)

    def regions(
        self, table: Any, indices: Any, images: int, dtype: Any, size: tuple[int, int]
    ) -> Regions:
        """Return boxes as engines read them; of moved bins, `size` rows and columns."""
        form = self.op.form
        first = table.shape[1] - form.numbers(size)
        regions = form.read(table[:, : first + len(form.columns)], indices, images, dtype, form)
        if form.offsets is None:
            return regions
        return regions._replace(boxes=check.coordinates(table[:, first:], dtype))

    def levels(self, levels: Any, boxes: int, maps: int) -> Any:
        """Return for each box the index of its map, checked."""
        return check.levels("levels", levels, boxes, maps)

    def of_one_map(self, settings: Settings, level: int) -> Settings:
        """Return the settings of a call on one map of a pyramid."""
        (variant,) = self.op.variants.values()
        scales, *placing = settings.placing
        return settings._replace(
            family=FAMILIES[variant.definition],
            placing=(scales[level], *placing),
            shapes=settings.shapes[level : level + 1],
        )

    def group_size(self, placing: Sequence[Any]) -> tuple[int, int]:
        """Return the groups of bins, down and across, 0 for as many as bins; unchecked."""
        if not self.op.is_position_sensitive:
            return (1, 1)
        down, across = placing[list(self.placing).index("group_size")]
        return down, across

    def moves_with_boxes(self, placing: Sequence[Any]) -> bool:
        """Return whether pooled values follow the boxes, rather than jump from cell to cell."""
        return self.definition(placing).name in self._by_numbers

    # ---- Arguments in the order of the operators

    def to_operator(
        self, verb: str, settings: Settings, boxes: Any, indices: Any, levels: Any, *arrays: Any
    ) -> tuple[Any, ...]:
        """Return the arguments of an operator."""
        names, result = VERBS[verb]
        _, placing, size, filling, shapes, channels_last = settings
        if self.is_pyramid and names[-1] == "features":
            arrays = (*arrays[: len(names) - 1], list(arrays[len(names) - 1 :]))
        at = (boxes, indices, levels) if self.is_pyramid else (boxes, indices)
        if result == "boxes":
            return (*arrays, *at, *placing)
        if result == "features":
            sizes = [size for shape in shapes for size in shape]
            return (*arrays, *at, sizes, channels_last, *placing)
        fillings = () if self.op.filling is None else (filling,)
        return (*arrays, *at, size, *placing, *fillings)

    def tensors_of_operator(self, verb: str, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return boxes, indices, levels and other tensors among an operator's arguments.

        Also selects other values, given one per argument.
        """
        count = len(VERBS[verb].arrays)
        arrays, boxes, indices = args[:count], args[count], args[count + 1]
        levels = args[count + 2] if self.is_pyramid else None
        if isinstance(arrays[-1], (list, tuple)):
            arrays = (*arrays[:-1], *arrays[-1])
        return boxes, indices, levels, *arrays

    def from_operator(self, verb: str, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the settings, boxes, indices, levels and other tensors of an operator."""
        first = len(VERBS[verb].arrays) + (3 if self.is_pyramid else 2)
        values = tuple([tuple(x) if isinstance(x, list) else x for x in args[first:]])
        try:
            settings = _settings_of_values(self, verb, values)
        except TypeError:  # sizes of a trace have no hash
            settings = _settings_of_values.__wrapped__(self, verb, values)
        return settings, *self.tensors_of_operator(verb, args)

    def operator_gradients(self, verb: str, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Reorder gradients from the order of this package to an operator's."""
        _, by_boxes, _, _, *by_arrays = gradients
        tensors = self.to_operator(verb, Settings(self, ()), by_boxes, None, None, *by_arrays)
        count = len(VERBS[verb].arrays) + 1
        arguments = len(self.overloads[verb]._schema.arguments)
        return (*tensors[:count], *(None,) * (arguments - count))

    def to_results(self, verb: str, results: Any) -> Any:
        """Return an operator's results; the gradient of a single map is not in a list."""
        if VERBS[verb].result != "features":
            return results
        return list(results) if self.is_pyramid else results[0]

    def from_results(self, verb: str, results: Any) -> Any:
        """Return this package's results from an operator's; gradients of maps are in a tuple."""
        if VERBS[verb].result != "features":
            return results
        return tuple(results) if self.is_pyramid else (results,)

    def schema(self, verb: str) -> str:
        """Return the schema of an operator."""
        op, (names, result) = self.op, VERBS[verb]
        features = "Tensor[]" if self.is_pyramid else "Tensor"
        parts = [f"{features if name == 'features' else 'Tensor'} {name}" for name in names]
        parts += [f"Tensor {op.boxes}", f"Tensor? {op.indices}"]
        parts += ["Tensor levels"] if self.is_pyramid else []
        if result == "pooled":
            parts.append(f"SymInt[2] {op.size}")
        if result == "features":
            shapes = "SymInt[] input_shapes" if self.is_pyramid else "SymInt[4] input_shape"
            parts += [shapes, "bool channels_last"]
        parts += [f"{SCHEMA_TYPES.get(kind, kind)} {name}" for name, kind in self.placing.items()]
        if result == "pooled" and op.filling is not None:
            parts.append(f"float {op.filling}")
        returns = features if result == "features" else "Tensor"
        returns = "(Tensor, Tensor)" if verb == "maximum" else returns
        return f"{self.names[verb]}({', '.join(parts)}) -> {returns}"


@functools.lru_cache(maxsize=1024)
def _settings_of_values(family: Family, verb: str, values: tuple[Any, ...]) -> Settings:
    """Return the settings from the arguments of an operator that are not tensors."""
    result = VERBS[verb].result
    if result == "pooled":
        places = len(family.placing) + 1
        return Settings(family, values[1:places], values[0], *values[places:])
    if result == "features":
        sizes, channels_last, *placing = values
        shapes = tuple(four_by_four(sizes))
        return Settings(family, tuple(placing), shapes=shapes, channels_last=channels_last)
    return Settings(family, values)


@functools.lru_cache(maxsize=1024)
def pooling_of(
    family: Family,
    channels_last: bool,
    size: tuple[int, int],
    placing: tuple[Any, ...],
    filling: float = 0.0,
) -> Pooling:
    """Return an engine's request."""
    scales = tuple(family.scales(placing)) if family.is_pyramid else ()
    return Pooling(
        family.definition(placing),
        check.size_pair(family.op.size, size),
        "NHWC" if channels_last else "NCHW",
        filling,
        family.rules(placing),
        scales,
    )


def as_pair(value: Any) -> Any:
    """Return one number for both axes as a pair."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def four_by_four(sizes: Sequence[int]) -> list[Shape4]:
    """Split a flat list of sizes into shapes of four."""
    return [
        (sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]) for at in range(0, len(sizes), 4)
    ]


class UnknownImageError(Exception):
    """A batch index of a small call names no image: the general path says what is wrong."""


class AnyFamily(Family):
    """The operators that compute any request to an engine, whose numbers are their arguments.

    Boxes are as engines read them, with the offsets of moved bins behind them. A batch index that
    names no image is a box that pools nothing: who makes the request has checked it.
    """

    def __init__(self, name: str, *, is_maximum: bool = False, is_pyramid: bool = False) -> None:
        variant = Variant(name, has_argmax=is_maximum, by_boxes=None if is_maximum else name)
        form = Form(boxes="boxes", columns=())
        filling = "empty_value"
        self.op = Op(
            name, {"any": variant}, (), form=form, filling=filling, dtypes=FLOATS_AND_BYTES
        )
        self.is_maximum, self.is_pyramid, self.name = is_maximum, is_pyramid, name
        self.placing = PLACING_OF_ANY
        self.overloads = {}
        self.kernels = {}

    @property
    def names(self) -> dict[str, str]:
        """The operators' names, by verb."""
        kind = "maximum" if self.is_maximum else "average"
        names = {kind: self.name, f"{kind}_backward": f"{self.name}_backward"}
        if not self.is_maximum:
            names["average_backward_boxes"] = f"{self.name}_backward_boxes"
        return names

    def settings_of(self, pooling: Pooling, shapes: Sequence[Shape4] = ()) -> Settings:
        """Return the settings for a request to an engine."""
        definition, rules = pooling.definition, pooling.rules
        depth: tuple[Any, ...] = definition.depth or ()
        placing = (
            definition.name,
            pooling.map_scales,
            definition.sampling,
            definition.aligned,
            definition.angle_scale,
            definition.offset_factor,
            definition.group_size,
            depth[:3],
            depth[3:],
            *rules,
        )
        return Settings(self, placing, pooling.output_size, pooling.empty_value, tuple(shapes))

    def definition(self, placing: Sequence[Any]) -> Definition:
        """Return the definition; of a pyramid, that of the first map."""
        name, (scale, *_), sampling, aligned, angle, offset, groups, sizes, scales, *_ = placing
        depth = Depth(*sizes, *scales) if sizes else None
        return Definition(
            name, scale, tuple(sampling), aligned, angle, offset, tuple(groups), depth
        )

    def operation(self, placing: Sequence[Any]) -> str:
        """Return the name of the definition, for messages."""
        return str(placing[0])

    def rules(self, placing: Sequence[Any]) -> MaxRules:
        """Return the options of a maximum."""
        return MaxRules(*placing[-len(MaxRules._fields) :])

    def scales(self, placing: Sequence[Any]) -> Sequence[float]:
        """Return the scale of each map of a pyramid."""
        scales: Sequence[float] = placing[1]
        return scales

    def columns(self, boxes: Tensor, indices: Tensor | None, size: Sequence[int]) -> int:
        """Return the numbers of a box without its batch index."""
        return boxes.shape[-1] - (indices is None)

    def operator_gradients(self, verb: str, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Reorder gradients; beside lists of maps, torch takes empty lists for such, too."""
        found = super().operator_gradients(verb, gradients)
        if not self.is_pyramid or "features" not in VERBS[verb].arrays:
            return found
        names = [each.name for each in self.overloads[verb]._schema.arguments]
        return tuple(
            [] if name in ("depth", "depth_scales") else each
            for name, each in zip(names, found, strict=True)
        )

    def regions(
        self, table: Any, indices: Any, images: int, dtype: Any, size: tuple[int, int]
    ) -> Regions:
        """Return boxes as engines read them; an index of no image becomes -1.

        A table without indices has them in its first column, cut to whole numbers, which must name
        images: small calls give their table as it is.
        """
        if indices is None:
            numbers, wrong = _cpu.whole_numbers(table[:, 0], images, True)
            if wrong >= 0:
                raise UnknownImageError
            return Regions(check.coordinates(table[:, 1:], dtype), numbers)
        library = LIBRARY_OF[type(indices)] or NUMPY
        if library is NUMPY:
            indices, _ = _cpu.whole_numbers(indices, images, False)
        return Regions(check.coordinates(table, dtype), indices)

    def levels(self, levels: Any, boxes: int, maps: int) -> Any:
        """Return for each box the index of its map; one that names none pools nothing."""
        library = LIBRARY_OF[type(levels)] or NUMPY
        return library.table(levels, check.INT64)

    def of_one_map(self, settings: Settings, level: int) -> Settings:
        """Return the settings of a call on one map of a pyramid."""
        name, scales, *others = settings.placing
        return settings._replace(
            family=ANY_AVERAGE,
            placing=(name, scales[level : level + 1], *others),
            shapes=settings.shapes[level : level + 1],
        )

    def group_size(self, placing: Sequence[Any]) -> tuple[int, int]:
        """Return the groups of bins, down and across, 0 for as many as bins."""
        down, across = placing[6]
        return down, across

    def moves_with_boxes(self, placing: Sequence[Any]) -> bool:
        """Return whether pooled values follow the boxes, rather than jump from cell to cell."""
        return placing[0] in MOVES_WITH_BOXES


# The arguments of operators of any request, with their types in a schema.
PLACING_OF_ANY = {
    "definition": "str",
    "scales": "float[]",
    "sampling": "int[]",
    "aligned": "bool",
    "angle_scale": "float",
    "offset_factor": "float",
    "group_size": "int[]",
    "depth": "SymInt[]",
    "depth_scales": "float[]",
    "lowest": "float",
    "argmax_is_cell": "bool",
    "outside_is_zero": "bool",
    "nan_restarts": "bool",
}
ANY_AVERAGE = AnyFamily("average")
ANY_AVERAGE_OF_MAPS = AnyFamily("average_of_maps", is_pyramid=True)
ANY_MAXIMUM = AnyFamily("maximum", is_maximum=True)

FAMILIES: dict[str, Family] = {
    family.name: family
    for op in (*OPS.values(), *PYRAMID_OPS.values(), *VOLUME_OPS.values())
    for family in (
        Family(op, is_maximum)
        for is_maximum in sorted({each.has_argmax for each in op.variants.values()})
    )
} | {family.name: family for family in (ANY_AVERAGE, ANY_AVERAGE_OF_MAPS, ANY_MAXIMUM)}
