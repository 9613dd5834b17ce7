"""Programs of JAX: the requests in them, and whole operations as programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from roipool.jax._transport import Request
from roipool.tools.random_calls.front_ends.adapters import ARRAYS, Arguments, flat, unflat
from roipool.tools.random_calls.front_ends.jax import OnJax
from roipool.verification.call import run
from roipool.verification.catalogue import Entry
from roipool.verification.oracle import against_oracle

from .kernel_calls import OPTIONS

__all__ = ["check_operation", "request_of"]


def request_of(function: Callable[..., Any], *arrays: Any) -> Request:
    """Return the request of the one kernel that a function of arrays calls when it is traced."""
    program = jax.make_jaxpr(function)(*arrays)
    (found,) = (each.params["request"] for each in program.eqns if "request" in each.params)
    return found


class Compiled(OnJax):
    """Functions of arrays, none of which a program knows."""

    def call(self, name: str, arguments: Arguments) -> Any:
        """Compile and call a function."""
        given = self.converted(arguments)
        traced = [each for each in given if each in ARRAYS and given[each] is not None]
        program = jax.jit(lambda *arrays: self.public(name)(**unflat(given, traced, arrays)))
        return program(*flat(given, traced))


# Maxima that have no launch with an adaptive grid.
FIXED_GRIDS = {"roi_align max", "mmcv.roi_align max gradient", "onnx.RoiAlign max"}


def check_operation(name: str, entry: Entry) -> None:
    """Compare compiled calls of an operation and its gradients with the oracle."""
    more = {**OPTIONS.get(name, {}), **({"sampling_ratio": 2} if name in FIXED_GRIDS else {})}
    for what, case in entry.cases(name, most_work=np.inf):
        chosen = replace(case, options={**case.options, **more})
        with jax.enable_x64(True):
            got = run(chosen, Compiled(chosen))
        for result, comparison in against_oracle(chosen, got):
            assert comparison.problem is None, f"{what}, {result}: {comparison.problem}"
