"""The package around the operations: imports, errors, threads, autocast, training."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from _support.loops import each
from _support.run_python import run_python
from _support.tensors import CASES, DTYPES, maps

import roipool
import roipool.torch
from roipool import _cpu

ALIGN = next(case for case in CASES if case.op.forward == "roi_align")
ROIS = torch.tensor([[0, 1, 1, 4, 4.0], [1, 0, 2, 5.5, 7]], dtype=torch.float64)


def check_program(code: str) -> None:
    """Run a separate program, which asserts."""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


# ---- Imports


def test_roipool_never_imports_torch() -> None:
    check_program(
        """
        import sys, numpy as np, roipool
        roipool.roi_align(np.ones((1, 1, 4, 4)), [[0, 0, 0, 2, 2]], 2)
        assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
        assert "roipool.torch" not in sys.modules
        """
    )


def test_torch_imported_first_is_served_at_once() -> None:
    """A compiler cannot import; the operators must be registered before it traces."""
    check_program(
        """
        import sys, torch, roipool
        assert "roipool.torch" in sys.modules
        assert "torch._dynamo" not in sys.modules  # the compiler: as large as torch itself
        """
    )


def test_torch_imported_later_is_served_by_its_first_tensor() -> None:
    check_program(
        """
        import sys, roipool, torch
        assert "roipool.torch" not in sys.modules
        rois = torch.tensor([[0, 0, 0, 2, 2.0]])
        class Sub(torch.Tensor): pass
        features = torch.ones(1, 1, 4, 4).as_subclass(Sub)
        assert torch.is_tensor(roipool.roi_align(features, rois, 2))
        assert "roipool.torch" in sys.modules
        """
    )


# ---- Errors


def test_an_option_is_refused_whatever_was_accepted_before() -> None:
    """Plans are cached by options, and some wrong options compare equal to valid ones."""
    features, rois = torch.ones(1, 1, 8, 8), torch.tensor([[0, 1.0, 1, 5, 5]])
    for right, wrong in (
        ({"output_size": 2}, {"output_size": 2.0}),
        ({"output_size": (1, 2)}, {"output_size": (True, 2)}),
        ({"output_size": (2, 2)}, {"output_size": (2.0, 2)}),
        ({"sampling_ratio": (1, 1)}, {"sampling_ratio": (1, True)}),
        ({"aligned": True}, {"aligned": 1}),
    ):
        roipool.roi_align(features, rois, **{"output_size": 2, **right})
        with pytest.raises(TypeError, match=next(iter(wrong))):
            roipool.roi_align(features, rois, **{"output_size": 2, **wrong})


def test_maps_whose_cells_32_bits_do_not_number() -> None:
    features = torch.empty(1, 1, 1, 2**31, dtype=torch.float16)  # of which nothing is read
    rois = torch.tensor([[0, 2.0**30, 0, 2.0**31, 1]])
    grad = torch.ones(1, 1, 1, 1, dtype=torch.float16)
    for call in (
        lambda: roipool.roi_align(features, rois, 1),
        lambda: roipool.roi_align(features, rois[:, 1:], 1, batch_indices=torch.zeros(1)),
        lambda: roipool.roi_align(features, rois, 1, 1.0, 1, mode="max"),
        lambda: roipool.multilevel_roi_align([features], rois, 1, [1.0], 1),
        lambda: roipool.roi_align_backward_rois(grad, features, rois),
    ):
        with pytest.raises(ValueError, match="height and width must be at most"):
            call()


def test_an_argmax_of_bfloat16_is_no_bits_of_integers() -> None:
    grad = torch.ones(1, 1, 1, 1)
    for dtype in (torch.bfloat16, torch.float32):
        with pytest.raises(TypeError, match="argmax must be an integer"):
            roipool.roi_pool_backward(
                grad, torch.ones(1, 1, 1, 1, dtype=dtype), torch.zeros(1, 5), (1, 1, 200, 200)
            )


# ---- Types


@each(dtype=("bfloat16", "float16"))
def test_autocast_keeps_boxes_exact(dtype: str) -> None:
    """Features have the type of the previous layer, boxes stay float32."""
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 4, 1)
    features, rois = maps(torch.float32), ROIS.float()
    rois[:, 1:] += 0.001  # no bfloat16
    with torch.autocast("cpu", dtype=DTYPES[dtype]):
        before = layer(features)
        pooled = roipool.roi_align(before, rois, 2)
    assert before.dtype is pooled.dtype is DTYPES[dtype]
    assert torch.equal(pooled, roipool.roi_align(before.float(), rois, 2).to(DTYPES[dtype]))
    pooled.float().sum().backward()
    assert layer.weight.grad is not None


def test_no_grad_and_inference_mode() -> None:
    leaf = maps().requires_grad_()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not ALIGN.pool(leaf, ALIGN.boxes(), ALIGN.indices()).requires_grad


# ---- Threads and processes


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux does")
@pytest.mark.skipif(not _cpu.has_openmp(), reason="built without OpenMP")
def test_the_smaller_number_of_threads_is_obeyed() -> None:
    """No call uses more threads than torch's or roipool's setting."""
    check_program(
        """
        import os, torch, roipool
        torch.set_num_threads(1)
        features, pooled = torch.ones(1, 64, 40, 40), torch.ones(90, 64, 7, 7)
        leaf = features.clone().requires_grad_()
        rois = torch.tensor([[0, 0, 0, 30, 30.0]] * 90)
        calls = (
            lambda: roipool.roi_align(features, rois, 7),
            lambda: roipool.roi_align(leaf, rois.double(), 7),
            lambda: roipool.roi_align_backward(pooled, rois, features.shape),
            lambda: roipool.roi_pool(features, rois, 7),
            lambda: roipool.multilevel_roi_align([features], rois, 7, [1.0]),
        )
        before = len(os.listdir("/proc/self/task"))
        for torchs, ours, expected in ((1, 4, 1), (3, 2, 2), (3, 4, 3)):
            torch.set_num_threads(torchs)
            roipool.set_num_threads(ours)
            for number, call in enumerate(calls):
                call()
                started = len(os.listdir("/proc/self/task")) - before
                assert started == expected - 1, (number, torchs, ours, started)
            assert roipool.get_num_threads() == ours
        """
    )


def test_a_limit_of_threads_is_of_one_thread_and_is_taken_back() -> None:
    def other() -> None:
        counts.append(_cpu.num_threads())

    counts: list[int] = []
    roipool.set_num_threads(4)
    try:
        assert _cpu.limit_threads(2) == 0
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert (_cpu.num_threads(), counts) == ((2, [4]) if _cpu.has_openmp() else (1, [1]))
        assert _cpu.limit_threads(0) == 2
        with pytest.raises(ValueError, match="batch indices"):
            ALIGN.pool(maps(), ALIGN.boxes(), ALIGN.indices() + 2)
        assert _cpu.limit_threads(0) == 0
    finally:
        _cpu.limit_threads(0)
        roipool.set_num_threads(1)


def test_a_small_call_is_that_of_any_other() -> None:
    """The fast path is bitwise identical, and leaves unsupported calls to the usual path."""
    for dtype, real in (
        ("float32",) * 2,
        ("float64",) * 2,
        ("float16", "float32"),
        ("bfloat16", "float32"),
    ):
        features, rois = maps(DTYPES[dtype]), ROIS.to(DTYPES[real])
        for name in ("roi_align", "precise_roi_pool", "roi_average_pool"):
            pool = getattr(roipool, name)
            expected = pool(features.clone().requires_grad_(), rois, (2, 3), 0.7)
            assert torch.equal(pool(features, rois, (2, 3), 0.7), expected)
    features, rois = maps(torch.float32), ROIS.float()
    expected = roipool.roi_align(features, rois, 2)
    odd = torch.frombuffer(
        bytearray(b"x") + features.numpy().tobytes(), dtype=torch.float32, offset=1
    ).reshape(features.shape)
    negative = torch._neg_view(-features)
    assert negative.is_neg()
    for other in (odd, negative, features.expand(1, *features.shape)[0]):
        assert torch.equal(roipool.roi_align(other, rois, 2), expected)
    assert roipool.roi_align(features, rois[:0], 2).shape == (0, 3, 2, 2)
    assert roipool.roi_align(features[:, :0], rois, 2).shape == (2, 0, 2, 2)
    assert not roipool.roi_align(features[:, :, :0], rois, 2).any()
    wrong = rois.clone()
    for value in (2.0, -1.0, 0.5, float("nan"), float("inf")):
        wrong[1, 0] = value
        with pytest.raises(ValueError, match=r"roi_align: rois\[1, 0\] is"):
            roipool.roi_align(features, wrong, 2)


def test_many_threads_at_once() -> None:
    case, results = ALIGN, []
    features, boxes, indices = maps(), case.boxes(), case.indices()

    def work() -> None:
        for _ in range(20):
            leaf = features.clone().requires_grad_()
            case.pool(leaf, boxes, indices).square().sum().backward()
            results.append(leaf.grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all(torch.equal(result, results[0]) for result in results)


# ---- Examples

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    """Return the names that an example defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_a_small_classifier_learns() -> None:
    """The loss falls to less than a tenth; the same seed gives the same losses bit for bit."""
    train = example("torch_training")["train"]
    losses = train(seed=0)
    assert losses[-1] < losses[0] / 10
    assert train(seed=0, steps=10) == losses[:10]


@pytest.mark.parametrize(
    "name",
    [
        # Three processes, each of which imports torch.
        pytest.param(path.stem, marks=pytest.mark.everything)
        if path.stem == "torch_ddp"
        else path.stem
        for path in sorted(EXAMPLES.glob("torch_*.py"))
    ],
)
@pytest.mark.filterwarnings("ignore:.torch.jit")  # torch's forward mode
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "torch_detector":
        pytest.importorskip("torchvision", reason="torchvision is not installed")
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
