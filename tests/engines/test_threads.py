"""Threads: results are bitwise identical for any number, from any thread, and after a fork."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from _support.catalogue import Array, every_dtype, every_layout
from _support.compare import assert_same_bits
from _support.platforms import needs_fork
from _support.run_python import run_python

import roipool
from roipool import _cpu
from roipool.systems.core import VARIANTS
from roipool.verification.call import run
from roipool.verification.catalogue import large_entry, tall_entry

RNG = np.random.default_rng(0)
ENTRIES = large_entry(RNG, threads=7), tall_entry(RNG)

pytestmark = pytest.mark.usefixtures("same_threads_after")


def everything(dtype: Any, layout: str) -> dict[str, Array]:
    """Return the results of all operations on maps large enough for many tasks."""
    return {
        f"{name} {entry} {result}": array
        for name in VARIANTS
        for entry in ENTRIES
        for _, case in entry.cases(name, most_work=math.inf)
        for result, array in run(
            replace(case, dtype=np.dtype(dtype).name, layout=layout), roipool
        ).items()
    }


def with_team(team: str, code: str) -> str:
    """Return code whose calls have the threads of a kind."""
    return f"import roipool._cpu; roipool._cpu.use_pool({team == 'pool'})\n" + dedent(code)


@pytest.fixture
def thread_for_every_value() -> Iterator[None]:
    """Give a call all the threads that there are, however little work it has."""
    _cpu.use_thread_per_work(1)
    yield
    _cpu.use_thread_per_work(_cpu.WORK_OF_THREAD)


@pytest.fixture(params=["openmp", "pool"])
def team(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let calls have the threads of either kind."""
    before = _cpu.uses_pool()
    _cpu.use_pool(request.param == "pool")
    yield request.param
    _cpu.use_pool(before)


@pytest.mark.usefixtures("thread_for_every_value", "team")
@every_layout
@every_dtype
def test_same_bits_for_any_number_of_threads(dtype: Any, layout: str) -> None:
    roipool.set_num_threads(1)
    expected = everything(dtype, layout)
    roipool.set_num_threads(7)
    for name, result in everything(dtype, layout).items():
        assert_same_bits(result, expected[name])


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_same_bits_where_boxes_are_the_only_work_to_share(channels: int) -> None:
    rng = np.random.default_rng(1)
    maps = rng.normal(size=(1, channels, 64, 64)).astype(np.float32)
    rois = np.column_stack([np.zeros(5000), rng.uniform(0, 64, (5000, 4))])
    results = []
    for threads in (1, 2, 5):
        roipool.set_num_threads(threads)
        pooled = roipool.roi_align(maps, rois, 7)
        results.append((pooled, roipool.roi_align_backward(pooled, rois, maps.shape)))
    for pooled, gradient in results[1:]:
        assert_same_bits(pooled, results[0][0])
        assert_same_bits(gradient, results[0][1])


@every_layout
@every_dtype
def test_same_bits_where_small_boxes_are_ordered_by_place(dtype: Any, layout: str) -> None:
    rng = np.random.default_rng(2)
    shape = (2, 20, 150, 90) if layout == "NCHW" else (2, 150, 90, 20)
    maps = rng.normal(size=shape).astype(dtype)
    centres = rng.uniform(0, [90, 150], (400, 2))
    sides = rng.uniform(0, 12, (400, 2))
    rois = np.column_stack([rng.integers(0, 2, 400), centres - sides, centres + sides])
    results = []
    for threads in (1, 64):
        roipool.set_num_threads(threads)
        pooled = roipool.roi_align(maps, rois, 7, layout=layout)
        gradient = roipool.roi_align_backward(pooled, rois, shape, layout=layout)
        largest = roipool.roi_pool(maps, rois, 7, layout=layout)
        results.append((pooled, gradient, largest))
    for found, expected in zip(*results, strict=True):
        assert_same_bits(found, expected)


# ---- The number of threads


def test_number_can_be_set() -> None:
    for threads in (1, 3, np.int64(2)):
        roipool.set_num_threads(threads)
        assert roipool.get_num_threads() == threads


@pytest.mark.parametrize("number", [0, -1, 1025, 2**70])
def test_number_out_of_range(number: int) -> None:
    with pytest.raises(ValueError, match=r"\bn\b"):
        roipool.set_num_threads(number)


@pytest.mark.parametrize("number", [1.5, "2", None])
def test_number_of_another_type(number: Any) -> None:
    with pytest.raises(TypeError, match=r"\bn\b"):
        roipool.set_num_threads(number)


SMALL_CALL = """
    import numpy as np, roipool
    maps = np.ones((1, 64, 30, 30), np.float32)
    rois = np.tile([0, 1, 1, 20, 20], (100, 1))
    pooled = roipool.roi_align(maps, rois, 7)
    assert np.allclose(pooled, 1)
"""


def test_largest_number_works(team: str) -> None:
    code = with_team(team, SMALL_CALL.replace("maps =", "roipool.set_num_threads(1024); maps ="))
    result = run_python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("limit", ["1", "2"])
