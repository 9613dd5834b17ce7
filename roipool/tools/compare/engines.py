"""Systems as roipool computes them: on the CPU, on a GPU, and with the oracle."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool.systems import SYSTEMS, Compared, System, oracle_of
from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.verification.call import run
from roipool.verification.case import Case

__all__ = ["ENGINES", "case_of", "missing", "row_of"]

# Names of results of `roipool.verification.call.run`.
_RESULTS = {"forward": "pooled", "features": "gradient", "boxes": "box_gradient"}


def _on_cpu(compared: Compared, problem: Problem, part: str) -> Any:
    return _compute(compared, problem, part, roipool)


def _on_cuda(compared: Compared, problem: Problem, part: str) -> Any:
    return _compute(compared, problem, part, _OnGpu(roipool))


def _by_oracle(compared: Compared, problem: Problem, part: str) -> Any:
    """Ask the oracle, with coordinates in float32: it then takes the decisions of float32."""
    from roipool import reference

    _check_part(row_of(compared), part)
    if part not in compared.oracle:
        raise Unavailable(f"has no {PARTS[part]} of the oracle")
    oracle = oracle_of(compared.row)
    asked = oracle.operation
    if compared.boxes is not None:
        asked = asked._replace(boxes=compared.boxes)
    case = oracle.prepare(replace(case_of(compared, problem), dtype="float64", layout="NCHW"))
    found = _run_part(compared, case, part, reference, asked, coordinate_dtype=np.float32)
    if part == "forward":
        found = oracle.finish(case, {"pooled": found})["pooled"]
    return found


ENGINES: dict[str, Callable[[Compared], Compute]] = {
    "cpu": lambda compared: functools.partial(_on_cpu, compared),
    "cuda": lambda compared: functools.partial(_on_cuda, compared),
    "oracle": lambda compared: functools.partial(_by_oracle, compared),
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


def _compute(compared: Compared, problem: Problem, part: str, library: Any) -> Any:
    return _run_part(compared, case_of(compared, problem), part, library, row_of(compared))


def _run_part(
    compared: Compared, case: Case, part: str, library: Any, operation: System, **more: Any
) -> Any:
    """Call only what a part needs; `run` calls all that an operation has."""
    needed: dict[str, Any] = {"forward": operation.forward, "backward": "", "box_gradient": ""}
    if part == "features":
        # The gradient of a maximum needs the argmax.
        forward = operation.forward if len(operation.returns) > 1 else ""
        needed = {"forward": forward, "backward": operation.backward, "box_gradient": ""}
    elif part == "boxes":
        needed = {"forward": "", "backward": "", "box_gradient": operation.box_gradient}
    _check_part(operation, part)
    order = np.argsort(case.rois[:, 0], kind="stable")  # by image, as some systems want it
    case = replace(case, rois=case.rois[order], grad=case.grad[order])
    found = run(case, library, operation._replace(**needed), **more)[_RESULTS[part]]
    if part == "features":
        return found
    if part == "boxes" and compared.box_gradient is not None:
        found = compared.box_gradient(case, found)
    restored = np.empty_like(found)
    restored[order] = found
    return restored


def _check_part(row: System, part: str) -> None:
    if part != "forward" and not {
        "features": row.backward,
        "boxes": row.box_gradient,
    }.get(part):
        raise Unavailable(f"has no {PARTS[part]}")


def row_of(compared: Compared) -> System:
    """Return the row with the boxes that are compared."""
    row = SYSTEMS[compared.row]
    return row if compared.boxes is None else row._replace(boxes=compared.boxes)


def case_of(compared: Compared, problem: Problem) -> Case:
    """Return the call that computes a problem."""
    if problem.rotated and not compared.rotated:
        raise Unavailable("has no boxes with an angle")
    options = problem.options
    return Case(
        operation=compared.row,
        maps=problem.features,
        grad=problem.grad,
        rois=problem.rois,
        layout="NCHW" if "NCHW" in row_of(compared).layouts else "NHWC",
        options={
            "spatial_scale": options.spatial_scale,
            "sampling_ratio": options.sampling_ratio,
            **compared.options,
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
