"""Parts of oracles that several systems share."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from roipool import reference
from roipool.systems.case import Case
from roipool.systems.core import SYSTEMS
from roipool.systems.row import Oracle, System
from roipool.systems.stored import Results

LOWEST_FLOAT32 = float(np.finfo(np.float32).min)
POOL, ALIGN = SYSTEMS["roi_pool"], SYSTEMS["roi_align"]
CROP = SYSTEMS["crop_and_resize"]._replace(fixed={"pinned": False})


def alone(bin_value: str, forward: str, *returns: str) -> System:
    """Return the row of a function of `roipool.reference` that is the oracle of one system only."""
    return System(forward, returns=returns, bin_value=bin_value)


def single_scale(case: Case) -> Case:
    """Round the scale to float32, like systems whose kernels take a float."""
    scale = float(np.float32(case.options.get("spatial_scale", 1.0)))
    return replace(case, options=case.options | {"spatial_scale": scale})


def single_numbers(case: Case) -> Case:
    """Round the scale, and the factor of offsets, to float32."""
    gamma = float(np.float32(case.options["gamma"]))
    return single_scale(replace(case, options=case.options | {"gamma": gamma}))


def of_each_bin(case: Case) -> Case:
    """Do the same, for a system each of whose bins is a group."""
    case = single_numbers(case)
    return replace(case, options=case.options | {"group_size": 0})


def from_lowest(case: Case, results: Results) -> Results:
    """Start running maxima from the lowest float32."""
    nobody = np.isneginf(results["pooled"])
    return results | {"pooled": np.where(nobody, LOWEST_FLOAT32, results["pooled"])}


def from_own_lowest(case: Case, results: Results) -> Results:
    """Start running maxima from the lowest number of the computing type."""
    nobody = np.isneginf(results["pooled"])
    lowest = float(np.finfo(case.real).min)
    return results | {"pooled": np.where(nobody, lowest, results["pooled"])}


def from_minus_infinity(case: Case, results: Results) -> Results:
    """Let bins without an argmax be -inf, not 0."""
    none = results["argmax"] < 0
    return results | {"pooled": np.where(none, -np.inf, results["pooled"])}


def without_samples(case: Case, results: Results) -> Results:
    """Let the average of no samples be 0 / 0; `case` is the one for the oracle of ROI align."""
    rules = reference.ROI_ALIGN.of_boxes(case.options["aligned"])
    scale, ratio = case.options["spatial_scale"], case.options.get("sampling_ratio", 0)
    pooled = results["pooled"].copy()
    for k, box in enumerate(case.rois[:, 1:].tolist()):
        place = reference.BoxOnMap(
            tuple(box), case.size, case.maps.shape[2:], scale, ratio, case.real
        )
        if not math.prod(reference.counts_of(rules, place, (0, 0))):
            pooled[k] = math.nan
    return results | {"pooled": pooled}


MAXIMUM_OF_CELLS = Oracle(POOL, single_scale, from_lowest)
PRECISE = Oracle(SYSTEMS["precise_roi_pool"], single_scale)
