"""Long calls can be interrupted, many threads and calls leak nothing, and exits are clean."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from _support.compare import assert_same_bits
from _support.platforms import needs_fork, needs_linux, needs_posix
from _support.run_python import run_python

import roipool
from roipool import _cpu
from roipool._boxes import Regions
from roipool._definitions import Definition
from roipool._request import Pooling

pytestmark = pytest.mark.usefixtures("same_threads_after")

# ---- Interrupts

# Calls that would compute for minutes; each is interrupted by a signal.
ENDLESS = """
    import signal, threading
    import numpy as np, roipool

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    roipool.set_num_threads(2)
    signal.signal(signal.SIGINT, stop)
    maps = np.ones((1, 16, 20, 20), np.float32)
    boxes = np.tile([0.0, 1, 1, 15, 15], (10**6, 1))
    few = np.broadcast_to(np.float32(1), (10**6, 16, 1, 1))
    wide, large = np.tile([0.0, 60, 60, 100, 100, 1], (2000, 1)), (1, 16, 120, 120)
    for name, call in calls.items():
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        try:
            exec(call)
        except Stop:
            print(name, roipool.roi_pool(maps, boxes[:1], 1).sum())
"""
CALLS = {
    "a bin of dense samples": "roipool.roi_align(maps, boxes[:1], 1, 1.0, 2**15, mode='max')",
    "samples of a plan": "roipool.roi_align(maps, boxes, 7, 1.0, 2**15)",
    "boxes": "while True: roipool.roi_align(maps, boxes[:10**5], 7)",
    "chunks of boxes": "while True: roipool.roi_align_rotated_backward(few[:2000], wide, large)",
    "run lengths": "roipool.masks_to_rle(few[..., 0], boxes[:, 1:] * 60, 1000)",
    "boxes backward": "while True: roipool.roi_align_backward(few, boxes, maps.shape)",
}


def test_long_calls_are_interrupted() -> None:
    done = run_python(f"calls = {CALLS!r}\n" + dedent(ENDLESS))
    assert done.stdout == "".join(f"{name} 16.0\n" for name in CALLS), done.stderr
    assert done.returncode == 0


LARGE = np.ones((1, 1, 2000, 2000), np.float32)
WHOLE = np.float32([[0, 0, 0, 2000, 2000]])
TURNED = np.float32([[0, 10, 10, 15, 15, 30]])
ONE = np.ones((1, 1, 1, 1), np.float32)
MASK = np.ones((1, 2, 2), np.float32)
SMALL = np.ones((1, 1, 20, 20), np.float32)
# Calls for one box, and about how many samples or cells they visit.
ONE_BOX: dict[str, tuple[Callable[[], Any], int]] = {
    "rotated samples": (
        lambda: roipool.roi_align_rotated(SMALL, TURNED, 1, 1.0, 2048),
        2 * 2048**2,  # counted, then written
    ),
    "gradient of a rotated box": (
        lambda: roipool.roi_align_rotated_backward_rois(ONE, SMALL, TURNED, 1.0, 2048),
        2 * 2048**2,
    ),
    "samples of an axis": (
        lambda: roipool.roi_align(SMALL, WHOLE, (500, 1), 0.01, (2**14, 1)),
        500 * 2**14,
    ),
    "average": (lambda: roipool.precise_roi_pool(LARGE, WHOLE, 1, 1.0), 2000**2),
    "average of vectors": (
        lambda: roipool.precise_roi_pool(np.repeat(LARGE, 5, axis=1), WHOLE, 1, 1.0),
        2000**2,
    ),
    "gradient of an average": (
        lambda: roipool.precise_roi_pool_backward(ONE, WHOLE, LARGE.shape, 1.0),
        2000**2,
    ),
    "gradient of a box": (
        lambda: roipool.precise_roi_pool_backward_rois(ONE, LARGE, WHOLE, 1.0),
        2000**2,
    ),
    "pasted mask": (lambda: roipool.paste_masks(MASK, WHOLE[:, 1:], 2000), 2000**2),
    "gradient of a pasted mask": (
        lambda: roipool.paste_masks_backward(LARGE, WHOLE[:, 1:], MASK.shape),
        2000**2,
    ),
    "gradient of a mask's box": (
        lambda: roipool.paste_masks_backward_boxes(LARGE[0], MASK, WHOLE[:, 1:]),
        2000**2,
    ),
    "run lengths": (
        lambda: roipool.masks_to_rle(LARGE[0, :, :, :2], WHOLE[:, 1:], 2000),
        2000**2,
    ),
    "maximum": (lambda: roipool.roi_pool(LARGE, WHOLE, 1, 1.0), 2000**2),
    "bins of a group": (
        lambda: roipool.ps_roi_pool(SMALL, WHOLE, 2000, 0.01, group_size=1),
        2000**2,
    ),
    "cells of a group": (
        lambda: roipool.ps_roi_pool(LARGE, WHOLE, 1, 1.0, group_size=1),
        2000**2,
    ),
}


@pytest.mark.parametrize("name", ONE_BOX)
def test_calls_for_one_box_look_for_signals(name: str) -> None:
    """They ask at least once in a million samples or cells, plus once for each step."""
    call, work = ONE_BOX[name]
    roipool.set_num_threads(1)
    call()
    assert _cpu.asks_of_latest_call() > work / 10**6 + 3


INTERRUPTED = """
    import os, signal, sys, threading
    import numpy as np, roipool

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    maps = np.ones((1, 16, 20, 20), np.float32)
    def call():
        while True:
            roipool.roi_align(maps, [[0, 1, 1, 15, 15]], 1, 1.0, 2**15, mode="max")
    def interrupt():
        signal.raise_signal(signal.SIGINT)
