"""Memory of freed results is reused by later calls, and arrays in it behave like any others."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.platforms import needs_linux
from _support.run_cpp import run_cpp
from _support.run_python import run_python

import roipool
from roipool import _cpu
from roipool._limits import lendable_memory
from roipool._settings import LENT_SHARE

MIB = 2**20
STATM = Path("/proc/self/statm")


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    """Start and end with an empty cache and the default limit."""
    before = roipool.get_cache_limit()
    roipool.free_memory()
    roipool.set_cache_limit(128)
    yield
    roipool.set_cache_limit(before)
    roipool.free_memory()


@pytest.fixture
def lending() -> Iterator[None]:
    """Lend up to 40 MiB beyond a cache of 10 MiB."""
    roipool.set_cache_limit(10)
    _cpu.set_lent_limit(40 * MIB)
    yield
    _cpu.set_lent_limit(int(LENT_SHARE * lendable_memory()))


def array_of(mebibytes: float) -> np.ndarray:
    return _cpu.empty_array((int(mebibytes * MIB),), np.dtype(np.uint8))


def resident() -> int:
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


def lent_by_the_process() -> int:
    """Return how many bytes the system may take at any moment."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith("LazyFree:"))
    return int(kibibytes) * 1024


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_freed_array_serves_the_next_one() -> None:
    first = array_of(8)
    where = address(first)
    second = array_of(8)
    assert address(second) != where
    del first
    assert address(array_of(7)) == where


def test_memory_in_use_through_a_view_is_not_given_away() -> None:
    first = array_of(8)
    view, where = first[100:], address(first)
    del first
    assert address(array_of(8)) != where
    view[...] = 1


def test_a_small_array_does_not_take_a_large_block() -> None:
    first = array_of(64)
    where = address(first)
    del first
    assert address(array_of(8)) != where


def test_the_smallest_block_that_fits_is_taken() -> None:
    blocks = [array_of(size) for size in (12, 8, 10)]
    where = address(blocks[1])
    del blocks
    assert address(array_of(7)) == where


def test_no_more_is_cached_than_allowed_and_the_oldest_goes_first() -> None:
    roipool.set_cache_limit(20)
    blocks = [array_of(8), array_of(8), array_of(8)]
    addresses = [address(block) for block in blocks]
    while blocks:
        del blocks[0]
    assert 16 * MIB <= _cpu.cached_bytes() <= 17 * MIB
    # The first was returned when the third came; whoever takes two gets the others.
    assert {address(a) for a in (array_of(8), array_of(8))} <= {*addresses[1:]}


def test_a_block_beyond_the_limit_is_returned_and_costs_no_other() -> None:
    roipool.set_cache_limit(20)
    del (small := [array_of(8)])[0], small
    cached = _cpu.cached_bytes()
    array_of(64)
    assert _cpu.cached_bytes() == cached


def test_a_lower_limit_holds_at_once() -> None:
    array_of(8)
    array_of(12)
    roipool.set_cache_limit(10)
    assert _cpu.cached_bytes() == 0
    array_of(8)
    assert _cpu.cached_bytes() >= 8 * MIB
    roipool.set_cache_limit(0)
    assert _cpu.cached_bytes() == 0
    array_of(8)
    assert _cpu.cached_bytes() == 0


@needs_linux
def test_a_block_beyond_the_limit_is_lent_and_serves_again(lending: None) -> None:
    first = array_of(16)
    first[...] = 7
    where = address(first)
    del first
    assert _cpu.cached_bytes() == 0
    assert 16 * MIB <= _cpu.lent_bytes() <= 17 * MIB
    assert lent_by_the_process() >= 15 * MIB
    again = array_of(15)
    assert address(again) == where
    assert _cpu.lent_bytes() == 0
    again[...] = 8  # which ends the loan
    assert lent_by_the_process() < MIB


