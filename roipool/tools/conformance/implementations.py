"""Another implementation of an operation, wrapped to be called like roipool in random calls."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

import roipool
from roipool._errors import shown
from roipool.systems import SEMANTICS, System
from roipool.tools.libraries import LIBRARIES, Absent, Task, in_given_order, single_call
from roipool.tools.libraries.client import Functions, Worker, misbehaviour
from roipool.tools.libraries.functions import ARRAYS, AUTOGRAD, Caller, Misbehaviour, loaded
from roipool.tools.libraries.process import Ended

Function: TypeAlias = Callable[..., Any]
SECONDS = 20.0  # time limit of a call
# Arguments of roipool's functions that the original functions lack.
OWN_OPTIONS = ("return_argmax", "exact_gradient", "operator")
NEVER_PASSED = ("layout", "out")


class Calls(Protocol):
    """The forward and gradients of an implementation: `Caller`, `Functions` or `LibraryCalls`."""

    def parameters(self, which: str) -> Sequence[str] | None:
        """Return the names of a function's parameters, or None if they are unknown."""

    def call(
        self, which: str, given: Sequence[tuple[str, Any]], options: dict[str, Any]
    ) -> Sequence[Any]:
        """Call "forward", "backward" or "backward_boxes"."""


class LibraryCalls:
    """Calls an installed library of `roipool.tools.libraries` in a separate process.

    Parameters
    ----------
    semantics : str
        A key of `SEMANTICS`.

    Raises
    ------
    ValueError
        If the library cannot be used, or lacks the operation.
    """

    def __init__(self, name: str, semantics: str, python: str, seconds: float) -> None:
        row = SEMANTICS[semantics]
        self._name, self._library = name, LIBRARIES[name]
        if row.asked.get("operation") not in self._library.operations:
            raise ValueError(f"{name} has no {semantics}")
        if "." not in semantics:  # libraries lack layouts and pairs of sampling ratios
            raise ValueError(
                f"{name} lacks some options of roipool's {semantics}: choose another system's"
            )
        self._names, self._layout = row.names, row.layouts[0]
        self._asked = {"mode": "avg", **row.asked}
        try:
            self._worker = Worker(name, self._library, 1, python, seconds)
        except Absent as error:
            raise ValueError(f"{name} cannot be used: {error}") from None

    def parameters(self, which: str) -> None:
        """Return None: a library takes all arguments of the operation."""

    def call(
        self, which: str, given: Sequence[tuple[str, Any]], options: dict[str, Any]
    ) -> Sequence[Any]:
        """Call the operator, or its gradient with respect to the features or the boxes."""
        if which == "backward_boxes" and "boxes" not in self._library.gradients:
            raise Misbehaviour("has no gradient", "has no gradient with respect to the boxes")
        known = {self._names.get(name, name): value for name, value in [*given, *options.items()]}
        task, order = self._task(known, which)
        try:
            self._library.check(task)
        except Absent as error:
            raise ValueError(f"{self._name} {error}") from None
        try:
            self._worker.prepare(task)
            (result,) = self._worker.results()
        except Ended as error:
            raise misbehaviour(error) from None
        except Absent as error:
            raise Misbehaviour("raises", str(error)) from None
        return [in_given_order(result, task, order)]

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _task(self, known: dict[str, Any], which: str) -> tuple[Task, Any]:
        """Return the library's task, and the order of its boxes."""
        if "boxes" in known:
            boxes, images = known["boxes"], known["box_indices"]
        else:
            boxes, images = known["rois"], known.get("batch_indices")
        if "boxes_num" in known:
            images = np.repeat(np.arange(len(known["boxes_num"])), known["boxes_num"])
        rois = boxes if images is None else np.column_stack([images.astype(boxes.dtype), boxes])
        features, grad, size = known.get("features"), known.get("grad_output"), _size_of(known)
        if grad is not None:
            size = grad.shape[1:3] if self._layout == "NHWC" else grad.shape[2:]
        if which == "backward":
            features = np.zeros(known["input_shape"], known["grad_output"].dtype)
        half_pixel = known.get("coordinate_transformation_mode") == "half_pixel"
        mode = known.get("aligned_mode", "asymmetric")
        if mode == "half_pixel":  # of OpenVINO
            rois = np.column_stack([rois[:, :1], rois[:, 1:] + rois.dtype.type(0.5)])
        options = {
            "output_size": size,
            "layout": self._layout,
            "wrt": "boxes" if which == "backward_boxes" else "features",
            "sampling_ratio": max(known.get("sampling_ratio", 0), 0),
            "aligned": known.get("aligned", half_pixel or mode != "asymmetric"),
            "extrapolation_value": known.get("extrapolation_value", 0.0),
            **self._asked,
        }
        return single_call(features, rois, grad, known.get("spatial_scale", 1.0), options)


