"""The systems of the live pages: for each, the call that it makes to the CPU's engine.

The engine's calls are recorded rather than described again: every system is called once, and the
arguments that reach the engine show the definition, its options and the converted box. The page
makes the same calls to the CPU's plans, compiled to WebAssembly.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool._boxes import Regions
from roipool._pooling import Call
from roipool._request import Pooling
from roipool.systems import COMPARED, Compared, System, boxes
from roipool.tools.compare.engines import ENGINES, case_of, row_of
from roipool.tools.compare.problem import Options, Problem
from roipool.verification.call import FunctionCall, run

__all__ = ["LiveSystem", "live_systems"]

# Numbers that no default has, so that they can be recognised in the recorded calls.
_BOX = (3.25, 5.75, 17.5, 23.25)
_OPTIONS = Options((5, 6), 0.75, 3)
_SHAPE = (1, 1, 29, 31)
# The forms into which systems convert x1, y1, x2, y2; the page has a function for each.
_FORMS = {
    "fractions": "ends",
    "_centres": "centres",
    "with_angle": "region",
    "_with_angle_and_indices": "region",
    "with_angle_in_degrees": "region",
}


@dataclass(frozen=True)
class LiveSystem:
    """A system of the page."""

    name: str  # a key of `COMPARED`, or a variation with another `aligned`
    family: str  # the function; systems of one family differ in `aligned` and `maximum` only
    listed: bool  # whether the page lists it as a system, or offers it as options of another
    # Arguments of the engine.
    definition: str
    maximum: bool
    aligned: bool
    angle_scale: float
    empty: float
    lowest: float | None
    outside_is_zero: bool
    nan_restarts: bool
    # Whether the engine gets the scale and the sampling ratio.
    scaled: bool
    sampled: bool
    # The form of the engine's boxes: corners in pixels; corners in map cells, rounded half to even;
    # fractions of the map; fractions of the first and last bins' centres; or centre, sides and
    # angle.
    boxes: str
    call: str  # the Python call, with placeholders in braces that the page fills in


@functools.cache
def live_systems() -> tuple[LiveSystem, ...]:
    """Return all systems, and their variations with other options."""
    return tuple(
        _recorded(name, compared, name in COMPARED)
        for name, compared in _with_other_options().items()
    )


def _with_other_options() -> dict[str, Compared]:
    """Return the systems, and variations with `aligned` reversed that `COMPARED` lacks."""
    systems = {
        name: compared for name, compared in COMPARED.items() if compared.row and compared.is_live
    }
    for name, compared in list(systems.items()):
        if "aligned" not in compared.options:
            continue
        other = not compared.options["aligned"]
        added = "aligned" if other else "not aligned"
        variation = f"{name[:-1]}, {added}]" if name.endswith("]") else f"{name}[{added}]"
        options = {**compared.options, "aligned": other}
        if (compared.row, options) not in [
            (known.row, known.options) for known in systems.values()
        ]:
            systems[variation] = compared._replace(options=options)
    return systems


def _recorded(name: str, compared: Compared, listed: bool) -> LiveSystem:
    regions, pooling, maximum = _call_of_engine(compared)
    definition, rules = pooling.definition, pooling.rules
    return LiveSystem(
        name=name,
        family=row_of(compared).forward,
        listed=listed,
        definition=definition.name,
        maximum=maximum,
        aligned=definition.aligned,
        angle_scale=definition.angle_scale,
        empty=pooling.empty_value,
        lowest=rules.lowest if np.isfinite(rules.lowest) else None,
        outside_is_zero=maximum and rules.outside_is_zero,
        nan_restarts=rules.nan_restarts,
        scaled=definition.scale == _OPTIONS.spatial_scale,
        sampled=definition.sampling == (_OPTIONS.sampling_ratio,) * 2,
        boxes=_form_of(compared, regions),
        call=_call_of(compared, regions),
    )


def _problem() -> Problem:
    return Problem(np.zeros(_SHAPE, np.float32), np.array([(0, *_BOX)], np.float32), _OPTIONS)


def _call_of_engine(compared: Compared) -> tuple[Regions, Pooling, bool]:
    """Call a system; return the engine's arguments, and whether it computes a maximum."""
    calls: list[tuple[Regions, Pooling, bool]] = []

    def recording(method: Any, maximum: bool) -> Any:
        def call(self: Call, maps: Any, regions: Regions, pooling: Pooling, **rest: Any) -> Any:
            calls.append((regions, pooling, maximum))
            return method(self, maps, regions, pooling, **rest)

        return call

    with (
        mock.patch.object(Call, "average", recording(Call.average, False)),
        mock.patch.object(Call, "maximum", recording(Call.maximum, True)),
    ):
        ENGINES["cpu"](compared)(_problem(), "forward")
    (only_call,) = calls
    return only_call


