"""Poolers of several maps: torchvision's, detectron2's, OpenVINO's; Paddle's levels of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.golden_data import Arrays, recorded

import roipool
from roipool import reference
from roipool.compat import detectron2, openvino, paddle, torchvision


def numbered(case: Arrays, start: str) -> Arrays:
    """Return the arrays whose names consist of `start` and a number, by the number."""
    return {
        key.removeprefix(start): case[key]
        for key in case
        if key[len(start) :].isdigit() and key.startswith(start)
    }


def test_torchvision_answers_the_same(backend: Backend) -> None:
    count = 0
    for case in recorded("torchvision_multiscale"):
        maps = numbered(case, "map")
        boxes = [backend.to_device(table) for table in numbered(case, "boxes").values()]
        pictures = [tuple(case["picture"].tolist())] * len(boxes)
        names, ratio = case["names"].tolist(), int(case["ratio"])
        pooler = torchvision.MultiScaleRoIAlign(names, (3, 2), ratio)
        there = {name: backend.to_device(one) for name, one in maps.items()}
        pooled = backend.to_host(pooler(there, boxes, pictures))
        np.testing.assert_allclose(pooled, case["pooled"], rtol=0, atol=64 * 2.0**-21)
        shapes = {name: one.shape for name, one in maps.items()}
        upstream = backend.to_device(case["grad"])
        grads = pooler.backward(upstream, shapes, boxes, pictures)
        assert list(grads) == names
        for name, grad in grads.items():
            expected = case[f"grad{name}"]
            np.testing.assert_allclose(backend.to_host(grad), expected, rtol=0, atol=16 * 2.0**-20)
        count += pooled.size
    assert count > 1000


MAPS = [np.full((2, 3, 64 >> level, 64 >> level), level, np.float32) for level in range(4)]
SCALES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
TABLES = [
    np.array([[0, 0, 30, 30], [5, 5, 205, 230], [9, 9, 2, 2]], np.float32),
    np.array([[0, 0, 224, 224], [3, 2, 460, 470]], np.float32),
]
GRADS = np.ones((5, 3, 1, 1), np.float32)
SHAPES = [one.shape for one in MAPS]


def test_torchvision_scales_by_the_largest_picture(backend: Backend) -> None:
    maps = np.arange(2 * 16 * 16, dtype=np.float32).reshape(2, 1, 16, 16)
    tables = [np.array([[4, 8, 30, 41]], np.float32), np.array([[1, 2, 29, 31]], np.float32)]
    there = [backend.to_device(one) for one in (maps, *tables)]
    pooler = torchvision.MultiScaleRoIAlign(["0"], 2, 2)
    pooled = pooler({"0": there[0]}, there[1:], [(64, 64), (32, 32)])
    expected = roipool.roi_align(maps, tables, 2, 16 / 64, 2, aligned=False)
    np.testing.assert_array_equal(backend.to_host(pooled), expected)


@pytest.mark.parametrize("kind", ["ROIAlign", "ROIAlignV2"])
def test_detectron2_pools_each_box_from_its_map(backend: Backend, kind: str) -> None:
    rng = np.random.default_rng(8)
    maps = [rng.integers(-9, 9, one.shape).astype(np.float32) for one in MAPS]
    there = [backend.to_device(one) for one in maps]
    tables = [backend.to_device(table) for table in TABLES]
    pooler = detectron2.ROIPooler((2, 3), SCALES, 0, kind)
    pooled = pooler(there, tables)
    rows = [np.column_stack([np.full(len(one), i), one]) for i, one in enumerate(TABLES)]
    table = np.vstack(rows).astype(np.float32)
    levels = np.array([0, 1, 0, 2, 3])
    assert (table[:, 0] == [0, 0, 0, 1, 1]).all()
    expected = roipool.multilevel_roi_align(
        maps, table, (2, 3), SCALES, levels=levels, aligned=kind == "ROIAlignV2"
    )
    np.testing.assert_allclose(backend.to_host(pooled), expected, rtol=0, atol=1e-5)
    shapes = [one.shape for one in maps]
    grads = pooler.backward(backend.to_device(np.ones_like(expected)), shapes, tables)
    assert [grad.shape for grad in grads] == shapes
    total = sum(float(backend.to_host(grad).sum()) for grad in grads)
    inside = roipool.multilevel_roi_align(
        [np.ones_like(one) for one in maps],
        table,
        (2, 3),
        SCALES,
        levels=levels,
        aligned=kind == "ROIAlignV2",
    )
    assert total == pytest.approx(float(inside.sum()), rel=1e-5)


def test_detectron2_rotated(backend: Backend) -> None:
    boxes = np.array([[60, 60, 30, 20, 30], [120, 120, 230, 230, -45]], np.float32)
    rng = np.random.default_rng(9)
    maps = [rng.integers(-9, 9, one.shape).astype(np.float32) for one in MAPS]
    shapes = [one.shape for one in maps]
    pooler = detectron2.ROIPooler(2, SCALES, 2, "ROIAlignRotated")
    tables = [backend.to_device(boxes), backend.to_device(boxes[:0])]
    pooled = backend.to_host(pooler([backend.to_device(one) for one in maps], tables))
    upstream = rng.integers(-9, 9, pooled.shape).astype(np.float32)
    grads = pooler.backward(backend.to_device(upstream), shapes, tables)
    for k, level in enumerate((0, 2)):
        table = np.column_stack([[0], boxes[k : k + 1]]).astype(np.float64)
        own, settings = slice(k, k + 1), (SCALES[level], 2)
        expected = reference.roi_align_rotated(
            maps[level].astype(np.float64), table, 2, *settings, angle_unit="degrees"
        )
        np.testing.assert_allclose(pooled[own], expected, rtol=0, atol=1e-4)
        by_map = reference.roi_align_rotated_backward(
            upstream[own].astype(np.float64), table, shapes[level], *settings, angle_unit="degrees"
        )
        np.testing.assert_allclose(backend.to_host(grads[level]), by_map, rtol=0, atol=1e-4)
    assert not any(backend.to_host(grads[level]).any() for level in (1, 3))


@pytest.mark.parametrize(
    ("kind", "shift"), [("ROIAlign", 0), ("ROIAlignV2", 0.5), ("ROIAlignRotated", 0.5)]
)
def test_detectron2_shifts_boxes_by_the_kind_of_pooler(kind: Any, shift: float) -> None:
    row, column = np.mgrid[:16, :16].astype(np.float32)
    ramp = (100 * row + column)[None, None]
    box = [20, 24, 8, 4, 0] if kind == "ROIAlignRotated" else [16, 22, 24, 26]
    pooled = detectron2.ROIPooler(1, (1 / 4,), 2, kind)([ramp], [np.array([box], np.float32)])
    assert pooled.item() == 100 * (24 / 4 - shift) + 20 / 4 - shift


@pytest.mark.parametrize(("shorter", "level"), [(0, 1), (5e-9, 1), (2e-8, 0)])
def test_detectron2_lifts_a_box_just_below_a_level(shorter: float, level: int) -> None:
    """By 1e-8 of the canonical side."""
    side = 224 * (1 - shorter)
    there = [one[:1].astype(np.float64) for one in MAPS[1:3]]
    pooler = detectron2.ROIPooler(1, SCALES[1:3], 2, "ROIAlignV2")
    pooled = pooler(there, [np.array([[0, 0, side, side]])])
    assert pooled[0, 0].item() == there[level].max()


def test_detectron2_takes_maxima_on_each_level(backend: Backend) -> None:
    """As torchvision does on the map of a box, forward and backward."""
    rng = np.random.default_rng(0)
    maps = [rng.standard_normal(one.shape, dtype=np.float32) for one in MAPS]
    counts = [len(table) for table in TABLES]
    table = np.column_stack([np.repeat(np.arange(2), counts), np.concatenate(TABLES)])
    levels = np.array([0, 1, 0, 2, 3])
    there, tables = ([backend.to_device(one) for one in many] for many in (maps, TABLES))
    pooler = detectron2.ROIPooler((2, 3), SCALES, 0, "ROIPool")
    pooled, argmax = pooler(there, tables, return_argmax=True)
    gradient = rng.standard_normal(pooled.shape, dtype=np.float32)
    shapes = [one.shape for one in maps]
    grads = pooler.backward(backend.to_device(gradient), shapes, tables, argmax)
    actual = backend.to_host(pooled), backend.to_host(argmax)
    for level, one in enumerate(maps):
        own = levels == level
        expected = torchvision.roi_pool(
            one, table[own].astype(np.float32), (2, 3), SCALES[level], return_argmax=True
        )
        for ours, theirs in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(ours[own], theirs)
        by_map = torchvision.roi_pool_backward(
            gradient[own], expected[1], table[own].astype(np.float32), one.shape
        )
        np.testing.assert_array_equal(backend.to_host(grads[level]), by_map)
    plain = pooler(there, tables)
    np.testing.assert_array_equal(backend.to_host(plain), actual[0])


def test_one_map_takes_boxes_of_all_sizes(backend: Backend) -> None:
    there = backend.to_device(MAPS[2] + 1)
    tables = [backend.to_device(table[:2]) for table in TABLES]
    one = detectron2.ROIPooler(1, SCALES[2:3], 2, "ROIAlignV2")
    assert backend.to_host(one([there], tables)).min() > 0
    other = torchvision.MultiScaleRoIAlign(["only"], 1, 2)
    assert backend.to_host(other({"only": there}, tables, [(256, 256)])).min() > 0
    assert other.scales == [1 / 16]


def test_boxes_without_a_level_pool_nothing(backend: Backend) -> None:
    reversed_one = backend.to_device(np.array([[9, 9, 30, 2], [0, 0, 20, 20]], np.float32))
    none = backend.to_device(np.zeros((0, 4), np.float32))
    there = [backend.to_device(one + 1) for one in MAPS]
    pooled = detectron2.ROIPooler(1, SCALES, 2, "ROIAlignV2")(there, [reversed_one, none])
    assert backend.to_host(pooled)[:, 0].ravel().tolist() == [0, 1]
    pooler = torchvision.MultiScaleRoIAlign([str(i) for i in range(4)], 1, 2)
    named = {str(i): one for i, one in enumerate(there)}
    pooled = pooler(named, [reversed_one, none], [(256, 256)])
    assert backend.to_host(pooled)[:, 0].ravel().tolist() == [0, 1]


def multi_scale(**options: Any) -> Any:
    usual = {"featmap_names": ["a"], "output_size": 1, "sampling_ratio": 0}
    return torchvision.MultiScaleRoIAlign(**usual | options)


def pooler(**options: Any) -> Any:
    usual = {"output_size": 1, "scales": SCALES, "sampling_ratio": 0, "pooler_type": "ROIAlign"}
    return detectron2.ROIPooler(**usual | options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: detectron2.ROIPooler(1, (1 / 3,), 0, "ROIAlign"), ValueError, "powers of two"),
        (lambda: detectron2.ROIPooler(1, (1, 1 / 4), 0, "ROIAlign"), ValueError, "powers of two"),
        (lambda: detectron2.ROIPooler(1, (0.0,), 0, "ROIAlign"), ValueError, "powers of two"),
        (lambda: detectron2.ROIPooler(1, (-0.5,), 0, "ROIAlign"), ValueError, "powers of two"),
        (lambda: detectron2.ROIPooler(1, (), 0, "ROIAlign"), ValueError, "powers of two"),
        (lambda: detectron2.ROIPooler(1, SCALES, 0, "Pool"), ValueError, "pooler_type must be"),
        (lambda: pooler()(MAPS, TABLES, return_argmax=True), ValueError, "return_argmax must be"),
        (lambda: pooler().backward(GRADS, SHAPES, TABLES, np.zeros((5, 3, 1, 1), int)), TypeError,
         "argmax must be None with pooler_type='ROIAlign'"),
        (lambda: pooler(pooler_type="ROIPool").backward(GRADS, SHAPES, TABLES), TypeError,
         "argmax must be given with pooler_type='ROIPool'"),
        (lambda: pooler(pooler_type="ROIPool").backward(GRADS, SHAPES, TABLES, GRADS), TypeError,
         "argmax must be an integer array"),
        (lambda: pooler(pooler_type="ROIPool").backward(
            GRADS, SHAPES, TABLES, np.full(GRADS.shape, 5000)), ValueError,
         "argmax must be from -1 to"),
        (lambda: detectron2.ROIPooler(1, SCALES, 0, "ROIAlign")(MAPS[:2], TABLES), ValueError,
         "one map for each of 4 scales"),
        (lambda: detectron2.ROIPooler(1, SCALES, 0, "ROIAlign")(MAPS, TABLES[:1]), ValueError,
         "box_lists must hold one table per image"),
        (lambda: torchvision.MultiScaleRoIAlign(["a"], 1, 0)(MAPS, TABLES, [(9, 9)]), TypeError,
         "x must be a dict"),
        (lambda: torchvision.MultiScaleRoIAlign(["a"], 1, 0)({"b": MAPS[0]}, TABLES, [(9, 9)]),
         ValueError, "x has none of the maps"),
        (lambda: torchvision.MultiScaleRoIAlign(["a"], 1, 0)({"a": MAPS[0]}, TABLES, []),
         ValueError, "image_shapes must hold one picture"),
        (lambda: multi_scale()({"a": MAPS[0]}, TABLES, [(0, 0)]), ValueError,
         r"image_shapes\[0\] must be from 1 to 2147483647, got \(0, 0\)"),
        (lambda: multi_scale()({"a": MAPS[0][:, :, :0]}, TABLES, [(9, 9)]), ValueError,
         r"x\['a'\] must have one row at least"),
        (lambda: multi_scale().backward(MAPS[0], MAPS, TABLES, [(9, 9)]), TypeError,
         "input_shapes must be a dict"),
        (lambda: multi_scale(featmap_names=None), TypeError, "featmap_names must be a list"),
        (lambda: multi_scale(featmap_names=["a", 1]), TypeError, r"featmap_names\[1\] must be a"),
        (lambda: multi_scale(canonical_scale=(1, 2, 3)), TypeError, "canonical_scale must be a"),
        (lambda: multi_scale(canonical_scale="x"), TypeError, "canonical_scale must be a real"),
        (lambda: multi_scale(canonical_scale=np.nan), ValueError, "canonical_scale must be finite"),
        (lambda: multi_scale(canonical_scale=10**400), ValueError, "canonical_scale is too large"),
        (lambda: multi_scale(canonical_scale=1e200), ValueError, "canonical_scale must be from 2"),
        (lambda: multi_scale(canonical_level=101), ValueError, "canonical_level must be from -100"),
        (lambda: pooler(canonical_box_size="x"), TypeError, "canonical_box_size must be a real"),
        (lambda: pooler(canonical_box_size=0), ValueError, "canonical_box_size must be from 2"),
        (lambda: pooler(canonical_level="4"), TypeError, "canonical_level must be an int, got '4'"),
        (lambda: pooler(canonical_level=np.nan), TypeError, "canonical_level must be an int"),
        (lambda: pooler().backward(np.ones((3, 1, 2, 2)), [(1, 1, 2, 2)] * 4, TABLES[:1]),
         ValueError, "grad_output must have 1 x 1 bins"),
        (lambda: pooler().backward(np.ones((3, 1, 1, 1)), [(1, 1, 2, 2)] * 3, TABLES[:1]),
         ValueError, "input_shapes must hold one map for each of 4 scales: 3"),
        (lambda: pooler(pooler_type="ROIAlignRotated").backward(
            np.ones((0, 0, 1, 1)), [(1, 0, 2**16, 2**16)] * 4, [np.zeros((0, 5))]), ValueError,
         r"input_shapes\[0\] has 65536 x 65536 cells; rotated boxes allow at most"),
    ],
)  # fmt: skip
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_boxes_along_the_axes_have_maps_of_any_number_of_cells() -> None:
    shapes = [(1, 0, 2**16, 2**16)] * 4
    grads = pooler().backward(np.ones((0, 0, 1, 1)), shapes, [np.zeros((0, 4))])
    assert [grad.shape for grad in grads] == shapes


@pytest.mark.parametrize("bins", [1, 3000])
def test_a_gradient_of_other_bins_is_refused(bins: int) -> None:
    """It was once read with the pooler's number of bins: beyond its end."""
    grad, table = np.ones((1, 1, 2, 2)), [TABLES[0][:1]]
    message = (
        rf"grad_output must have {bins} x {bins} bins \(output_size\), got shape \(1, 1, 2, 2\)"
    )
    with pytest.raises(ValueError, match=message):
        detectron2.ROIPooler(bins, (1,), 0, "ROIAlign").backward(grad, [(1, 1, 9, 9)], table)
    other = torchvision.MultiScaleRoIAlign(["a"], bins, 0)
    with pytest.raises(ValueError, match=message):
        other.backward(grad, {"a": (1, 1, 9, 9)}, table, [(9, 9)])


