"""The compat systems beyond what their wheels answered: against published numbers, the oracle,
plain loops written from the original's description, and finite differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _support.backends import (
    Backend,
    thorough_on_the_emulator,
)
from _support.device_context import Placed, computing_on
from _support.differences import feature_differences
from _support.golden_data import FOLDER

from roipool import compat, reference

caffe = Placed(compat.caffe)
chainer = Placed(compat.chainer)
mmcv = Placed(compat.mmcv)
mxnet = Placed(compat.mxnet)
onnx = Placed(compat.onnx)
roialign_pytorch = Placed(compat.roialign_pytorch)
PROBE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
ULP = 2.0**-23
Size = tuple[int, int]
Place = tuple[Size, float]
SIZES = ((2, 2), (3, 5), (1, 1))
SCALES = (1.0, 0.5, 0.3)


@pytest.fixture(autouse=True)
def on_backend(backend: Backend) -> Iterator[None]:
    """Run every system on each backend."""
    with computing_on(backend):
        yield


def some_maps(rng: np.random.Generator, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal((2, 19, 9, 11)).astype(dtype)


def some_boxes(rng: np.random.Generator, scale: float, count: int = 24) -> np.ndarray:
    """Return boxes inside, over the edge, outside, reversed, flat, on whole and half pixels."""
    low = rng.uniform(-3, 12, (count, 2))
    high = low + rng.uniform(-2, 9, (count, 2))
    boxes = np.concatenate([low, high], axis=1)
    boxes[::3] = np.round(boxes[::3])
    boxes[1::3] = np.round(2 * boxes[1::3]) / 2
    table = np.column_stack([rng.integers(0, 2, count), boxes / scale])
    return table.astype(np.float32)


def near(got: Any, want: Any, ulps: float = 8) -> None:
    want = np.asarray(want, np.float64)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=ulps * ULP * largest)


def all_equal(got: tuple[np.ndarray, ...], want: tuple[np.ndarray, ...]) -> None:
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_published_numbers_of_the_caffe_layer() -> None:
    boxes = [[0, 1, 1, 3, 3], [0, 0.5, 0.5, 2.5, 2.5], [0, 1.25, 1.25, 3.25, 3.25]]
    top, x, y = caffe.roi_align(PROBE, boxes, 2, 2, 1.0)
    want = [[52, 29, 41, 22], [10, 23, 35, 76], [14.5, 16, 22, 23.5]]
    np.testing.assert_array_equal(top.reshape(3, 4), want)
    np.testing.assert_array_equal(x[0].ravel(), [2, 3, 2, 3])
    np.testing.assert_array_equal(y[0].ravel(), [2, 2, 3, 3])


def test_published_numbers_of_the_older_mxnet_operator() -> None:
    pooled = mxnet.ROIAlign(PROBE, [[0, 1, 1, 3, 3], [0, 0.5, 0.5, 2.5, 2.5]], (2, 2), 1.0)
    want = [[13, 14.5, 20.5, 22], [10, 11.5, 17.5, 19]]
    np.testing.assert_array_equal(np.asarray(pooled).reshape(2, 4), want)


def test_published_numbers_of_roialign_pytorch() -> None:
    """The example of its repository: two 7 x 7 maps, two boxes, the last row outside."""
    maps = np.tile(np.arange(49, dtype=np.float32).reshape(1, 1, 7, 7), (2, 1, 1, 1))
    maps[0] += 10
    boxes = np.array([[1, 0, 5, 4], [0.5, 3.5, 4, 7]], np.float32)
    crops = roialign_pytorch.RoIAlign(4, 4)(maps, boxes, [0, 1])
    np.testing.assert_array_equal(crops[0, 0, :, 0], [11, 18, 25, 32])
    np.testing.assert_allclose(crops[1, 0, 0], [24.5, 25.375, 26.25, 27.125], rtol=1e-6)
    np.testing.assert_array_equal(crops[1, 0, 3], 0)
    plain = roialign_pytorch.RoIAlign(4, 4, transform_fpcoor=False)(maps, boxes, [0, 1])
    divided = boxes[:, [1, 0, 3, 2]] / np.float32(6)
    np.testing.assert_array_equal(
        plain, roialign_pytorch.CropAndResize(4, 4)(maps, divided, [0, 1])
    )


def test_what_chainer_answered() -> None:
    """Chainer 7.8.1's CPU code on the probe map: corners round half to even."""
    boxes = [[1, 1, 3, 3], [0.5, 0.5, 2.5, 2.5], [1.5, 1.5, 3.5, 3.5], [3, 3, 1, 1]]
    boxes += [[-3, -3, -2, -2], [0, 0, 5, 5], [2, 2, 2, 2], [3, 3, 9, 9]]
    images = np.zeros(len(boxes), np.int32)
    pooled = chainer.roi_average_pooling_2d(PROBE, boxes, images, 2, 1.0)
    want = [
        [7, 8, 12, 13],
        [1, 2, 6, 7],
        [13, 14, 18, 19],
        [19, 19, 19, 19],
        [0, 0, 0, 0],
        [7, 9, 17, 19],
        [13, 13, 13, 13],
        [22, 0, 0, 0],
    ]
    near(pooled.reshape(-1, 4), want)
    three = [[0, 0, 5, 5], [1, 1, 3, 3], [3, 3, 1, 1]]
    ones = np.ones((3, 1, 2, 2), np.float32)
    gradient = chainer.roi_average_pooling_2d_backward(ones, three, [0, 0, 0], PROBE.shape, 1.0)
    near(gradient[0, 0, 0], np.array([1, 1, 2, 1, 1]) / 9)
    near(gradient[0, 0, 3], np.array([1, 1, 2, 37, 1]) / 9)
    tall = chainer.roi_average_pooling_2d(PROBE, [[1, 0, 3, 1]], [0], 1, 1.0)  # y1, x1, y2, x2
    assert tall.item() == 8.5