def _size_of(known: dict[str, Any]) -> tuple[int, int]:
    if "output_height" in known:
        return known["output_height"], known["output_width"]
    rows, columns = known.get("crop_size", known.get("output_size", (0, 0)))
    return int(rows), int(columns)


def calls_of(
    forward: Function | str,
    backward: Function | str | None = None,
    backward_boxes: Function | str | None = None,
    arrays: str = "numpy",
    device: str = "cpu",
    *,
    semantics: str,
    python: str = sys.executable,
    seconds: float = SECONDS,
    isolated: bool = False,
) -> Calls:
    """Return the caller of an implementation; one given by name runs in a separate process.

    If `isolated`, so do functions that another process can import.
    """
    if arrays not in ARRAYS:
        raise ValueError(f"arrays must be one of {', '.join(ARRAYS)}, got {shown(arrays)}")
    if isinstance(forward, str) and forward in LIBRARIES:
        gradients = (backward, backward_boxes)
        if (arrays, device) != ("numpy", "cpu") or not {*gradients} <= {None, AUTOGRAD}:
            raise ValueError(
                f"{forward} takes arrays 'numpy', device 'cpu' and gradients 'autograd' only"
            )
        return LibraryCalls(forward, semantics, python, seconds)
    if isinstance(forward, str):
        for name, function in (("backward", backward), ("backward_boxes", backward_boxes)):
            if function is not None and not isinstance(function, str):
                raise ValueError(f"{name} must be a name like the forward, package.module:function")
        return Functions(
            forward,
            cast("str | None", backward),
            cast("str | None", backward_boxes),
            arrays,
            device,
            python,
            seconds,
        )
    if not callable(forward):
        raise TypeError(f"implementation must be a function, got {type(forward).__name__}")
    by_features = _gradient("backward", backward)
    by_boxes = _gradient("backward_boxes", backward_boxes)
    if isolated:
        functions = (forward, by_features, by_boxes)
        for names in _names_of(functions):
            with contextlib.suppress(ValueError):  # another process cannot import them
                return Functions(*names, arrays, device, python, seconds)
    return Caller(forward, by_features, by_boxes, arrays, device)


