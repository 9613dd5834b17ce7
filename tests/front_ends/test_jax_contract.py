"""The front-end contract for JAX arrays, compiled and not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from _support.support_tables import Columns
from front_ends import contract
from front_ends.contract import Form
from jax.test_util import check_grads


class Jax(contract.FrontEnd):
    array_name = "JAX array"
    library = "jax"
    guises = ("plain", "gradient")
    # A program is compiled for each.
    forms = (
        Form("float16"),
        Form("bfloat16", "NHWC"),
        Form("float32", "NHWC"),
        Form("float64"),
    )
    errors: ClassVar = {"text as boxes": (TypeError, "rois must hold real numbers")}
    usual_forms = (Form("float32", "NHWC"),)
    functional = jax
    # Only a call that is not compiled knows values.
    not_compiled = frozenset({"an index of no image", "NaN as index", "a level of none"})

    @contextmanager
    def settings(self) -> Iterator[None]:
        with jax.enable_x64(True):
            jax.config.update("jax_disable_most_optimizations", True)
            yield

    def array(self, values: Any) -> Any:
        return jnp.asarray(values)

    def numpy(self, array: Any) -> Any:
        assert isinstance(array, jax.Array)
        return np.asarray(array)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)

    traced = compiled

    def vjp(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], count: int, upstream: Any
    ) -> tuple[Any, list[Any]]:
        @jax.jit
        def both(arguments: Any, upstream: Any) -> Any:
            given, others = arguments[:count], arguments[count:]
            pooled, pullback = jax.vjp(lambda *given: function(*given, *others), *given)
            return pooled, pullback(upstream)

        pooled, gradients = both(arguments, upstream)
        return pooled, jax.tree.leaves(gradients)

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(function)

    def check_gradients(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], order: int = 1
    ) -> None:
        check_grads(function, arguments, order, ["fwd", "rev"] if order > 1 else ["rev"])


JAX = Jax()


class TestContract(contract.Everything):
    arrays = JAX


REFUSED = "contract.TestContract.test_derivatives_of_a_maximum_of_samples_that_are_refused"
VALUES = {"contract.TestContract.test_calls_are_those_of_numpy": "yes"}
# Tests both modes, to the second order.
LINEAR = "contract.TestContract.test_derivatives_by_features"


class TestTable(contract.Documented):
    table, files = "jax", "test_jax_"
    columns: ClassVar[Columns] = {
        "no copy": {"transport.test_xla_copies_no_maps": "handlers"},
        "half types": VALUES,
        "`grad`, `vjp`": {
            LINEAR: "yes",
            "contract.TestContract.test_gradient_of_a_maximum_of_samples": "yes",
        },
        "box gradient": {
            "contract.TestContract.test_gradient_by_boxes": "yes",
            "contract.TestContract.test_whole_cells_do_not_move_with_boxes": "zero",
            REFUSED: "error",
        },
        "second order": {LINEAR: "yes", REFUSED: "error"},
        "`jvp`": {LINEAR: "yes", REFUSED: "error"},
        "`vmap`": {"contract.TestContract.test_vmap_is_a_loop": "yes"},
        "`jit`": VALUES,
        "`checkpoint`": {"derivatives.test_checkpoint": "yes"},
        "`shard_map`": {"sharding.test_every_operation": "yes"},
    }