def test_onnx_opsets_differ_by_half_a_cell() -> None:
    bins = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    boxes, images = [[1, 1, 3, 3]], [0]
    opset16 = onnx.RoiAlign(PROBE, boxes, images, **bins)
    opset10 = onnx.RoiAlign(
        PROBE, boxes, images, coordinate_transformation_mode="output_half_pixel", **bins
    )
    np.testing.assert_array_equal(opset16.ravel(), [7, 8, 12, 13])
    np.testing.assert_array_equal(opset10.ravel(), [10, 11, 15, 16])


def test_onnx_max_roi_pool_forgets_at_a_nan() -> None:
    maps = np.array([7, np.nan, 12, 13, np.nan, 3, 2, np.nan], np.float32).reshape(1, 2, 2, 2)
    pooled = onnx.MaxRoiPool(maps, [[0, 0, 0, 1, 1]], (1, 1))
    np.testing.assert_array_equal(pooled.ravel(), [13, np.nan])
    falling = np.array([[[[9, np.nan], [5, 4]]]], np.float32)
    assert onnx.MaxRoiPool(falling, [[0, 0, 0, 1, 1]], (1, 1)).item() == 5


def test_onnx_max_roi_pool_starts_at_the_lowest_number_of_its_type() -> None:
    maps = np.full((1, 1, 2, 2), -1e300)
    assert onnx.MaxRoiPool(maps, [[0, 0, 0, 1, 1]], (1, 1)).item() == -1e300
    infinite = np.full((1, 1, 2, 2), -np.inf)
    assert onnx.MaxRoiPool(infinite, [[0, 0, 0, 1, 1]], (1, 1)).item() == np.finfo(np.float64).min


def test_onnx_max_roi_pool_walks_through_a_bin_once() -> None:
    rng = np.random.default_rng(0)
    maps = np.where(rng.random((3, 4, 7)) < 0.4, np.nan, rng.integers(0, 3, (3, 4, 7)))
    columns = [slice(0, 2), slice(1, 4), slice(3, 6), slice(5, 7)]  # a fourth of 7, outwards
    expected = np.full((3, 2, 4), -np.inf)
    for c, row, column in np.ndindex(expected.shape):
        for value in maps[c, 2 * row : 2 * row + 2, columns[column]].ravel():
            if not value < expected[c, row, column]:
                expected[c, row, column] = value
    pooled = onnx.MaxRoiPool(maps[None].astype(np.float32), [[0, 0, 0, 6, 3]], (2, 4))
    np.testing.assert_array_equal(pooled[0], expected)