"""


def test_ctrl_c() -> None:
    done = run_python(
        INTERRUPTED
        + """
    threading.Timer(0.3, interrupt).start()
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted")
    """
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@needs_fork
def test_ctrl_c_in_a_child_of_another_thread() -> None:
    """The forking thread becomes the child's main thread."""
    done = run_python(
        INTERRUPTED
        + """
    def fork():
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return
        # One call of minutes, into memory where every number that it has written can be told.
        boxes = np.tile([0.0, 1, 1, 15, 15], (4000, 1))
        out = np.full((4000, 16, 1, 1), np.nan, np.float32)
        threading.Timer(0.3, interrupt).start()
        try:
            roipool.roi_align(maps, boxes, 1, 1.0, 2**13, mode="max", out=out)
        except KeyboardInterrupt:
            os._exit(7 if np.isnan(out).any() else 1)  # 1: at the call's end, not within it
        os._exit(0)

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    """
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_a_call_of_a_daemon_thread_does_not_disturb_the_exit() -> None:
    done = run_python(
        INTERRUPTED
        + """
    import time
    threading.Thread(target=call, daemon=True).start()
    time.sleep(0.3)
    print("done")
    """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# ---- Many threads, many calls


def calls() -> dict[str, Callable[[], Any]]:
    """Return small calls of all engine functions, on shared input."""
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, 20, 16, 18)).astype(np.float32)
    rois = np.column_stack([np.arange(50) % 2, rng.uniform(-2, 20, (50, 4))]).astype(np.float32)
    pooled, argmax = roipool.roi_pool(maps, rois, 3, return_argmax=True)
    return {
        "average": lambda: roipool.roi_align(maps, rois, 3),
        "average backward": lambda: roipool.roi_align_backward(pooled, rois, maps.shape),
        "boxes": lambda: roipool.roi_align_backward_rois(pooled, maps, rois),
        "maximum": lambda: roipool.roi_align(maps, rois, 3, mode="max"),
        "maximum backward": lambda: roipool.roi_pool_backward(pooled, argmax, rois, maps.shape),
        "rotated": lambda: roipool.roi_align_rotated(maps, rois[:, [0, 1, 2, 3, 4, 1]], 3),
        "positions": lambda: roipool.compat.mmcv.roi_align(
            maps, rois, 3, pool_mode="max", return_argmax=True
        )[1],
        "an error": lambda: failing(maps, rois),
    }


def failing(maps: np.ndarray, rois: np.ndarray) -> np.ndarray:
    """Return the text of an error, as an array."""
    with pytest.raises(ValueError, match="batch indices") as caught:
        roipool.roi_align(maps, rois + 9, 3)
    return np.array([str(caught.value)])


def test_32_python_threads_share_their_input() -> None:
    roipool.set_num_threads(2)
    functions = calls()
    expected = {name: function() for name, function in functions.items()}
    names = list(functions) * 32
    barrier = threading.Barrier(32)

    def work(first: int) -> None:
        barrier.wait()
        for name in names[first : first + 16]:
            found = functions[name]()
            if name == "an error":
                assert found == expected[name]
            else:
                assert_same_bits(found, expected[name])

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))


@needs_linux
def test_calls_leave_nothing_behind() -> None:
    """Neither objects nor memory; `tests/faults/leaks.py` makes a hundred times as many calls."""
    functions = calls()
    del functions["an error"]

    def work(times: int) -> tuple[int, int]:
        for _ in range(times):
            for function in functions.values():
                function()
        gc.collect()  # empties Python's own lists of freed objects, too
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return sys.getallocatedblocks(), pages * mmap.PAGESIZE

    work(20)
    blocks, resident = work(20)
    more_blocks, more_resident = work(120)
    assert more_blocks - blocks < 100
    assert more_resident - resident < 2**20