def _names_of(
    functions: Sequence[Function | str | None],
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the names by which another process may find some functions: of modules, and of files.

    There are none for functions that are no attribute of their module, as closures, and for those
    of a program, which would run once more.
    """
    by_module: list[str | None] = []
    by_file: list[str | None] = []
    for function in functions:
        if function is None or isinstance(function, str):
            by_module.append(function)
            by_file.append(function)
            continue
        module, path = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        target: Any = sys.modules.get(module or "")
        file = getattr(target, "__file__", None) or ""
        for part in (path or "").split("."):
            target = getattr(target, part, None)
        if target is not function or module == "__main__":
            return
        by_module.append(f"{module}:{path}")
        by_file.append(f"{file}:{path}")
    yield cast("tuple[str, str | None, str | None]", tuple(by_module))
    if all(name is None or name == AUTOGRAD or ".py:" in name for name in by_file):
        yield cast("tuple[str, str | None, str | None]", tuple(by_file))


def _gradient(name: str, given: Function | str | None) -> Function | str | None:
    """Check a gradient that is called in this process."""
    if isinstance(given, str) and given != AUTOGRAD:
        return loaded(given)
    if not callable(given) and given not in (None, AUTOGRAD):
        raise TypeError(f"{name} must be a function, got {type(given).__name__}")
    return given


def close(calls: Calls) -> None:
    """End the process of an implementation, if it has one."""
    if isinstance(calls, (Functions, LibraryCalls)):
        calls.close()


def library_of(
    calls: Calls, operation: System, fixed: Mapping[str, Any], semantics: str
) -> SimpleNamespace:
    """Return an object with an operation's functions, like roipool, that calls an implementation.

    The functions take the arguments of roipool's functions. Arguments without a default are passed
    by position, the others by name; roipool's additions and `fixed` options are passed only if the
    implementation takes them.

    Raises
    ------
    ValueError
        If the implementation lacks an option that is not fixed.
    """
    library = SimpleNamespace()
    for which, path in (
        ("forward", operation.forward),
        ("backward", operation.backward),
        ("backward_boxes", operation.box_gradient),
    ):
        if path:
            *packages, name = path.split(".")
            place = library
            for package in packages:
                if not hasattr(place, package):
                    setattr(place, package, SimpleNamespace())
                place = getattr(place, package)
            setattr(place, name, _function(calls, which, path, operation, fixed, semantics))
    return library


_SIDES = [
    re.compile(rf"(pooled|output|out|aligned|crop)_?({ending})")
    for ending in ("d|z|depth|zdepth", "h|height", "w|width")
]


def check_not_raw(
    accepted: Sequence[str], signature: inspect.Signature, required: Sequence[str]
) -> None:
    """Raise the error for a raw operator, which takes the sides of the output apart.

    Its message has a wrapper with the arguments of the system.
    """
    sizes = [name for name in ("output_size", "crop_size") if name in required]
    depth, rows, columns = (
        [name for name in accepted if pattern.fullmatch(name)] for pattern in _SIDES
    )
    if not sizes or sizes[0] in accepted or len(rows) != 1 or len(columns) != 1:
        return
    size, own = sizes[0], [name for name in signature.parameters if name not in NEVER_PASSED]
    sides = [*depth[:1], *rows, *columns]  # in the order of a size
    places = {name: f"{size}[{axis}]" for axis, name in enumerate(sides)}
    passed = [
        places.get(name, own[place] if place < required.index(size) else name)
        for place, name in enumerate(accepted)
    ]
    options = [
        f"{name}={signature.parameters[name].default!r}"
        for name in own
        if name not in required and name in accepted
    ]
    taken = ", ".join([*required, *options])
    raise ValueError(
        f"the forward takes {', '.join(sides[:-1])} and {sides[-1]}, as raw operators do; the "
        f"calls have {size}: give `def wrapper({taken}): return operator({', '.join(passed)})`"
    )


def _function(
    calls: Calls,
    which: str,
    path: str,
    operation: System,
    fixed: Mapping[str, Any],
    semantics: str,
) -> Function:
    right: Any = roipool
    for part in path.split("."):
        right = getattr(right, part)
    signature = inspect.signature(right)
    required = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
    ]
    accepted = calls.parameters(which)
    canonical = {own: operation.names.get(own, own) for own in signature.parameters}
    droppable = {own for own, name in canonical.items() if name in {*fixed, *operation.fixed}}

    def takes(name: str) -> bool:
        if name in required or name in NEVER_PASSED:
            return False
        if name in OWN_OPTIONS:
            return accepted is not None and name in accepted
        return accepted is None or name not in droppable or name in accepted

    def call(**arguments: Any) -> tuple[Any, ...]:
        given = [(name, arguments[name]) for name in required if name in arguments]
        options = {name: value for name, value in arguments.items() if takes(name)}
        return tuple(map(np.asarray, calls.call(which, given, options)))

    if which == "forward" and accepted is not None:
        check_not_raw(accepted, signature, required)
    needed = {own for own, name in canonical.items() if name in operation.options}
    needed -= {*droppable, *required}
    if accepted is not None and (lacking := sorted(needed - set(accepted))):
        raise ValueError(
            f"the {which} has no argument {lacking[0]!r}, which {semantics} has: "
            f"fix it, as in --option {lacking[0]}=VALUE or options={{{lacking[0]!r}: VALUE}}"
        )
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