def gather_loop(
    grad: np.ndarray,
    boxes: np.ndarray,
    shape: tuple[int, ...],
    edges: Callable[[np.ndarray], np.ndarray],
    share: Callable[[int, int, int], float],
    beyond: int = 0,
) -> np.ndarray:
    """Caffe's and MXNet's backward: for every cell, a loop over the boxes around it and bins.

    `share` is of a bin, by its place in memory, and of a cell. Loops over rows and columns of bins
    run `beyond` the last bin that holds the cell, maybe to a place that is another bin's.
    """
    result, places = np.zeros(shape), grad.ravel()
    single = np.float32
    for n, c, h, w in np.ndindex(*shape):
        for k, box in enumerate(boxes):
            x1, y1, x2, y2 = edges(box[1:])
            if int(box[0]) != n or not (x1 <= w <= x2 and y1 <= h <= y2):
                continue
            spans = []
            for cell, start, end, bins in (
                (h, y1, y2, grad.shape[2]),
                (w, x1, x2, grad.shape[3]),
            ):
                length = single(max(end - start + 1, 1)) / single(bins)
                first = int(np.floor(single(cell - start) / length))
                last = int(np.ceil(single(cell - start + 1) / length))
                spans.append(range(min(max(first, 0), bins), min(max(last, 0), bins) + beyond))
            for ph, pw in itertools.product(*spans):
                place = ((k * shape[1] + c) * grad.shape[2] + ph) * grad.shape[3] + pw
                if place < grad.size:
                    result[n, c, h, w] += share(place, h, w) * places[place]
    return result


