"""Computes systems with roipool: on the CPU, on a GPU, and with the oracle."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool.systems import SYSTEMS, Compared, Results, System, oracle_of
from roipool.systems.case import Case
from roipool.systems.volumes import as_maps
from roipool.tools.compare.problem import PARTS, Compute, Problem, Unavailable
from roipool.verification.call import run
from roipool.verification.device import device
from roipool.verification.oracle import ask

__all__ = ["ENGINES", "case_of", "missing", "row_of"]

# Names of the results of `roipool.verification.call.run`.
_RESULTS = {"forward": "pooled", "features": "gradient", "boxes": "box_gradient"}


def _on_cpu(compared: Compared, problem: Problem, part: str) -> Any:
    return _compute(compared, problem, part, roipool)


def _on_cuda(compared: Compared, problem: Problem, part: str) -> Any:
    return _compute(compared, problem, part, device("cuda").library)


def _by_oracle(compared: Compared, problem: Problem, part: str) -> Any:
    """Compute with the oracle, with coordinates rounded to float32 as in the engines."""
    _check_part(row_of(compared), part)
    if part not in compared.oracle:
        raise Unavailable(f"has no {PARTS[part]} of the oracle")
    case, order = _by_image(case_of(compared, problem))
    oracle = oracle_of(compared.row)
    operation = oracle.operation
    if compared.boxes is not None:
        operation = operation._replace(boxes=compared.boxes)
    _check_part(operation, part)
    results = ask(case, oracle, _only(operation, part))
    if part == "forward":
        results = oracle.finish(case, results)
    return _in_planes(problem, part, _result(compared, case, part, results, order))


ENGINES: dict[str, Callable[[Compared], Compute]] = {
    "cpu": lambda compared: functools.partial(_on_cpu, compared),
    "cuda": lambda compared: functools.partial(_on_cuda, compared),
    "oracle": lambda compared: functools.partial(_by_oracle, compared),
}


def missing(engine: str) -> str | None:
    """Return why an engine is not available, or import what it needs and return None."""
    # The import must not count as time of the first system.
    importlib.import_module("roipool.verification.oracle")
    if engine != "cuda":
        return None
    from roipool import _system_info

    reason: str | None = _system_info.gpu_facts()["no_gpu"]
    return reason


def _compute(compared: Compared, problem: Problem, part: str, library: Any) -> Any:
    row = row_of(compared)
    _check_part(row, part)
    case, order = _by_image(case_of(compared, problem))
    results = run(case, library, _only(row, part))
    return _in_planes(problem, part, _result(compared, case, part, results, order))


def _only(row: System, part: str) -> System:
    """Return a row with only the functions that a part needs."""
    if part == "forward":
        return row.only_forward
    if part == "boxes":
        return row._replace(forward="", backward="")
    # The gradient of a maximum needs the argmax.
    forward = row.forward if len(row.returns) > 1 else ""
    return row._replace(forward=forward, box_gradient="")


def _by_image(case: Case) -> tuple[Case, NDArray[np.intp]]:
    """Sort the boxes by image, as some systems require; return the case and the order."""
    order = np.argsort(case.rois[:, 0], kind="stable")
    return replace(case, rois=case.rois[order], grad=case.grad[order]), order


def _result(
    compared: Compared, case: Case, part: str, results: Results, order: NDArray[np.intp]
) -> Any:
    """Return one part of the results, with boxes in the problem's order."""
    result = results[_RESULTS[part]]
    groups = row_of(compared).groups_of(case.options, case.size)
    if part == "features":
        return result if groups == 1 else _sum_of_copies(result, groups)
    if part == "boxes" and compared.box_gradient is not None:
        result = compared.box_gradient(case, result)
    restored = np.empty_like(result)
    restored[order] = result
    return restored


def _in_planes(problem: Problem, part: str, result: Any) -> Any:
    """Return a result in the problem's shape: `case_of` joins the rows of a volume's planes."""
    return result.reshape(problem.shape_of(part)) if problem.is_volume else result


def _sum_of_copies(gradient: NDArray[Any], groups: int) -> Any:
    """Return the gradient of a map from those of the copies that `case_of` makes."""
    count, channels, height, width = gradient.shape
    return gradient.reshape(count, channels // groups, groups, height, width).sum(axis=2)


def _check_part(row: System, part: str) -> None:
    if part != "forward" and not {
        "features": row.backward,
        "boxes": row.box_gradient,
    }.get(part):
        raise Unavailable(f"has no {PARTS[part]}")


def row_of(compared: Compared) -> System:
    """Return the system's row with the boxes of the compared entry."""
    row = SYSTEMS[compared.row]
    return row if compared.boxes is None else row._replace(boxes=compared.boxes)


def case_of(compared: Compared, problem: Problem) -> Case:
    """Return the call that computes a problem."""
    if problem.rotated and not compared.rotated:
        raise Unavailable("has no boxes with an angle")
    options = problem.options
    if "samples" in row_of(compared).options and options.sampling_ratio < 1:
        raise Unavailable("has no adaptive number of samples; give a sampling ratio")
    # Each group of bins of a position-sensitive system is pooled from a copy of the map.
    rows, columns = options.output_size[-2:]
    groups = row_of(compared).groups_of(compared.options, (rows, columns))
    maps = as_maps(problem.features, "NCHW")
    return Case(
        operation=compared.row,
        maps=maps if groups == 1 else maps.repeat(groups, axis=1),
        grad=as_maps(problem.grad, "NCHW"),
        rois=problem.rois,
        planes=(problem.features.shape[2], options.output_size[0]) if problem.is_volume else None,
        layout="NCHW" if "NCHW" in row_of(compared).layouts else "NHWC",
        options={
            "spatial_scale": options.spatial_scale,
            "sampling_ratio": options.sampling_ratio,
            "samples": options.sampling_ratio,
            **compared.options,
        },
    )
