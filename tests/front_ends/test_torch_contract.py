"""The front-end contract for tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from _support import cases
from _support.support_tables import Columns
from _support.tensors import ALL_CASES, DTYPES, TensorCase, maps, moved_bins, to_numpy
from front_ends import contract
from front_ends.contract import Form, Wrong
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import roipool
import roipool.torch

# torch compiles a formula of its own, in forward mode, with what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")


class OwnDeformed(cases.DeformedCase):
    """An operation whose bins are moved, whose offsets a compiler can trace."""

    def offsets(self, like: Any, boxes: Any, size: Any, layout: str = "NCHW", **_: Any) -> Any:
        of = moved_bins if isinstance(like, Tensor) else super().offsets
        return of(like, boxes, size, layout)


class Torch(contract.FrontEnd):
    array_name = "tensor"
    library = "torch"
    guises = ("memory", "gradient of views", "autocast")
    forms = (*map(Form, DTYPES), Form("float64", "NHWC"))
    functional = torch.func
    compiler_error = Exception
    # NumPy's arrays become tensors there.
    not_compiled = frozenset({"NumPy boxes", "NumPy indices", "levels of NumPy"})

    def array(self, values: Any) -> Any:
        if values.dtype.name == "bfloat16":
            return torch.tensor(values.astype("float32")).bfloat16()
        return torch.tensor(values)

    def maps(self, values: Any, form: Form) -> Any:
        found = torch.tensor(values).to(getattr(torch, form.dtype))
        return found.permute(0, 2, 3, 1) if form.layout == "NHWC" else found

    def numpy(self, array: Any) -> Any:
        assert isinstance(array, Tensor)
        return to_numpy(array)

    def levels(self, count: int) -> Any:
        return torch.arange(count) % 2

    def own(self, case: cases.OperationCase) -> cases.OperationCase:
        if isinstance(case, cases.DeformedCase):
            return OwnDeformed(case.op, case.variant, case.name, case.adaptive)
        return super().own(case)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch.compiler.reset()
        return torch.compile(function, fullgraph=True, backend="aot_eager")

    def vjp(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], count: int, upstream: Any
    ) -> tuple[Any, list[Any]]:
        given = [
            [one.detach().requires_grad_() for one in value]
            if isinstance(value, list)
            else value.detach().requires_grad_(number < count)
            for number, value in enumerate(arguments)
        ]
        leaves = [*given[0], *given[1:count]] if isinstance(given[0], list) else given[:count]
        pooled = function(*given)
        return pooled, [*torch.autograd.grad(pooled, leaves, upstream)]

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def of(argument: Any) -> Any:
            leaf = argument if argument.requires_grad else argument.detach().requires_grad_()
            return torch.autograd.grad(function(leaf), leaf, create_graph=True)[0]

        return of

    def check_gradients(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], order: int = 1
    ) -> None:
        leaves = tuple(one.detach().clone().requires_grad_() for one in arguments)
        assert gradcheck(function, leaves, check_batched_grad=True)
        if order == 1:
            return
        assert gradcheck(
            function,
            leaves,
            check_forward_ad=True,
            check_backward_ad=False,
            check_batched_forward_grad=True,
        )
        upstream = function(*leaves).detach().requires_grad_()
        assert gradgradcheck(
            function,
            leaves,
            upstream,
            check_batched_grad=True,
            check_fwd_over_rev=True,
            check_rev_over_rev=True,
        )


TORCH = Torch()


class TestContract(contract.Everything):
    arrays = TORCH


class Deterministic(Torch):
    """In torch's deterministic mode, which fills new memory with NaN."""

    guises = ("gradient of views",)

    @contextmanager
    def settings(self) -> Iterator[None]:
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(before)


class TestDeterministicMode(contract.Calls):
    arrays = Deterministic()


# ---- What only tensors are: of a device, and never beside NumPy's arrays

