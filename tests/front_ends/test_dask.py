"""Dask arrays: every operation, lazy, with the results of a NumPy call."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any, ClassVar

import dask
import dask.array as da
import numpy as np
import pytest
from _support.cases import OperationCase
from _support.compare import assert_same_bits
from _support.support_tables import Columns
from front_ends import contract
from front_ends.contract import Form
from front_ends.contract.front_end import to_form

import roipool
import roipool.dask
from roipool._definitions import OPS, PYRAMID_OPS, Op

IMAGES, BOXES = 7, 23
SCALES = (1.0, 0.5)  # of a pyramid's maps


def maps(dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return maps of every image."""
    return np.random.default_rng(0).integers(-64, 64, (IMAGES, 3, 9, 11)).astype(dtype)


def chunked(array: np.ndarray[Any, Any], images: int = 2) -> Any:
    """Return a Dask array that is also chunked along rows and columns."""
    return da.from_array(array, chunks=(images, 2, 5, 4))


def arguments(op: Op, variant: str) -> dict[str, Any]:
    """Return boxes in any order of images, and options."""
    rng = np.random.default_rng(1)
    corners = np.sort(rng.uniform(0, 1 if op.boxes == "boxes" else 9, (BOXES, 2, 2)), axis=1)
    boxes = corners.reshape(BOXES, 4)
    if op.is_rotated:
        boxes = np.column_stack([boxes, rng.uniform(-3, 3, BOXES)])
    indices = rng.integers(0, IMAGES - 2, BOXES)  # the last chunks have no box
    given = {op.boxes: boxes, op.indices: indices, op.size: (2, 3)}
    return given | dict(op.variants[variant].options)


class Dask(contract.FrontEnd):
    array_name = "Dask array"
    library = "dask"
    guises = ("one after another", "threads")
    forms = tuple(
        Form(dtype, layout)
        for dtype in ("float16", "bfloat16", "float32", "float64")
        for layout in ("NCHW", "NHWC")
    )
    errors: ClassVar = {"text as boxes": (TypeError, "rois must hold real numbers")}

    def array(self, values: Any) -> Any:
        return values  # boxes are NumPy's

    def maps(self, values: Any, form: Form) -> Any:
        return chunked(to_form(values, form))

    def masks(self, values: Any) -> Any:
        return da.from_array(values, chunks=(2, 5, 3))

    def numpy(self, array: Any) -> Any:
        assert isinstance(array, da.Array)
        found = array.compute(scheduler="sync")
        assert (array.shape, array.dtype) == (found.shape, found.dtype)
        return found


DASK = Dask()


class TestContract(
    contract.Calls, contract.Values, contract.Integers, contract.Masks, contract.Errors
):
    arrays = DASK


class TestTable(contract.Documented):
    table, files = "dask", "test_"
    columns: ClassVar[Columns] = {
        "lazily": {"dask.TestContract.test_calls_are_those_of_numpy": "yes"},
        "half types": {"dask.TestContract.test_calls_are_those_of_numpy": "yes"},
        "gradients": {"dask.test_gradients_are_refused": "error"},
    }


@pytest.mark.parametrize("case", contract.ALL_CASES, ids=str)
def test_gradients_are_refused(case: OperationCase) -> None:
    for name in {*case.op.functions.values()} - {case.op.forward}:
        with pytest.raises(TypeError, match=f"^{name} takes no Dask arrays, which have no gradien"):
            getattr(roipool, name)(chunked(maps()), np.zeros((1, 5)), (1, 3, 9, 11))


