"""Parts of oracles that several systems share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roipool.systems.core import SYSTEMS
from roipool.systems.row import Oracle, Results, System
from roipool.verification.case import Case

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


def from_lowest(case: Case, results: Results) -> Results:
    """Start running maxima from the lowest float32."""
    nobody = np.isneginf(results["pooled"])
    return results | {"pooled": np.where(nobody, LOWEST_FLOAT32, results["pooled"])}


def from_own_lowest(case: Case, results: Results) -> Results:
    """Start running maxima from the lowest number of the computing type."""
    nobody = np.isneginf(results["pooled"])
    lowest = float(np.finfo(case.real).min)
    return results | {"pooled": np.where(nobody, lowest, results["pooled"])}


MAXIMUM_OF_CELLS = Oracle(POOL, single_scale, from_lowest)
PRECISE = Oracle(SYSTEMS["precise_roi_pool"], single_scale)
