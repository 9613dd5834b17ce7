"""Families of operators, which compute averages and maxima for any request to an engine.

Every function of this package, except the operators themselves, has the same arguments: the
settings, boxes, indices, levels, and then tensors of maps or pooled values. Operators have the
arguments of their schemas: :meth:`Family.to_operator` and :meth:`Family.from_operator` translate.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from roipool import _arguments as check
from roipool import _boxes, _cpu
from roipool._arrays import LIBRARY_OF, NUMPY
from roipool._boxes import Regions
from roipool._definitions import MOVES_WITH_BOXES, Definition, Depth
from roipool._layout import Shape4
from roipool._request import MaxRules, Pooling


class Verb(NamedTuple):
    """One of the computations of a family."""

    # The tensor arguments other than boxes, indices and levels. Features, one tensor or several,
    # are last.
    arrays: tuple[str, ...]
    result: str  # pooled values, or the gradient with respect to all features or to the boxes


VERBS = {
    "average": Verb(("features",), "pooled"),
    "average_backward": Verb(("grad_output",), "features"),
    "average_backward_boxes": Verb(("grad_output", "features"), "boxes"),
    "maximum": Verb(("features",), "pooled"),
    "maximum_backward": Verb(("grad_output", "argmax"), "features"),
}


class _Public(threading.local):
    """The public function that this thread computes, whose name errors begin with."""

    name = ""


PUBLIC = _Public()

# The arguments of operators that place bins and samples, with their types in a schema.
PLACING = {
    "definition": "str",
    "scales": "float[]",
    "sampling": "int[]",
    "aligned": "bool",
    "angle_scale": "float",
    "offset_factor": "float",
    "group_size": "int[]",
    # Files of AOTInductor hold neither empty lists nor minus infinity: both are none.
    "depth": "SymInt[]?",
    "depth_scales": "float[]?",
    "lowest": "float?",
    "argmax_is_cell": "bool",
    "outside_is_zero": "bool",
    "nan_restarts": "bool",
}


class Settings(NamedTuple):
    """The arguments of a computation that are not tensors."""

    family: Family  # the family of its operators
    placing: tuple[Any, ...]  # the values of `PLACING`
    size: tuple[int, int] = (1, 1)  # bins of a forward
    filling: float = 0.0  # value of a forward's bins outside the map
    # Shapes of the features, as (N, C, H, W), for a gradient with respect to them.
    shapes: tuple[Shape4, ...] = ()
    # Whether a gradient with respect to the features is stored channels last.
    channels_last: bool = False
    # The name of the public function that makes the request, if it is known, for messages.
    function: str = ""
    # Whether batch indices in the first column of boxes are cut to whole numbers. Only small calls
    # have such.
    cuts: bool = False

    @property
    def operation(self) -> str:
        """The name of the public function or of the definition, for messages."""
        return self.function or str(self.placing[0])

    @property
    def scales(self) -> Sequence[float]:
        """The scale of each map."""
        scales: Sequence[float] = self.placing[1]
        return scales

    @property
    def group_size(self) -> tuple[int, int]:
        """Groups of bins, down and across, 0 for as many as bins."""
        down, across = self.placing[6]
        return down, across

    @property
    def rules(self) -> MaxRules:
        """The options of a maximum."""
        lowest, *others = self.placing[-len(MaxRules._fields) :]
        return MaxRules(-math.inf if lowest is None else lowest, *others)

    @property
    def definition(self) -> Definition:
        """Where bins and samples lie; of a pyramid, those of the first map."""
        name, (scale, *_), sampling, aligned, angle, offset, groups, sizes, scales, *_ = (
            self.placing
        )
        depth = Depth(*sizes, *scales) if sizes else None
        return Definition(
            name, scale, tuple(sampling), aligned, angle, offset, tuple(groups), depth
        )

    @property
    def moves_with_boxes(self) -> bool:
        """Whether pooled values follow the boxes, rather than jump from cell to cell."""
        return self.placing[0] in MOVES_WITH_BOXES

    def of_one_map(self, level: int) -> Settings:
        """Return the settings of a call on one map of a pyramid."""
        name, scales, *others = self.placing
        return self._replace(
            family=AVERAGE,
            placing=(name, scales[level : level + 1], *others),
            shapes=self.shapes[level : level + 1],
        )

    def refusal(self, what: str) -> NotImplementedError:
        """Return the error for a derivative that no kernel computes."""
        return NotImplementedError(f"{self.operation}: roipool computes no {what}")


class Family:
    """The operators that compute averages or maxima for any request to an engine.

    Boxes are as engines read them, with the offsets of moved bins behind them. A batch index that
    names no image is a box that pools nothing: who makes the request has checked it.

    Attributes
    ----------
    name : str
        What the operators' names begin with.
    is_maximum : bool
        Whether the forward gives a maximum and its argmax.
    is_pyramid : bool
        Whether operators take a list of maps, and the level of each box.
    overloads : mapping of str to callable
        The operators, by verb.
    kernels : mapping of tuple of str to callable
        What computes a verb for plain tensors, by verb and kind of device.
    """

    def __init__(self, name: str, *, is_maximum: bool = False, is_pyramid: bool = False) -> None:
        self.name, self.is_maximum, self.is_pyramid = name, is_maximum, is_pyramid
        self.overloads: dict[str, Any] = {}
        self.kernels: dict[tuple[str, str], Callable[..., Any]] = {}

    @property
    def names(self) -> dict[str, str]:
        """The operators' names, by verb."""
        kind = "maximum" if self.is_maximum else "average"
        names = {kind: self.name, f"{kind}_backward": f"{self.name}_backward"}
        if not self.is_maximum:
            names["average_backward_boxes"] = f"{self.name}_backward_boxes"
        return names

    def settings_of(self, pooling: Pooling) -> Settings:
        """Return the settings for a request of this thread's public function to an engine."""
        definition = pooling.definition
        depth: tuple[Any, ...] = definition.depth or ()
        lowest, *rules = pooling.rules
        placing = (
            definition.name,
            pooling.map_scales,
            definition.sampling,
            definition.aligned,
            definition.angle_scale,
            definition.offset_factor,
            definition.group_size,
            depth[:3] or None,
            depth[3:] or None,
            None if lowest == -math.inf else lowest,
            *rules,
        )
        return Settings(
            self, placing, pooling.output_size, pooling.empty_value, function=PUBLIC.name
        )

    def regions(
        self, table: Any, indices: Any, images: int, dtype: Any, *, cuts: bool = False
    ) -> Regions:
        """Return boxes as engines read them; an index of no image becomes -1.

        A table without indices has them in its first column, which must name images: small calls
        give their table as it is. `cuts` says that they are cut to whole numbers.
        """
        if indices is None and (LIBRARY_OF[type(table)] or NUMPY) is not NUMPY:
            numbers = self._numbers_on_gpu(table[:, 0], cuts)
            return Regions(_boxes.coordinates(table[:, 1:], dtype), numbers)
        if indices is None:
            numbers, wrong = _cpu.whole_numbers(table[:, 0], images, cuts)
            if wrong >= 0:
                raise UnknownImageError
            return Regions(_boxes.coordinates(table[:, 1:], dtype), numbers)
        library = LIBRARY_OF[type(indices)] or NUMPY
        if library is NUMPY:
            indices, _ = _cpu.whole_numbers(indices, images, False)
        return Regions(_boxes.coordinates(table, dtype), indices)

    @staticmethod
    def _numbers_on_gpu(numbers: Any, cuts: bool) -> Any:
        """Return batch indices as kernels read them, which skip boxes that name no image."""
        if cuts or numbers.dtype.kind in "iu":
            return numbers.astype(check.INT64)
        known = numbers.dtype.name in _boxes.DEVICE_INDEX_TYPES
        return numbers if known else numbers.astype(check.FLOAT64)

    # ---- Arguments in the order of the operators

    def to_operator(
        self, verb: str, settings: Settings, boxes: Any, indices: Any, levels: Any, *arrays: Any
    ) -> tuple[Any, ...]:
        """Return the arguments of an operator."""
        names, result = VERBS[verb]
        _, placing, size, filling, shapes, channels_last, *_ = settings
        if self.is_pyramid and names[-1] == "features":
            arrays = (*arrays[: len(names) - 1], list(arrays[len(names) - 1 :]))
        at = (boxes, indices, levels) if self.is_pyramid else (boxes, indices)
        if result == "boxes":
            return (*arrays, *at, *placing)
        if result == "features":
            sizes = [size for shape in shapes for size in shape]
            return (*arrays, *at, sizes, channels_last, *placing)
        return (*arrays, *at, size, *placing, filling)

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

    def operation_among(self, verb: str, args: Sequence[Any]) -> str:
        """Return the name of the definition among an operator's arguments."""
        names, result = VERBS[verb]
        tensors = len(names) + (3 if self.is_pyramid else 2)
        return str(args[tensors + {"pooled": 1, "features": 2, "boxes": 0}[result]])

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
        arguments = self.overloads[verb]._schema.arguments
        return (*tensors[:count], *(None,) * (len(arguments) - count))

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
        names, result = VERBS[verb]
        features = "Tensor[]" if self.is_pyramid else "Tensor"
        parts = [f"{features if name == 'features' else 'Tensor'} {name}" for name in names]
        parts += ["Tensor boxes", "Tensor? batch_indices"]
        parts += ["Tensor levels"] if self.is_pyramid else []
        if result == "pooled":
            parts.append("SymInt[2] output_size")
        if result == "features":
            shapes = "SymInt[] input_shapes" if self.is_pyramid else "SymInt[4] input_shape"
            parts += [shapes, "bool channels_last"]
        parts += [f"{kind} {name}" for name, kind in PLACING.items()]
        if result == "pooled":
            parts.append("float empty_value")
        returns = features if result == "features" else "Tensor"
        returns = "(Tensor, Tensor)" if verb == "maximum" else returns
        return f"{self.names[verb]}({', '.join(parts)}) -> {returns}"


