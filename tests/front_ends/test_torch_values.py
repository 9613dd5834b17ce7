"""Tensors' types and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch
from _support.cases import in_planes
from _support.compare import assert_same_bits
from _support.pairwise import each
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
from roipool._dtypes import FLOATS, allowed_dtypes
from roipool.torch._memory import HOST, MAP_INTEGERS, map_array

LARGE = (2, 1024, 8, 9)  # maps of 300 kB and more, pooled values of 60 kB

every_type = each(dtype=DTYPES)
every_format = each(memory_format=FORMATS)


@pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
@each(
    dtype=(torch.float16, torch.float32, torch.float64),
    box_dtype=(torch.float16, torch.float32, torch.float64, torch.int32),
)
def test_gradient_of_boxes_has_the_type_of_numpys(
    case: TensorCase, dtype: torch.dtype, box_dtype: torch.dtype
) -> None:
    features, boxes, indices = maps(dtype), case.boxes(dtype=box_dtype), case.indices()
    upstream = maps(dtype, seed=1, shape=tuple(case.pool(features, boxes, indices).shape))
    given = upstream, features, boxes, indices
    found = case.box_gradient(*given)
    expected = case.box_gradient(*(value.numpy() for value in given))
    assert_same_bits(found.numpy(), expected)


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


def test_views_are_read_where_they_are() -> None:
    case = CASES[0]
    boxes, indices = case.boxes(), case.indices()
    wide = maps(shape=(2, 3, 8, 18))
    narrow = wide[..., ::2]
    expected = case.pool(narrow.contiguous(), boxes, indices)
    assert torch.equal(case.pool(narrow, boxes, indices), expected)
    assert torch.equal(case.pool(narrow, boxes.t().contiguous().t(), indices), expected)


def test_memory_at_an_odd_address() -> None:
    case = CASES[0]
    features = maps(torch.float32)
    buffer = bytearray(b"x") + features.numpy().tobytes()
    odd = torch.frombuffer(buffer, dtype=torch.float32, offset=1).reshape(features.shape)
    boxes, indices = case.boxes(), case.indices()
    assert odd.data_ptr() % 4
    assert torch.equal(case.pool(odd, boxes, indices), case.pool(features, boxes, indices))


@pytest.mark.parametrize("case", [case for case in CASES if case.variant.has_argmax], ids=str)
def test_an_argmax_has_no_gradient(case: TensorCase) -> None:
    features = maps().requires_grad_()
    pooled, argmax = case.pool(features, case.boxes(), case.indices(), return_argmax=True)
    assert pooled.requires_grad
    assert not argmax.requires_grad


# ---- Integers

OF_INTEGERS = [case for case in CASES if case.op.dtypes != FLOATS]
OTHERS = [case for case in ALL_CASES if case.op.dtypes == FLOATS]


def integers_of(dtype: torch.dtype, memory_format: torch.memory_format) -> torch.Tensor:
    """Return maps of random integers."""
    limits, generator = torch.iinfo(dtype), torch.Generator().manual_seed(0)
    numbers = torch.randint(limits.min, limits.max + 1, maps().shape, generator=generator)
    return numbers.to(dtype).contiguous(memory_format=memory_format)


@each(dtype=MAP_INTEGERS)
@every_format
@pytest.mark.parametrize("case", OF_INTEGERS, ids=str)
def test_integers_are_pooled_to_float32(
    case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    features, boxes, indices = integers_of(dtype, memory_format), case.boxes(), case.indices()
    found = case.pool(features, boxes, indices)
    expected = case.pool(features.float(), boxes, indices)
    assert_same_bits(found.numpy(), expected.numpy())
    assert found.stride() == expected.stride()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = case.pool(mode.from_tensor(features), mode.from_tensor(boxes), indices)
    assert (fake.shape, fake.dtype, fake.stride()) == (found.shape, found.dtype, found.stride())


@each(dtype=MAP_INTEGERS)
@pytest.mark.parametrize("case", [case for case in OF_INTEGERS if case.moves], ids=str)
def test_integers_give_no_gradient_of_boxes(case: TensorCase, dtype: torch.dtype) -> None:
    features, indices = integers_of(dtype, torch.contiguous_format), case.indices()
    pooled = case.pool(features, case.boxes().requires_grad_(), indices)
    with pytest.raises(TypeError, match=r"features must be .* float32 or float64, got torch"):
        pooled.sum().backward()


@each(dtype=MAP_INTEGERS, memory_format=[torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("case", OF_INTEGERS, ids=str)
def test_integers_are_pooled_to_a_chosen_type(
    case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    features, boxes, indices = integers_of(dtype, memory_format), case.boxes(), case.indices()
    array, rest = features.numpy(), (boxes.numpy(), None if indices is None else indices.numpy())
    for name in allowed_dtypes(str(dtype).removeprefix("torch.")):
        found = case.pool(features, boxes, indices, dtype=name)
        assert found.dtype is getattr(torch, name)
        again = case.pool(features, boxes, indices, dtype=found.dtype)
        assert torch.equal(found, again)
        if name != "bfloat16":
            assert_same_bits(found.numpy(), case.pool(array, *rest, dtype=name))
        else:
            assert torch.equal(found, case.pool(features, boxes, indices).to(found.dtype))


@pytest.mark.parametrize("case", OF_INTEGERS, ids=str)
def test_types_that_cannot_be_chosen(case: TensorCase) -> None:
    features, indices = integers_of(torch.uint8, torch.contiguous_format), case.indices()
    for bad in (torch.int8, torch.int64, "int16", 8, bool):
        with pytest.raises(TypeError, match=r"dtype must be None or uint8, float16, .*, got"):
            case.pool(features, case.boxes(), indices, dtype=bad)
    with pytest.raises(TypeError, match=r"dtype must be None or float32 for float32 features, got"):
        case.pool(features.float(), case.boxes(), indices, dtype=torch.uint8)
    found = case.pool(features.float(), case.boxes(), indices, dtype=torch.float32)
    assert torch.equal(found, case.pool(features.float(), case.boxes(), indices))


@each(filling=["2.5", "3.5", "300", "-1.5", "nan", "inf", "-inf"], dtype=MAP_INTEGERS)
def test_integers_are_rounded_as_those_of_numpy(filling: str, dtype: torch.dtype) -> None:
    features, boxes = torch.zeros((1, 1, 4, 4), dtype=dtype), torch.full((1, 4), 2.0)
    images, value = torch.zeros(1, dtype=torch.int64), float(filling)
    found = roipool.crop_and_resize(
        features, boxes, images, 1, extrapolation_value=value, dtype=dtype
    )
    expected = roipool.crop_and_resize(
        features.numpy(),
        boxes.numpy(),
        images.numpy(),
        1,
        extrapolation_value=value,
        dtype=features.numpy().dtype,
    )
    assert_same_bits(found.numpy(), expected)


@each(dtype=MAP_INTEGERS)
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_other_operations_take_no_integers(case: TensorCase, dtype: torch.dtype) -> None:
    features = maps(shape=(2, 3 * case.groups, 8, 9)).to(dtype)
    with pytest.raises(TypeError, match=r"features.* must have dtype .*float64, got u?int(8|16)"):
        case.pool(features, case.boxes(), case.indices())


def test_integers_on_a_gpu_are_pooled_to_float32() -> None:
    with FakeTensorMode():
        maps_on_gpu = torch.empty(1, 2, 8, 9, dtype=torch.uint8, device="cuda")
        pooled = roipool.roi_align(maps_on_gpu, torch.empty(3, 5, device="cuda"), 2)
    assert (pooled.dtype, pooled.device.type) == (torch.float32, "cuda")