RIGHT = {"rois": np.array([[0, 0, 0, 1, 1]]), "output_size": 1}
PYRAMID = RIGHT | {"spatial_scales": SCALES}
# Boxes and options that are not known, and wrong chunks.
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown chunks": (
        lambda x: {"features": x[x[:, 0, 0, 0] > 0]},
        ValueError,
        "chunks of known sizes",
    ),
    "lazy boxes": (
        lambda x: {"features": x, "rois": x[:1, 0, 0, :5]},
        TypeError,
        "^roi_align: rois must be",
    ),
    "a lazy scale": (
        lambda x: {"features": x, "spatial_scale": x[0, 0, 0, 0]},
        TypeError,
        "^roi_align: spatial_scale must be",
    ),
    "lazy indices": (
        lambda x: {"features": x, "rois": np.zeros((1, 4)), "batch_indices": x[:1, 0, 0, 0]},
        TypeError,
        "^roi_align: batch_indices must be",
    ),
    "boxes beside NumPy's maps": (
        lambda x: {"features": maps(), "rois": x[:1, 0, 0, :5]},
        TypeError,
        "^rois must be known, got a Dask array",
    ),
    "NumPy among maps": (
        lambda x: {"features": [x, maps()]},
        TypeError,
        r"^multilevel_roi_align: features\[1\] must be a Dask array",
    ),
    "Dask among maps": (
        lambda x: {"features": [maps(), x]},
        TypeError,
        r"^features\[0\] must be a Dask array, got ndarray",
    ),
    "numbers of images": (
        lambda x: {"features": [x, x[:2]]},
        ValueError,
        "^multilevel_roi_align: features must have equal numbers",
    ),
    "lazy levels": (
        lambda x: {"features": [x, x], "levels": x[:1, 0, 0, 0].astype(int)},
        TypeError,
        "^multilevel_roi_align: levels must be known",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_come_at_once(name: str) -> None:
    change, error, message = WRONG[name]
    wrong = change(chunked(maps()))
    is_pyramid = isinstance(wrong["features"], list)
    given = (PYRAMID if is_pyramid else RIGHT) | wrong
    function = roipool.multilevel_roi_align if is_pyramid else roipool.roi_align
    with pytest.raises(error, match=message):
        function(given.pop("features"), given.pop("rois"), **given)


def test_levels_are_not_assigned_to_lazy_boxes() -> None:
    with pytest.raises(TypeError, match=r"^assign_levels takes no Dask arrays"):
        roipool.assign_levels(chunked(maps())[:, 0, 0, :5], 2, 5)


@pytest.mark.parametrize("op", PYRAMID_OPS.values(), ids=lambda op: op.forward)
def test_maps_that_are_cut_otherwise(op: Op) -> None:
    """All maps are chunked like the first; boxes without levels are assigned to maps by size."""
    given = arguments(op, "avg") | {"spatial_scales": SCALES}
    fine, coarse = pyramid()
    for change in ({"levels": np.arange(BOXES) % 2}, {"rois": given["rois"] * 100}):
        given |= {"levels": None, **change}
        lazy = getattr(roipool, op.forward)([chunked(fine), chunked(coarse, 3)], **given)
        expected = getattr(roipool, op.forward)([fine, coarse], **given)
        np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected)
    assert len(set(roipool.assign_levels(given["rois"], 0, 1).tolist())) == 2


def pyramid() -> list[np.ndarray[Any, Any]]:
    """Return maps of two levels."""
    return [maps(), 2 * maps()[:, :, ::2, ::2]]


