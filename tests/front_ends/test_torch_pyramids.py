"""Several maps in one call of tensors: values, gradients, levels, errors, torchvision's module."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from _support.compare import assert_same_bits
from _support.pairwise import each
from _support.tensors import DTYPES, FORMATS, PYRAMID_CASES, PyramidCase, maps, to_numpy
from torch import Tensor

import roipool
import roipool.torch.nn

every_case = pytest.mark.parametrize("case", PYRAMID_CASES, ids=str)
SCALES = (1 / 2, 1 / 4, 1 / 8)
ROIS = torch.tensor(
    [[0, 1.3, 1, 20, 20], [1, 3, 4, 30.2, 31], [0, 2, 2, 6, 7], [1, 0, 0, 14, 9.1]],
    dtype=torch.float64,
)


def pyramid(dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    """Return maps of three levels."""
    return [maps(dtype, shape=(2, 3, side, side + 2), seed=seed) for side in (16, 8, 4)]


# ---- The numbers of NumPy arrays


@every_case
@each(dtype=DTYPES)
@each(memory_format=FORMATS)
def test_values_and_gradients_are_those_of_numpy(
    case: PyramidCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """Values, and the gradients by each map and by the boxes, bit for bit."""
    features = [
        each.contiguous(memory_format=memory_format).requires_grad_()
        for each in case.pyramid(maps(dtype))
    ]
    boxes = case.boxes(dtype=torch.float32).requires_grad_()
    indices, levels = case.indices(), case.levels(boxes)
    options = {**case.options(), "levels": levels, "batch_indices": indices}
    pooled = roipool.multilevel_roi_align(features, boxes, 2, **options)
    arrays = [to_numpy(each) for each in features]
    plain = {**options, "levels": levels.numpy(), "batch_indices": indices.numpy()}
    corners = boxes.detach().numpy()
    assert_same_bits(to_numpy(pooled), roipool.multilevel_roi_align(arrays, corners, 2, **plain))
    assert pooled.is_contiguous(memory_format=memory_format)
    upstream = maps(dtype, seed=1, shape=tuple(pooled.shape))
    pooled.backward(upstream)
    gradients = roipool.multilevel_roi_align_backward(
        to_numpy(upstream), corners, [each.shape for each in arrays], **plain
    )
    for leaf, gradient in zip(features, gradients, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.is_contiguous(memory_format=memory_format)
        assert_same_bits(to_numpy(leaf.grad), gradient)
    slopes = roipool.multilevel_roi_align_backward_rois(
        to_numpy(upstream), arrays, corners, **plain
    )
    assert boxes.grad is not None
    assert_same_bits(boxes.grad.numpy(), slopes.astype(np.float32))


@every_case
def test_public_gradients_are_those_of_autograd(case: PyramidCase) -> None:
    features, boxes = maps().requires_grad_(), case.boxes().requires_grad_()
    pooled = case.pool(features, boxes, case.indices())
    upstream = maps(seed=1, shape=tuple(pooled.shape))
    given = boxes.detach(), case.indices()
    by_maps = case.gradient(upstream, None, *given, features.shape)
    by_boxes = case.box_gradient(upstream, features.detach(), *given)
    expected = torch.autograd.grad(pooled, (features, boxes), upstream)
    fine, coarse = by_maps
    fine[:, :, ::2, ::2] += 2 * coarse
    assert torch.equal(fine, expected[0])
    assert torch.equal(by_boxes, expected[1])


def test_layouts_and_forms_of_boxes() -> None:
    features, rois = pyramid(), ROIS[ROIS[:, 0].argsort(stable=True)]
    expected = roipool.multilevel_roi_align(features, rois, 2, SCALES)
    last = [each.permute(0, 2, 3, 1) for each in features]
    got = roipool.multilevel_roi_align(last, rois, 2, SCALES, layout="NHWC")
    assert torch.equal(got.permute(0, 3, 1, 2), expected)
    per_image = [rois[rois[:, 0] == image][:, 1:] for image in range(2)]
    leaf = rois.clone().requires_grad_()
    for form in (leaf, per_image):
        assert torch.equal(roipool.multilevel_roi_align(features, form, 2, SCALES), expected)
    roipool.multilevel_roi_align(features, leaf, 2, SCALES).sum().backward()
    assert leaf.grad is not None
    assert not leaf.grad[:, 0].any()
    assert leaf.grad[:, 1:].any()
    grad = torch.ones(4, 2, 2, 3, dtype=torch.float64)
    shapes = [each.shape for each in last]
    gradients = roipool.multilevel_roi_align_backward(grad, rois, shapes, SCALES, layout="NHWC")
    first = roipool.multilevel_roi_align_backward(
        grad.permute(0, 3, 1, 2), rois, [each.shape for each in features], SCALES
    )
    assert all(map(torch.equal, (one.permute(0, 3, 1, 2) for one in gradients), first))


def test_nothing_to_pool() -> None:
    features = [each.requires_grad_() for each in pyramid()]
    pooled = roipool.multilevel_roi_align(features, ROIS[:0], 2, SCALES)
    assert pooled.shape == (0, 3, 2, 2)
    pooled.sum().backward()
    assert not any(each.grad.any() for each in features if each.grad is not None)


# ---- Levels


@each(dtype=("float32", "float64"))
def test_levels_are_those_of_numpy(dtype: str) -> None:
    rng = np.random.default_rng(0)
    table = torch.tensor(rng.uniform(-50, 600, (200, 5))).to(DTYPES[dtype])
    table[:3, 3] = torch.tensor([float("nan"), float("inf"), 0])
    for rois in (table, table[:, 1:]):
        got = roipool.assign_levels(rois, 2, 5)
        assert got.dtype is torch.int64
        assert got.tolist() == roipool.assign_levels(rois.numpy(), 2, 5).tolist()
    exact = torch.tensor([[0.0, 0, 112, 112], [0, 0, 223, 224], [0, 0, 500, 500]])
    assert roipool.assign_levels(exact, 2, 5).tolist() == [1, 1, 3]
    compiled = torch.compile(roipool.assign_levels, fullgraph=True, backend="aot_eager")
    assert compiled(table, 2, 5).tolist() == roipool.assign_levels(table, 2, 5).tolist()


def test_levels_by_size_are_the_default() -> None:
    features, rois = pyramid(), ROIS * torch.tensor([1, 8, 8, 8, 8])
    levels = roipool.assign_levels(rois, 1, 3)
    assert set(levels.tolist()) == {0, 1, 2}
    got = roipool.multilevel_roi_align(features, rois, 2, SCALES)
    assert torch.equal(got, roipool.multilevel_roi_align(features, rois, 2, SCALES, levels=levels))


# ---- Errors name the operation and the argument, also from compiled programs


MAPS = pyramid()
TWO = MAPS[:2]
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "one map": ({"features": MAPS[0]}, TypeError, "features must be a list or tuple"),
    "NumPy among maps": ({"features": [*TWO, 1.0]}, TypeError, r"features\[2\] must be a tensor"),
    "NumPy boxes": ({"rois": ROIS.numpy()}, TypeError, "rois must be a tensor"),
    "two types": (
        {"features": [*TWO, MAPS[2].float()]}, TypeError,
        r"features\[2\] must have the dtype of features\[0\]",
    ),
    "channels": ({"features": [*TWO, MAPS[2][:, :1]]}, ValueError, "equal numbers of"),
    "devices of maps": (
        {"features": [*TWO, MAPS[2].to("meta")]}, ValueError, "rois must be on the device of",
    ),
    "scales": ({"spatial_scales": (1.0,)}, ValueError, "spatial_scales must hold one number"),
    "a scale": ({"spatial_scales": 1.0}, TypeError, "spatial_scales must be a list or tuple"),
    "a scale of 0": ({"spatial_scales": (0.0, 1.0, 2.0)}, ValueError, "to 2.*100 without levels"),
    "a level of none": (
        {"levels": torch.tensor([0, 1, 3, 0])}, ValueError, "levels must be from 0 to 2",
    ),
    "float levels": ({"levels": torch.zeros(4)}, TypeError, "levels must hold integers"),
    "few levels": ({"levels": torch.tensor([0])}, ValueError, r"levels must have shape \(4,\)"),
    "levels elsewhere": (
        {"levels": torch.zeros(4, dtype=torch.long, device="meta")}, ValueError,
        "levels must be on the device",
    ),
    "levels of NumPy": ({"levels": np.zeros(4, int)}, TypeError, "levels must be a tensor"),
    "an index of no image": ({"rois": ROIS + 1}, ValueError, "batch indices must be"),
    "out": ({"out": torch.zeros(4, 3, 2, 2)}, TypeError, "out must be None"),
    "bins": ({"output_size": 0}, ValueError, "output_size must be from 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    wrong, kind, message = WRONG[name]
    usual = {"features": MAPS, "rois": ROIS, "output_size": 2, "spatial_scales": SCALES}
    with pytest.raises(kind, match=f"^multilevel_roi_align: .*{message}"):
        roipool.multilevel_roi_align(**usual | wrong)
    torch.compiler.reset()

    def program(**given: Any) -> Tensor:
        return roipool.multilevel_roi_align(**given)

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    if not any(isinstance(value, np.ndarray) for value in wrong.values()):  # a compiler's tensors
        with pytest.raises(Exception, match=f"multilevel_roi_align: .*{message}"):
            compiled(**usual | wrong)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ROIS[:, :3], 2, 5), ValueError, "rois must have shape"),
        ((ROIS > 0, 2, 5), TypeError, "rois must hold real numbers"),
        ((ROIS, 5, 2), ValueError, "max_level must be at least"),
        ((ROIS, 2.5, 5), TypeError, "min_level must be an int"),
        ((ROIS, 2, 10**6), ValueError, "max_level must be from -100 to 100, got 1000000"),
        ((ROIS, 2, 5, 1e300), ValueError, "canonical_size must be from"),
    ],
)
def test_errors_of_levels(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^assign_levels: {message}"):
        roipool.assign_levels(*arguments)


def test_no_maps() -> None:
    with pytest.raises(ValueError, match="multilevel_roi_align: features must hold one map"):
        roipool.torch.multilevel_roi_align([], ROIS, 2, ())


# ---- torchvision's module


def inputs(seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """Return random maps by name, boxes of every level of each image, and the pictures' sizes."""
    generator = torch.Generator().manual_seed(seed)
    sides = (128, 64, 32, 16)
    features = OrderedDict(
        (str(number), torch.randn(2, 8, side, side, generator=generator).to(dtype))
        for number, side in enumerate(sides)
    )
    features["pool"] = torch.randn(2, 8, 8, 8, generator=generator).to(dtype)
    boxes = []
    for count in (40, 25):
        first = torch.rand(count, 2, generator=generator) * 200
        size = 2 ** (torch.rand(count, 2, generator=generator) * 6 + 2)
        boxes.append(torch.cat([first, first + size], 1).to(dtype))
    return features, boxes, [(512, 480), (500, 512)]


