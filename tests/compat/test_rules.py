"""The compat systems' own rules, and their refusals of bad input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend
from _support.device_context import Placed, computing_on

from roipool import compat, reference
from roipool.compat import chainer, onnx, paddle, roialign_pytorch
from roipool.reference import ROI_AVERAGE_POOL

caffe = Placed(compat.caffe)
detectron2 = Placed(compat.detectron2)
maskrcnn_benchmark = Placed(compat.maskrcnn_benchmark)
mmcv = Placed(compat.mmcv)
mxnet = Placed(compat.mxnet)
tensorflow = Placed(compat.tensorflow)
torchvision = Placed(compat.torchvision)
precise_roi_pooling = Placed(compat.precise_roi_pooling)
PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)


def levels(
    first: int, last: int, rois: Any = ((1, 1, 3, 3),), scale: float = 224, rois_num: Any = None
) -> Any:
    return paddle.distribute_fpn_proposals(rois, first, last, 4, scale, rois_num=rois_num)


@pytest.fixture
def on_backend(backend: Backend) -> Iterator[None]:
    """Run every system on each backend."""
    with computing_on(backend):
        yield


on_every_backend = pytest.mark.usefixtures("on_backend")


@on_every_backend
def test_mmcv_loses_the_gradient_of_an_argmax_at_exactly_minus_one() -> None:
    maps = np.ones((1, 1, 4, 4))
    box = [[0, 1.0, -0.5, 2.0, -0.5]]  # aligned: every sample at y = -1, inside by a hair
    options = (1.0, 1, "max", True)
    pooled, y, x = mmcv.roi_align(maps, box, 1, *options, return_argmax=True)
    assert (pooled.item(), y.item()) == (1, -1)
    grad = np.ones((1, 1, 1, 1))
    lost = mmcv.roi_align_backward(grad, box, y, x, maps.shape, *options)
    kept = mmcv.roi_align_backward(grad, box, y, x, maps.shape, *options, exact_gradient=True)
    assert (lost.sum(), kept.sum()) == (0, 1)


@on_every_backend
@pytest.mark.parametrize("corners", [(4, 4, 2, 2), (2.5, 1.5, 1.5, 0.5)])  # below 0, and exactly
def test_mmcv_roi_pool_skips_a_box_without_extent(corners: tuple[float, ...]) -> None:
    box = [[0, *corners]]
    pooled, argmax = mmcv.roi_pool(PROBE, box, 2, return_argmax=True)
    np.testing.assert_array_equal(pooled, 0)
    np.testing.assert_array_equal(argmax, 0)
    grad = np.ones_like(pooled)
    assert mmcv.roi_pool_backward(grad, box, argmax, PROBE.shape)[0, 0, 0, 0] == 4
    for kind in (np.int32, np.uint64):
        cells = argmax.astype(kind)
        assert mmcv.roi_pool_backward(grad, box, cells, PROBE.shape, exact_gradient=True).sum() == 0


@pytest.mark.parametrize("position", [1e300, np.nan, np.inf, -1e300])
def test_positions_of_no_sample_give_no_gradient(
    position: float, recwarn: pytest.WarningsRecorder
) -> None:
    """They raise no warning; for Caffe, whose positions are integers, they are an error."""
    grad, at, box = np.ones((1, 1, 2, 2), np.float32), np.full((1, 1, 2, 2), position), [[0] * 5]
    maps, scale = PROBE.shape, 1.0
    for exact in (False, True):
        exactly: Any = {"exact_gradient": exact}
        assert mxnet.ROIAlign_backward(grad, at, at, box, maps, scale, **exactly).sum() == 0
        assert mmcv.roi_align_backward(grad, box, at, at, maps, pool_mode="max").sum() == 0
        with pytest.raises(TypeError, match="argmax_x must be an integer array, got float64"):
            caffe.roi_align_backward(grad, at, at, box, maps, 2, 2, scale, **exactly)
    assert not recwarn.list


@on_every_backend
def test_mmcv_roi_pool_of_a_map_without_cells_has_a_gradient() -> None:
    """The argmax of a skipped box is cell 0, which such a map lacks."""
    none, box = PROBE[:, :, :0], [[0, 4, 4, 2, 2]]
    pooled, argmax = mmcv.roi_pool(none, box, 2, return_argmax=True)
    assert mmcv.roi_pool_backward(np.ones_like(pooled), box, argmax, none.shape).size == 0


@on_every_backend
def test_mmcv_maximum_starts_as_in_the_operator_of_the_device(backend: Backend) -> None:
    """Unless an operator is named: at -10000 on a CPU, at the lowest float32 on a GPU."""
    low, middle, empty = PROBE - 20000, [[0, 2, 2, 3, 3]], [[0, 2, 2, 2, 2]]
    lowest = np.finfo(np.float32).min
    of_low = {"cpu": (-10000, -1, -1), "cuda": (-19987, 2, 2)}  # the maximum, and its position
    of_empty = {"cpu": (-10000, -1, -1), "cuda": (lowest, -1, -1)}
    device = "cpu" if backend.name == "cpu" else "cuda"
    for operator in ("cpu", "cuda", None):
        whose = operator or device
        options: dict[str, Any] = {"pool_mode": "max", "operator": operator}
        for maps, box, ratio, want in (
            (low, middle, 1, of_low[whose]),
            (PROBE, empty, 0, of_empty[whose]),
        ):
            found = mmcv.roi_align(maps, box, 1, 1.0, ratio, return_argmax=True, **options)
            assert tuple(each.item() for each in found) == want
        layer = mmcv.RoIAlign(1, 1.0, 1, "max", operator=operator)
        assert layer(low, middle).item() == of_low[whose][0]
        assert "operator" not in repr(layer)


@on_every_backend
@pytest.mark.parametrize(
    "pool",
    [
        lambda boxes: mxnet.ROIPooling(PROBE, boxes, (2, 2), 1.0),
        lambda boxes: mxnet.contrib_ROIAlign(PROBE, boxes, (2, 2), 1.0),
        lambda boxes: mxnet.ROIAlign(PROBE, boxes, (2, 2), 1.0),
        lambda boxes: mxnet.contrib_RROIAlign(
            PROBE, np.hstack([boxes, np.zeros((4, 1))]), (2, 2), 1.0
        ),
    ],
)
def test_mxnet_boxes_of_no_image_pool_to_zero(pool: Callable[[Any], np.ndarray]) -> None:
    boxes = np.array([[-1, 0, 0, 4, 4], [1, 0, 0, 4, 4], [np.nan, 0, 0, 4, 4], [0, 0, 0, 4, 4]])
    pooled = pool(boxes)
    np.testing.assert_array_equal(pooled[:3], 0)
    assert pooled[3].all()


@on_every_backend
@pytest.mark.parametrize("pool", [mxnet.ROIPooling, mxnet.contrib_ROIAlign, mxnet.ROIAlign])
def test_mxnet_boxes_pool_to_zero_where_there_is_no_image(pool: Callable[..., np.ndarray]) -> None:
    pooled = pool(PROBE, [[0, 1, 1, 4, 4]], (2, 2), 1.0)
    assert pooled.all()
    del pooled  # its memory may be the next result's
    np.testing.assert_array_equal(pool(PROBE[:0], [[-1, 1, 1, 4, 4]], (2, 2), 1.0), 0)


@on_every_backend
def test_mxnet_boxes_of_no_image_get_no_gradient() -> None:
    boxes = np.array([[-1, 0, 0, 4, 4], [1, 0, 0, 4, 4]], np.float32)
    pooled, argmax = mxnet.ROIPooling(PROBE, boxes, (2, 2), 1.0, return_argmax=True)
    grad = np.ones_like(pooled)
    assert not mxnet.ROIPooling_backward(grad, argmax, boxes, PROBE.shape).any()
    assert not mxnet.contrib_ROIAlign_backward(grad, boxes, PROBE.shape, 1.0).any()


@on_every_backend
def test_mxnet_argmax_counts_through_the_whole_array() -> None:
    maps = np.random.default_rng(0).permutation(168).reshape(2, 3, 4, 7).astype(np.float32)
    boxes = [[1, 1, 1, 3, 3], [0, 2, 0, 6, 3]]
    pooled, argmax = mxnet.ROIPooling(maps, boxes, (2, 3), 1.0, return_argmax=True)
    np.testing.assert_array_equal(maps.ravel()[argmax], pooled)


def test_mxnet_argmax_is_within_the_plane_of_its_channel() -> None:
    boxes, grad = [[1, 0, 0, 6, 3]], np.ones((1, 3, 1, 1), np.float32)
    first, cells = np.arange(3, 6).reshape(1, 3, 1, 1) * 28, 28  # of the planes of image 1
    for place in (0, cells - 1):
        found = mxnet.ROIPooling_backward(grad, first + place, boxes, (2, 3, 4, 7))
        assert (found.reshape(6, 28)[3:, place] == 1).all()
    for place in (-2, -1, cells):
        with pytest.raises(ValueError, match="places in the planes"):
            mxnet.ROIPooling_backward(grad, first + place, boxes, (2, 3, 4, 7))


@pytest.mark.parametrize("boxes", [1, 2])
@pytest.mark.parametrize("bins", [3, 64])  # 64: so many that each box is pooled apart
def test_mxnet_position_sensitive_bins_have_channels_of_their_own(bins: int, boxes: int) -> None:
    maps = np.arange(bins**2, dtype=np.float32).reshape(1, bins**2, 1, 1)
    pooled = mxnet.contrib_ROIAlign(
        maps, [[0, 0, 0, 1, 1]] * boxes, (bins, bins), 1.0, 1, position_sensitive=True
    )
    np.testing.assert_array_equal(pooled, [maps.reshape(1, bins, bins)] * boxes)


@on_every_backend
def test_degrees_become_radians_before_they_are_rounded() -> None:
    maps = np.random.default_rng(0).standard_normal((1, 2, 9, 9)).astype(np.float32)
    degrees = np.float32([[0, 4, 4.5, 5, 3, 33.3], [0, 3, 4, 2, 6, -200.1], [0, 5, 4, 3, 3, 90]])
    radians = degrees.copy()
    radians[:, 5] = degrees[:, 5].astype(np.float64) * np.pi / 180
    expected = mmcv.roi_align_rotated(maps, radians, (2, 3), 0.5, 2)
    actual = detectron2.ROIAlignRotated((2, 3), 0.5, 2)(maps, degrees)
    np.testing.assert_array_equal(actual, expected)
    pooler = detectron2.ROIPooler((2, 3), [0.5], 2, "ROIAlignRotated")
    np.testing.assert_array_equal(pooler([maps], [degrees[:, 1:]]), expected)
    actual = mxnet.contrib_RROIAlign(maps, degrees, (2, 3), 0.5, 2)
    expected = mmcv.roi_align_rotated(maps, radians, (2, 3), 0.5, 2, aligned=False)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(degrees[:, 5], np.float32([33.3, -200.1, 90]))  # as they were


@on_every_backend
def test_detectron2_rounds_no_rotated_boxes_to_half_maps() -> None:
    """Its layer pools such maps in float32, and so does its pooler."""
    maps = np.random.default_rng(0).standard_normal((1, 2, 64, 64)).astype(np.float16)
    box = np.float32([[60.013, 61.007, 30.003, 20.009, 33.3]])
    table = np.column_stack([[0], box]).astype(np.float32)
    radians = table.astype(np.float64)
    radians[:, 5] = np.float32(radians[:, 5] * np.pi / 180)
    expected = reference.roi_align_rotated(maps.astype(np.float64), radians, 2, 0.5, 2)
    rounded = expected.astype(np.float16)
    layer = detectron2.ROIAlignRotated(2, 0.5, 2)(maps, table)
    pooler = detectron2.ROIPooler(2, [0.5], 2, "ROIAlignRotated")([maps], [box])
    np.testing.assert_array_equal(layer, pooler)
    np.testing.assert_allclose(pooler.astype(np.float64), rounded.astype(np.float64), atol=1e-3)


@on_every_backend
def test_riroi_turns_boxes_clockwise_but_not_their_channels() -> None:
    maps = np.random.default_rng(0).standard_normal((1, 8, 9, 9)).astype(np.float32)
    angle = np.pi / 4 * 1.25
    for clockwise in (False, True):
        box = np.float32([[0, 4, 4, 5, 3, angle]])
        pooled = mmcv.roi_align_rotated(maps, box, 2, 1.0, 2, False, clockwise)[0]
        expected = 0.75 * np.roll(pooled, 1, axis=0) + 0.25 * pooled
        actual = mmcv.riroi_align_rotated(maps, box, 2, 1.0, 2, 8, clockwise)[0]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_batch_column_is_cut_as_in_c() -> None:
    maps = np.stack([PROBE[0], 10 * PROBE[0]])
    got = torchvision.roi_pool(maps, [[0.9, 1, 1, 3, 3], [1.9, 1, 1, 3, 3]], 1)
    np.testing.assert_array_equal(np.asarray(got).ravel(), [19, 190])
    with pytest.raises(ValueError, match=r"boxes\[0, 0\] is -0.5"):
        torchvision.roi_align(maps, [[-0.5, 1, 1, 3, 3]], 1)


@on_every_backend
@pytest.mark.parametrize("corners", [(1, 1, 3, 3), (0, 0, 2, 4)])
def test_caffes_argmax_on_a_cell_is_that_cells_sample(corners: tuple[int, ...]) -> None:
    # The cell's middle is as near to the next sample.
    maps = np.random.default_rng(0).permutation(25).reshape(PROBE.shape).astype(np.float64)
    where = ([[0, *corners]], 2, 2, 1.0)
    top, x, y = caffe.roi_align(maps, *where)
    for place in np.ndindex(top.shape):
        grad = np.zeros_like(top)
        grad[place] = 1
        (rois, *rest) = where
        by_map = caffe.roi_align_backward(grad, x, y, rois, maps.shape, *rest, exact_gradient=True)
        assert (by_map * maps).sum() == top[place]


@pytest.mark.parametrize("x", [-1, 5])
def test_samples_one_cell_beyond_the_map_are_inside_in_onnx(x: float) -> None:
    box = [[x - 1, 1, x + 1, 3]]
    for beyond, expected in ((0, PROBE.max()), (2.0**-20, 0)):
        moved = np.array(box) + [np.copysign(beyond, x), 0] * 2
        for mode in ("avg", "max"):
            pooled = onnx.RoiAlign(
                np.full_like(PROBE, 25),
                moved,
                [0],
                mode=mode,
                sampling_ratio=1,
                coordinate_transformation_mode="output_half_pixel",
            )
            assert pooled.item() == expected


@on_every_backend
def test_a_batch_column_just_below_0_is_cut_to_0() -> None:
    below, at = [[-0.5, 1, 1, 3, 3]], [[0, 1, 1, 3, 3]]
    for pool in (
        lambda box: caffe.roi_pooling(PROBE, box, 2, 2, 1.0)[0],
        lambda box: mmcv.roi_align(PROBE, box, 2),
        lambda box: mxnet.ROIPooling(PROBE, box, (2, 2), 1.0),
    ):
        assert pool(at).all()
        np.testing.assert_array_equal(pool(below), pool(at))


@pytest.mark.parametrize(
    "pool",
    [
        lambda boxes: torchvision.roi_align(PROBE, boxes, 2),
        lambda boxes: torchvision.roi_pool(PROBE, boxes, 2),
        lambda boxes: caffe.roi_pooling(PROBE, boxes, 2, 2, 1.0),
        lambda boxes: caffe.roi_align(PROBE, boxes, 2, 2, 1.0),
        lambda boxes: mmcv.roi_align(PROBE, boxes, 2),
        lambda boxes: mmcv.roi_pool(PROBE, boxes, 2),
        lambda boxes: maskrcnn_benchmark.roi_align(PROBE, boxes, 2, 1.0, 2),
        lambda boxes: detectron2.ROIAlign(2, 1.0, 0)(PROBE, boxes),
        lambda boxes: onnx.MaxRoiPool(PROBE, boxes, (2, 2)),
    ],
)
@pytest.mark.parametrize("index", [-1, 1, np.nan, 1e30])
def test_unknown_image_is_an_error_that_names_the_row(pool: Any, index: float) -> None:
    with pytest.raises(ValueError, match=r"\[1, 0\] is"):
        pool([[0, 1, 1, 3, 3], [index, 1, 1, 3, 3]])


@on_every_backend
def test_torchvision_takes_a_list_of_boxes_per_image() -> None:
    maps = np.stack([PROBE[0], 10 * PROBE[0]])
    one = np.array([[1, 1, 3, 3]], np.float32)
    listed = torchvision.roi_align(maps, [np.zeros((0, 4), np.float32), one], 2)
    table = torchvision.roi_align(maps, [[1, 1, 1, 3, 3]], 2)
    np.testing.assert_array_equal(listed, table)
    with pytest.raises(ValueError, match=r"boxes\[0\] must have shape \(L, 4\)"):
        torchvision.roi_align(maps, [np.zeros((1, 5)), one], 2)


@on_every_backend
@pytest.mark.parametrize("images", [0, 1, 2])
def test_torchvision_refuses_boxes_of_the_image_after_the_last(images: int) -> None:
    maps, box, none = np.ones((images, 1, 4, 4), np.float32), np.ones((1, 4)), np.zeros((0, 4))
    boxes = [none] * images + [box]
    with pytest.raises(ValueError, match=rf"boxes\[{images}\] holds boxes, but the batch holds"):
        compat.torchvision.roi_align(maps, boxes, 2)
    assert len(compat.torchvision.roi_align(maps, [*boxes[:-1], none], 2)) == 0


@pytest.mark.parametrize("kind", [int, np.int8, np.int64])
def test_any_negative_integer_is_an_adaptive_sampling_ratio(kind: type) -> None:
    maps = np.random.default_rng(0).random((1, 1, 9, 9)).astype(np.float32)
    boxes = np.array([[0, 0.3, 1, 7, 8.5]])
    actual = compat.torchvision.roi_align(maps, boxes, 2, sampling_ratio=kind(-2))
    np.testing.assert_array_equal(actual, compat.torchvision.roi_align(maps, boxes, 2))


def test_maskrcnn_benchmark_takes_four_or_five_columns() -> None:
    four = maskrcnn_benchmark.roi_align(PROBE, [[1, 1, 3, 3]], (2, 2), 1.0, 2)
    five = maskrcnn_benchmark.ROIAlign((2, 2), 1.0, 2)(PROBE, [[0, 1, 1, 3, 3]])
    np.testing.assert_array_equal(four, five)
    with pytest.raises(ValueError, match="roi must have shape"):
        maskrcnn_benchmark.roi_align(PROBE, [[1, 1, 3]], 2, 1.0, 2)


@on_every_backend
def test_detectron2_rounds_boxes_to_the_maps_type() -> None:
    # A bin in the map's middle, where it is 0: float16 can hold what less rounding would leave.
    box = np.array([[0, 1.5, 1.5, 3.5004, 3.5]])
    for dtype, exact in ((np.float16, True), (np.float32, False)):
        pooled = detectron2.ROIAlign(1, 1.0, 2)((PROBE - 13).astype(dtype), box)
        assert (pooled.item() == 0) == exact


@on_every_backend
def test_torchvision_float64_maximum_starts_at_the_least_float32() -> None:
    maps = np.full((1, 1, 2, 2), -1e300)
    pooled, argmax = torchvision.roi_pool(maps, [[0, 0, 0, 1, 1]], 1, return_argmax=True)
    assert pooled.item() == np.finfo(np.float32).min
    assert argmax.item() == -1


@on_every_backend
@pytest.mark.parametrize("count", [0, 2])
def test_torchvision_maps_each_bin_to_its_channel(count: int) -> None:
    maps, boxes = np.ones((1, 12, 5, 5), np.float32), np.zeros((count, 5))
    pooled, mapping = torchvision.ps_roi_pool(maps, boxes, (2, 3), return_mapping=True)
    expected = np.broadcast_to(np.arange(12, dtype=np.int32).reshape(2, 2, 3), (count, 2, 2, 3))
    assert pooled.shape == mapping.shape
    assert mapping.dtype == np.int32
    np.testing.assert_array_equal(mapping, expected)


@on_every_backend
def test_torchvision_gradient_reaches_the_last_row_and_column() -> None:
    grad = np.arange(1, 9, dtype=np.float32).reshape(2, 1, 2, 2)
    boxes, shape = [[0, 0, 0, 5, 5], [0, 2, 3, 9, 9]], (1, 4, 5, 5)
    expected = reference.ps_roi_pool_backward(grad, boxes, shape, rules=ROI_AVERAGE_POOL)
    np.testing.assert_allclose(
        torchvision.ps_roi_pool_backward(grad, boxes, shape), expected, rtol=1e-6
    )
    exact = torchvision.ps_roi_pool_backward(grad, boxes, shape, exact_gradient=True)
    assert not exact[:, :, -1].any()
    assert not exact[:, :, :, -1].any()


@on_every_backend
def test_caffe_scale_pred_replaces_the_scale() -> None:
    box = [[0, 2, 2, 6, 6]]
    halved = caffe.roi_align(PROBE, box, 2, 2, 0.5)
    predicted = caffe.roi_align(PROBE, box, 2, 2, 1.0, scale_pred=[-0.5])
    for ours, theirs in zip(predicted, halved, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="scale_pred must hold one number"):
        caffe.roi_align(PROBE, box, 2, 2, 1.0, scale_pred=[0.5, 0.5])


@on_every_backend
def test_tensorflow_takes_any_real_image_and_answers_in_float32() -> None:
    boxes, images = [[0, 0, 1, 1], [1, 0, 0, 1]], [0, 0]
    want = tensorflow.crop_and_resize(PROBE.reshape(1, 5, 5, 1), boxes, images, (3, 3))
    for dtype in (np.uint8, np.int64, np.float16, np.float64):
        image = PROBE.astype(dtype).reshape(1, 5, 5, 1)
        got = tensorflow.crop_and_resize(image, boxes, images, (3, 3))
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(want[1], want[0, ::-1])
    grad = tensorflow.crop_and_resize_backward(want, boxes, images, (1, 5, 5, 1), np.float64)
    assert grad.dtype == np.float64
    with pytest.raises(TypeError, match="T must be"):
        tensorflow.crop_and_resize_backward(want, boxes, images, (1, 5, 5, 1), np.int32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mxnet.ROIPooling(PROBE, [[0, 1, 1, 3, 3]], 2, 1.0), "pooled_size must be a pair"),
        (lambda: mxnet.ROIPooling(PROBE, [[0, 1, 1, 3, 3]], (2, 2), 1.5), "from 0 to 1"),
        (
            lambda: mxnet.contrib_ROIAlign(
                PROBE, [[0, 1, 1, 3, 3]], (2, 2), 1.0, position_sensitive=True
            ),
            "multiple of 2 x 2 channels",
        ),
        (lambda: mmcv.roi_align(PROBE, [[0, 1, 1, 3, 3]], 2, pool_mode="mean"), "'max' or 'avg'"),
        (lambda: mmcv.roi_align(PROBE, [[1, 1, 3, 3]], 2), r"rois must have shape \(K, 5\)"),
        (lambda: onnx.RoiAlign(PROBE, [[1, 1, 3, np.inf]], [0]), "rois must be finite"),
        (lambda: onnx.RoiAlign(PROBE, [[1, 1, 3, 3]], [0], mode="sum"), "'avg' or 'max'"),
        (lambda: onnx.RoiAlign(PROBE, [[1, 1, 3, 3]], [0], sampling_ratio=-1), "sampling_ratio"),
        (lambda: onnx.MaxRoiPool(PROBE, [[0, 1, 1, 3, 3]], (2, 2), 0.0), "above 0"),
        (lambda: onnx.CropAndResize(PROBE, [[0, 0, 1, np.nan]], [0], (2, 2)), "rois must be fin"),
        (lambda: onnx.CropAndResize(PROBE, [[0, 0, 1, 1]], [1], (2, 2)), "batch_indices"),
        (lambda: onnx.CropAndResize(PROBE, [[0, 0, 1, 1]], [0], 0), "crop_size"),
        (
            lambda: onnx.CropAndResize(PROBE, [[0, 0, 1, 1]], [0], 2, mode="linear"),
            "'bilinear' or 'nearest'",
        ),
        (lambda: paddle.roi_pool(PROBE, [[1, 1, 3, 3]], [2], 2), "add up to the 1 boxes"),
        (lambda: paddle.roi_pool(PROBE, [[1, 1, 3, 3]], [-1], 2), "must not be negative"),
        (lambda: paddle.roi_pool(PROBE, [[1, 1, 3, 3]], [1, 0], 2), "boxes_num must hold 1 int"),
        (lambda: paddle.roi_pool(PROBE, [[1, 1, 3, 3]], [1.0], 2), "boxes_num must hold 1 int"),
        (lambda: paddle.roi_pool(PROBE, [[0, 1, 1, 3, 3]], [1], 2), r"boxes must have shape \(K"),
        (lambda: paddle.roi_align(PROBE, [[1, 1, 3, 3]], [2], 2), "add up to the 1 boxes"),
        (lambda: paddle.roi_align(PROBE, [[1, 1, 3, 3]], [1], 2, np.inf), "spatial_scale must be"),
        (lambda: levels(2, 5, rois_num=[2]), "rois_num must not be negative, and add up to the 1"),
        (lambda: levels(2, 5, rois_num=[1.0]), "rois_num must be one row of integers"),
        (lambda: levels(2, 5, rois_num=[[1]]), "rois_num must be one row of integers"),
        (lambda: levels(5, 2), "min_level must be at most max_level, got 5 and 2"),
        (lambda: levels(2, 200), "max_level must be from -100 to 100"),
        (lambda: levels(2, 5, scale=0), "refer_scale must be from 2"),
        (lambda: levels(2, 5, rois=[[0, 1, 1, 3, 3]]), r"fpn_rois must have shape \(K, 4\)"),
        (
            lambda: chainer.roi_pooling_2d(PROBE, [[0, 1, 1, np.inf, 3]], 2, 2, 1.0),
            "rois must be finite",
        ),
        (lambda: chainer.roi_pooling_2d(PROBE, [[0, 1, 1, 3, 3]], 2, 0, 1.0), "outh and outw"),
        (
            lambda: chainer.roi_average_pooling_2d(PROBE, [[1, 1, np.nan, 3]], [0], 2, 1.0),
            "rois must be finite",
        ),
        (lambda: chainer.roi_average_pooling_2d(PROBE, [[1, 1, 3, 3]], [1], 2, 1.0), "roi_indices"),
        (lambda: chainer.roi_average_pooling_2d(PROBE, [[1, 1, 3, 3]], [0], 2, 0.0), "above 0"),
        (lambda: chainer.roi_max_pooling_2d(PROBE, [[0, 1, 1, 3, 3]], [0], 2, 1.0), r"\(K, 4\)"),
        (
            lambda: chainer.roi_average_align_2d(PROBE, [[1, 1, np.nan, 3]], [0], 2, 1.0),
            "rois must be finite",
        ),
        (
            lambda: chainer.roi_max_align_2d(PROBE, [[1, 1, 3, 3]], [0], 2, 1.0, -1),
            "sampling_ratio",
        ),
        (
            lambda: chainer.roi_max_align_2d(PROBE, [[1, 1, 3, 3]], [0], 2, 1.0, (1, 2, 3)),
            "sampling_ratio",
        ),
        (
            lambda: roialign_pytorch.crop_and_resize(PROBE, [[0, 0, 1, 1]], [9], 2, 2),
            r"box_ind\[0\] is 9",
        ),
        (
            lambda: tensorflow.crop_and_resize_backward(PROBE, [[0, 0, 1, 1]], [0], (1, 2)),
            "image_size must be four integers",
        ),
        (lambda: tensorflow.crop_and_resize(PROBE, np.nan, [0], 2), "boxes must have shape"),
        (
            lambda: tensorflow.crop_and_resize(PROBE, [[0, 0, np.nan, 1]], [0], (3, 3)),
            "boxes must be finite",
        ),
        (
            lambda: mxnet.contrib_ROIAlign(PROBE, [[0, 1, 1, 3, 3]], (2, 2), 1.0, 1.5),
            "sample_ratio must be an int",
        ),
        (
            lambda: mxnet.contrib_ROIAlign_backward(
                np.zeros((1, 1, 0, 2)), [[0, 1, 1, 3, 3]], PROBE.shape, 1.0, 2, True
            ),
            "out_grad must have at least 1 by 1 bins",
        ),
        (lambda: mmcv.roi_align(PROBE, [[0, 1, 1, 3, 3]], 2, 1e39), "finite in float32"),
        (lambda: mmcv.prroi_pool(PROBE, [[0, 1, 1, 3, 3]], 2, 1e39), "finite in float32"),
        (
            lambda: mmcv.roi_align_rotated(PROBE, [[0, 1, 1, 3, 3]], 2, 1.0),
            r"rois must have shape \(K, 6\): batch index, centre x, centre y, width, height, angle",
        ),
        (
            lambda: mmcv.roi_align_rotated(PROBE, [[0, 1, 1, 3, 3, 0]], 2, 1.0, clockwise="yes"),
            "clockwise must be",
        ),
        (
            lambda: mmcv.roi_align(PROBE, [[0, 1, 1, 3, 3]], 2, operator="gpu"),
            "operator must be 'cpu' or 'cuda', got 'gpu'",
        ),
        (lambda: mmcv.RoIAlign(2, operator=1), "operator must be a str, got int"),
        (
            lambda: mmcv.riroi_align_rotated(PROBE, [[0, 1, 1, 3, 3, 0]], 2, 1.0),
            "features must have a multiple of 8 channels",
        ),
        (
            lambda: mmcv.riroi_align_rotated_backward(
                np.ones((1, 3, 2, 2)), [[0, 1, 1, 3, 3, 0]], (1, 3, 5, 5), 1.0, 0, 2
            ),
            "input_shape must have a multiple of 2 channels",
        ),
        (
            lambda: mmcv.riroi_align_rotated(PROBE, [[0, 1, 1, 3, 3, 0]], 2, 1.0, 0, 0),
            "num_orientations must be at least 1, got 0",
        ),
        (
            lambda: mmcv.RiRoIAlignRotated(2, 1.0, 1.5),
            "num_samples must be an int",
        ),
        (
            lambda: detectron2.ROIAlignRotated(2, 1.0, 0)(PROBE, [[1, 1, 1, 3, 3, 0]]),
            r"rois\[0, 0\] is 1",
        ),
        (
            lambda: mxnet.contrib_RROIAlign(PROBE, [[0, 1, 1, 3, 3, 0]], 2, 1.0),
            "pooled_size must be a pair",
        ),
        (
            lambda: mxnet.contrib_RROIAlign(PROBE, [[0, 1, 1, 3, 3, 0]], (2, 2), 1.5),
            "spatial_scale must be from 0 to 1",
        ),
        (lambda: mmcv.prroi_pool(PROBE, [[1, 1, 3, 3]], 2), r"rois must have shape \(K, 5\)"),
        (
            lambda: precise_roi_pooling.prroi_pool2d(PROBE, [[1, 1, 1, 3, 3]], 2, 2, 1.0),
            r"rois\[0, 0\] is 1",
        ),
        (
            lambda: precise_roi_pooling.prroi_pool2d(PROBE, [[0, 1, 1, 3, 3]], 0, 2, 1.0),
            "pooled_height and pooled_width",
        ),
        (lambda: precise_roi_pooling.PrRoIPool2D(0, 2, 1.0), "pooled_height and pooled_width"),
        (
            lambda: precise_roi_pooling.PrRoIPool2D(2, 2, np.inf),
            "spatial_scale must be finite, got inf",
        ),
        (lambda: torchvision.roi_align(PROBE, [[[1], [2, 3]]], 2), r"boxes\[0\] must be a rect"),
        (lambda: detectron2.ROIAlign(2, 1.0, 0)(PROBE, [[1, 1, 3, 3]]), r"rois must have shape"),
        (lambda: roialign_pytorch.RoIAlign(0, 2), "crop_height and crop_width"),
        (
            lambda: caffe.roi_pooling_backward(
                PROBE, PROBE.astype(int), [[0, 1, 1, 3, 3]], PROBE.shape, 2, 2, 1.0
            ),
            "top_diff must have 2 x 2 bins",
        ),
    ],
)
def test_bad_input_names_the_argument(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
