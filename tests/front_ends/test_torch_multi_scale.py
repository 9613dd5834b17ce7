"""`roipool.torch.nn.MultiScaleRoIAlign` as a replacement of torchvision's."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import pytest
import torch
from _support.loops import each

import roipool
import roipool.torch.nn
from roipool import compat


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
    """Values, and gradients with respect to every map, for random pyramids."""
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
    """In half types, areas would overflow, or round to the next map."""
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
    """As under autocast, they are converted to the first map's type."""
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


def test_multi_scale_of_boxes_without_a_level() -> None:
    """Boxes with a negative area, or NaN, pool to 0, as in torchvision."""
    features, _, sizes = inputs()
    nan = float("nan")
    wrong = torch.tensor([[9.0, 9, 5, 20], [nan, 1, 5, 5], [1, 1, 100, 100]])
    module = roipool.torch.nn.MultiScaleRoIAlign(["0", "1"], 3, 2)
    pooled = module(features, [wrong, wrong[:0]], sizes)
    assert not pooled[:2].any()
    assert pooled[2].any()


LAYERS = (roipool.torch.nn.MultiScaleRoIAlign, compat.torchvision.MultiScaleRoIAlign)


@each(layer=LAYERS)
def test_scales_that_widths_contradict_are_warned_of_once(layer: Any) -> None:
    """A picture of 22 x 200 pixels, padded to 32 x 224, makes later scales twice as large."""
    maps = {"fine": torch.ones(1, 1, 8, 56), "coarse": torch.ones(1, 1, 4, 28)}
    boxes = [torch.tensor([[0.0, 0, 90, 20]])]
    module = layer(["fine", "coarse"], 2, 2)
    with pytest.warns(UserWarning, match=r"x\['fine'\] is 0.5 by its height.* 0.25 by its width"):
        module(maps, boxes, [(22, 200)])
    assert module.scales == [1 / 2, 1 / 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(maps, boxes, [(22, 200)])
        layer(["fine", "coarse"], 2, 2)(maps, boxes, [(32, 224)])  # which agree
        kept = layer(["fine", "coarse"], 2, 2)
        kept.scales = [1 / 4, 1 / 8]
        kept(maps, boxes, [(22, 200)])
        empty = {name: each[..., :0] for name, each in maps.items()}
        layer(["fine", "coarse"], 2, 2)(empty, boxes, [(32, 200)])


@each(layer=LAYERS)
def test_programs_are_compiled_whole_where_widths_contradict(layer: Any) -> None:
    """They cannot warn."""
    maps = {"fine": torch.rand(1, 1, 8, 56), "coarse": torch.rand(1, 1, 4, 28)}
    boxes = [torch.tensor([[0.0, 0, 90, 20]])]
    compiled = torch.compile(layer(["fine", "coarse"], 2, 2), fullgraph=True, backend="eager")
    pooled = compiled(maps, boxes, [(22, 200)])
    given = roipool.torch.nn.MultiScaleRoIAlign(["fine", "coarse"], 2, 2, scales=(1 / 2, 1 / 4))
    torch.testing.assert_close(pooled, given(maps, boxes, [(22, 200)]))


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