@each(ratio=(2, 0, -1))
def test_multi_scale_is_torchvisions(ratio: int) -> None:
    """Values and the gradients by every map, of random pyramids."""
    ops = pytest.importorskip("torchvision", reason="torchvision is not installed").ops
    names = ["0", "1", "2", "3"]
    mine: Any = roipool.torch.nn.MultiScaleRoIAlign(names, (5, 4), ratio)
    theirs = ops.MultiScaleRoIAlign(names, (5, 4), ratio)
    for seed in range(3):
        features, boxes, sizes = inputs(seed)
        results = []
        for module in (mine, theirs):
            leaves = OrderedDict((k, v.clone().requires_grad_()) for k, v in features.items())
            pooled = module(leaves, boxes, sizes)
            pooled.square().sum().backward()
            results.append((pooled, *(leaves[name].grad for name in names)))
            assert leaves["pool"].grad is None
        for ours, other in zip(*results, strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)
    assert mine.scales == theirs.scales == [1 / 4, 1 / 8, 1 / 16, 1 / 32]
    assert repr(mine).startswith("MultiScaleRoIAlign(featmap_names=['0'")


@each(dtype=(torch.float32, torch.float16, torch.bfloat16, torch.float64))
def test_boxes_of_every_type_go_to_torchvisions_map(dtype: torch.dtype) -> None:
    """Areas of half types overflow, and round to the next map, unless they are widened."""
    poolers = pytest.importorskip("torchvision.ops.poolers", reason="torchvision is not installed")
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(20_000, 2, generator=generator) * 500
    size = torch.exp(torch.rand(20_000, 2, generator=generator) * 4 + 2.5)
    boxes = torch.cat([first, first + size], 1).to(dtype)
    side = 1248  # beyond every box
    # One number everywhere in each map tells which one a box was pooled from.
    features = {
        str(level): torch.full((1, 1, side >> (2 + level), side >> (2 + level)), float(level))
        for level in range(4)
    }
    pool = roipool.torch.nn.MultiScaleRoIAlign(list("0123"), 1, 1)
    found = pool(features, [boxes], [(side, side)]).flatten().round().long()
    assert torch.equal(found, poolers.LevelMapper(2, 5)([boxes]))
    assert len(found.unique()) == 4