@needs_linux
def test_the_oldest_blocks_are_lent_first_and_returned_first(lending: None) -> None:
    blocks = [array_of(8) for _ in range(7)]
    addresses = [address(block) for block in blocks]
    while blocks:
        del blocks[0]
    assert 8 * MIB <= _cpu.cached_bytes() <= 9 * MIB  # the last one
    assert 32 * MIB <= _cpu.lent_bytes() <= 34 * MIB  # the four before it
    taken = [array_of(8) for _ in range(5)]
    assert [address(block) for block in taken] == addresses[:1:-1]


@needs_linux
def test_what_is_lent_returns_like_what_is_cached(lending: None) -> None:
    def use_others() -> None:
        for _ in range(400):
            array_of(0.01)

    ends: list[Callable[[], None]] = [
        roipool.free_memory,
        lambda: roipool.set_cache_limit(0),
        lambda: _cpu.set_lent_limit(0),
        use_others,
    ]
    before = resident()
    for end in ends:
        roipool.set_cache_limit(10)
        _cpu.set_lent_limit(40 * MIB)
        array_of(30)[...] = 1
        assert _cpu.lent_bytes() >= 30 * MIB
        end()
        assert _cpu.lent_bytes() == 0
        assert resident() <= before + 10 * MIB


@needs_linux
def test_results_in_lent_memory_are_right(lending: None) -> None:
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((2, 64, 120, 150), dtype=np.float32)
    rois = np.column_stack([rng.integers(0, 2, 200), rng.uniform(0, 100, (200, 4))])
    first = roipool.roi_align(maps, rois, 14)
    gradient = roipool.roi_align_backward(first, rois, maps.shape)
    for _ in range(3):
        pooled = roipool.roi_align(maps, rois, 14)
        np.testing.assert_array_equal(pooled, first)
        again = roipool.roi_align_backward(pooled, rois, maps.shape)
        np.testing.assert_array_equal(again, gradient)
        del pooled, again
        assert _cpu.lent_bytes() > 0


