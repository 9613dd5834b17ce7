"""Dask arrays: every operation, lazily, equal to the call on one machine."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import roipool
import roipool.dask
from roipool._definitions import OPS, Op

IMAGES, BOXES = 7, 23
VARIANTS = [(op, name) for op in OPS.values() for name in op.variants]


def maps(layout: str = "NCHW", dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return maps of every image."""
    shape = (IMAGES, 3, 9, 11) if layout == "NCHW" else (IMAGES, 9, 11, 3)
    return np.random.default_rng(0).integers(-64, 64, shape).astype(dtype)


def chunked(array: np.ndarray[Any, Any], images: int = 2) -> Any:
    """Return a Dask array whose planes are cut, too."""
    return da.from_array(array, chunks=(images, 2, 5, 4))


def arguments(op: Op, variant: str) -> dict[str, Any]:
    """Return boxes in any order of images, and options."""
    rng = np.random.default_rng(1)
    corners = np.sort(rng.uniform(0, 1 if op.boxes == "boxes" else 9, (BOXES, 2, 2)), axis=1)
    boxes = corners.reshape(BOXES, 4)
    if op.columns == 5:
        boxes = np.column_stack([boxes, rng.uniform(-3, 3, BOXES)])
    indices = rng.integers(0, IMAGES - 2, BOXES)  # the last chunks have no box
    given = {op.boxes: boxes, op.indices: indices, op.size: (2, 3)}
    return given | dict(op.variants[variant].options)


@pytest.mark.parametrize(("op", "variant"), VARIANTS, ids=lambda one: getattr(one, "forward", one))
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_every_operation(op: Op, variant: str, layout: str) -> None:
    given, function = arguments(op, variant), getattr(roipool, op.forward)
    host = maps(layout)
    lazy = function(chunked(host), **given, layout=layout)
    expected = function(host, **given, layout=layout)
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected)


def test_argmax() -> None:
    given = arguments(OPS["roi_pool"], "max") | {"return_argmax": True}
    pooled, argmax = dask.compute(*roipool.roi_pool(chunked(maps()), **given), scheduler="sync")
    expected = roipool.roi_pool(maps(), **given)
    np.testing.assert_array_equal(pooled, expected[0])
    np.testing.assert_array_equal(argmax, expected[1])


def test_rows_as_they_are_computed() -> None:
    given = arguments(OPS["roi_align"], "avg")
    x = chunked(maps(), 3)
    lazy = roipool.roi_align(x, **given, keep_order=False)
    order = roipool.dask.chunk_order(x, given["batch_indices"])
    expected = roipool.roi_align(maps(), **given)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected[order])
    assert lazy.numblocks[0] == 2  # images 5 and 6 have no box: their chunk is not loaded


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a chunk was loaded")

    x = da.from_delayed(dask.delayed(refuse)(), (2, 3, 9, 9), np.float32)
    assert roipool.roi_align(x, [[0, 0, 0, 5, 5]], 2).shape == (1, 3, 2, 2)
    none = roipool.roi_align(x, np.zeros((0, 5)), 2)
    assert none.shape == (0, 3, 2, 2)


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: roipool.roi_align(x, [[np.nan, 0, 0, 1, 1]], 2), ValueError, r"rois\[0, 0\]"),
        (lambda x: roipool.roi_align(x, [[7, 0, 0, 1, 1]], 2), ValueError, "from 0 up to"),
        (lambda x: roipool.roi_align(x, [[0, 0, 0, 1, 1]], 0), ValueError, "output_size must be"),
        (lambda x: roipool.roi_align(x, [[0, 0, 0, 1, 1]], 1, np.nan), ValueError, "spatial_scale"),
        (lambda x: roipool.roi_align(x, [[0, 0, 0, 1, 1]], 1, mode="no"), ValueError, "mode must"),
        (lambda x: roipool.roi_align(x, [[0, 0, 0, 1, 1]], 1, out=maps()), TypeError, "out must"),
        (lambda x: roipool.roi_align(x, [[0, 0, 0, 1, 1]], 1, keep_order=1), TypeError,
         "keep_order"),
        (lambda x: roipool.roi_align(x.astype(int), [[0, 0, 0, 1, 1]], 1), TypeError, "dtype"),
        (lambda x: roipool.roi_align(x[0], [[0, 0, 0, 1, 1]], 1), ValueError, "4 dimensions"),
        (lambda x: roipool.roi_align(x[x[:, 0, 0, 0] > 0], [[0, 0, 0, 1, 1]], 1), ValueError,
         "chunks of known sizes"),
        (lambda x: roipool.roi_align(maps(), x[:1, 0, 0, :5], 1), TypeError, "of one library"),
        (lambda x: roipool.roi_align_backward(x, [[0, 0, 0, 1, 1]], (1, 1, 9, 9)), TypeError,
         "no gradients"),
        (lambda x: roipool.roi_align(x, x[:1, 0, 0, :5], 1), TypeError, "roi_align: rois must be"),
        (lambda x: roipool.roi_align(x, [[0, 0, 0, 1, 1]], 1, x[0, 0, 0, 0]), TypeError,
         "roi_align: spatial_scale must be"),
        (lambda x: roipool.roi_align(x, np.zeros((1, 4)), 1, batch_indices=x[:1, 0, 0, 0]),
         TypeError, "roi_align: batch_indices must be"),
        (lambda x: roipool.multilevel_roi_align([x], [[0, 0, 0, 1, 1]], 1, [1.0]), TypeError,
         "multilevel_roi_align takes no Dask arrays"),
        (lambda x: roipool.assign_levels(x[:, 0, 0, :5], 2, 5), TypeError,
         "assign_levels takes no Dask arrays"),
    ],
)  # fmt: skip
def test_errors_come_at_once(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(chunked(maps()))


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
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
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