def test_fewer_threads_come_than_were_asked_for(limit: str) -> None:
    code = SMALL_CALL.replace("maps =", "roipool.set_num_threads(5); maps =")
    result = run_python(code, OMP_THREAD_LIMIT=limit)
    assert result.returncode == 0, result.stderr


@needs_fork
def test_no_other_thread_can_start() -> None:
    """A pool without memory for its threads leaves the call to the one that made it."""
    limited = """
    import resource
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    import os
    if os.getuid() == 0:
        os.setuid(65534)  # root has no limit
    roipool.set_num_threads(5); maps ="""
    result = run_python(with_team("pool", SMALL_CALL.replace("\n    maps =", limited)))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("text", "threads"), [("3", 3), (" 2 ", 2), ("1", 1)])
def test_number_from_the_environment(text: str, threads: int) -> None:
    result = run_python(
        "import roipool; print(roipool.get_num_threads())", ROIPOOL_NUM_THREADS=text
    )
    assert result.stdout.strip() == str(threads), result.stderr


def test_set_number_wins_over_the_environment() -> None:
    code = "import roipool; roipool.set_num_threads(2); print(roipool.get_num_threads())"
    assert run_python(code, ROIPOOL_NUM_THREADS="5").stdout.strip() == "2"


@pytest.mark.skipif(not _cpu.has_openmp(), reason="built without OpenMP")
@pytest.mark.parametrize("text", ["", "  "])
def test_otherwise_openmp_says(text: str) -> None:
    code = "import roipool; print(roipool.get_num_threads())"
    result = run_python(code, ROIPOOL_NUM_THREADS=text, OMP_NUM_THREADS="3")
    assert result.stdout.strip() == "3", result.stderr


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5", "1e3", "99999999999"])
def test_bad_number_in_the_environment(text: str) -> None:
    result = run_python(SMALL_CALL, ROIPOOL_NUM_THREADS=text)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("ValueError: ROIPOOL_NUM_THREADS"), (
        result.stderr
    )


# ---- Forks, and Python's threads


# OpenMP's threads do not survive a fork: waiting for them would hang until the time limit.
FORKS = dedent(
    """
    import multiprocessing, os, sys, threading, warnings
    import numpy as np, roipool

    warnings.simplefilter("ignore")  # Python warns of any fork beside threads
    roipool.set_num_threads(4)
    maps = np.random.default_rng(0).normal(size=(2, 64, 30, 30)).astype(np.float32)
    rois = np.column_stack([np.arange(100) % 2, np.tile([1, 2, 20, 25], (100, 1))])
    grad = np.ones((100, 64, 7, 7), np.float32)

    def work():
        pooled = roipool.roi_align(maps, rois, 7)
        return pooled.tobytes() + roipool.roi_align_backward(grad, rois, maps.shape).tobytes()

    def threads_of_process():
        return len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else None

    def check_child():
        assert roipool.get_num_threads() == 4
        assert work() == expected
        assert not roipool._cpu.has_openmp() or threads_of_process() in (None, 4)

    def fork(do):
        child = os.fork()
        if child == 0:
            try:
                do()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0

    expected = work()
    """
)

FORKED = {
    "again": "for _ in range(3): fork(check_child); check_child()",
    "nested": "fork(lambda: (check_child(), fork(lambda: (check_child(), fork(check_child)))))",
    "unused in between": "fork(lambda: fork(check_child))",
    "from another thread": """
    other = threading.Thread(target=lambda: fork(check_child))
    other.start()
    other.join()
    work()""",
    "from another thread that has its own": """
    other = threading.Thread(target=lambda: (work(), fork(check_child), work()))
    other.start()
    other.join()
    work()""",
    "multiprocessing": """
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.apply(work) == expected
        assert set(pool.map(len, [expected])) == {len(expected)}""",
    "beside calls of other threads": """
    stop = False
    def repeat():
        while not stop:
            work()
    others = [threading.Thread(target=repeat) for _ in range(2)]
    for other in others: other.start()
    for _ in range(8): fork(lambda: work() == expected or os._exit(2))
    stop = True
    for other in others: other.join()""",
}


@needs_fork
@pytest.mark.parametrize("forks", FORKED.values(), ids=FORKED)
def test_works_after_a_fork(forks: str, team: str) -> None:
    done = run_python(with_team(team, FORKS + dedent(forks) + "\nprint('done')"))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@needs_fork
@pytest.mark.parametrize("first", ["torch", "roipool"])
def test_works_after_a_fork_where_torch_used_its_threads(first: str) -> None:
    pytest.importorskip("torch")
    forks = """
        import torch

        def use_torch():
            return float((torch.ones(3000, 3000) + 1).sum())

        torch.set_num_threads(4)
        def worker():
            torch.set_num_threads(1)  # as those of DataLoader do: PyTorch by itself hangs with more
            use_torch()
            assert work() == expected

        use_torch()
        fork(check_child)
        use_torch()
        fork(worker)
        print("done")
    """
    done = run_python(f"import {first}\n" + FORKS + dedent(forks))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("first", ["torch", "roipool"])