def test_boxes_beyond_all_numbers_give_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    wide = [np.array([[1e30, -1e300, np.inf, np.nan], [-1e30, -1e30, 1e30, 1e30]])]
    first = [one[:1] for one in MAPS]
    for count in (1, 4):
        named = {str(i): one for i, one in enumerate(first[:count])}
        torchvision.MultiScaleRoIAlign([*named], 1, 0)(named, wide, [(256, 256)])
        detectron2.ROIPooler(1, SCALES[:count], 0, "ROIAlign")(first[:count], wide)
    assert not recwarn.list


def test_maps_of_several_types_are_refused() -> None:
    """Results would have several types."""
    maps = [MAPS[0], MAPS[1].astype(np.float64)]
    with pytest.raises(TypeError, match=r"x\[1\] must have the dtype of x\[0\]"):
        detectron2.ROIPooler(1, SCALES[:2], 0, "ROIAlign")(maps, TABLES)
    pooler = torchvision.MultiScaleRoIAlign(["fine", "coarse"], 1, 0)
    named = dict(zip(("fine", "coarse"), maps, strict=True))
    with pytest.raises(TypeError, match=r"x\['coarse'\] must have the dtype of x\['fine'\]"):
        pooler(named, TABLES, [(256, 256)] * 2)


def test_scales_of_the_first_call_are_kept() -> None:
    pooler = torchvision.MultiScaleRoIAlign(["0", "1"], 1, 0)
    named = {"0": MAPS[0], "1": MAPS[1]}
    pooler(named, TABLES, [(256, 256)] * 2)
    with pytest.raises(ValueError, match="must hold 2 maps, one for each scale, got 1"):
        pooler({"0": MAPS[0]}, TABLES, [(256, 256)] * 2)


