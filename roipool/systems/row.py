"""The classes of a system's row: `System`, `Oracle` and `Compared`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roipool._boxes import CORNERS, CROPS, Form
from roipool._layout import groups_of_bins
from roipool.reference import Rules
from roipool.systems.case import FORMS, Case
from roipool.systems.stored import Answer, Results

FloatArray: TypeAlias = NDArray[np.float32]
DTYPES = ("float32", "float16", "bfloat16", "float64")


class Compared(NamedTuple):
    """An entry of `roipool compare` and of the site: a system with some options fixed."""

    # Key of the system in `SYSTEMS`; "" if only an installed library computes it. For entries
    # within a row it is filled in when the rows are collected.
    row: str = ""
    options: Mapping[str, Any] = {}  # the fixed options
    # Maps a case to the arguments that hold the boxes, if not as in the row.
    boxes: Callable[[Case], dict[str, Any]] | None = None
    # Maps the case, and the gradient with respect to the system's boxes, to the gradient with
    # respect to x1, y1, x2, y2 in pixels.
    box_gradient: Callable[[Case, FloatArray], FloatArray] | None = None
    rotated: bool = False  # whether boxes have an angle; boxes without one get the angle 0
    # Whether `roipool compare` computes it without being asked for it by name, and the live page
    # offers it; of two entries that compute the same, one is listed.
    is_listed: bool = True
    # Whether the live page can show it: one call of the engine, with boxes in a form that the page
    # knows, and bins without samples that have a number.
    is_live: bool = True
    # The parts that the oracle has; the gradients of some releases are not those of the forward.
    oracle: tuple[str, ...] = ("forward", "features", "boxes")
    # The installed libraries that compute it: keys of `roipool.tools.libraries.LIBRARIES`.
    libraries: tuple[str, ...] = ()
    # Fields of the libraries' `Task`, besides those that follow from the row and the options.
    asked: Mapping[str, Any] = {}
    # The rules from which `roipool compare` explains differences, before `of_boxes` sets whether
    # boxes are aligned. Entries without rules cannot be compared.
    rules: Rules | None = None
    # The example of a call on the site; it uses the arrays of docs/_extension/calls.py. "" for
    # systems of volumes, whose samples are not drawn.
    example: str = ""
    # Whether an entry within a row is of the row of the system's own gradient.
    of_gradient: bool = False


class System(NamedTuple):
    """Public functions, by their names in roipool, and everything that the tools know about them.

    Arguments are passed by name: `roipool.verification.call` selects those that each function
    takes from `known_arguments`; `names` translates the function's own names.
    """

    # Names of the functions; "" if there is none.
    forward: str
    backward: str = ""
    box_gradient: str = ""
    # Name of a further gradient, with respect to the offsets of bins.
    offset_gradient: str = ""
    # The options that vary; `roipool.verification.options` draws their values.
    options: tuple[str, ...] = ()
    # Spatial scales allowed: "any", "above 0", "up to 1" or "powers of 2".
    scales: str = "any"
    pairs: bool = False  # whether sampling ratios may differ between rows and columns
    fixed: Mapping[str, Any] = {}  # options with a constant value
    # Names of the forward's results; all but "pooled" are also passed to the backward.
    returns: tuple[str, ...] = ("pooled",)
    # What a bin reads: a "grid" of samples, a rotated grid ("points"), whole "cells", those under a
    # "filter", the integral over its "area", or "one" sample.
    samples: str = "cells"
    # The kind of a pooled value: see ``roipool._definitions.Variant``. If the row has an oracle of
    # another name, the oracle's applies.
    bin_value: str = "average"
    # Maps a case to the arguments that hold the boxes.
    boxes: Callable[[Case], dict[str, Any]] = lambda case: {"rois": case.rois}
    names: Mapping[str, str] = {}  # maps the functions' own argument names to roipool's
    # Supported types and layouts of features.
    dtypes: tuple[str, ...] = DTYPES
    layouts: tuple[str, ...] = ("NCHW",)
    # The type whose results those of narrower types are, rounded; "" where boxes, too, have the
    # type of the features.
    rounds_from: str = "float32"
    # Whether features and pooled values are codes of numbers, in the same type.
    returns_codes: bool = False
    finite: bool = False  # whether boxes must be finite
    takes_no_rows: bool = True  # whether maps with 0 rows are allowed
    # Keys of `FORMS` in which boxes are drawn; `boxes` may derive other forms from them.
    forms: tuple[str, ...] = FORMS
    # Whether each group of bins is pooled from channels of its own. The option "group_size" says
    # how many groups there are; without it each bin is a group.
    is_position_sensitive: bool = False
    # Maps a list with one item per level to the functions' own collection. Its presence means that
    # the case's maps are divided among levels: see `roipool.systems.pyramids`.
    pyramid: Callable[[list[Any]], Any] | None = None
    # Whether the case's maps are volumes, its rows those of all planes: see
    # `roipool.systems.volumes`.
    is_volume: bool = False
    # If features are masks, of one channel: "pasted" into a picture for each box, or "cut" out of
    # pictures. See `roipool.systems.masks`.
    masks: str = ""
    # Whether an argmax is an index into the whole batch; results hold indices into single maps.
    argmax_is_of_batch: bool = False
    # Whether the system's own gradient, unlike the derivative, mixes channels and boxes.
    mixes_gradients: bool = False
    # The oracle of the system; by default the function of the same name in `roipool.reference`.
    oracle: Oracle | None = None
    # Types of features in which the oracle may decide otherwise than the system.
    without_oracle: tuple[str, ...] = ()
    # Whether other implementations can be compared with the system. Classes of `compat`, gradients
    # without an oracle and pyramid operations only take part in random calls.
    is_semantics: bool = True
    # The layers of `compat` that compute the forward, such as "mmcv.RoIPool". Each is a row of its
    # own, with the options that the layer takes.
    layers: tuple[str, ...] = ()
    # Options of the system's own gradient, where that is not the derivative.
    gradient_options: tuple[str, ...] = ()
    # Fields of the row of the system's own gradient, where they differ: its backward, if the oracle
    # has none. There is such a row if this field or `gradient_options` is not empty.
    gradient: Mapping[str, Any] = {}
    # Fields of `roipool.tools.libraries.Task` for an installed library; empty if none has it.
    asked: Mapping[str, Any] = {}
    goldens: Mapping[str, Answer] = {}  # stored answers of releases, by title
    # Further files of stored answers, which tests in a checkout compare by themselves.
    stored: tuple[str, ...] = ()
    compared: Mapping[str, Compared] = {}  # entries of `roipool compare`, by name

    @property
    def only_forward(self) -> System:
        """The row without gradients."""
        return self._replace(backward="", box_gradient="", offset_gradient="")

    @property
    def moves_bins(self) -> bool:
        """Whether bins are moved, by offsets."""
        return "gamma" in self.options

    def group_size(self, options: Mapping[str, Any], size: tuple[int, int]) -> tuple[int, int]:
        """Return the groups of bins, down and across."""
        if not self.is_position_sensitive:
            return 1, 1
        given = options.get("group_size", 0)
        pair = (given, given) if isinstance(given, int) else given
        return groups_of_bins(pair, size)

    def groups_of(self, options: Mapping[str, Any], size: tuple[int, int]) -> int:
        """Return how many channels of the features each channel of pooled values comes from."""
        return math.prod(self.group_size(options, size))

    def only_called(self, **changes: Any) -> System:
        """Return a changed copy that takes part only in random calls and their oracle's checks."""
        nothing: dict[str, Any] = {
            "goldens": {},
            "compared": {},
            "gradient": {},
            **dict.fromkeys(("stored", "layers", "gradient_options"), ()),
        }
        return self._replace(**{"is_semantics": False, **nothing, **changes})

    @property
    def own_gradient(self) -> System | None:
        """The row of the system's own gradient, if it has one."""
        if not self.gradient and not self.gradient_options:
            return None
        options = (*self.options, *self.gradient_options)
        fixed = {key: value for key, value in self.fixed.items() if key not in options}
        return self.only_called(**{"options": options, "fixed": fixed, **self.gradient})

    def of_layer(self, name: str, layer: type) -> System:
        """Return the row of a layer of `compat`, whose name may have a variant behind the class."""
        path = f"compat.{name.partition(' ')[0]}"
        taken = {
            self.names.get(own, own)
            for function in (layer, layer.forward)  # type: ignore[attr-defined]
            for own in inspect.signature(function).parameters
        }
        return self.only_called(
            forward=f"{path}.forward",
            backward=f"{path}.backward" if hasattr(layer, "backward") else "",
            box_gradient="",
            offset_gradient="",
            options=tuple(option for option in self.options if option in taken),
            fixed={option: value for option, value in self.fixed.items() if option in taken},
            returns=self.returns[:1],
        )


class Oracle(NamedTuple):
    """The oracle of a system whose function `roipool.reference` lacks under the same name."""

    operation: System  # the functions of `roipool.reference`
    prepare: Callable[[Case], Case] = lambda case: case  # maps the case to the oracle's case
    # Maps the case and the oracle's results to the system's results.
    finish: Callable[[Case, Results], Results] = lambda case, results: results
    # Returns whether the oracle does not model the system's results for a case.
    cannot_answer: Callable[[Case], bool] = lambda case: False
    # Returns, for each box of a case, a bound on the sum of absolute weights of a sample. Only
    # weights below 0, of a map that is extrapolated, have one above 1.
    largest_sum: Callable[[Case], FloatArray] | None = None


def names_of(form: Form, **others: str) -> dict[str, str]:
    """Return `System.names` for the argument names of a form of `compat`."""
    usual = CROPS if form.is_normalised else CORNERS
    fields = ("boxes", "indices", "size", "features", "grad_output", "input_shape")
    names = {getattr(form, field): getattr(usual, field) for field in fields}
    # "pooled_h and pooled_w", the name of a size of two arguments, is for error messages only.
    return {own: name for own, name in names.items() if own != name and " " not in own} | others