def test_multi_scale_takes_maps_of_two_types() -> None:
    """As under autocast: they are converted to the first one's type."""
    features, boxes, sizes = inputs()
    mixed = {"0": features["0"], "1": features["1"].half(), "2": features["2"].bfloat16()}
    same = {name: each.to(torch.float32) for name, each in mixed.items()}
    pool = roipool.torch.nn.MultiScaleRoIAlign(list("012"), 3, 2)
    found = pool(mixed, boxes, sizes)
    assert found.dtype is torch.float32
    assert torch.equal(found, pool(same, boxes, sizes))


def test_multi_scale_of_one_map_and_of_no_boxes() -> None:
    ops = pytest.importorskip("torchvision", reason="torchvision is not installed").ops
    features, boxes, sizes = inputs()
    for names, given in ((["1"], boxes), (["0", "1"], [table[:0] for table in boxes])):
        mine = roipool.torch.nn.MultiScaleRoIAlign(names, 3, 2)(features, given, sizes)
        torch.testing.assert_close(
            mine, ops.MultiScaleRoIAlign(names, 3, 2)(features, given, sizes)
        )


def test_multi_scale_takes_other_options() -> None:
    features, boxes, sizes = inputs(dtype=torch.float64)
    module = roipool.torch.nn.MultiScaleRoIAlign(
        ["0", "1", "2"], 3, 2, canonical_scale=100, canonical_level=3, aligned=True
    )
    pooled = module(features, boxes, sizes)
    maps = [features[name] for name in ("0", "1", "2")]
    levels = roipool.assign_levels(torch.cat(boxes), 2, 4, 100, 3)
    expected = roipool.multilevel_roi_align(
        maps, boxes, 3, (1 / 4, 1 / 8, 1 / 16), 2, levels=levels
    )
    assert torch.equal(pooled, expected)


