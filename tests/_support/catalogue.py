"""The types and layouts to try the catalogue's cases in, and the operations to try them on."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _support.backends import Backend
from _support.combinations import each
from roipool.verification.catalogue import CASES as CASES
from roipool.verification.catalogue import Case as Case
from roipool.verification.groups import LAYOUTS as LAYOUTS
from roipool.verification.groups import in_layout as in_layout
from roipool.verification.groups import to_nchw as to_nchw

Array = NDArray[Any]

# Without ml_dtypes everything but bfloat16 is tested; tests/ops/test_storage.py says so.
DTYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64")}
with contextlib.suppress(ModuleNotFoundError):
    DTYPES["bfloat16"] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def _of_dtypes(*names: str) -> Any:
    return each(dtype={name: DTYPES[name] for name in names if name in DTYPES})


# On the emulator every operation runs in float32 and in one half of the other types and layouts.
# The operations of a kernel file have both halves between them.
HALVES = {
    "roi_align": 0,
    "roi_pool": 1,
    "roi_average_pool": 1,
    "precise_roi_pool": 0,
    "crop_and_resize, bilinear": 0,
    "crop_and_resize, nearest": 1,
    "crop_and_resize, boxes": 1,
}


def is_computed(operation: str, backend: Backend, dtype: np.dtype[Any], layout: str) -> bool:
    """Return whether a backend computes an operation in this type and layout, by default."""
    if backend.name != "emulator" or backend.everything or dtype == np.float32:
        return True
    number = list(DTYPES).index(dtype.name) + LAYOUTS.index(layout)
    return number % 2 == HALVES[operation]


def every_form(operation: str = "", dtypes: Sequence[str] = tuple(DTYPES)) -> Any:
    """Call a test in every type and layout, those left out by `is_computed` apart.

    Without an `operation`, the test's argument `name` says which it is. The test's backend is the
    fixture `backend` or `gpu`.
    """

    def where(dtype: np.dtype[Any], layout: str, name: str = operation, **fixtures: Any) -> bool:
        backend = fixtures["gpu"] if "gpu" in fixtures else fixtures["backend"]
        return is_computed(name, backend, dtype, layout)

    return each(where, layout=LAYOUTS, dtype={name: DTYPES[name] for name in dtypes})


every_layout = each(layout=LAYOUTS)
every_dtype = _of_dtypes("float16", "bfloat16", "float32", "float64")
half_dtypes = _of_dtypes("float16", "bfloat16")
real_dtypes = _of_dtypes("float32", "float64")


def shape_in_layout(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return an NCHW shape in `layout`."""
    n, c, h, w = shape
    return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)


@dataclass(frozen=True)
class Average:
    """An averaging operation, which the library and the oracle have under one name and signature.

    `forward` takes the module, the maps, the case, a function that brings arrays to the module's
    device, and options; `backward` the gradient and the maps' shape in place of the maps.
    """

    forward: Callable[..., Array]
    backward: Callable[..., Array]
    samples: bool = False  # whether sampling ratio and alignment matter
    ulps: float = 4  # roundings allowed, each relative to the sum of absolute terms
    options: dict[str, Any] = field(default_factory=dict)  # of the forward
    options_of_terms: dict[str, Any] = field(default_factory=dict)  # the same for absolute values


def _crop(method: str, ulps: float) -> Average:
    def forward(lib: Any, maps: Array, case: Case, put: Any, **options: Any) -> Array:
        boxes, images = put(case.boxes()), put(case.box_indices())
        return lib.crop_and_resize(maps, boxes, images, case.size, method=method, **options)

    def backward(lib: Any, grad: Array, shape: Any, case: Case, put: Any, **options: Any) -> Array:
        boxes, images = put(case.boxes()), put(case.box_indices())
        return lib.crop_and_resize_backward(grad, boxes, images, shape, method=method, **options)

    return Average(
        forward, backward, ulps=ulps, options={"extrapolation_value": 0.5},
        options_of_terms={"extrapolation_value": 0.0},
    )  # fmt: skip


AVERAGES = {
    "roi_average_pool": Average(
        lambda lib, maps, case, put, **o: lib.roi_average_pool(
            maps, put(case.table()), case.size, case.scale, **o
        ),
        lambda lib, grad, shape, case, put, **o: lib.roi_average_pool_backward(
            grad, put(case.table()), shape, case.scale, **o
        ),
    ),
    "precise_roi_pool": Average(
        lambda lib, maps, case, put, **o: lib.precise_roi_pool(
            maps, put(case.table()), case.size, case.scale, **o
        ),
        lambda lib, grad, shape, case, put, **o: lib.precise_roi_pool_backward(
            grad, put(case.table()), shape, case.scale, **o
        ),
    ),
    "roi_align": Average(
        lambda lib, maps, case, put, **o: lib.roi_align(
            maps, put(case.table()), case.size, case.scale, case.sampling, aligned=case.aligned, **o
        ),
        lambda lib, grad, shape, case, put, **o: lib.roi_align_backward(
            grad, put(case.table()), shape, case.scale, case.sampling, aligned=case.aligned, **o
        ),
        samples=True,
    ),
    "crop_and_resize, bilinear": _crop("bilinear", 4),
    "crop_and_resize, nearest": _crop("nearest", 0),  # copies, and adds multiples of 1/16
}