def test_paddle_divides_boxes_among_levels(backend: Backend) -> None:
    boxes = 0
    for case in recorded("paddle_levels"):
        rois, rois_num = backend.to_device(case["rois"]), backend.to_device(case["rois_num"])
        options = (2, 5, 4, 224, bool(case["pixel_offset"]))
        actual = paddle.distribute_fpn_proposals(rois, *options, rois_num)
        multi_rois, restore_index, numbers = actual
        assert numbers is not None
        assert (len(multi_rois), len(numbers)) == (4, 4)
        np.testing.assert_array_equal(backend.to_host(restore_index), case["restore"], strict=True)
        for level in range(4):
            table, count = backend.to_host(multi_rois[level]), backend.to_host(numbers[level])
            np.testing.assert_array_equal(table, case[f"rois{level}"], strict=True)
            np.testing.assert_array_equal(count, case[f"numbers{level}"], strict=True)
        boxes += len(case["rois"])
    assert boxes > 400


def test_paddle_needs_no_numbers_of_boxes(backend: Backend) -> None:
    table = np.array([[0, 0, 300, 300], [0, 0, 20, 20], [9, 9, 3, 3], [np.nan] * 4], np.float16)
    actual = paddle.distribute_fpn_proposals(backend.to_device(table), 3, 4, 4, 224)
    multi_rois, restore_index, numbers = actual
    np.testing.assert_array_equal(backend.to_host(multi_rois[0]), table[1:], strict=True)
    np.testing.assert_array_equal(backend.to_host(multi_rois[1]), table[:1], strict=True)
    assert backend.to_host(restore_index).ravel().tolist() == [3, 0, 1, 2]
    assert numbers is None
    none = paddle.distribute_fpn_proposals([], 3, 4, 4, 224)
    assert [len(one) for one in none[0]] == [0, 0]


