"""An operator that checks batch indices and levels when a program runs that was traced before.

Values are not known while a program is traced. Elsewhere they are checked as NumPy's are, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from roipool import _boxes
from roipool.torch._families import PUBLIC
from roipool.torch._memory import HOST, Bridge, check_memory
from roipool.torch._operators import LIBRARY, kernel

_RULES: dict[str, Callable[..., Any]] = {
    "batch_indices": _boxes.batch_indices,
    "levels": _boxes.levels,
}


def checked_numbers(numbers: Tensor, rule: str, name: str, limit: int, column: str) -> Tensor:
    """Return whole numbers as int64, checked when their values are known.

    `limit` is the number of images or maps; the other arguments are those of the rules.
    """
    found: Tensor = torch.ops.roipool.checked_numbers(
        numbers, rule, PUBLIC.name, name, limit, column
    )
    return found


def _compute(
    bridge: Bridge, numbers: Tensor, rule: str, function: str, name: str, limit: int, column: str
) -> Tensor:
    check_memory(**{name: numbers})
    values = bridge.array(numbers.float() if numbers.dtype is torch.bfloat16 else numbers)
    more = (column,) if column else ()
    checked = _RULES[rule](name, values, len(values), limit, *more)
    found = bridge.tensor(checked)
    return found.clone() if checked is values else found.long()


def _function(args: Sequence[Any]) -> str:
    """Return the name of the public function among the operator's arguments."""
    return str(args[2])


def _like(numbers: Tensor, *_: Any) -> Tensor:
    return numbers.new_empty(numbers.shape, dtype=torch.int64)


LIBRARY.define(
    "checked_numbers(Tensor numbers, str rule, str function, str name, SymInt limit, str column)"
    " -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.impl("checked_numbers", kernel(HOST, _function, _compute), "CPU")
torch.library.register_fake("roipool::checked_numbers", _like, lib=LIBRARY)
