"""Findings as JSON; ``docs/compare.schema.json`` is the schema."""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy as np

import roipool
from roipool.cli.text import as_strict_json
from roipool.tools.compare.differences import Difference, PartComparison, Result
from roipool.tools.compare.identify import Match
from roipool.tools.compare.problem import Problem
from roipool.tools.compare.result import Findings, Pair
from roipool.tools.compare.values import NAME

__all__ = ["FORMAT", "as_json", "outside_tolerance", "place_of", "statistics_of"]

FORMAT = 2  # incremented by incompatible changes


def outside_tolerance(comparison: PartComparison) -> list[Result]:
    """Return the results that failed or differ from the reference by more than the tolerance."""
    return [
        result
        for result in comparison.results
        if not result.lacks
        and (result.error is not None or not comparison.to_reference(result).within)
    ]


def as_json(findings: Findings, options: dict[str, Any]) -> str:
    """Format findings as strict JSON; NaN and infinity become null.

    Returns
    -------
    str
        ASCII text that ends with a newline.
    """
    content = {
        "format": FORMAT,
        "versions": {
            "roipool": roipool.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
        },
        "programs": findings.versions,
        "absent": findings.absent,
        "input": {
            "features": findings.features.name,
            "features_shape": list(findings.features.values.shape),
            "boxes": findings.boxes.name,
            "boxes_count": len(findings.boxes.rois),
            "rotated": findings.problem.rotated,
        },
        "options": options,
        "parts": [_part_entry(findings, comparison) for comparison in findings.parts],
    }
    if findings.values is not None:
        matches, is_equal = findings.identified(NAME, findings.values)
        content["identified"] = {"equal": is_equal, "matches": [*map(_match_entry, matches)]}
    return as_strict_json(content)


def place_of(problem: Problem, part: str, where: tuple[int, ...]) -> dict[str, int | str]:
    """Describe an element: a bin of a box, a cell of the map or a coordinate of a box, from 0."""
    if part == "boxes":
        box, number = where
        return {"box": box, "coordinate": problem.coordinates[number]}
    first = "box" if part == "forward" else "image"
    return dict(zip((first, "channel", *problem.axes), where, strict=True))


def statistics_of(output: np.ndarray[Any, np.dtype[np.float32]]) -> tuple[float, float, float]:
    """Return minimum, mean and maximum without NaN; all NaN if there is nothing else."""
    values = output[~np.isnan(output)].astype(np.float64)
    if values.size == 0:
        return math.nan, math.nan, math.nan
    with np.errstate(all="ignore"):
        return float(values.min()), float(values.mean()), float(values.max())


def _match_entry(match: Match) -> dict[str, Any]:
    return {
        "systems": list(match.systems),
        "spatial_scale": match.options.spatial_scale,
        "sampling_ratio": match.options.sampling_ratio,
        "mistake": match.mistake or None,
        "greatest_difference": match.off,
    }


def _part_entry(findings: Findings, comparison: PartComparison) -> dict[str, Any]:
    return {
        "part": comparison.part,
        "reference": comparison.reference,
        "systems": [_system_entry(comparison, result) for result in comparison.results],
        "groups": {group.letter: group.members for group in comparison.groups},
        "pairs": [
            _pair_entry(findings.problem, comparison, pair) for pair in findings.pairs(comparison)
        ],
    }


def _system_entry(comparison: PartComparison, result: Result) -> dict[str, Any]:
    if result.error is not None:
        return {"name": result.name, "error": result.error, "lacks": result.lacks}
    group = comparison.groups[result.group]
    low, mean, high = statistics_of(group.output)
    return {
        "name": result.name,
        "error": None,
        "group": group.letter,
        "seconds": result.seconds,
        "min": low,
        "mean": mean,
        "max": high,
        "nan_elements": int(np.isnan(group.output).sum()),
        "to_reference": _difference_entry(comparison.to_reference(result)),
    }


def _pair_entry(problem: Problem, comparison: PartComparison, pair: Pair) -> dict[str, Any]:
    group, against = comparison.groups[pair.group], comparison.groups[pair.against]
    entry = {"group": group.letter, "against": against.letter, **_difference_entry(pair.apart)}
    where = pair.apart.where
    if not where:
        return {**entry, "where": None, "values": None, "reasons": [], "remark": None}
    return {
        **entry,
        "where": place_of(problem, comparison.part, where),
        "values": [float(group.output[where]), float(against.output[where])],
        "reasons": [reason._asdict() for reason in pair.verdict.reasons],
        "remark": pair.verdict.remark or None,
    }


def _difference_entry(apart: Difference) -> dict[str, Any]:
    return {
        "greatest_difference": apart.greatest,
        "greatest_ulps": apart.ulps,
        "mean_difference": apart.mean,
        "differing_elements": apart.differing,
        "within_tolerance": apart.within,
    }