def test_what_is_computed_has_the_declared_types() -> None:
    """int64, so that arithmetic on an argmax does not wrap at 2^31."""
    given = arguments(OPS["roi_pool"], "max") | {"return_argmax": True}
    for lazy in roipool.roi_pool(chunked(maps()), **given):
        each_part = dask.compute(lazy, *lazy.blocks.ravel(), scheduler="sync")
        assert {part.dtype for part in each_part} == {lazy.dtype} == {lazy._meta.dtype}
    _, argmax = roipool.roi_pool(chunked(maps()), **given)
    large = (argmax + 2**40).min().compute(scheduler="sync")
    assert (argmax.dtype, large > 2**39) == (np.int64, True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maps_in_another_order_of_bytes(dtype: Any) -> None:
    """Coordinates that float32 cannot represent are computed in the maps' type."""
    host = maps(dtype=np.dtype(dtype).newbyteorder())
    given = arguments(OPS["roi_align"], "avg")
    lazy = roipool.roi_align(chunked(host), **given)
    found = lazy.compute(scheduler="sync")
    assert found.dtype == lazy.dtype == dtype
    np.testing.assert_array_equal(found, roipool.roi_align(host, **given))


def test_masks_are_refused() -> None:
    """They would be lost; masks that an array does not declare are found on workers."""
    given, masked = arguments(OPS["roi_align"], "avg"), np.ma.masked_less(maps(), 1)
    lazy = chunked(masked)
    with pytest.raises(TypeError, match=r"^roi_align: features must be without a mask"):
        roipool.roi_align(lazy, **given)
    with pytest.raises(TypeError, match=r"^roi_align: rois must be without a mask"):
        roipool.roi_align(chunked(maps()), **given | {"rois": np.ma.array(given["rois"])})
    undeclared = lazy.map_blocks(lambda block: block, meta=maps()[:0])
    pooled = roipool.roi_align(undeclared, **given)
    with pytest.raises(TypeError, match="features must be without a mask"):
        pooled.compute(scheduler="sync")


def test_results_of_masks_that_need_values() -> None:
    masks, boxes = da.ones((5, 5, 6), chunks=2), np.ones((5, 4))
    with pytest.raises(TypeError, match="masks_to_rle: masks must be known"):
        roipool.masks_to_rle(masks, boxes, (9, 11))
    with pytest.raises(TypeError, match="paste_masks: masks must be known"):
        roipool.paste_masks(masks, boxes, (9, 11), crop=True)
    with pytest.raises(TypeError, match="paste_masks_backward takes no Dask arrays"):
        roipool.paste_masks_backward(masks, boxes, masks.shape)


def test_chunk_order_checks_its_indices() -> None:
    x = chunked(maps())
    for indices, error in [
        ([0.5], ValueError),
        ([IMAGES], ValueError),
        ([[0]], ValueError),
        ([np.nan], ValueError),
        (["0"], TypeError),
        (x[:, 0, 0, 0], TypeError),
    ]:
        with pytest.raises(error, match="batch_indices"):
            roipool.dask.chunk_order(x, indices)


def test_a_task_of_a_pyramid_has_a_chunk_of_every_map() -> None:
    given = arguments(PYRAMID_OPS["multilevel_roi_align"], "avg") | {"spatial_scales": SCALES}
    levels = [da.from_array(each, chunks=(2, -1, -1, -1)) for each in pyramid()]
    order = roipool.dask.chunk_order(levels, given["batch_indices"])
    lazy = roipool.multilevel_roi_align(levels, **in_order(order, given))
    assert lazy.numblocks[0] == 3  # images 5 and 6 are in the last two chunks, and have no box
    expected = roipool.multilevel_roi_align(pyramid(), **given)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected[order])