# ---- OpenVINO


def test_openvino_extracts_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("openvino_pyramids"):
        layers = [case[f"layer{level}"] for level in range(len(case["pyramid_scales"]))]
        pooled = openvino.ExperimentalDetectronROIFeatureExtractor(
            backend.to_device(case["rois"]),
            [backend.to_device(layer) for layer in layers],
            output_size=int(case["output_size"]),
            sampling_ratio=int(case["sampling_ratio"]),
            pyramid_scales=case["pyramid_scales"].tolist(),
            aligned=bool(case["aligned"]),
        )
        largest = max(float(np.abs(layer).max()) for layer in layers)
        error = np.abs(backend.to_host(pooled) - case["pooled"]).max()
        assert error <= 4e-7 * largest  # of sums in another order; other decisions are larger
        values += np.count_nonzero(case["pooled"])
    assert values > 800


def extracted(rois: Any, layers: Any = None, **options: Any) -> Any:
    layers = (
        [np.full((2, 1, 8, 8), level, np.float32) for level in (1, 2)] if layers is None else layers
    )
    usual: dict[str, Any] = {"output_size": 1, "sampling_ratio": 1, "pyramid_scales": [4, 8]}
    return openvino.ExperimentalDetectronROIFeatureExtractor(rois, layers, **{**usual, **options})