def test_multi_scale_compiles() -> None:
    """And gives the gradients of the module that is not compiled."""
    features, boxes, sizes = inputs()
    results = []
    for compile_it in (False, True):
        torch.compiler.reset()
        module: Any = roipool.torch.nn.MultiScaleRoIAlign(["0", "1", "2"], 3, 2)
        if compile_it:
            module = torch.compile(module, fullgraph=True, backend="aot_eager")
        leaves = {name: each.clone().requires_grad_() for name, each in features.items()}
        pooled = module(leaves, boxes, sizes)
        pooled.square().sum().backward()
        results.append((pooled, *(leaves[name].grad for name in "012")))
    assert all(map(torch.equal, *results))


def test_multi_scale_of_boxes_without_a_level() -> None:
    """Those with a negative area, or NaN, pool 0, as in torchvision."""
    features, _, sizes = inputs()
    nan = float("nan")
    wrong = torch.tensor([[9.0, 9, 5, 20], [nan, 1, 5, 5], [1, 1, 100, 100]])
    module = roipool.torch.nn.MultiScaleRoIAlign(["0", "1"], 3, 2)
    pooled = module(features, [wrong, wrong[:0]], sizes)
    assert not pooled[:2].any()
    assert pooled[2].any()


@pytest.mark.parametrize(
    ("features", "sizes", "error", "message"),
    [
        ([], [(8, 8)], TypeError, "x must be a dict of maps by name"),
        ({"c": 1}, [(8, 8)], ValueError, "x has none of the maps"),
        ({"a": torch.zeros(1, 1, 4, 4)}, [], ValueError, "image_shapes must hold one picture"),
        ({"a": torch.zeros(1, 1, 4, 4)}, [(0, 0)], ValueError, r"image_shapes\[0\] must be from 1"),
        ({"a": torch.zeros(1, 1, 0, 4)}, [(8, 8)], ValueError, r"x\['a'\] must have one row"),
        ({"a": 1}, [(8, 8)], TypeError, r"x\['a'\] must be a tensor, got int"),
        ({"a": torch.zeros(4)}, [(8, 8)], ValueError, r"x\['a'\] must have shape \(N, C, H, W\)"),
    ],
)
def test_errors_of_multi_scale(
    features: Any, sizes: Any, error: type[Exception], message: str
) -> None:
    module = roipool.torch.nn.MultiScaleRoIAlign(["a"], 3, 2)
    with pytest.raises(error, match=message):
        module(features, [torch.zeros(1, 4)], sizes)


