"""Calls that launch every kernel: forward and gradients of each operation, in a few forms.

Boxes overlap and channels are many, so that blocks share maps and the warps of a block share work.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from roipool._cuda.source import kernel_source
from roipool._definitions import PYRAMID_OPS
from roipool.systems import SYSTEMS
from roipool.systems.case import Array, Case
from roipool.verification.catalogue import Entry

from .backends import Backend
from .catalogue import DTYPES, FORMS
from .cuda_texts import FILES
from .emulator.compiler import KERNEL

AVERAGES = {"average_forward", "plan_bin_taps", "average_backward"}
AVERAGES_OF_BOXES = {*AVERAGES, "average_backward_boxes"}
GROUPS = {"average_forward", "plan_windows", "listed_bins_backward"}
MOVED = {"points_forward", "plan_windows", "listed_bins_backward", "moved_backward_boxes"}
SAMPLES = {"maximum_forward_argmax", "plan_samples", "maximum_backward"}

# Operations and the kernels of their calls: forward and gradients.
KERNELS = {
    "roi_pool": {"maximum_forward_argmax", "unpool"},
    "roi_average_pool": AVERAGES,
    "roi_align": AVERAGES_OF_BOXES,
    "roi_align max": SAMPLES,
    "ps_roi_pool": GROUPS,
    "ps_roi_align": {*GROUPS, "average_backward_boxes"},
    "precise_roi_pool": AVERAGES_OF_BOXES,
    "roi_align_rotated": {
        "points_forward",
        "plan_regions",
        "points_backward",
        "points_backward_boxes",
    },
    "deform_roi_pool": MOVED,
    "deformable_ps_roi_pool": MOVED,
    "crop_and_resize": AVERAGES_OF_BOXES,
    "crop_and_resize nearest": AVERAGES,
    "crop_and_resize antialias": AVERAGES_OF_BOXES,
    "roi_align_3d": AVERAGES_OF_BOXES,
    "multilevel_roi_align": {"assign_levels", *AVERAGES_OF_BOXES},
    "mmcv.roi_align max gradient": {*SAMPLES, "locate_argmax", "identify_argmax"},
    "onnx.MaxRoiPool": {"maximum_forward_nan_restarts"},
    "onnx.RoiAlign max": {"maximum_forward"},
}


def boxes() -> Array:
    """Return boxes of two maps: most overlap others, the last are reversed and empty."""
    low, high = np.sort(np.random.default_rng(0).uniform(-3, 30, (2, 24, 2)), axis=0)
    corners = np.concatenate([np.hstack([low, high]), [[12, 9, 3, 2], [5, 5, 5, 5]]])
    return np.column_stack([np.arange(len(corners)) % 2, corners])


def entry(channels: int) -> Entry:
    """Return calls with a fixed number of samples, which is planned without counting, and not."""
    return Entry(
        f"{channels} channels",
        boxes().tolist(),
        shape=(2, channels, 20, 30),
        size=(4, 4),
        alignments=(True,),
    )


# In the first form threads compute four channels, and the last of them some of other threads; in
# other forms all vectors are full.
PARTIAL, FULL = entry(37), entry(40)
OPTIONS = {"multilevel_roi_align": {"by_size": True}}  # otherwise random


def calls() -> Iterator[tuple[str, str, str]]:
    """Yield each operation in the first form, and in one of the others in rotation."""
    first, *others = FORMS
    for name, form in zip(KERNELS, itertools.cycle(others), strict=False):
        for dtype, layout in (first, form):
            if dtype in DTYPES and layout in SYSTEMS[name].layouts:
                yield name, dtype, layout


def library_of(case: Case) -> Any:
    """Return roipool's functions on NumPy arrays, computed by the emulator's CuPy."""
    if case.operation not in PYRAMID_OPS:
        return Backend("emulator").library
    from roipool.tools.random_calls.front_ends.cupy import OnGpu  # which imports CuPy

    return OnGpu(case)


@cache
def kernels() -> set[str]:
    """Return the names of all kernels."""
    return {name for file in FILES for name in KERNEL.findall(kernel_source(f"cuda/{file}.cu"))}