@needs_linux
def test_a_forked_process_has_what_is_lent_to_itself(lending: None) -> None:
    array_of(16)[...] = 7
    assert _cpu.lent_bytes() > 0
    if (child := os.fork()) == 0:
        array_of(16)[...] = 8
        os._exit(0 if _cpu.lent_bytes() >= 16 * MIB else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert 8 not in array_of(16)


def test_no_more_than_some_blocks_are_cached() -> None:
    blocks = [array_of(0.25) for _ in range(100)]
    del blocks
    assert 0 < _cpu.cached_bytes() <= 32 * (MIB // 4 + 4096)


def test_memory_that_was_not_needed_is_returned() -> None:
    array_of(64)
    for _ in range(180):
        array_of(0.01)
    assert _cpu.cached_bytes() >= 64 * MIB  # a few dozen calls later it may serve
    for _ in range(180):
        array_of(0.01)
    assert _cpu.cached_bytes() == 0


def test_memory_that_is_needed_stays() -> None:
    for _ in range(1000):
        array_of(64)
    assert _cpu.cached_bytes() >= 64 * MIB


def test_small_calls_return_what_a_large_one_left() -> None:
    maps = np.ones((1, 64, 100, 100), np.float32)
    rois = np.tile([0, 10, 10, 90, 90], (1000, 1))
    for before in range(0, 64, 7):  # ages are looked at now and then: whenever that is
        for _ in range(before):
            array_of(0.01)
        roipool.roi_align(maps, rois, 14)
        assert _cpu.cached_bytes() >= 40 * MIB
        for _ in range(86):
            roipool.roi_align(maps, rois[:1], 2)
        assert _cpu.cached_bytes() < MIB


# 250 boxes that cover 14,400 cells each, and have as many taps at least.
TURNED = np.tile(np.float32([0, 100, 100, 120, 120, 1]), (250, 1))
TAPS = 250 * 120**2
TAPS_OF_CHUNK = 1_000_000  # `max_taps_of_chunk` of kernels/cpu/call.h
PLANES = np.ones((1, 1, 200, 200), np.float32)
GRADIENTS = np.ones((250, 1, 7, 7), np.float32)
BYTES_OF_TAP: dict[str, tuple[int, Callable[[], Any]]] = {
    "forward": (8, lambda: roipool.roi_align_rotated(PLANES, TURNED, 7)),
    "backward": (
        40,
        lambda: roipool.roi_align_rotated_backward(GRADIENTS, TURNED, PLANES.shape),
    ),
    "backward in half precision": (
        40,
        lambda: roipool.roi_align_rotated_backward(
            GRADIENTS.astype(np.float16), TURNED, PLANES.shape
        ),
    ),
    "gradients of boxes": (
        28,
        lambda: roipool.roi_align_rotated_backward_rois(GRADIENTS, PLANES, TURNED),
    ),
}


@pytest.mark.parametrize("name", BYTES_OF_TAP)
def test_plans_do_not_grow_with_the_boxes(name: str) -> None:
    """The memory of a call is cached when it ends: a chunk, a smaller last chunk, little more."""
    bytes_of_tap, call = BYTES_OF_TAP[name]
    roipool.set_cache_limit(4096)
    call()
    bound = 2 * bytes_of_tap * TAPS_OF_CHUNK + 8 * MIB
    assert _cpu.cached_bytes() < bound < bytes_of_tap * TAPS


@needs_linux
def test_pasted_masks_fill_no_memory_outside_boxes() -> None:
    before = resident()
    masks = np.ones((25, 2, 2), np.float32)
    pasted = roipool.paste_masks(masks, np.tile([100, 100, 140, 140], (25, 1)), 2000)
    assert pasted.nbytes > 380 * MIB
    assert resident() <= before + 110 * MIB  # two large pages of 2 MiB for each mask, at most
    assert pasted[20, 120].sum() == 40


@needs_linux
def test_memory_really_returns_to_the_system() -> None:
    before = resident()
    array_of(100)[...] = 1
    assert resident() >= before + 90 * MIB
    roipool.free_memory()
    assert _cpu.cached_bytes() == 0
    assert resident() <= before + 10 * MIB


@pytest.mark.parametrize("limit", [-1, 2**20 + 1, 2**70])
def test_limit_out_of_range(limit: int) -> None:
    with pytest.raises(ValueError, match=r"\bmebibytes\b.*from 0 to 1048576"):
        roipool.set_cache_limit(limit)


@pytest.mark.parametrize("limit", [1.5, "2", None, True])
def test_limit_of_another_type(limit: Any) -> None:
    with pytest.raises(TypeError, match=r"\bmebibytes\b"):
        roipool.set_cache_limit(limit)


def test_arrays_own_their_memory_and_can_be_resized() -> None:
    array = array_of(2)
    array[...] = np.arange(array.size, dtype=np.uint8)
    before = array[:1000].copy()
    assert array.flags.owndata
    assert array.flags.aligned
    array.resize(5 * MIB, refcheck=False)
    assert np.array_equal(array[:1000], before)
    assert not array[2 * MIB :].any()
    array.resize(1000, refcheck=False)
    assert np.array_equal(array, before)


def test_other_arrays_use_numpys_own_memory() -> None:
    array_of(1)
    name = np._core.multiarray.get_handler_name
    assert name(array_of(1)) == "roipool"
    assert name(np.empty(MIB)) == name() != "roipool"


def test_sizes_that_cannot_be_had() -> None:
    with pytest.raises(MemoryError):
        _cpu.empty_array((2**50, 8), np.dtype(np.float64))
    with pytest.raises(MemoryError, match="too large"):
        _cpu.empty_array((2**62, 8), np.dtype(np.float64))


LIMITED = """
    import resource
    import numpy as np
    import roipool
    from roipool import _cpu

    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limit = used + {mebibytes} * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    byte = np.dtype(np.uint8)
"""


@needs_linux
def test_cached_memory_is_returned_when_there_is_no_other() -> None:
    """With 2.5 GiB of additional addresses, 2 GiB fit after 1 GiB only if the latter is freed."""
    done = run_python(
        LIMITED.format(mebibytes=2560)
        + """
    roipool.set_cache_limit(1024)
    _cpu.empty_array((1000 * 2**20,), byte)
    assert _cpu.cached_bytes() >= 1000 * 2**20
    print(_cpu.empty_array((2 * 2**30,), byte).size)
    """
    )
    assert done.stdout == f"{2 * 2**30}\n", done.stderr


@needs_linux
def test_calls_go_on_after_memory_was_exhausted() -> None:
    """First results are too large, then plans and scratch memory, then nothing."""
    done = run_python(
        LIMITED.format(mebibytes=64)
        + """
    maps = np.ones((1, 16, 20, 20), np.float32)
    rois = np.tile(np.float32([0, 1, 1, 15, 15]), (100_000, 1))
    out = np.empty((100, 16, 2, 2), np.float32)
    calls = [
        lambda: roipool.roi_align(maps, rois, 7),
        lambda: roipool.roi_align(maps, rois[:30_000], 7),
        lambda: roipool.roi_align_backward(np.ones((9, 16, 2, 2)), rois[:9], (99, 16, 999, 999)),
        lambda: roipool.roi_align(maps, rois[:20_000], 30, out=np.empty((20_000, 16, 30, 30))),
        lambda: roipool.roi_pool(maps, rois[:30_000], 7, return_argmax=True),
    ]
    failed = 0
    for _ in range(20):
        for call in calls:
            try:
                call()
            except MemoryError:
                failed += 1
        assert np.array_equal(roipool.roi_align(maps, rois[:100], 2, out=out), np.ones_like(out))
    print("done", failed)
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done 100\n"


def test_arrays_outlive_the_module() -> None:
    done = run_python(
        """
        import builtins, sys
        import numpy as np, roipool

        pooled = roipool.roi_align(np.ones((1, 64, 50, 50), np.float32), [[0, 1, 1, 9, 9]] * 900, 7)
        builtins.last = pooled  # freed after every module
        sys.modules.clear()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("setting", "limit", "same"), [("", 128, True), (" 64 ", 64, True), ("0", 0, False)]
)
def test_the_setting(setting: str, limit: int, same: bool) -> None:
    done = run_python(
        """
        import numpy as np
        import roipool
        from roipool import _cpu

        byte = np.dtype(np.uint8)
        first, other = (_cpu.empty_array((32 * 2**20,), byte) for _ in range(2))
        first[...] = 7
        del first
        print(roipool.get_cache_limit(), _cpu.empty_array((32 * 2**20,), byte).max())
        """,
        ROIPOOL_CACHE_MIB=setting,
    )
    assert done.stdout == f"{limit} {7 if same else 0}\n", done.stderr


# ---- Blocks on systems with other pages

PAGES = r"""
#include <cstdio>
#include "cpu/memory.h"
using namespace roipool;

#define CHECK(condition) \
  if (!(condition)) return std::printf("%s: page %zu, bytes %zu\n", #condition, page, bytes), 1

int main() {
  for (size_t page : {4096, 16384, 65536, 4194304}) {
    for (size_t bytes = 1; bytes < size_t(1) << 36; bytes += 1 + bytes / 7) {
      const size_t capacity = block_capacity(bytes, page);
      CHECK(capacity >= bytes + cache_line && capacity % cache_line == 0);
      CHECK(capacity < bytes + cache_line + (capacity < huge_page ? cache_line : page));
      if (!is_mapping(capacity)) continue;
      CHECK(capacity % page == 0);
      for (size_t n = 0; n < 2000; ++n) {  // wherever the system puts the mapping
        const uintptr_t start = (uintptr_t(1) << 40) + n * page;
        const Trim trim = trim_mapping(start, capacity, page);
        CHECK(trim.before % page == 0 && trim.after % page == 0);
        CHECK((start + trim.before) % huge_page == 0);
        CHECK(trim.before + capacity + trim.after == mapped_bytes(capacity, page));
        CHECK(trim.after <= mapping_alignment(page));
      }
    }
  }
  std::printf("done\n");
}
"""


def test_large_blocks_are_whole_pages_of_any_size(tmp_path: Path) -> None:
    assert run_cpp(PAGES, tmp_path) == "done\n"