META = "meta"
WRONG = {
    "NumPy boxes": Wrong(lambda e: {"rois": e.rois.numpy()}, TypeError, "rois must be a tensor"),
    "NumPy indices": Wrong(
        lambda e: {"rois": e.boxes, "batch_indices": e.rois[:, 0].numpy()},
        TypeError,
        "batch_indices must be a tensor",
    ),
    "a list of numbers": Wrong(
        lambda e: {"rois": e.rois.tolist()}, TypeError, r"rois\[0\] must be a tensor"
    ),
    "another device": Wrong(
        lambda e: {"rois": e.rois.to(META)},
        ValueError,
        "rois must be on the device of features, cpu, got meta",
    ),
    "indices elsewhere": Wrong(
        lambda e: {"rois": e.boxes, "batch_indices": e.rois[:, 0].to(META)},
        ValueError,
        "batch_indices must be on the device of features, cpu, got meta",
    ),
    "a gradient elsewhere": Wrong(
        lambda e: {"grad_output": e.pooled.to(META)},
        ValueError,
        "features must be on the device of grad_output",
        "roi_align_backward_rois",
    ),
    "an argmax elsewhere": Wrong(
        lambda e: {"argmax": e.pooled.int().to(META)},
        ValueError,
        "argmax must be on the device of grad_output, cpu",
        "roi_pool_backward",
    ),
    "a tensor as scale": Wrong(lambda e: {"spatial_scale": torch.tensor(0.5)}, TypeError, "only"),
    "devices of maps": Wrong(
        lambda e: {"features": [*e.maps[:2], e.maps[2].to(META)]},
        ValueError,
        r"features\[2\] must be on the device of features\[0\], cpu, got meta",
        "multilevel_roi_align",
    ),
    "levels elsewhere": Wrong(
        lambda e: {"levels": torch.zeros(3, dtype=torch.long, device=META)},
        ValueError,
        "levels must be on the device",
        "multilevel_roi_align",
    ),
    "levels of NumPy": Wrong(
        lambda e: {"levels": np.zeros(3, int)},
        TypeError,
        "levels must be a tensor",
        "multilevel_roi_align",
    ),
}


@contract.directly_and_compiled
@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str, compiled: bool) -> None:
    contract.check(TORCH, WRONG[name], name, compiled=compiled)


def test_maps_of_numpy_beside_tensors() -> None:
    with pytest.raises(TypeError, match=r"features must be a tensor, .*; got numpy\.ndarray"):
        roipool.roi_align(maps().numpy(), torch.zeros(1, 5), 2)


def test_a_pyramid_of_no_maps() -> None:
    with pytest.raises(ValueError, match="multilevel_roi_align: features must hold one map"):
        roipool.multilevel_roi_align([], torch.zeros(1, 5), 2, ())


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_errors_of_every_operation_name_it(case: TensorCase) -> None:
    """Errors for mixed devices and libraries, and for missing images."""
    features, boxes, indices = maps(), case.boxes(), case.indices()
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((features, boxes.to(META), indices), ValueError, "must be on the device of"),
        ((features, boxes, indices.to(META)), ValueError, "must be on the device of"),
        ((features.to(META), boxes, indices), ValueError, "must be on the device of"),
        ((features, boxes, indices + 1), ValueError, "must be"),
        ((features, boxes, indices.numpy()), TypeError, "must be a tensor"),
        ((features, boxes.numpy(), indices), TypeError, "must be a tensor"),
    ]
    for arguments, kind, message in wrong:
        with pytest.raises(kind, match=f"^{case.op.forward}: .*{message}"):
            case.pool(*arguments)


# ---- The table in the documentation

REFUSED = "contract.TestContract.test_derivatives_of_a_maximum_of_samples_that_are_refused"
# Tests both modes, to the second order.
LINEAR = "contract.TestContract.test_derivatives_by_features"


class TestTable(contract.Documented):
    table, files = "torch", "test_torch_"
    columns: ClassVar[Columns] = {
        "no copy": {"values.test_maps_are_not_copied": "yes"},
        "half types": {"contract.TestContract.test_calls_are_those_of_numpy": "yes"},
        "gradient": {
            LINEAR: "yes",
            "contract.TestContract.test_gradient_of_a_maximum_of_samples": "yes",
        },
        "box gradient": {
            "contract.TestContract.test_gradient_by_boxes": "yes",
            "contract.TestContract.test_whole_cells_do_not_move_with_boxes": "zero",
            REFUSED: "error",
        },
        "double backward": {LINEAR: "yes", REFUSED: "error"},
        "forward mode": {LINEAR: "yes", REFUSED: "error"},
        "torch.func": {
            "contract.TestContract.test_functional_gradient": "yes",
            "contract.TestContract.test_vmap_is_a_loop": "grad",
        },
        "vmap": {"contract.TestContract.test_vmap_is_a_loop": "yes"},
        "compile": {"programs.test_compiled_forward_and_backward": "yes"},
        "dynamic compile": {"tracing.test_a_program_for_any_size": "yes"},
        "export": {"programs.test_exported_program_and_its_gradient": "yes"},
        "fx": {"tracing.test_operations_in_a_recorded_forward": "yes"},
    }
