"""The table of JAX in docs/frameworks.md: every cell is a test's own list of operations."""

from __future__ import annotations

from _support.cases import CASES, PYRAMID_CASES
from _support.support_tables import Columns, made, written

REFUSED = "derivatives.test_derivatives_of_a_maximum_of_samples_that_are_refused"
VALUES = {
    "values.test_values_and_gradients_are_those_of_numpy": "yes",
    "pyramids.test_values_and_gradients_are_those_of_numpy": "yes",
}
LINEAR = "derivatives.test_derivatives_by_features"  # of both modes, to the second order
COLUMNS: Columns = {
    "no copy": {"transport.test_xla_copies_no_maps": "handlers"},
    "half types": VALUES,
    "`grad`, `vjp`": {LINEAR: "yes", "derivatives.test_gradient_of_a_maximum_of_samples": "yes"},
    "box gradient": {
        "derivatives.test_gradient_by_boxes": "yes",
        "derivatives.test_whole_cells_do_not_move_with_boxes": "zero",
        REFUSED: "error",
    },
    "second order": {LINEAR: "yes", REFUSED: "error"},
    "`jvp`": {LINEAR: "yes", REFUSED: "error"},
    "`vmap`": {"derivatives.test_vmap_is_a_loop": "yes"},
    "`jit`": VALUES,
    "`checkpoint`": {"derivatives.test_checkpoint": "yes"},
    "`shard_map`": {"sharding.test_every_operation": "yes"},
}


def test_the_table_is_what_tests_show() -> None:
    assert written("jax") == made("test_jax_", COLUMNS, [*CASES, *PYRAMID_CASES])
    assert "untested" not in written("jax")