# ---- What the system allows


@needs_linux
@pytest.mark.skipif(not _cpu.has_openmp(), reason="built without OpenMP")
def test_affinity_is_respected() -> None:
    code = """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import roipool
        print(roipool.get_num_threads())
    """
    assert run_python(code).stdout == "1\n"


def test_spawned_processes() -> None:
    code = """
        import multiprocessing, sys
        import numpy as np, roipool

        if __name__ == "__main__":
            maps = np.ones((1, 64, 30, 30), np.float32)
            call = (maps, [[0, 1, 1, 20, 20]] * 400, 7)
            expected = roipool.roi_align(*call)
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                for found in pool.starmap(roipool.roi_align, [call] * 4):
                    assert np.array_equal(found, expected)
            print("done")
    """
    done = run_python(code)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@needs_linux
def test_too_little_memory_is_an_error_and_nothing_more() -> None:
    """Allocations of results, plans and scratch memory fail in turn as addresses run out."""
    code = """
        import resource
        import numpy as np, roipool

        roipool.set_cache_limit(0)
        roipool.set_num_threads(1)
        maps = np.ones((1, 16, 60, 60), np.float32)
        rois = np.tile([0.0, 1, 1, 9, 9], (3000, 1))
        small = lambda: roipool.roi_align(maps, rois[:1], 2).sum()
        expected, grad = small(), np.ones((3000, 16, 7, 7), np.float32)
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        failed = done = 0
        for mebibytes in range(0, 40, 4):
            for call in (
                lambda: roipool.roi_align(maps, rois, 7),
                lambda: roipool.roi_align(maps, rois, 7, mode="max", return_argmax=True),
                lambda: roipool.roi_align_backward(grad, rois, maps.shape),
                lambda: roipool.roi_align_backward_rois(grad, maps, rois),
            ):
                resource.setrlimit(resource.RLIMIT_AS, (used + mebibytes * 2**20, hard))
                try:
                    call()
                    done += 1
                except MemoryError:
                    failed += 1
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
                assert small() == expected
        print(failed > 10, done > 10)
    """
    done = run_python(code)
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


@needs_posix
def test_without_images_every_bin_is_written() -> None:
    maps = np.ones((0, 2, 4, 4), np.float32)
    regions = Regions(np.array([[0, 0, 2, 2]], np.float32), np.array([-1]))
    pooling = Pooling(Definition("roi_align"), (2, 2), empty_value=3.0)
    averages, maxima = (np.full((1, 2, 2, 2), np.nan, np.float32) for _ in range(2))
    _cpu.average([maps], regions, pooling, averages)
    argmax = _cpu.maximum(maps, regions, pooling, maxima, return_argmax=True)
    assert (averages == 3).all()
    assert (maxima == 3).all()
    assert (argmax == -1).all()


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (1, 1, 4, 4)), ("NHWC", (1, 4, 4, 1))])
def test_boxes_of_no_image_get_no_gradient(layout: str, shape: tuple[int, ...]) -> None:
    """Even if their argmax names a cell."""
    argmax, grad = np.full((2, 1, 1, 1), 3, np.int32), np.ones((2, 1, 1, 1), np.float32)
    out = np.empty(shape, np.float32)
    _cpu.unpool(grad, argmax, np.array([0, -1]), layout, out)
    assert np.flatnonzero(out).tolist() == [3]
    assert out.sum() == 1


def test_an_argmax_is_compared_with_the_samples_of_its_own_bin() -> None:
    """Five cells in three bins: the second has three samples along an axis, the others two."""
    regions = Regions(np.array([[0, 0, 4, 1]], np.float32), np.array([0]))
    pooling = Pooling(Definition("roi_pool"), (1, 3))
    grad, out = np.ones((1, 1, 1, 3), np.float32), np.empty((1, 1, 2, 5), np.float32)
    most = np.array([[[[3, 5, 3]]]], np.int32)
    _cpu.maximum_backward(grad, most, regions, pooling, out)
    assert np.flatnonzero(out).tolist() == [6, 8, 9]
    for bin_ in range(3):
        wrong = most.copy()
        wrong[..., bin_] += 1
        with pytest.raises(ValueError, match="argmax"):
            _cpu.maximum_backward(grad, wrong, regions, pooling, out)


def test_wrong_arguments() -> None:
    program = Path(__file__).parents[1] / "faults" / "hostile_arguments.py"
    done = run_python(
        f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, {str(program)!r}, "
        "'--calls', '100', '--seed', '3']).returncode)"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 calls from 0 of seed 3, 0 failures" in done.stdout
