"""The systems of `roipool.compat` on tensors: the contract, and errors of what only tensors are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from _support.compare import assert_same_bits
from _support.tensors import to_numpy
from front_ends.compat_contract import ROWS, CompatContract, call, every_row, is_function
from torch import Tensor

from roipool.tools.random_calls.front_ends.adapters import BOXES, boxes_of, calls_of, flat, unflat
from roipool.tools.random_calls.front_ends.torch import Derivatives, Eager

# torch compiles a formula of its own, in forward mode, with what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")


class TestContract(CompatContract):
    library = "torch"
    usual = ("memory", "gradient of views", "autocast")
    adapter, differentiated = Eager, Derivatives

    def gradient(self, pool: Callable[[Any], Any], array: Any) -> Any:
        leaf = array.detach().requires_grad_()
        return torch.autograd.grad(pool(leaf).sum(), leaf)


# ---- Tensors that no function takes


def sparse(tensor: Tensor) -> Tensor:
    return tensor.to_sparse()


def nested(tensor: Tensor) -> Tensor:
    return torch.nested.nested_tensor([*tensor.float()], layout=torch.jagged)


def complex_numbers(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex64)


def elsewhere(tensor: Tensor) -> Tensor:
    return tensor.to("meta")


def of_numpy(tensor: Tensor) -> Any:
    return tensor.numpy()


# What an argument becomes, and what the message says after its name.
WRONG = {
    (sparse, "features"): (TypeError, "must be a dense tensor, got a sparse_coo one"),
    (nested, "features"): (TypeError, "must be a dense tensor, got a nested one"),
    (complex_numbers, "features"): (TypeError, ".*complex64"),
    (complex_numbers, "boxes"): (TypeError, ".*complex64"),
    (elsewhere, "boxes"): (ValueError, "must be on the device of .*, cpu, got meta"),
    (of_numpy, "boxes"): (TypeError, r"must be a tensor, .*got numpy\.ndarray"),
}


@every_row
def test_errors_name_the_function_and_the_argument(name: str) -> None:
    """And the value, before anything is written."""
    case, forward = call(name, ROWS[name].dtypes[0]), ROWS[name].forward
    own = Eager(case)
    given = own.converted(calls_of(case)[forward].arguments)
    before = [each.clone() for each in flat(given, ["features", boxes_of(given)])]
    for (change, part), (kind, message) in WRONG.items():
        role = boxes_of(given) if part in BOXES else part
        first, *others = flat(given, [role])
        wrong = unflat(given, [role], [change(first), *others])
        (own_name,) = own.own_names(forward, {role: None})
        named = own_name if is_function(name) else r"\w+"  # a layer's function has its own names
        with pytest.raises(kind, match=rf"^\w+: {named}(\[.*\])? {message}"):
            own.public(forward)(**wrong)
    after = flat(given, ["features", boxes_of(given)])
    for one, other in zip(before, after, strict=True):
        assert_same_bits(to_numpy(one), to_numpy(other))