def test_openvino_levels_are_counted_from_the_first_map() -> None:
    """A box of 112 pixels is on the second map, whatever its stride; one without area on none."""
    rois = np.array([[0, 0, 30, 30], [0, 0, 112, 112], [5, 5, 5, 9], [9, 9, 5, 5]], np.float32)
    assert extracted(rois, pyramid_scales=[16, 32]).ravel().tolist() == [1, 2, 0, 1]
    assert extracted(rois[:0]).shape == (0, 1, 1, 1)


def test_openvino_holds_aligned_boxes_at_one_cell() -> None:
    row = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    tiny = [[8, 0, 9, 1]]  # from cell 1.5, a quarter of a cell long
    assert extracted(tiny, [row], pyramid_scales=[4], aligned=True).item() == 2


def test_openvino_reads_other_images_if_asked() -> None:
    layer = np.stack([np.zeros((1, 8, 8)), np.ones((1, 8, 8))]).astype(np.float32)
    boxes = [[0, 0, 9, 9], [0, 0, 9, 9]]
    assert extracted(boxes, [layer], pyramid_scales=[4]).ravel().tolist() == [0, 0]
    found = extracted(boxes, [layer], pyramid_scales=[4], batch_indices=[1, 0])
    assert found.ravel().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pyramid_scales": [4]}, "pyramid_scales must hold one number per map, 2: 1"),
        ({"pyramid_scales": [4, 0]}, r"pyramid_scales\[1\] must be at least 1, got 0"),
        ({"pyramid_scales": [4, 0.5]}, r"pyramid_scales\[1\] must be an int, got 0.5"),
        ({"batch_indices": [2]}, "batch_indices"),
        ({"sampling_ratio": -1}, "sampling_ratio"),
        ({"aligned": 2}, "aligned must be a bool"),
        ({"layers": np.zeros((2, 1, 8, 8))}, "pyramid_layers must be a list or tuple"),
        ({"rois": [[0, 1, 1, 3, 3]]}, r"rois must have shape \(K, 4\)"),
    ],
)
def test_openvino_names_the_wrong_argument(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        extracted(**{"rois": [[1, 1, 3, 3]], **options})


def test_detectron2_finds_levels_in_the_type_of_the_maps() -> None:
    """A side that is 224 in float32 alone is on the canonical level."""
    maps = [np.full((1, 1, size, size), float(size == 16), np.float32) for size in (32, 16)]
    pooler = detectron2.ROIPooler(1, (1 / 8, 1 / 16), 1, "ROIAlignV2")
    assert pooler(maps, [np.array([[0, 0, 223.999993, 224.0]])]) == 1
