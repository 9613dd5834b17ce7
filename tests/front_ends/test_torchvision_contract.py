"""The requirements of torchvision's own tests on its operators, computed by roipool.

Its tests come with its repository only, no package brings them; these ask for the same properties:
values, derivatives, what torch checks of an operator, scripts, graphs, and messages of mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from _support.loops import each
from torch import Tensor

import roipool.torch

pytest.importorskip("torchvision", reason="torchvision is not installed")
from torchvision import ops

# torch deprecates its scripts.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit",
    "ignore:The .grad attribute of a Tensor",  # which torch's own check hides where it is shown
    "ignore:torch.quantize_per_tensor",
)

# A whole picture, halves, quarters, and boxes that leave it, of no size, or are empty of cells.
ROIS = torch.tensor(
    [
        [0, 0, 0, 9, 9], [0, 0, 5, 4, 9], [0, 5, 5, 9, 9], [1, 0, 0, 9, 9], [1, 2.3, 1.7, 6.1, 4.9],
        [0, -3, -2, 4, 5], [1, 7, 6, 14, 12], [0, 4, 4, 4, 4], [1, 20, 20, 30, 30],
    ],
    dtype=torch.float64,
)  # fmt: skip
DTYPES = (torch.float16, torch.float32, torch.float64)
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.permute(0, 1, 3, 2),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "part of another": lambda x: torch.cat([x, x], 3)[..., ::2],
}

Operator = Callable[..., Tensor]
OPERATORS: dict[str, Operator] = {
    "roi_align, adaptive": lambda x, rois, size=5: ops.RoIAlign(size, 1.0, -1)(x, rois),
    "roi_align, aligned": lambda x, rois, size=5: ops.RoIAlign(size, 1.0, -1, True)(x, rois),
    "roi_align, two samples": lambda x, rois, size=5: ops.RoIAlign(size, 0.7, 2)(x, rois),
    "roi_pool": lambda x, rois, size=5: ops.RoIPool((size, size), 1.0)(x, rois),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


@pytest.fixture
def override() -> Iterator[None]:
    with roipool.torch.override_torchvision():
        yield


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)


# ---- Values and derivatives


@every_operator
@each(dtype=DTYPES, form=FORMS)
def test_values_and_gradients_are_those_of_torchvision(
    name: str, dtype: torch.dtype, form: Callable[[Tensor], Tensor]
) -> None:
    operator, rois = OPERATORS[name], ROIS.to(dtype)

    def computed() -> tuple[Tensor, Tensor]:
        leaf = form(random(2, 6, 10, 10, dtype=dtype)).detach().requires_grad_()
        pooled = operator(leaf, rois)
        weights = random(*pooled.shape, seed=1, dtype=dtype)
        (gradient,) = torch.autograd.grad(pooled, leaf, weights)
        return pooled.detach(), gradient

    theirs = computed()
    with roipool.torch.override_torchvision():
        ours = computed()
    # Half types: torchvision rounds each step, roipool the result.
    near = {torch.float16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for got, expected in zip(ours, theirs, strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=near, atol=near)


@every_operator
@each(mode=("deterministic", "autocast"))
def test_modes_of_torch(name: str, mode: str, override: None) -> None:
    features, rois = random(2, 6, 10, 10, dtype=torch.float32), ROIS.float()
    expected = OPERATORS[name](features, rois)
    if mode == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(OPERATORS[name](features, rois), expected)
        return
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(OPERATORS[name](features, rois), expected)
    finally:
        torch.use_deterministic_algorithms(before)


# ---- What torch checks of an operator

CHECKS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


@pytest.mark.parametrize("check", CHECKS)
@each(
    lambda check, requires_grad, **_: requires_grad or check != "test_autograd_registration",
    dtype=DTYPES,
    requires_grad=(True, False),
    form=("contiguous", "transposed"),
)
def test_torchs_checks_of_the_operators(
    check: str, dtype: torch.dtype, requires_grad: bool, form: str, override: None
) -> None:
    features = FORMS[form](random(2, 4, 10, 10, dtype=dtype)).requires_grad_(requires_grad)
    given = (features, ROIS.to(dtype), 0.7, 3, 2)
    operators = torch.ops.torchvision
    for ratio, aligned in ((-1, False), (2, True)):
        torch.library.opcheck(
            operators.roi_align.default, (*given, ratio, aligned), test_utils=check
        )
    torch.library.opcheck(operators.roi_pool.default, given, test_utils=check)


# ---- Scripts and graphs


class Pool(torch.nn.Module):  # type: ignore[misc]
    """One of torchvision's modules, called with boxes of each image."""

    def __init__(self, pool: torch.nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor, boxes: list[Tensor]) -> Tensor:
        pooled: Tensor = self.pool(x, boxes)
        return pooled


MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "RoIAlign": lambda: ops.RoIAlign([3, 3], 1.0, -1),
    "RoIPool": lambda: ops.RoIPool([3, 3], 1.0),
}


@pytest.mark.parametrize("name", MODULES)
@each(scripted=("within", "before"))
def test_scripts(name: str, scripted: str) -> None:
    """A script made before the context uses roipool within it, too."""
    model, features = Pool(MODULES[name]()), random(2, 4, 10, 10, dtype=torch.float32)
    lists = [ROIS[ROIS[:, 0] == image, 1:].float() for image in range(2)]
    wrong = [*lists, lists[0]]
    early = torch.jit.script(model) if scripted == "before" else None
    with roipool.torch.override_torchvision():
        script = early or torch.jit.script(model)
        assert torch.equal(script(features, lists), model(features, lists))
        with pytest.raises(RuntimeError, match="the batch holds 2 images"):
            script(features, wrong)
    torch.testing.assert_close(script(features, lists), model(features, lists))


# ---- Other tensors, and mistakes


def test_quantized_tensors_stay_torchvisions(override: None) -> None:
    features = torch.quantize_per_tensor(random(1, 2, 10, 10).float() * 50, 1, 0, torch.qint8)
    rois = torch.quantize_per_tensor(ROIS[:3].float(), 1, 0, torch.qint8)
    found = ops.roi_align(features, rois, 5)
    expected = ops.roi_align(features.dequantize(), rois.dequantize(), 5)
    assert found.is_quantized
    torch.testing.assert_close(found.dequantize(), expected, rtol=0, atol=0.51)