def test_torch_and_roipool_each_keep_their_number_of_threads(first: str) -> None:
    """Both may share an OpenMP library or, with a wheel that includes one, have separate ones."""
    pytest.importorskip("torch")
    code = f"""
        import {first}
        import numpy as np, roipool, torch

        def work():
            maps = np.random.default_rng(0).normal(size=(2, 64, 30, 30)).astype(np.float32)
            rois = np.column_stack([np.arange(600) % 2, np.tile([1, 2, 20, 25], (600, 1))])
            return roipool.roi_align(maps, rois, 7).tobytes()

        def torch_works():
            return float((torch.ones(3000, 3000) + 1).sum()) == 2 * 3000 * 3000

        roipool.set_num_threads(1)
        expected = work()
        for ours, theirs in ((2, 3), (3, 1), (1, 2)):
            torch.set_num_threads(theirs)
            roipool.set_num_threads(ours)
            for _ in range(3):
                assert work() == expected and torch_works()
            assert (roipool.get_num_threads(), torch.get_num_threads()) == (ours, theirs)
        print("done")
    """
    done = run_python(code)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@needs_fork
def test_no_idle_thread_of_the_pool_is_left_before_a_fork() -> None:
    """Python warns of forks beside threads."""
    code = """
        import os, warnings
        warnings.simplefilter("error")
        roipool.set_num_threads(4)
        roipool.roi_align(maps, np.repeat(rois, 20, axis=0), 7)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        print(len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1)
    """
    code = with_team("pool", dedent(SMALL_CALL) + dedent(code))
    done = run_python(code, OPENBLAS_NUM_THREADS="1")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.usefixtures("team")
def test_many_python_threads_at_once() -> None:
    roipool.set_num_threads(2)
    expected = everything(np.float32, "NCHW")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: everything(np.float32, "NCHW"), range(4)))
    for results in found:
        for name, result in results.items():
            assert_same_bits(result, expected[name])


def long_calls() -> dict[str, Callable[[], Any]]:
    """Return calls that compute for tens of milliseconds on one thread."""
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(1, 64, 100, 100)).astype(np.float32)
    rois = np.column_stack([np.zeros(1500), rng.uniform(0, 100, (1500, 4))])
    grad = np.ones((1500, 64, 14, 14), np.float32)
    return {
        "forward": lambda: roipool.roi_align(maps, rois, 14, mode="max"),
        "backward": lambda: roipool.roi_align_backward(grad, rois, maps.shape),
        "boxes": lambda: roipool.roi_align_backward_rois(grad, maps, rois),
    }


@pytest.mark.parametrize("name", long_calls())
def test_other_python_threads_run_during_a_call(name: str) -> None:
    call = long_calls()[name]
    roipool.set_num_threads(1)
    ticks, stop = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            time.sleep(0)
            ticks += 1

    ticker = threading.Thread(target=tick)
    interval = sys.getswitchinterval()
    # From here on, a thread runs only when another thread releases the GIL.
    sys.setswitchinterval(1000)
    try:
        ticker.start()
        most = 0
        for _ in range(20):
            before = ticks
            call()
            most = max(most, ticks - before)
            if most >= 50:
                break
        # NumPy's functions release the GIL for a few ticks; a computing call, for hundreds.
        assert most >= 50
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        ticker.join()


def test_calls_with_little_work_have_one_thread() -> None:
    # As many values as of the small calls of benchmarks, which take 60 and 130 microseconds; and
    # fewer of large boxes, which take longer.
    roipool.set_num_threads(2)
    maps = RNG.standard_normal((1, 100, 50, 52)).astype(np.float32)
    small = np.float32([[0, 10, 10, 16, 16]] * 10)
    large = np.float32([[0, 0, 0, 51, 49]] * 10)
    roipool.roi_align(maps, small, 7)
    assert _cpu.threads_of_latest_call() == 1
    roipool.roi_align_backward(np.ones((10, 100, 7, 7), np.float32), small, maps.shape)
    assert _cpu.threads_of_latest_call() == 1
    roipool.roi_align(maps, large, 7)
    assert _cpu.threads_of_latest_call() == 2
    roipool.roi_align(maps, np.repeat(small, 100, axis=0), 7)
    assert _cpu.threads_of_latest_call() == 2


def test_masks_of_few_pixels_are_pasted_by_one_thread() -> None:
    roipool.set_num_threads(2)
    masks, boxes = np.ones((4, 28, 28), np.float32), np.float32([[0, 0, 99, 99]] * 4)
    roipool.paste_masks(masks, boxes, (100, 100))
    assert _cpu.threads_of_latest_call() == 1
    roipool.paste_masks(masks, boxes, (1000, 1000))
    assert _cpu.threads_of_latest_call() == 2
