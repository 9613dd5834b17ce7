"""Tensors give the numbers of NumPy arrays, bit for bit, in their own types, formats and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from _support.compare import assert_close, assert_same_bits
from _support.pairwise import each
from _support.tensors import (
    ALL_CASES,
    CASES,
    DTYPES,
    FORMATS,
    SIZE,
    Case,
    PyramidCase,
    maps,
    to_numpy,
)
from torch import Tensor

import roipool
from roipool import reference
from roipool.torch._memory import HOST, map_array

LARGE = (2, 1024, 8, 9)  # maps of 300 kB and more, pooled values of 60 kB

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_type = each(dtype=DTYPES)
every_format = each(memory_format=FORMATS)


@every_case
@every_type
@every_format
def test_values_and_gradient_are_those_of_numpy(
    case: Case, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    features = maps(dtype, memory_format).requires_grad_()
    boxes, indices = case.boxes(dtype=torch.float32), case.indices()
    pooled = case.pool(features, boxes, indices)
    arrays = (boxes.numpy(), indices.numpy())
    expected = case.pool(to_numpy(features), *arrays)
    assert pooled.dtype is dtype
    assert pooled.is_contiguous(memory_format=memory_format)
    assert_same_bits(to_numpy(pooled), expected)

    upstream = maps(dtype, seed=1, shape=tuple(pooled.shape))
    pooled.backward(upstream)
    more: dict[str, Any] = {}
    if case.variant.has_argmax:
        more["argmax"] = case.pool(to_numpy(features), *arrays, return_argmax=True)[1]
    placed = {**case.options(forward=False), **more}
    if case.op.forward == "roi_pool":
        del placed["spatial_scale"]
    gradient = getattr(roipool, case.op.backward)(
        to_numpy(upstream), input_shape=tuple(features.shape),
        **{case.op.boxes: arrays[0], case.op.indices: arrays[1]}, **placed,
    )  # fmt: skip
    assert features.grad is not None
    assert features.grad.is_contiguous(memory_format=memory_format)
    assert_same_bits(to_numpy(features.grad), gradient)


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_the_deterministic_mode_of_torch_changes_no_bit(case: Case) -> None:
    """It raises for operations that are not deterministic, and fills new memory with NaN."""

    def computed() -> tuple[Tensor, Tensor]:
        features = maps().requires_grad_()
        pooled = case.pool(features, case.boxes(), case.indices())
        return pooled, *torch.autograd.grad(pooled.square().sum(), features)

    expected, before = computed(), torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert all(map(torch.equal, computed(), expected))
    finally:
        torch.use_deterministic_algorithms(before)


@every_case
def test_values_are_those_of_the_oracle(case: Case) -> None:
    features, boxes, indices = maps(), case.boxes(), case.indices()
    oracle = getattr(reference, case.op.forward)
    arguments = {
        case.op.boxes: boxes.numpy(), case.op.indices: indices.numpy(), case.op.size: SIZE,
    }  # fmt: skip
    expected = oracle(features.numpy(), **arguments, **case.options())
    terms = np.full_like(expected, np.abs(features.numpy()).max())
    assert_close(case.pool(features, boxes, indices).numpy(), expected, terms, ulps=40)


@pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
@every_type
def test_gradient_of_boxes_is_that_of_numpy(case: Case, dtype: torch.dtype) -> None:
    features, indices = maps(dtype), case.indices()
    boxes = case.boxes(dtype=torch.float32).requires_grad_()
    pooled = case.pool(features, boxes, indices)
    upstream = maps(dtype, seed=1, shape=tuple(pooled.shape))
    pooled.backward(upstream)
    options = case.placing
    expected = getattr(roipool, str(case.op.backward_boxes))(
        to_numpy(upstream), to_numpy(features),
        **{case.op.boxes: to_numpy(boxes), case.op.indices: indices.numpy()}, **options,
    )  # fmt: skip
    assert boxes.grad is not None
    assert_same_bits(boxes.grad.numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
@each(
    dtype=(torch.float16, torch.float32, torch.float64),
    box_dtype=(torch.float16, torch.float32, torch.float64, torch.int32),
)
def test_gradient_of_boxes_has_their_type(
    case: Case, dtype: torch.dtype, box_dtype: torch.dtype
) -> None:
    """Of integer boxes, the type that NumPy's function answers in."""
    features, boxes, indices = maps(dtype), case.boxes(dtype=box_dtype), case.indices()
    upstream = maps(dtype, seed=1, shape=tuple(case.pool(features, boxes, indices).shape))
    function = getattr(roipool, str(case.op.backward_boxes))
    given = {case.op.boxes: boxes, case.op.indices: indices}
    found = function(upstream, features, **given, **case.placing)
    expected = function(
        upstream.numpy(), features.numpy(),
        **{name: value.numpy() for name, value in given.items()}, **case.placing,
    )  # fmt: skip
    natural = torch.from_numpy(expected).dtype
    assert found.dtype is (box_dtype if box_dtype.is_floating_point else natural)
    assert_same_bits(found.numpy(), expected.astype(found.numpy().dtype))


