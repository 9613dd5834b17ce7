"""The table of PyTorch in docs/frameworks.md: every cell is a test's own list of operations."""

from __future__ import annotations

from _support.support_tables import Columns, made, written
from _support.tensors import ALL_CASES

REFUSED = "derivatives.test_derivatives_of_a_maximum_of_samples_that_are_refused"
COLUMNS: Columns = {
    "no copy": {"values.test_maps_are_not_copied": "yes"},
    "half types": {
        "values.test_values_and_gradient_are_those_of_numpy": "yes",
        "pyramids.test_values_and_gradients_are_those_of_numpy": "yes",
    },
    "gradient": {"derivatives.test_gradient_of_features": "yes"},
    "box gradient": {
        "derivatives.test_gradient_of_boxes": "yes",
        "derivatives.test_whole_cells_do_not_move_with_boxes": "zero",
        REFUSED: "error",
    },
    "double backward": {"derivatives.test_second_derivatives": "yes", REFUSED: "error"},
    "forward mode": {"derivatives.test_forward_mode": "yes", REFUSED: "error"},
    "torch.func": {
        "derivatives.test_torch_func": "yes",
        "derivatives.test_vmap_is_a_loop": "grad",
    },
    "vmap": {"derivatives.test_vmap_is_a_loop": "yes"},
    "compile": {"programs.test_compiled_forward_and_backward": "yes"},
    "dynamic compile": {"tracing.test_a_program_for_any_size": "yes"},
    "export": {"programs.test_exported_program_and_its_gradient": "yes"},
    "fx": {"tracing.test_operations_in_a_recorded_forward": "yes"},
}


def test_the_table_is_what_tests_show() -> None:
    assert written("torch") == made("test_torch_", COLUMNS, ALL_CASES)
    assert "untested" not in written("torch")
