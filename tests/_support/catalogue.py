"""The types and layouts in which the catalogue's cases are tested."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _support.backends import Backend
from _support.loops import each
from roipool.systems.case import LAYOUTS as LAYOUTS
from roipool.systems.case import in_layout as in_layout
from roipool.systems.core import OPERATIONS as OPERATIONS
from roipool.systems.core import VARIANTS as VARIANTS
from roipool.verification.call import to_nchw as to_nchw
from roipool.verification.catalogue import ENTRIES

Array = NDArray[Any]

# Without ml_dtypes, bfloat16 is not tested; a test in tests/ops/test_storage.py is skipped then.
DTYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64")}
with contextlib.suppress(ModuleNotFoundError):
    DTYPES["bfloat16"] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def _of_dtypes(*names: str) -> Any:
    return each(dtype={name: DTYPES[name] for name in names if name in DTYPES})


# Kernel files are specialised for a definition and, independently, for a type and a layout. By
# default the emulator therefore runs an operation only in the first form; with --thorough also in
# one of the others, in rotation. `scripts/nightly.sh` runs every file in all forms, sanitized.
FORMS = list(itertools.product(("float32", "float16", "float64", "bfloat16"), LAYOUTS))


def is_computed(
    backend: Backend, dtype: np.dtype[Any], layout: str, turn: int | None = None
) -> bool:
    """Return whether a test runs in a type and layout on a backend by default."""
    if backend.name != "emulator" or backend.everything:
        return backend.name != "cpu" or backend.thorough or _is_its_turn(dtype, layout, turn)
    first, *others = FORMS
    chosen = [first]
    if backend.thorough and turn is not None:
        chosen.append(others[turn % len(others)])
    return (dtype.name, layout) in chosen


def _is_its_turn(dtype: np.dtype[Any], layout: str, turn: int | None) -> bool:
    """Return whether NumPy arrays are tested in this form: float32, some in another type, too.

    The emulator's answers in float32 are compared with the same ones of the oracle.
    """
    if turn is None:
        return True
    others = [name for name in DTYPES if name != "float32"]
    if dtype.name == "float32":
        return layout == LAYOUTS[turn % 2]
    turn, is_left_out = divmod(turn, 3)
    return (dtype.name, layout) == (
        others[turn % len(others)],
        LAYOUTS[turn % 2],
    ) and not is_left_out


def every_form(turn: int | None = None, dtypes: Sequence[str] = tuple(DTYPES)) -> Any:
    """Return a decorator that runs a test in every type and layout selected by `is_computed`.

    On NumPy arrays this is float32 and, of every third case, another type, each in one layout.
    The test's argument `name`, the name of an operation, selects the form on the emulator; without
    it only the first form runs. The test's backend is the fixture `backend` or `gpu`.
    """

    def where(dtype: np.dtype[Any], layout: str, name: str = "", **fixtures: Any) -> bool:
        backend, entry = _backend_of(fixtures), fixtures.get("entry")
        at = turn + OPERATIONS.index(name) if name and turn is not None else turn
        if at is not None and entry is not None and backend.name == "cpu":
            at += ENTRIES.index(entry)
        return is_computed(backend, dtype, layout, at)

    return each(where, layout=LAYOUTS, dtype={name: DTYPES[name] for name in dtypes})


def _backend_of(fixtures: Mapping[str, Any]) -> Backend:
    found: Backend = fixtures["gpu"] if "gpu" in fixtures else fixtures["backend"]
    return found


def _is_layout_computed(layout: str, **fixtures: Any) -> bool:
    """Return whether a test runs in a layout on its backend by default."""
    if not fixtures.keys() & {"gpu", "backend"}:
        return True
    return is_computed(_backend_of(fixtures), DTYPES["float32"], layout)


every_layout = each(_is_layout_computed, layout=LAYOUTS)
both_layouts = each(layout=LAYOUTS)  # also on the emulator, for sizes that depend on the layout
every_dtype = _of_dtypes("float16", "bfloat16", "float32", "float64")
half_dtypes = _of_dtypes("float16", "bfloat16")
real_dtypes = _of_dtypes("float32", "float64")


def shape_in_layout(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return an NCHW shape in `layout`."""
    n, c, h, w = shape
    return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)