@pytest.mark.parametrize("case", [case for case in CASES if case.op.boxes == "rois"], ids=str)
def test_boxes_in_three_forms(case: Case) -> None:
    features, boxes, indices = maps(), case.boxes(), case.indices()
    order = torch.argsort(indices, stable=True)
    boxes, indices = boxes[order], indices[order]
    expected = case.pool(features, boxes, indices)
    table = torch.cat([indices[:, None].to(boxes.dtype), boxes], 1)
    per_image = [boxes[indices == image] for image in range(len(features))]
    assert torch.equal(case.pool(features, table, None), expected)
    assert torch.equal(case.pool(features, per_image, None), expected)
    assert torch.equal(case.pool(features, tuple(per_image), None), expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
def test_gradient_of_boxes_in_three_forms(case: Case) -> None:
    features, indices = maps(), case.indices().sort().values
    leaves = [case.boxes().requires_grad_() for _ in range(3)]
    if case.op.boxes == "boxes":
        leaves = leaves[:1]
    forms: list[Any] = [leaves[0]]
    if len(leaves) > 1:
        forms.append(torch.cat([indices[:, None].double(), leaves[1]], 1))
        forms.append([leaves[2][indices == image] for image in range(len(features))])
    for form, given in zip(forms, (indices, None, None), strict=False):
        case.pool(features, form, given).square().sum().backward()
    assert all(torch.equal(leaf.grad, leaves[0].grad) for leaf in leaves)
    assert leaves[0].grad.any()


@every_case
@every_format
def test_nhwc_layout_is_a_view(case: Case, memory_format: torch.memory_format) -> None:
    features = maps(memory_format=memory_format)
    boxes, indices = case.boxes(), case.indices()
    expected = case.pool(features, boxes, indices)
    got = case.pool(features.permute(0, 2, 3, 1), boxes, indices, layout="NHWC")
    assert torch.equal(got.permute(0, 3, 1, 2), expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.variant.has_argmax], ids=str)
def test_argmax_and_its_backward(case: Case) -> None:
    features, boxes, indices = maps(), case.boxes(), case.indices()
    pooled, argmax = case.pool(features, boxes, indices, return_argmax=True)
    expected = case.pool(features.numpy(), boxes.numpy(), indices.numpy(), return_argmax=True)
    assert argmax.dtype is torch.int32
    assert not argmax.requires_grad
    assert_same_bits(argmax.numpy(), expected[1])
    options = case.options(forward=False)
    if case.op.forward == "roi_pool":
        del options["spatial_scale"]
    placed = {case.op.boxes: boxes, case.op.indices: indices, **options}
    backward = getattr(roipool, case.op.backward)
    gradient = backward(pooled, argmax=argmax, input_shape=features.shape, **placed)
    leaf = features.clone().requires_grad_()
    case.pool(leaf, boxes, indices).backward(pooled)
    assert torch.equal(gradient, leaf.grad)


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
    case: Case, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """Neither maps, nor pooled values, nor gradients, by torch or on their way to the engine."""
    features = maps(dtype, memory_format, shape=LARGE).requires_grad_()
    leaves = [features]
    if isinstance(case, PyramidCase):
        leaves.append(maps(dtype, memory_format, shape=LARGE).requires_grad_())
    options = case.options() | {case.op.size: SIZE, case.op.indices: case.indices()}
    if len(leaves) > 1:
        options["levels"] = case.indices()
    boxes = case.boxes(dtype=torch.float32).requires_grad_(case.moves)
    given = features if len(leaves) == 1 else leaves
    upstream = maps(dtype, memory_format, seed=1, shape=(5, LARGE[1], *SIZE))

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
    assert not [one for one in copies if len(one.input_shapes[0]) == 4]
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


@every_case
def test_nothing_to_pool(case: Case) -> None:
    features = maps().requires_grad_()
    boxes = case.boxes(0).requires_grad_(case.moves)
    pooled = case.pool(features, boxes, case.indices(0))
    assert pooled.shape == (0, 3, *SIZE)
    pooled.sum().backward()
    assert features.grad is not None
    assert not features.grad.any()
    empty = torch.zeros(2, 0, 8, 9, requires_grad=True)
    case.pool(empty, case.boxes(), case.indices()).sum().backward()
    assert empty.grad is not None


@pytest.mark.parametrize("case", [case for case in CASES if case.moves], ids=str)
@every_type
def test_types_of_indices_and_of_box_gradients(case: Case, dtype: torch.dtype) -> None:
    """Indices may be of any type; a gradient of boxes is of theirs, and integers' of the maps'."""
    features, indices = maps(torch.float32), case.indices()
    boxes = case.boxes(dtype=torch.float32)
    expected = case.pool(features, boxes, indices)
    assert torch.equal(case.pool(features, boxes, indices.to(dtype)), expected)
    gradient = getattr(roipool, str(case.op.backward_boxes))
    for kind, found in ((dtype, dtype), (torch.int64, torch.float32)):
        given = {case.op.boxes: boxes.to(kind), case.op.indices: indices}
        slopes = gradient(expected, features, **given, **case.placing)
        assert (slopes.dtype, slopes.shape) == (found, boxes.shape)
