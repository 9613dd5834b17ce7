"""The row of a system, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roipool._arguments import CORNERS, CROPS, Form
from roipool.reference import Rules
from roipool.verification.case import FORMS, Case
from roipool.verification.released import Answer

FloatArray: TypeAlias = NDArray[np.float32]
Results: TypeAlias = dict[str, NDArray[Any]]
DTYPES = ("float32", "float16", "bfloat16", "float64")


class Compared(NamedTuple):
    """A system as `roipool compare` and the site show it: a row whose options have one value.

    Attributes
    ----------
    row : str
        The name of the row in `SYSTEMS`, "" if only an installed library computes it. Of an entry
        that stands in a row it is filled in where the rows are collected.
    options : mapping
        Its arguments besides those that the user chooses.
    boxes : callable, optional
        From a case to the arguments that hold the boxes, where they are not the row's.
    box_gradient : callable, optional
        From the case and the gradient with respect to the row's own boxes to that with respect to
        x1, y1, x2, y2 in pixels.
    rotated : bool
        Whether it takes boxes with an angle; it then takes others as boxes with the angle 0.
    is_listed : bool
        Whether `roipool compare` offers it; of two that compute the same, one is enough.
    oracle : tuple of str
        The parts that the oracle has; some released gradients are not those of the forward.
    libraries : tuple of str
        The installed libraries that compute it: keys of `roipool.tools.libraries.LIBRARIES`.
    asked : mapping
        Fields of the libraries' `Task`, besides those that follow from the row and the options.
    rules : Rules, optional
        The rules by which `roipool compare` says why numbers differ. They are for aligned boxes if
        the options say so, or else for those that are not. None if it is not listed.
    example : str
        A call, as the site shows it, of the arrays in docs/_extension/calls.py.
    """

    row: str = ""
    options: Mapping[str, Any] = {}
    boxes: Callable[[Case], dict[str, Any]] | None = None
    box_gradient: Callable[[Case, FloatArray], FloatArray] | None = None
    rotated: bool = False
    is_listed: bool = True
    oracle: tuple[str, ...] = ("forward", "features", "boxes")
    libraries: tuple[str, ...] = ()
    asked: Mapping[str, Any] = {}
    rules: Rules | None = None
    example: str = ""


class System(NamedTuple):
    """Public functions, by their names in roipool, and everything that is known of them.

    Arguments are passed by name: each function gets those of `known_arguments` (see
    `roipool.verification.call`) that it has, after `names` has translated its own.

    Attributes
    ----------
    forward, backward, box_gradient : str
        The functions; "" if there is none.
    options : tuple of str
        The options that vary; `roipool.verification.options` draws them.
    scales : {"any", "above 0", "up to 1", "powers of 2"}
        The spatial scales that are allowed.
    pairs : bool
        Whether sampling ratios may differ between rows and columns.
    fixed : mapping
        Options that are always the same.
    returns : tuple of str
        The forward's results; all but "pooled" are passed to the backward, too.
    samples : str
        The contents of a bin: a "grid" of samples, such a grid turned ("points"), whole "cells",
        its "area", or "one" sample.
    bin_value : str
        What a pooled value is: see ``roipool._definitions.Variant``. If the row has an oracle of
        another name, the oracle's counts.
    boxes : function
        From a case to the arguments that hold the boxes.
    names : mapping
        From the functions' own names of arguments to roipool's.
    dtypes, layouts : tuple of str
        Those that it takes.
    finite : bool
        Whether boxes that are not finite are an error.
    takes_no_rows : bool
        Whether maps may be without rows.
    forms : tuple of str
        Those of `FORMS` in which boxes are drawn; others may be made of the same boxes.
    pyramid : function, optional
        From a list with something of each map to what the functions take. Then the case's maps are
        divided among several: see `roipool.verification.pyramids`.
    argmax_is_of_batch : bool
        Whether an argmax counts through all images and channels; results have it for each map.
    oracle : Oracle, optional
        The answer in terms of `roipool.reference`; by default its function of the same name.
    without_oracle : tuple of str
        Types of maps in which the oracle's decisions are not this row's.
    is_semantics : bool
        Whether other implementations can be compared with it. A class of `compat`, a gradient that
        the oracle lacks and an operation on several maps are only called at random.
    asked : mapping
        Fields of `roipool.tools.libraries.Task` for an installed library; empty if none has it.
    goldens : mapping
        Answers of released programs, by title.
    compared : mapping
        What `roipool compare` shows of it, by name.
    """

    forward: str
    backward: str = ""
    box_gradient: str = ""
    options: tuple[str, ...] = ()
    scales: str = "any"
    pairs: bool = False
    fixed: Mapping[str, Any] = {}
    returns: tuple[str, ...] = ("pooled",)
    samples: str = "cells"
    bin_value: str = "average"
    boxes: Callable[[Case], dict[str, Any]] = lambda case: {"rois": case.rois}
    names: Mapping[str, str] = {}
    dtypes: tuple[str, ...] = DTYPES
    layouts: tuple[str, ...] = ("NCHW",)
    finite: bool = False
    takes_no_rows: bool = True
    forms: tuple[str, ...] = FORMS
    pyramid: Callable[[list[Any]], Any] | None = None
    argmax_is_of_batch: bool = False
    oracle: Oracle | None = None
    without_oracle: tuple[str, ...] = ()
    is_semantics: bool = True
    asked: Mapping[str, Any] = {}
    goldens: Mapping[str, Answer] = {}
    compared: Mapping[str, Compared] = {}

    def only_called(self, **changes: Any) -> System:
        """Return a row like this one that is only called at random, compared with its oracle."""
        return self._replace(**{"is_semantics": False, "goldens": {}, "compared": {}, **changes})


class Oracle(NamedTuple):
    """How the oracle answers a system that it does not have under the same name.

    Attributes
    ----------
    operation : System
        The functions of `roipool.reference`.
    prepare : function
        From the case to the one that the oracle gets.
    finish : function
        From the case and the oracle's results to those of the system.
    cannot_answer : function
        Whether the oracle's answer to a case is not the system's.
    """

    operation: System
    prepare: Callable[[Case], Case] = lambda case: case
    finish: Callable[[Case, Results], Results] = lambda case, results: results
    cannot_answer: Callable[[Case], bool] = lambda case: False


def names_of(form: Form, **others: str) -> dict[str, str]:
    """Return the names of arguments that a form of `compat` translates, as `System.names`."""
    usual = CROPS if form.is_normalised else CORNERS
    fields = ("boxes", "indices", "size", "features", "grad_output", "input_shape")
    names = {getattr(form, field): getattr(usual, field) for field in fields}
    # A size of two arguments has a name for error messages only: "pooled_h and pooled_w".
    return {own: name for own, name in names.items() if own != name and " " not in own} | others