@pytest.mark.parametrize(
    ("boxes", "error", "message"),
    [
        (None, TypeError, "boxes must be a list or tuple"),
        ([], ValueError, "boxes must hold one tensor for each image"),
        ([[0, 0, 1, 1]], TypeError, r"boxes\[0\] must be a tensor, got list"),
        ([torch.zeros(1, 3)], ValueError, r"boxes\[0\] must have shape \(L, 4\); got \(1, 3\)"),
    ],
)
def test_errors_of_multi_scales_boxes(boxes: Any, error: type[Exception], message: str) -> None:
    module = roipool.torch.nn.MultiScaleRoIAlign(["a"], 3, 2)
    with pytest.raises(error, match=message):
        module({"a": torch.zeros(1, 1, 4, 4)}, boxes, [(8, 8)])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"featmap_names": None}, TypeError, "featmap_names must be a list or tuple"),
        ({"canonical_scale": (1, 2, 3)}, TypeError, "canonical_scale must be a real number"),
        ({"canonical_scale": float("nan")}, ValueError, "canonical_scale must be finite"),
        ({"canonical_level": "4"}, TypeError, "canonical_level must be an int, got '4'"),
    ],
)
def test_errors_of_multi_scales_options(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    usual: dict[str, Any] = {"featmap_names": ["a"], "output_size": 3, "sampling_ratio": 2}
    with pytest.raises(error, match=message):
        roipool.torch.nn.MultiScaleRoIAlign(**usual | options)


def test_multi_scale_within_a_detector() -> None:
    """In the place of torchvision's, in a whole model: the same losses and gradients."""
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    from _support.detectors import detector, pictures, targets

    results = []
    for place in (False, True):
        model = detector("Faster R-CNN", 96, 20)
        if place:
            theirs = model.roi_heads.box_roi_pool
            model.roi_heads.box_roi_pool = roipool.torch.nn.MultiScaleRoIAlign(
                theirs.featmap_names, theirs.output_size, theirs.sampling_ratio
            )
        torch.manual_seed(2)
        losses = model.train()(pictures(96, 128), [dict(one) for one in targets(96, 128)])
        results.append(losses)
    for name, value in results[0].items():
        assert results[1][name].item() == pytest.approx(value.item(), abs=1e-6, rel=4e-7), name