def in_order(order: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with their rows in another order."""
    return {
        name: value[order] if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }


def test_rows_in_the_order_of_chunks() -> None:
    given = arguments(OPS["roi_align"], "avg")
    x = chunked(maps(), 3).rechunk({1: -1, 2: -1, 3: -1})
    order = roipool.dask.chunk_order(x, given["batch_indices"])
    lazy = roipool.roi_align(x, **in_order(order, given))
    expected = roipool.roi_align(maps(), **given)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected[order])
    assert lazy.numblocks[0] == 2  # images 5 and 6 have no box: their chunk is not loaded


def test_rows_in_the_order_of_chunks_with_a_mask() -> None:
    rng = np.random.default_rng(2)
    given = arguments(OPS["deform_roi_pool"], "avg")
    given["offsets"] = rng.normal(size=(BOXES, 2, 2, 3)).astype(np.float32)
    given["mask"] = rng.random((BOXES, 1, 2, 3)).astype(np.float32)
    x = chunked(maps(), 3)
    order = roipool.dask.chunk_order(x, given["batch_indices"])
    lazy = roipool.deform_roi_pool(x, **in_order(order, given))
    expected = roipool.deform_roi_pool(maps(), **given)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected[order])


@pytest.mark.parametrize(
    "shape", [(3, 2, 0, 4, 5), (3, 2, 4, 0, 5), (3, 2, 4, 5, 0), (3, 0, 4, 4, 4)]
)
def test_volumes_without_cells(shape: tuple[int, ...]) -> None:
    rois = np.array([[2, 0, 0, 2, 2, 0, 2], [0, 1, 0, 2, 2, 1, 2]], np.float32)
    volumes = np.zeros(shape, np.float32)
    lazy = roipool.roi_align_3d(da.from_array(volumes, chunks=(2, 1, 2, 2, 2)), rois, 2)
    assert_same_bits(lazy.compute(scheduler="sync"), roipool.roi_align_3d(volumes, rois, 2))


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a chunk was loaded")

    x = da.from_delayed(dask.delayed(refuse)(), (2, 3, 9, 9), np.float32)
    assert roipool.roi_align(x, [[0, 0, 0, 5, 5]], 2).shape == (1, 3, 2, 2)
    none = roipool.roi_align(x, np.zeros((0, 5)), 2)
    assert none.shape == (0, 3, 2, 2)


def test_memory_is_that_of_a_few_chunks() -> None:
    """A chunk is freed once its boxes are pooled, whatever the number of chunks."""
    live: set[int] = set()
    most = 0

    def load(number: int) -> np.ndarray[Any, Any]:
        nonlocal most
        chunk = np.full((1, 3, 9, 11), number, np.float32)
        live.add(number)
        most = max(most, len(live))
        weakref.finalize(chunk, live.discard, number)
        return chunk

    images = 24
    lazily = dask.delayed(load, pure=False)
    x = da.concatenate(
        [da.from_delayed(lazily(n), (1, 3, 9, 11), np.float32) for n in range(images)]
    )
    rois = np.array([[n, 0, 0, 5, 5] for n in range(images)])
    pooled = roipool.roi_align(x, rois, 2)
    assert pooled.sum().compute(scheduler="sync") == 3 * 4 * sum(range(images))
    assert 1 <= most <= 3


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_schedulers(scheduler: str) -> None:
    given = arguments(OPS["roi_align"], "avg")
    lazy = roipool.roi_align(chunked(maps()), **given)
    found = lazy.compute(scheduler=scheduler, num_workers=2)
    np.testing.assert_array_equal(found, roipool.roi_align(maps(), **given))


def test_the_graph_can_be_sent() -> None:
    given = arguments(OPS["crop_and_resize"], "bilinear")
    lazy = pickle.loads(pickle.dumps(roipool.crop_and_resize(chunked(maps()), **given)))
    np.testing.assert_array_equal(
        lazy.compute(scheduler="sync"), roipool.crop_and_resize(maps(), **given)
    )


def _end_one_worker(worker_pid: int) -> None:
    os.kill(worker_pid, signal.SIGKILL)


def test_a_worker_that_dies_loses_nothing() -> None:
    distributed = pytest.importorskip("distributed")
    given = arguments(OPS["roi_align"], "avg")

    def slowly(block: Any) -> Any:
        """Sent by value: a new worker need not find this file."""
        time.sleep(0.05)
        return block

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        x = chunked(maps(), 1)
        first = client.compute(roipool.roi_align(x, **given))
        expected = roipool.roi_align(maps(), **given)
        np.testing.assert_array_equal(first.result(timeout=120), expected)
        slow = x.map_blocks(slowly, dtype=x.dtype)
        future = client.compute(roipool.roi_align(slow, **given))
        pid = next(iter(client.run(os.getpid).values()))
        _end_one_worker(pid)
        np.testing.assert_array_equal(future.result(timeout=120), expected)


def test_the_example_runs() -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("zarr")
    example = Path(__file__).parents[2] / "examples" / "dask_zarr.py"
    run = subprocess.run(
        [sys.executable, example, "--images", "24"], capture_output=True, text=True, check=True
    )
    assert "rows equal: True" in run.stdout