@pytest.mark.parametrize("scale", SCALES)
def test_caffe_pooling_backward_is_its_gather(scale: float) -> None:
    rng = np.random.default_rng(11)
    maps, boxes = some_maps(rng)[:, :2], some_boxes(rng, scale)
    scale32 = np.float32(scale)
    _, argmax = caffe.roi_pooling(maps, boxes, 3, 4, scale)
    grad = rng.standard_normal(argmax.shape).astype(np.float32)

    def edges(box: np.ndarray) -> np.ndarray:
        scaled = box * scale32
        return (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(int)

    def share(place: int, h: int, w: int) -> float:
        return float(argmax.ravel()[place] == h * maps.shape[3] + w)

    want = gather_loop(grad, boxes, maps.shape, edges, share)
    got = caffe.roi_pooling_backward(grad, argmax, boxes, maps.shape, 3, 4, scale)
    near(got, want)
    exact = caffe.roi_pooling_backward(
        grad, argmax, boxes, maps.shape, 3, 4, scale, exact_gradient=True
    )
    np.testing.assert_allclose(exact.sum(), grad[argmax >= 0].sum(), rtol=1e-4)
    assert not np.array_equal(got, exact)  # the original gives reversed boxes no gradient


@pytest.mark.parametrize("scale", SCALES)
def test_older_mxnet_backward_is_its_gather(scale: float) -> None:
    rng = np.random.default_rng(12)
    maps, boxes = some_maps(rng)[:, :2], some_boxes(rng, scale)
    scale32 = np.float32(scale)
    _, at_x, at_y = mxnet.ROIAlign(maps, boxes, (3, 2), scale, return_argmax=True)
    grad = rng.standard_normal(at_x.shape).astype(np.float32)

    def edges(box: np.ndarray) -> np.ndarray:
        scaled = box * scale32
        return np.concatenate([np.floor(scaled[:2]), np.ceil(scaled[2:])]).astype(int)

    def share(place: int, h: int, w: int) -> float:
        one = np.float32(1)
        x, y = at_x.ravel()[place], at_y.ravel()[place]
        left, right, bottom, top = np.floor(x), np.ceil(x), np.floor(y), np.ceil(y)
        if left == w and top == h:
            return float(((one - x) + left) * ((one + y) - top))
        if left == w and bottom == h:
            return float(((one - x) + left) * ((one - y) + bottom))
        if right == w and top == h:
            return float((x - left) * ((one + y) - top))
        if right == w and bottom == h:
            return float((x - left) * ((one - y) + bottom))
        return 0.0

    want = gather_loop(grad, boxes, maps.shape, edges, share)
    near(mxnet.ROIAlign_backward(grad, at_x, at_y, boxes, maps.shape, scale), want)


@pytest.mark.parametrize(("rows", "columns"), [(3, 2), (1, 3), (2, 1), (1, 1)])
@pytest.mark.parametrize("scale", SCALES)
def test_caffe_align_backward_is_its_loops(scale: float, rows: int, columns: int) -> None:
    """They come to bins of other rows, channels and boxes, and not to some of their own."""
    rng = np.random.default_rng(13)
    maps, boxes = some_maps(rng)[:, :2], some_boxes(rng, scale)
    cells = np.round(boxes[12:, 1:3] * scale).clip(0, 8)
    boxes[12:, 1:] = np.hstack([cells, cells]) / scale
    boxes[20:, 1:] = boxes[20, 1:]  # the last ones are the same cell
    scale32 = np.float32(scale)
    _, at_x, at_y = caffe.roi_align(maps, boxes, rows, columns, scale)
    grad = rng.standard_normal(at_x.shape).astype(np.float32)

    def edges(box: np.ndarray) -> np.ndarray:
        return np.concatenate([np.floor(box[:2] * scale32), np.ceil(box[2:] * scale32)]).astype(int)

    def share(place: int, h: int, w: int) -> float:
        return float((at_y.ravel()[place], at_x.ravel()[place]) == (h, w))

    want = gather_loop(grad, boxes, maps.shape, edges, share, beyond=1)
    got = caffe.roi_align_backward(grad, at_x, at_y, boxes, maps.shape, rows, columns, scale)
    near(got, want)
    within = gather_loop(grad, boxes, maps.shape, edges, share)
    assert not np.allclose(got, within)


def test_caffe_align_backward_counts_bins_of_the_next_channel() -> None:
    """Four bins of one cell: of the next channel the loops see the first row, and one bin more."""
    maps, box = np.ones((1, 2, 5, 5), np.float32), [[0, 2, 2, 2, 2]]
    _, at_x, at_y = caffe.roi_align(maps, box, 2, 2, 1.0)
    grad = np.ones((1, 2, 2, 2), np.float32)
    grad[:, 1] = 100
    got = caffe.roi_align_backward(grad, at_x, at_y, box, maps.shape, 2, 2, 1.0)
    np.testing.assert_array_equal(got[0, :, 2, 2], [405, 500])
    assert np.count_nonzero(got) == 2


@thorough_on_the_emulator
class TestExactGradients:
    """Finite differences of `exact_gradient=True`, and of gradients that are always exact."""

    scale = 0.5

    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
        rng = np.random.default_rng(21)
        maps = rng.standard_normal((2, 1, 6, 7))
        return maps, some_boxes(rng, self.scale, 9).astype(np.float64), rng

    def check(
        self,
        forward: Callable[[np.ndarray], np.ndarray],
        backward: Callable[[np.ndarray], np.ndarray],
        maps: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        grad = rng.standard_normal(forward(maps).shape)
        want = feature_differences(forward, maps, grad, 1e-6)
        np.testing.assert_allclose(backward(grad), want, rtol=1e-6, atol=1e-7)

    def test_caffe_roi_align(self) -> None:
        maps, boxes, rng = self.inputs()
        _, at_x, at_y = caffe.roi_align(maps, boxes, 2, 3, self.scale)
        self.check(
            lambda x: caffe.roi_align(x, boxes, 2, 3, self.scale)[0],
            lambda g: caffe.roi_align_backward(
                g, at_x, at_y, boxes, maps.shape, 2, 3, self.scale, exact_gradient=True
            ),
            maps,
            rng,
        )

    def test_mxnet_roi_align(self) -> None:
        maps, boxes, rng = self.inputs()
        _, at_x, at_y = mxnet.ROIAlign(maps, boxes, (2, 3), self.scale, return_argmax=True)
        self.check(
            lambda x: np.asarray(mxnet.ROIAlign(x, boxes, (2, 3), self.scale)),
            lambda g: mxnet.ROIAlign_backward(
                g, at_x, at_y, boxes, maps.shape, self.scale, exact_gradient=True
            ),
            maps,
            rng,
        )

    def test_caffe_roi_pooling(self) -> None:
        maps, boxes, rng = self.inputs()
        _, argmax = caffe.roi_pooling(maps, boxes, 2, 3, self.scale)
        self.check(
            lambda x: caffe.roi_pooling(x, boxes, 2, 3, self.scale)[0],
            lambda g: caffe.roi_pooling_backward(
                g, argmax, boxes, maps.shape, 2, 3, self.scale, exact_gradient=True
            ),
            maps,
            rng,
        )

    def test_mmcv_roi_pool(self) -> None:
        maps, boxes, rng = self.inputs()
        _, argmax = mmcv.roi_pool(maps, boxes, (2, 3), self.scale, return_argmax=True)
        self.check(
            lambda x: np.asarray(mmcv.roi_pool(x, boxes, (2, 3), self.scale)),
            lambda g: mmcv.roi_pool_backward(
                g, boxes, argmax, maps.shape, self.scale, exact_gradient=True
            ),
            maps,
            rng,
        )

    def test_mmcv_roi_align_max(self) -> None:
        maps, boxes, rng = self.inputs()
        options = (self.scale, 2, "max", True)
        _, y, x = mmcv.roi_align(maps, boxes, (2, 3), *options, return_argmax=True)
        self.check(
            lambda m: np.asarray(mmcv.roi_align(m, boxes, (2, 3), *options)),
            lambda g: mmcv.roi_align_backward(
                g, boxes, y, x, maps.shape, *options, exact_gradient=True
            ),
            maps,
            rng,
        )

    @pytest.mark.parametrize("mode", ["avg", "max"])
    def test_onnx_roi_align(self, mode: str) -> None:
        maps, boxes, rng = self.inputs()
        options = {"mode": mode, "spatial_scale": self.scale, "sampling_ratio": 2}
        images = boxes[:, 0].astype(int)
        self.check(
            lambda x: onnx.RoiAlign(
                x, boxes[:, 1:], images, output_height=2, output_width=3, **options
            ),
            lambda g: onnx.RoiAlign_backward(g, maps, boxes[:, 1:], images, **options),
            maps,
            rng,
        )

    def test_onnx_max_roi_pool(self) -> None:
        maps, boxes, rng = self.inputs()
        self.check(
            lambda x: onnx.MaxRoiPool(x, boxes, (2, 3), self.scale),
            lambda g: onnx.MaxRoiPool_backward(g, maps, boxes, self.scale),
            maps,
            rng,
        )

    @pytest.mark.parametrize("sensitive", [False, True])
    def test_mxnet_contrib(self, sensitive: bool) -> None:
        _, boxes, rng = self.inputs()
        maps = rng.standard_normal((2, 6, 4, 5))
        options = (self.scale, 2, sensitive, True)
        self.check(
            lambda x: mxnet.contrib_ROIAlign(x, boxes, (2, 3), *options),
            lambda g: mxnet.contrib_ROIAlign_backward(g, boxes, maps.shape, *options),
            maps,
            rng,
        )


def test_chainer_has_no_cells_for_a_box_that_its_scale_makes_infinite() -> None:
    """It also raises no warning, which would be an error here."""
    maps, images = np.ones((1, 1, 5, 5), np.float32), np.zeros(2, np.int64)
    rois = np.array([[0, 0, 3, 3], [0, 0, 0, 0]])
    pooled = chainer.roi_average_pooling_2d(maps, rois, images, 2, 1e308)
    assert pooled.reshape(2, 4).tolist() == [[0] * 4, [1] * 4]


def test_chainer_computes_edges_in_float64() -> None:
    """In float32 these edges of bins would move by a row of cells."""
    maps = np.arange(31, dtype=np.float32).reshape(1, 1, 1, 31)
    pooled = chainer.roi_average_pooling_2d(maps, [[0, 0, 1, 29]], [0], (1, 7), 1.0)
    assert pooled[0, 0, 0, -1] == 26.5


@thorough_on_the_emulator  # of three types, each with its kernels
def test_what_chainer_answered_for_random_boxes() -> None:
    with np.load(FOLDER / "chainer.npz") as arrays:
        recorded = dict(arrays)
    moved = 0
    for number in range(24):
        x, rois, images, size, scale, gy, want, want_grad = (
            recorded[f"case{number}_{name}"]
            for name in (
                "x",
                "rois",
                "roi_indices",
                "outsize",
                "spatial_scale",
                "gy",
                "average",
                "average_grad",
            )
        )
        size, scale = tuple(size.tolist()), scale.item()
        ulps = 8 * float(np.finfo(x.dtype).eps) / ULP
        near(chainer.roi_average_pooling_2d(x, rois, images, size, scale), want, ulps)
        got = chainer.roi_average_pooling_2d_backward(gy, rois, images, x.shape, scale)
        sums = ulps * ULP * np.abs(gy).max().astype(np.float64) * gy.size  # they may cancel
        np.testing.assert_allclose(got.astype(np.float64), want_grad, rtol=0, atol=sums / 8)
        cells = np.column_stack([images, np.rint(rois.astype(np.float64) * scale)[:, [1, 0, 3, 2]]])
        edges = [
            reference.roi_average_pool(
                x, cells, size, coordinate_dtype=np.float32, edge_dtype=edge_dtype
            )
            for edge_dtype in (np.float32, np.float64)
        ]
        near(want, edges[1], ulps)
        moved += not np.array_equal(*edges)
    assert moved >= 5


@thorough_on_the_emulator
class TestMmcvCountsSamplesInFloat32:
    """float32 rounds these sides to whole cells; float64 would take one more sample."""

    scale = 0.1  # in float32 a little more than 1 / 10
    boxes = np.array([[0, 0, 0, 20, 20], [1, 10, 0, 50, 60], [0, 3.5, 7.5, 23.5, 27.5]])
    sizes = pytest.mark.parametrize("size", [(1, 1), (2, 1)])

    def maps(self) -> np.ndarray:
        return np.random.default_rng(31).standard_normal((2, 3, 9, 8))

    def options(self) -> dict[str, Any]:
        return {"spatial_scale": float(np.float32(self.scale)), "count_dtype": np.float32}

    def test_the_average_of_one_box(self) -> None:
        maps = np.arange(36.0).reshape(1, 1, 6, 6) ** 2
        pooled = mmcv.roi_align(maps, [[0, 0, 0, 20, 20]], 1, self.scale)
        assert pooled.item() == pytest.approx(21.5, rel=1e-6)

    @sizes
    def test_average(self, size: tuple[int, int]) -> None:
        maps, options = self.maps(), self.options()
        got = mmcv.roi_align(maps, self.boxes, size, self.scale)
        want = reference.roi_align(maps, self.boxes, size, **options)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)
        options["count_dtype"] = np.float64
        assert np.abs(want - reference.roi_align(maps, self.boxes, size, **options)).max() > 0.01
        grad = np.random.default_rng(32).standard_normal(want.shape)
        back = mmcv.roi_align_backward(grad, self.boxes, None, None, maps.shape, self.scale)
        want = reference.roi_align_backward(grad, self.boxes, maps.shape, **self.options())
        np.testing.assert_allclose(back, want, rtol=0, atol=1e-14)

    @sizes
    def test_maximum(self, size: tuple[int, int]) -> None:
        maps, options = self.maps(), self.options()
        got = mmcv.roi_align(maps, self.boxes, size, self.scale, 0, "max", return_argmax=True)
        place = (self.boxes, size, options["spatial_scale"])
        want = reference.mmcv_roi_align_max(maps, *place)
        np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-14)
        all_equal(got[1:], want[1:])
        grad = np.random.default_rng(33).standard_normal(got[0].shape)
        back = mmcv.roi_align_backward(grad, self.boxes, *got[1:], maps.shape, self.scale, 0, "max")
        _, argmax = reference.roi_align(
            maps, self.boxes, size, mode="max", return_argmax=True, **options
        )
        want = reference.roi_align_backward(
            grad, self.boxes, maps.shape, mode="max", argmax=argmax, **options
        )
        np.testing.assert_allclose(back, want, rtol=0, atol=1e-14)

    def test_torchvision_counts_in_float64(self) -> None:
        maps, boxes = self.maps(), self.boxes * np.array([1] + [10 * (1 + 1e-12)] * 4)
        layer = mmcv.RoIAlign(1, 0.01, use_torchvision=True)
        want = reference.roi_align(maps, boxes, 1, 0.01)
        np.testing.assert_allclose(layer(maps, boxes), want, rtol=0, atol=1e-14)