def _form_of(compared: Compared, regions: Regions) -> str:
    form = _FORMS.get(row_of(compared).boxes.__name__)
    if form is not None:
        return form
    if np.array_equal(regions.boxes[0], np.array(_BOX, np.float32)):
        return "corners"
    cells = np.rint(np.array(_BOX) * _OPTIONS.spatial_scale)
    assert np.array_equal(regions.boxes[0], cells), f"{compared}: boxes of an unknown form"
    return "cells"


def _call_of(compared: Compared, regions: Regions) -> str:
    """Return the call of the system's public function, as Python text."""
    operation = row_of(compared).only_forward
    calls: list[FunctionCall] = []
    case = case_of(compared, _problem())
    run(case, roipool, operation, calls=calls)
    (made,) = calls
    features = _features(operation, case.layout)
    # Arguments that affect only results other than the pooled values.
    hidden = {"out", "layout", *(name for name in operation.fixed if name.startswith("return"))}
    lines = [
        f"    {name}={text},\n" if name not in ("input", "features") else f"    {text},\n"
        for name, value in made.arguments.items()
        if name not in hidden
        for text in [_argument(operation.names.get(name, name), value, regions, features)]
    ]
    text = f"roipool.{made.function}(\n{''.join(lines)})"
    if operation.boxes is boxes.with_angle_in_degrees:
        text = text.replace("{b4}", "np.rad2deg({b4})")
    return text


_NUMBERS: Mapping[str, str] = {
    "output_size": "({rows}, {columns})",
    "crop_size": "({rows}, {columns})",
    **dict.fromkeys(("pooled_h", "output_height", "crop_height"), "{rows}"),
    "output_dim": "features.shape[1]",
    **dict.fromkeys(("pooled_w", "output_width", "crop_width"), "{columns}"),
    "spatial_scale": "{scale}",
    "sampling_ratio": "{sampling}",
}


def _features(operation: System, layout: str) -> str:
    """Return the text of the maps that a system takes, from the page's map."""
    if operation.is_position_sensitive:
        return "features.repeat({rows} * {columns}, axis=1)"
    return "features" if layout == "NCHW" else "features.transpose(0, 2, 3, 1)"


def _argument(known_as: str, value: Any, regions: Regions, features: str) -> str:
    if known_as == "features":
        return features
    if known_as in _NUMBERS:
        return _NUMBERS[known_as]
    if isinstance(value, np.ndarray):
        return _array(value, regions)
    return repr(value)


def _array(value: NDArray[Any], regions: Regions) -> str:
    """Return an array of one box or of its batch index, with placeholders for the coordinates."""
    if value.dtype.kind == "i" or value.ndim == 1:
        return f"np.array({value.tolist()})"
    if len(regions.boxes[0]) == 5:  # a rotated box; its angle cannot be told from a batch index
        image = "0, " * (value.shape[1] == 6)
        return f"np.array([[{image}{{b0}}, {{b1}}, {{b2}}, {{b3}}, {{b4}}]], np.float32)"
    names = dict(zip(_BOX, ("{x1}", "{y1}", "{x2}", "{y2}"), strict=True))
    names = {float(number): f"{{b{i}}}" for i, number in enumerate(regions.boxes[0])} | names
    texts = [names.get(float(number), "0") for number in value[0]]
    return f"np.array([[{', '.join(texts)}]], np.float32)"
