"""torchvision's operators computed by roipool, in its own detectors; modules like its own."""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from _support.loops import each
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import roipool.torch

pytest.importorskip("torchvision", reason="torchvision is not installed")
from _support.detectors import DETECTORS, detector, pictures, targets
from torchvision import ops
from torchvision.ops import poolers

from roipool.torch import _torchvision
from roipool.torch._overrides import warn_once

HEIGHT, WIDTH = 96, 128

Operator = Callable[[Tensor, Tensor], Tensor]
OPERATORS: dict[str, Operator] = {
    "roi_align, fixed": lambda x, rois: ops.roi_align(x, rois, (2, 3), 0.5, 2, True),
    "roi_align, adaptive": lambda x, rois: ops.roi_align(x, rois, 3, 0.5, -1, False),
    "roi_pool": lambda x, rois: ops.roi_pool(x, rois, 3, 0.5),
    "ps_roi_align, fixed": lambda x, rois: ops.ps_roi_align(x, rois, 2, 0.5, 2),
    "ps_roi_align, adaptive": lambda x, rois: ops.ps_roi_align(x, rois, 2, 0.5),
    "ps_roi_pool": lambda x, rois: ops.ps_roi_pool(x, rois, (2, 4), 0.5),
}


def boxes(count: int = 9, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(count, 2, generator=generator) * 15
    size = torch.rand(count, 2, generator=generator) * 8
    return torch.cat([(torch.arange(count) % 2)[:, None], first, first + size], 1).to(dtype)


def computed(operator: Operator, features: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    leaf = features.clone().requires_grad_()
    pooled = operator(leaf, rois)
    pooled.square().sum().backward()
    assert leaf.grad is not None
    return pooled.detach(), leaf.grad


def test_the_context_in_readme() -> None:
    root = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
    programs = re.findall(r"^```py\n(.*?)^```$", (root / "README.md").read_text(), re.M | re.S)
    (program,) = (program for program in programs if "override_torchvision" in program)
    features, rois = torch.randn(2, 3, 20, 24), boxes()
    names = {
        "roipool": roipool,
        "model": lambda images: ops.roi_align(images, rois, 3, 0.5, 2),
        "images": features,
    }
    exec(program, names)
    expected = roipool.roi_align(features, rois, 3, 0.5, 2, aligned=False)
    assert torch.equal(names["detections"], expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("name", OPERATORS)
def test_bytes_are_refused_as_by_torchvision(name: str, dtype: torch.dtype) -> None:
    features, rois = torch.ones((2, 16, 20, 24), dtype=dtype), boxes()
    with pytest.raises(RuntimeError, match="same type"):
        OPERATORS[name](features, rois)
    with (
        roipool.torch.override_torchvision(),
        pytest.raises(TypeError, match=r"input must have dtype .* float64, got u?int8"),
    ):
        OPERATORS[name](features, rois)


@pytest.mark.parametrize("name", OPERATORS)
def test_fractional_batch_indices_are_cut_as_by_torchvision(name: str) -> None:
    features, rois = torch.randn(2, 16, 20, 24), boxes()
    whole = rois.clone()
    rois[:, 0] += torch.tensor([-0.75, -0.5, 0.25] * 3) + (rois[:, 0] == 1)
    rois[:, 0].clamp_(-0.5, 1.75)
    whole[:, 0] = rois[:, 0].trunc()
    assert (rois[:, 0] < 0).any()
    theirs = computed(OPERATORS[name], features, rois)
    with roipool.torch.override_torchvision():
        ours = computed(OPERATORS[name], features, rois)
        of_whole = computed(OPERATORS[name], features, whole)
    assert all(map(torch.equal, ours, of_whole))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("name", OPERATORS)
@each(dtype=(torch.float32, torch.float64))
def test_operators_agree_and_come_back(name: str, dtype: torch.dtype) -> None:
    features = torch.randn(2, 16, 20, 24, dtype=dtype)
    rois = boxes(dtype=dtype)
    before = computed(OPERATORS[name], features, rois)
    with roipool.torch.override_torchvision():
        within = computed(OPERATORS[name], features, rois)
        with roipool.torch.override_torchvision():
            nested = computed(OPERATORS[name], features, rois)
        after_nested = computed(OPERATORS[name], features, rois)
    after = computed(OPERATORS[name], features, rois)
    for theirs, ours in zip(before, within, strict=True):
        torch.testing.assert_close(ours, theirs)
    for group, expected in ((nested, within), (after_nested, within), (after, before)):
        assert all(map(torch.equal, group, expected))


def test_roipool_computes_within_the_context_only() -> None:
    """torchvision reads other memory for a box of no image; roipool refuses it."""
    features, wrong = torch.zeros(1, 8, 8, 8), torch.tensor([[3, 1, 1, 4, 4.0]])
    with roipool.torch.override_torchvision():
        for operator in OPERATORS.values():
            with pytest.raises(ValueError, match="the batch holds 1 images"):
                operator(features, wrong)
    assert not roipool.torch._torchvision.OVERRIDE.is_active


@each(scale=(0.5, 1.0, 0.37), size=((2, 2), (4, 2), (1, 8)), operator=("align", "align 2", "pool"))
def test_position_sensitive_operators_are_torchvisions_bin_by_bin(
    scale: float, size: tuple[int, int], operator: str
) -> None:
    """Channels of bins, bins without samples, reversed and small boxes, the map's last cells."""
    features = torch.randn(2, 16, 20, 24)
    rois = torch.cat([boxes(60), boxes(6)[:, [0, 3, 4, 1, 2]], boxes(6)[:, [0, 1, 2, 1, 4]]])
    rois = torch.cat([rois, torch.tensor([[1, 30, 25, 48, 40], [0, -9, -9, 70, 70.0]])])
    place = (features, rois, scale, *size)

    def call() -> tuple[Tensor, Tensor]:
        if operator == "pool":
            found = torch.ops.torchvision.ps_roi_pool(*place)
        else:
            ratio = 2 if operator == "align 2" else 0
            found = torch.ops.torchvision.ps_roi_align(*place, ratio)
        return tuple(found)

    theirs = call()
    with roipool.torch.override_torchvision():
        ours = call()
    assert torch.equal(ours[1], theirs[1])
    assert ours[1].dtype is theirs[1].dtype
    torch.testing.assert_close(ours[0], theirs[0], equal_nan=True, rtol=1e-5, atol=1e-5)
    assert operator != "align" or theirs[0].isnan().any()


def test_it_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "roipool"), roipool.torch.override_torchvision():
        assert "computed by roipool" in caplog.text
    assert "its own again" in caplog.text


def test_it_ends_with_an_error_and_holds_for_other_threads() -> None:
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    results: list[tuple[Tensor, Tensor]] = []

    def work() -> None:
        results.append(computed(OPERATORS["roi_align, fixed"], features, rois))

    def use() -> None:
        with roipool.torch.override_torchvision():
            work()
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        use()
    assert len(results) == 5
    assert all(torch.equal(result[0], results[0][0]) for result in results)
    assert not roipool.torch._torchvision.OVERRIDE.is_active


@pytest.mark.filterwarnings("ignore:.torch.jit")  # torch's forward mode
def test_forward_mode_is_refused() -> None:
    """torchvision's operators have none: torch would take the tangent for 0."""
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    with roipool.torch.override_torchvision():
        for operator in OPERATORS.values():
            refused = "no forward mode|cannot use C\\+\\+"  # torch's own words before 2.10
            with pytest.raises((NotImplementedError, RuntimeError), match=refused):
                torch.func.jvp(lambda x: operator(x, rois), (features,), (features,))  # noqa: B023


def test_bfloat16_which_torchvision_lacks() -> None:
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    with roipool.torch.override_torchvision():
        got = ops.roi_align(features.bfloat16(), rois.bfloat16(), 2, 0.5, 2, True)
    expected = ops.roi_align(features.bfloat16().float(), rois.bfloat16().float(), 2, 0.5, 2, True)
    torch.testing.assert_close(got.float(), expected, rtol=8e-3, atol=1e-3)


# ---- Pyramids


class Counting(TorchDispatchMode):
    """Count the operators of torchvision and roipool."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace in ("torchvision", "roipool"):
            self.names.append(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


def pyramid(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        str(k): torch.randn(2, 3, 96 >> k, 128 >> k, generator=generator).to(dtype)
        for k in range(3)
    }


PICTURES = [(768, 1024)] * 2


def boxes_of_pictures(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return boxes for all levels; the last one's area is negative, so that it has none."""
    generator = torch.Generator().manual_seed(2)
    first = torch.rand(30, 2, generator=generator) * 500
    table = torch.cat([first, first + torch.rand(30, 2, generator=generator) ** 3 * 500], 1)
    table[-1] = torch.tensor([300.0, 300, 200, 400])
    return [table[:13].to(dtype), table[13:].to(dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_pyramid_is_one_call(dtype: torch.dtype) -> None:
    module = ops.MultiScaleRoIAlign(["0", "1", "2"], 7, 2)
    maps, tables = pyramid(dtype), boxes_of_pictures(dtype)
    results = []
    for context in (contextlib.nullcontext, roipool.torch.override_torchvision):
        leaves = {name: each.clone().requires_grad_() for name, each in maps.items()}
        for table in tables:
            table.requires_grad_()
        with context(), Counting() as calls:
            pooled = module(leaves, tables, PICTURES)
            pooled.square().sum().backward()
        assert all(table.grad is None for table in tables)
        results.append([pooled.detach(), *(each.grad for each in leaves.values())])
    checks = ["roipool.checked_numbers"] * 2  # of batch indices and of levels
    pooling = ["roipool.average_of_maps", "roipool.average_of_maps_backward"]
    assert calls.names == [*checks, *pooling]
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not results[1][0][-1].any()
    with Counting() as calls:
        module(maps, tables, PICTURES)
    assert set(calls.names) == {"torchvision.roi_align"}


def test_other_pyramids_are_pooled_as_torchvision_does(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, tables = pyramid(), boxes_of_pictures()
    with roipool.torch.override_torchvision(), Counting() as calls:
        ops.MultiScaleRoIAlign(["1"], 7, 2)(maps, tables, PICTURES)
        assert calls.names == ["torchvision.roi_align"]
        posing = {name: each.as_subclass(PosingXPU) for name, each in maps.items()}
        with contextlib.suppress(Exception):
            ops.MultiScaleRoIAlign(["0", "1"], 7, 2)(posing, tables, PICTURES)
        assert "roipool.multilevel_roi_align" not in calls.names
    monkeypatch.delattr(poolers, "_multiscale_roi_align")
    with roipool.torch.override_torchvision():
        assert not hasattr(poolers, "_multiscale_roi_align")


class Pooler(torch.nn.Module):  # type: ignore[misc]
    """A module that can be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = ops.MultiScaleRoIAlign(["0", "1", "2"], 7, 2)

    def forward(self, maps: dict[str, Tensor], boxes: list[Tensor]) -> Tensor:
        result: Tensor = self.pool(maps, boxes, [(768, 1024), (768, 1024)])
        return result


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_programs_recorded_within_the_context() -> None:
    maps, tables = pyramid(), boxes_of_pictures()
    expected = Pooler()(maps, tables)
    with roipool.torch.override_torchvision():
        scripted = torch.jit.script(Pooler())
        recorded = torch.fx.symbolic_trace(Pooler())
        compiled = torch.compile(Pooler(), backend="eager")
        for program in (scripted, recorded, compiled):
            torch.testing.assert_close(program(maps, tables), expected, rtol=1e-5, atol=1e-5)
    for program in (scripted, recorded, compiled):
        with Counting() as calls:
            assert torch.equal(program(maps, tables), expected)
        assert set(calls.names) == {"torchvision.roi_align"}


# ---- GPUs on which roipool cannot compute


def computed_on_gpus(features: Tensor, rois: Tensor) -> Tensor:
    """Call the kernel that torch has for CUDA tensors, with tensors of the CPU."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    options = (0.5, 2, 3, 2, True)
    result: Tensor = torch.ops.torchvision.roi_align.default.redispatch(
        keys, features, rois, *options
    )
    return result


@pytest.fixture
def kernels_for_gpus() -> Iterator[None]:
    """Give torchvision's operators kernels for CUDA tensors, which return a zero."""
    library = torch.library.Library("torchvision", "IMPL")
    for name in _torchvision.KERNELS:
        library.impl(name, lambda *_: torch.zeros(1), "CUDA")
    yield
    library._destroy()


@pytest.mark.parametrize(
    ("error", "hip", "reason"),
    [
        (ImportError("CuPy is missing"), None, "CuPy is missing"),
        (RuntimeError("CuPy finds no CUDA device"), None, "CuPy finds no CUDA device"),
        (None, "6.2", "this PyTorch is made for AMD's (ROCm)"),
    ],
)
def test_torchvision_keeps_gpus_that_roipool_cannot_use(
    kernels_for_gpus: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
    hip: str | None,
    reason: str,
) -> None:
    class Missing:
        def find_spec(self, name: str, *_: object) -> None:
            if name.startswith("roipool._cuda.engine") and error is not None:
                raise error

    warn_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.delattr("roipool._cuda.engine", raising=False)
    monkeypatch.delitem(sys.modules, "roipool._cuda.engine", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    features, rois = torch.randn(2, 3, 20, 24), boxes()
    for _ in range(2):
        with roipool.torch.override_torchvision():
            assert computed_on_gpus(features, rois).tolist() == [0.0]
            pooled = ops.roi_align(features, rois, (2, 3), 0.5, 2, True)
            assert torch.equal(pooled, roipool.roi_align(features, rois, (2, 3), 0.5, 2))
    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert said.startswith("torchvision computes CUDA tensors itself: ")
    assert reason in said


def test_roipool_has_the_gpus_that_it_can_use(kernels_for_gpus: None) -> None:
    features, rois = torch.randn(2, 3, 20, 24), boxes()
    with roipool.torch.override_torchvision():  # which computes where the tensors are
        pooled = computed_on_gpus(features, rois)
    assert torch.equal(pooled, roipool.roi_align(features, rois, (2, 3), 0.5, 2))
    assert computed_on_gpus(features, rois).tolist() == [0.0]


# ---- torch's deterministic mode


class OnDevice:
    """A device that claims to be of another type, and equals any tensor's device."""

    def __init__(self, kind: str) -> None:
        self.type = kind

    def __eq__(self, other: object) -> bool:
        return True

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class Posing(torch.Tensor):  # type: ignore[misc]
    """A CPU tensor that claims to be on a GPU."""

    kind = "cuda"
    is_cuda = property(lambda self: self.kind == "cuda")
    is_xpu = property(lambda self: self.kind == "xpu")
    device = property(lambda self: OnDevice(self.kind))


class PosingXPU(Posing):
    kind = "xpu"


@pytest.fixture
def deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture
def composite(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the types of devices for which torchvision does not use its operator."""
    called: list[str] = []
    module = importlib.import_module("torchvision.ops.roi_align")

    def instead(input: Tensor, *_: object) -> Tensor:
        called.append(input.device.type)
        return torch.zeros(())

    monkeypatch.setattr(module, "_roi_align", instead)
    # As with a compiler for GPUs.
    monkeypatch.setattr(module, "is_compile_supported", lambda kind: kind in ("cuda", "xpu"))
    return called


def test_deterministic_mode_keeps_to_the_operator(
    deterministic: None, composite: list[str]
) -> None:
    """torchvision's function takes other code for a GPU then; it would pass the override by."""
    module = importlib.import_module("torchvision.ops.roi_align")
    before = module.is_compile_supported
    features, rois = torch.randn(2, 4, 20, 24), boxes()
    operator = OPERATORS["roi_align, fixed"]
    posing = features.as_subclass(Posing)
    operator(posing, rois)
    assert composite == ["cuda"]
    with roipool.torch.override_torchvision():
        with roipool.torch.override_torchvision():
            found = operator(posing, rois)
        assert torch.equal(operator(posing, rois), found)
        assert composite == ["cuda"]
        operator(features.as_subclass(PosingXPU), rois)  # not a device of ours
        assert composite == ["cuda", "xpu"]
        expected = operator(features, rois)
    assert torch.equal(found.as_subclass(torch.Tensor), expected)
    assert module.is_compile_supported is before
    operator(posing, rois)
    assert composite == ["cuda", "xpu", "cuda"]


def test_a_torchvision_without_this_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("torchvision.ops.roi_align")
    monkeypatch.delattr(module, "is_compile_supported")
    features, wrong = torch.zeros(1, 8, 8, 8), torch.tensor([[3, 1, 1, 4, 4.0]])
    with (
        roipool.torch.override_torchvision(),
        pytest.raises(ValueError, match="the batch holds 1 images"),
    ):
        ops.roi_align(features, wrong, 2)
    assert not hasattr(module, "is_compile_supported")


# ---- Whole detectors, random weights


def distance(theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> float:
    """Return how far a detection is at most from the nearest of the others, of its label.

    Random scores nearly tie, so that the order may differ; many boxes are the whole picture.
    """
    rows = [
        torch.cat([found["boxes"], found["scores"][:, None], 1e4 * found["labels"][:, None]], 1)
        for found in (theirs, ours)
    ]
    apart = (rows[0][:, None] - rows[1]).abs().amax(2)
    return max(float(apart.amin(side).max()) for side in (0, 1))


class Outcome(NamedTuple):
    """The outcome of a detector: losses, the gradient of an early layer, and detections."""

    losses: dict[str, Tensor]
    gradient: Tensor
    found: dict[str, Tensor]


# The heads of masks and keypoints are large, and boxes pass through them one by one.
PROPOSALS = {"Faster R-CNN": 20, "Mask R-CNN": 10, "Keypoint R-CNN": 6}


def outcome(name: str) -> Outcome:
    """Train and run a detector with a fixed seed."""
    model = detector(name, HEIGHT, PROPOSALS[name])
    images, truth = pictures(HEIGHT, WIDTH), targets(HEIGHT, WIDTH)
    torch.manual_seed(2)
    losses = model.train()(images, [dict(target) for target in truth])
    sum(losses.values()).backward()
    gradient = model.backbone.fpn.inner_blocks[0][0].weight.grad.clone()
    with torch.no_grad():
        return Outcome(losses, gradient, model.eval()(images)[0])


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors(name: str) -> None:
    """Losses to six decimals, boxes to a thousandth of a pixel."""
    theirs = outcome(name)
    with roipool.torch.override_torchvision():
        ours = outcome(name)
    assert theirs.losses.keys() == ours.losses.keys()
    for loss, value in theirs.losses.items():
        # Six decimals, or the last places of a float32 that has fewer.
        assert ours.losses[loss].item() == pytest.approx(value.item(), abs=1e-6, rel=4e-7), loss
    # One rounding of torchvision's own pooled values, where it turns a ReLU of the keypoint head on
    # or off, moves this gradient by up to 3e-3 of its largest number.
    apart, largest = (
        float(each.abs().max()) for each in (ours.gradient - theirs.gradient, theirs.gradient)
    )
    assert apart <= 1e-2 * largest
    assert len(theirs.found["boxes"]) == len(ours.found["boxes"]) > 0
    assert distance(theirs.found, ours.found) < 1e-3


def test_an_enabled_override_stays() -> None:
    """It is open until the process ends; a context within is closed without an effect on it."""
    program = """
import torch, torchvision, roipool.torch
roipool.torch.override_torchvision().enable()
with roipool.torch.override_torchvision():
    pass
box = torch.tensor([[0.0, float("nan"), 0, 2, 2]])
print(torchvision.ops.roi_align(torch.ones(1, 1, 4, 4), box, 2).sum().item())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True
    )
    assert done.stdout == "0.0\n", done.stderr