@functools.lru_cache(maxsize=1024)
def _settings_of_values(family: Family, verb: str, values: tuple[Any, ...]) -> Settings:
    """Return the settings from the arguments of an operator that are not tensors."""
    result = VERBS[verb].result
    if result == "pooled":
        size, *placing, filling = values
        return Settings(family, tuple(placing), size, filling)
    if result == "features":
        sizes, channels_last, *placing = values
        shapes = tuple(four_by_four(sizes))
        return Settings(family, tuple(placing), shapes=shapes, channels_last=channels_last)
    return Settings(family, values)


@functools.lru_cache(maxsize=1024)
def pooling_of(
    family: Family,
    placing: tuple[Any, ...],
    size: tuple[int, int],
    filling: float = 0.0,
    channels_last: bool = False,
) -> Pooling:
    """Return an engine's request."""
    settings = Settings(family, placing)
    return Pooling(
        settings.definition,
        check.size_pair("output_size", size),
        "NHWC" if channels_last else "NCHW",
        filling,
        settings.rules,
        tuple(settings.scales) if family.is_pyramid else (),
    )


def four_by_four(sizes: Sequence[int]) -> list[Shape4]:
    """Split a flat list of sizes into shapes of four."""
    return [
        (sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]) for at in range(0, len(sizes), 4)
    ]


class UnknownImageError(Exception):
    """A batch index of a small call names no image: the general path says what is wrong."""


AVERAGE = Family("average")
AVERAGE_OF_MAPS = Family("average_of_maps", is_pyramid=True)
MAXIMUM = Family("maximum", is_maximum=True)
FAMILIES = {family.name: family for family in (AVERAGE, AVERAGE_OF_MAPS, MAXIMUM)}
