"""Every kernel on the simulator: no race, partial collective or bad address, and right results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support import simt
from _support.backends import Backend
from _support.catalogue import FORMS
from _support.crowds import Crowd
from _support.kernel_calls import FULL, KERNELS, OPTIONS, PARTIAL, calls, kernels, library_of

from roipool import _cpu
from roipool._boxes import Regions
from roipool._cuda import launch
from roipool._cuda.partition import Limits, Sizes
from roipool._definitions import Definition
from roipool._request import Pooling
from roipool.verification.call import run
from roipool.verification.catalogue import Entry
from roipool.verification.oracle import against_oracle

pytestmark = pytest.mark.thorough


class HalfTheBlocks(simt.Kernel):
    """A kernel whose blocks have two tasks each, as if there were more than a grid can have.

    What one task leaves in shared memory can be in a race with the next.
    """

    def launch(self, grid: tuple[int, ...], *others: Any) -> str | None:
        return super().launch((-(-grid[0] // 2), *grid[1:]), *others)


@pytest.mark.parametrize(("name", "dtype", "layout"), [*calls()])
def test_calls(cupy: Any, name: str, dtype: str, layout: str) -> None:
    cupy.launches.clear()
    check_calls(cupy, PARTIAL if (dtype, layout) == FORMS[0] else FULL, name, dtype, layout)
    assert kernels() & {*cupy.launches} == KERNELS[name]


def check_calls(cupy: Any, entry: Entry, name: str, dtype: str, layout: str) -> None:
    """Compare calls with the oracle, forward and backward."""
    for what, case in entry.cases(name, most_work=np.inf):
        options = {**case.options, **OPTIONS.get(name, {})}
        case = replace(case, dtype=dtype, layout=layout, options=options)
        with cupy.compiled_by(HalfTheBlocks):
            got = run(case, library_of(case))
        for result, comparison in against_oracle(case, got):
            assert comparison.problem is None, f"{what}, {result}: {comparison.problem}"


@pytest.mark.parametrize("name", ["roi_pool", "roi_align", "roi_align max", "roi_align_rotated"])
@pytest.mark.parametrize(("count", "side"), [(0, 1), (600, 1), (3, 20)])
def test_more_boxes_or_bins_than_threads(cupy: Any, name: str, count: int, side: int) -> None:
    corners = np.sort(np.random.default_rng(0).uniform(-1, 9, (count, 2, 2)), axis=1)
    images = np.arange(count) * 2 // max(count, 1)  # so that a block finds none for a while
    rois = np.column_stack([images, corners.reshape(count, 4)]).tolist()
    few = Entry("boxes", rois, (2, 8, 9, 8), (side, side), samplings=(1,), alignments=(True,))
    check_calls(cupy, few, name, "float32", "NCHW")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("is_of_volumes", [False, True], ids=["maps", "volumes"])
def test_blocks_share_crowded_tiles(cupy: Any, layout: str, is_of_volumes: bool) -> None:
    check_crowd(cupy, Crowd.of(40, is_of_volumes=is_of_volumes), layout, Limits(crowd=20))


@pytest.mark.parametrize("crowd", [0, 10**6])
def test_more_boxes_than_a_block_lists_at_once(cupy: Any, crowd: int) -> None:
    check_crowd(cupy, Crowd.of(1100, 1, (1, 1)), "NCHW", Limits(crowd=crowd))


def test_a_warp_pools_window_after_window(cupy: Any) -> None:
    gpu = Backend("emulator")
    rng = np.random.default_rng(1)
    pooling = Pooling(Definition("roi_align", sampling=(2, 2)), (7, 7))
    boxes = np.array([[1.5, 2, 25, 8], [3, 0, 9, 7]], np.float32)
    maps = rng.normal(size=(1, 41, 9, 30)).astype(np.float32)
    regions = Regions(boxes, np.zeros(2, np.int64))
    expected = np.empty((2, 41, 7, 7), np.float32)
    _cpu.average([maps], regions, pooling, expected)
    there, out = Regions(*map(gpu.to_device, regions[:2])), gpu.to_device(np.empty_like(expected))
    few = Limits(enough_blocks=1, least_blocks=1, max_blocks=1)
    sizes = Sizes(*gpu.module.forward_sizes([maps], out, there, pooling, few))
    kernels = gpu.module.kernels_of(launch.average(sizes, False))
    with there.boxes.device:
        gpu.module.run(kernels, there, gpu.to_device(maps), out)
    np.testing.assert_allclose(gpu.to_host(out), expected, rtol=0, atol=1e-5)


def check_crowd(cupy: Any, case: Crowd, layout: str, limits: Limits) -> None:
    with cupy.compiled_by(HalfTheBlocks):
        (got,) = case.on_gpu(Backend("emulator"), np.dtype("float32"), layout, limits)
    (expected,) = case.on_cpu(np.dtype("float32"))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_every_kernel_is_launched() -> None:
    assert set().union(*KERNELS.values()) == kernels()
