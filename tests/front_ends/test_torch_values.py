"""Tensors' types and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch
from _support.cases import in_planes
from _support.loops import each
from _support.tensors import (
    ALL_CASES,
    CASES,
    DTYPES,
    FORMATS,
    SIZE,
    PyramidTensorCase,
    TensorCase,
    maps,
)
from torch._subclasses.fake_tensor import FakeTensorMode

import roipool
from roipool.torch._memory import HOST, map_array

LARGE = (2, 1024, 8, 9)  # maps of 300 kB and more, pooled values of 60 kB

every_type = each(dtype=DTYPES)
every_format = each(memory_format=FORMATS)


@every_type
@every_format
def test_memory_is_shared(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    features = maps(dtype, memory_format).requires_grad_()
    array = map_array(HOST, features, memory_format is torch.channels_last)
    assert array.ctypes.data == features.data_ptr()
    assert array.flags.c_contiguous


@pytest.mark.parametrize("case", [case for case in ALL_CASES if not case.adaptive], ids=str)
@each(dtype=(torch.bfloat16, torch.float32))
@every_format
def test_maps_are_not_copied(
    case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """Maps, pooled values and gradients are not copied, neither by torch nor for the engine."""
    shape = (LARGE[0], LARGE[1] * case.groups, *LARGE[2:])
    features = maps(dtype, memory_format, shape=shape).requires_grad_()
    leaves = [features]
    if isinstance(case, PyramidTensorCase):
        leaves.append(maps(dtype, memory_format, shape=LARGE).requires_grad_())
    options = case.options() | {case.op.size: SIZE, case.op.indices: case.indices()}
    if len(leaves) > 1:
        options["levels"] = case.indices()
    boxes = case.boxes(dtype=torch.float32).requires_grad_(case.moves)
    options |= {name: value.float() for name, value in case.per_bin(boxes).items()}
    given: Any = features if len(leaves) == 1 else leaves
    upstream = maps(dtype, memory_format, seed=1, shape=(5, LARGE[1], *SIZE))

    if case.op.is_of_volumes:
        given, upstream = in_planes(features, 2, "NCHW"), in_planes(upstream, SIZE[0], "NCHW")
        options[case.op.size] = (SIZE[0], 1, SIZE[1])

    def both() -> None:
        pooled = getattr(roipool, case.op.forward)(given, **{case.op.boxes: boxes}, **options)
        inputs = [*leaves, boxes] if case.moves else leaves
        torch.autograd.grad(pooled, inputs, upstream)

    both()  # what is made once, and kept
    tracemalloc.start()
    with torch.autograd.profiler.profile(record_shapes=True) as recorded:
        both()
    of_numpy = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    copies = [one for one in recorded.function_events if one.name in ("aten::copy_", "aten::clone")]
    assert not [one for one in copies if len(one.input_shapes[0]) > 3]
    argmax = upstream.numel() * 4 if case.variant.has_argmax else 0  # which an engine returns
    assert of_numpy - argmax < upstream.numel() * upstream.element_size()


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
@every_type
@every_format
def test_results_have_the_memory_format_of_maps(
    case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    features = maps(dtype, memory_format).requires_grad_()
    pooled = case.pool(features, case.boxes(), case.indices())
    (gradient,) = torch.autograd.grad(pooled.sum(), features)
    assert pooled.is_contiguous(memory_format=memory_format)
    assert gradient.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("case", [case for case in CASES if case.variant.has_argmax], ids=str)
def test_an_argmax_has_no_gradient(case: TensorCase) -> None:
    features = maps().requires_grad_()
    pooled, argmax = case.pool(features, case.boxes(), case.indices(), return_argmax=True)
    assert pooled.requires_grad
    assert not argmax.requires_grad


# ---- Integers


def test_integers_on_a_gpu_are_pooled_to_float32() -> None:
    with FakeTensorMode():
        maps_on_gpu = torch.empty(1, 2, 8, 9, dtype=torch.uint8, device="cuda")
        pooled = roipool.roi_align(maps_on_gpu, torch.empty(3, 5, device="cuda"), 2)
    assert (pooled.dtype, pooled.device.type) == (torch.float32, "cuda")
