"""Systems as roipool computes them: on the CPU, on a GPU, and with the oracle."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.tools.compare.systems import System

if TYPE_CHECKING:
    from roipool.verification.case import Case
    from roipool.verification.operations import Operation

__all__ = ["ENGINES", "missing"]

# Names of results of `roipool.verification.call.run`.
_RESULTS = {"forward": "pooled", "features": "gradient", "boxes": "box_gradient"}


def _on_cpu(system: System, problem: Problem, part: str) -> Any:
    return _compute(system, problem, part, roipool)


def _on_cuda(system: System, problem: Problem, part: str) -> Any:
    return _compute(system, problem, part, _OnGpu(roipool))


def _by_oracle(system: System, problem: Problem, part: str) -> Any:
    """Ask the oracle, with coordinates in float32: it then takes the decisions of float32."""
    from roipool import reference
    from roipool.verification.oracle import ORACLES, Oracle

    operation = _operation(system)
    _check_part(operation, part)
    if part not in system.oracle:
        raise Unavailable(f"has no {PARTS[part]} of the oracle")
    oracle = ORACLES.get(system.operation, Oracle(operation, lambda case: case))
    asked = oracle.operation
    if "boxes" in system.changes:
        asked = asked._replace(boxes=operation.boxes)
    case = oracle.prepare(replace(_case(system, problem), dtype="float64", layout="NCHW"))
    found = _run_part(system, case, part, reference, asked, coordinate_dtype=np.float32)
    if part == "forward":
        found = oracle.finish(case, {"pooled": found})["pooled"]
    return found


ENGINES: dict[str, Callable[[System], Compute]] = {
    "cpu": lambda system: functools.partial(_on_cpu, system),
    "cuda": lambda system: functools.partial(_on_cuda, system),
    "oracle": lambda system: functools.partial(_by_oracle, system),
}


def missing(engine: str) -> str | None:
    """Return why an engine cannot compute here, if it cannot; import what it needs, if it can."""
    # The first system's time must not hold the import.
    importlib.import_module("roipool.verification.oracle")
    if engine != "cuda":
        return None
    from roipool import _system_info

    reason: str | None = _system_info.gpu_facts()["no_gpu"]
    return reason


def _compute(system: System, problem: Problem, part: str, library: Any) -> Any:
    return _run_part(system, _case(system, problem), part, library, _operation(system))


def _run_part(
    system: System, case: Case, part: str, library: Any, operation: Operation, **more: Any
) -> Any:
    """Call only what a part needs; `run` calls all that an operation has."""
    from roipool.verification.call import run

    needed: dict[str, Any] = {"forward": operation.forward, "backward": "", "box_gradient": ""}
    if part == "features":
        # The gradient of a maximum needs the argmax.
        forward = operation.forward if len(operation.returns) > 1 else ""
        needed = {"forward": forward, "backward": operation.backward, "box_gradient": ""}
    elif part == "boxes":
        needed = {"forward": "", "backward": "", "box_gradient": operation.box_gradient}
    _check_part(operation, part)
    found = run(case, library, operation._replace(**needed), **more)[_RESULTS[part]]
    if part == "boxes" and system.box_gradient is not None:
        found = system.box_gradient(case, found)
    return found


def _check_part(operation: Operation, part: str) -> None:
    if part != "forward" and not {
        "features": operation.backward,
        "boxes": operation.box_gradient,
    }.get(part):
        raise Unavailable(f"has no {PARTS[part]}")


def _operation(system: System) -> Operation:
    from roipool.verification.operations import OPERATIONS

    return OPERATIONS[system.operation]._replace(**system.changes)


def _case(system: System, problem: Problem) -> Case:
    from roipool.verification.case import Case

    if problem.rotated and not system.rotated:
        raise Unavailable("has no boxes with an angle")
    options = problem.options
    return Case(
        operation=system.operation,
        maps=problem.features,
        grad=problem.grad,
        rois=problem.rois,
        layout="NCHW" if "NCHW" in _operation(system).layouts else "NHWC",
        options={
            "spatial_scale": options.spatial_scale,
            "sampling_ratio": options.sampling_ratio,
            **system.options,
        },
    )


class _OnGpu:
    """A module whose functions take and return NumPy arrays and compute with CuPy's."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return _via_gpu(found) if callable(found) else _OnGpu(found)


@functools.cache
def _via_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        import cupy

        moved = {name: _moved(value, cupy) for name, value in arguments.items()}
        found = function(**moved)
        if isinstance(found, tuple):
            return tuple(array.get() for array in found)
        return found.get()

    return call


def _moved(value: Any, cupy: Any) -> Any:
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = value
        return cupy.asarray(array)
    return value
