"""The types and layouts to try the catalogue's cases in, and the operations to try them on."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _support.backends import Backend
from _support.pairwise import each
from roipool._definitions import OPS, TRAITS, Op, Variant
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


# Kernel files are made for a definition, and for a type and a layout, independently. By default the
# emulator therefore runs an operation in the first form only, and in one of the others by its turn;
# `.ci/run` runs every file in all forms, under sanitizers.
FORMS = list(itertools.product(("float32", "float16", "float64", "bfloat16"), LAYOUTS))


def is_computed(
    backend: Backend, dtype: np.dtype[Any], layout: str, turn: int | None = None
) -> bool:
    """Return whether a backend computes in this type and layout, by default."""
    if backend.name != "emulator" or backend.everything:
        return True
    first, *others = FORMS
    form = (dtype.name, layout)
    return form == first or (turn is not None and form == others[turn % len(others)])


def every_form(turn: int | None = None, dtypes: Sequence[str] = tuple(DTYPES)) -> Any:
    """Call a test in every type and layout, those left out by `is_computed` apart.

    The name of an average, the test's argument `name` if it has one, counts in its turn; without
    one, the first form is all. The test's backend is the fixture `backend` or `gpu`.
    """

    def where(dtype: np.dtype[Any], layout: str, name: str = "", **fixtures: Any) -> bool:
        at = turn + list(AVERAGES).index(name) if name and turn is not None else turn
        return is_computed(_backend_of(fixtures), dtype, layout, at)

    return each(where, layout=LAYOUTS, dtype={name: DTYPES[name] for name in dtypes})


def _backend_of(fixtures: Mapping[str, Any]) -> Backend:
    found: Backend = fixtures["gpu"] if "gpu" in fixtures else fixtures["backend"]
    return found


def _is_layout_computed(layout: str, **fixtures: Any) -> bool:
    """Return whether a backend computes in this layout, by default; a test without one does."""
    if not fixtures.keys() & {"gpu", "backend"}:
        return True
    return is_computed(_backend_of(fixtures), DTYPES["float32"], layout)


every_layout = each(_is_layout_computed, layout=LAYOUTS)
both_layouts = each(layout=LAYOUTS)  # on the emulator, too: for sizes that depend on the layout
every_dtype = _of_dtypes("float16", "bfloat16", "float32", "float64")
half_dtypes = _of_dtypes("float16", "bfloat16")
real_dtypes = _of_dtypes("float32", "float64")


@functools.cache
def inputs(case: Case) -> tuple[Array, Array]:
    """Return a case's maps and the gradient of its pooled values, which are not to be changed."""
    arrays = case.features(), case.gradient()
    for array in arrays:
        array.flags.writeable = False
    return arrays


def inputs_on(backend: Backend, case: Case, dtype: np.dtype[Any], layout: str) -> tuple[Any, Any]:
    """Return the same in a type and a layout, on the backend's device."""
    maps, grad = (in_layout(values.astype(dtype), layout) for values in inputs(case))
    return backend.to_device(maps), backend.to_device(grad)


@functools.cache
def _variants(case: Case) -> dict[str, Case]:
    return {variant.name.removeprefix(f"{case.name}, "): variant for variant in case.variants()}


def variants_of(case: Case, name: str = "roi_align, avg", **_: Any) -> dict[str, Case]:
    """Return a case for each way in which an average samples, by what makes it differ.

    Those that sample in one way only have the case itself.
    """
    return _variants(case) if AVERAGES[name].samples else {"": case}


every_variant = each(variant=variants_of)


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

    op: Op
    variant: Variant

    @property
    def samples(self) -> bool:
        """Whether sampling ratio and alignment matter."""
        return "sampling_ratio" in self.op.placing

    @property
    def ulps(self) -> float:
        """Roundings allowed, each relative to the sum of absolute terms."""
        return 0 if self.variant.definition == "crop_nearest" else 4  # adds multiples of 1/16

    def outside(self, value: float) -> dict[str, float]:
        """Return the option that gives bins outside the map this value, if it has one."""
        return {self.op.filling: value} if self.op.filling else {}

    def forward(self, lib: Any, maps: Array, case: Case, put: Any, **options: Any) -> Array:
        """Return pooled values."""
        options |= {self.op.size: case.size, **self._placing(case, put)}
        pooled: Array = getattr(lib, self.op.forward)(maps, **options)
        return pooled

    def backward(
        self, lib: Any, grad: Array, shape: Any, case: Case, put: Any, **options: Any
    ) -> Array:
        """Return the gradient by the features."""
        options |= {"input_shape": shape, **self._placing(case, put)}
        by_features: Array = getattr(lib, self.op.backward)(grad, **options)
        return by_features

    def _placing(self, case: Case, put: Any) -> dict[str, Any]:
        boxes = {"rois": put(case.table())}
        if self.op.boxes != "rois":
            boxes = {self.op.boxes: put(case.boxes()), self.op.indices: put(case.box_indices())}
        values = {
            "spatial_scale": case.scale, "sampling_ratio": case.sampling, "aligned": case.aligned
        }  # fmt: skip
        return {**boxes, **self.variant.options, **{name: values[name] for name in self.op.placing}}


AVERAGES = {
    f"{op.forward}, {name}": Average(op, variant)
    for op in OPS.values()
    for name, variant in op.variants.items()
    if not variant.has_argmax and TRAITS[variant.definition].kind != "points"
}
