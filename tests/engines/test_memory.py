"""The memory of freed results serves the next calls, and arrays on it behave as any others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from _support.run_python import run_python

from roipool import _cpu

MIB = 2**20


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Begin with nothing kept; leave the limit as it is by default."""
    _cpu.keep_memory(0)
    _cpu.keep_memory(1024)
    yield
    _cpu.keep_memory(1024)


def array_of(mebibytes: float) -> np.ndarray:
    return _cpu.empty_array((int(mebibytes * MIB),), np.dtype(np.uint8))


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


def test_no_more_is_kept_than_allowed_and_the_oldest_goes_first() -> None:
    _cpu.keep_memory(20)
    blocks = [array_of(8), array_of(8), array_of(8)]
    addresses = [address(block) for block in blocks]
    while blocks:
        del blocks[0]
    # The first was given back when the third came; whoever takes two gets the others.
    assert {address(a) for a in (array_of(8), array_of(8))} <= {*addresses[1:]}


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


def test_kept_memory_is_released_when_there_is_no_other() -> None:
    """In 3 GiB of addresses beyond the present ones, 2 GiB follow 1 GiB only if that goes."""
    done = run_python(
        """
        import resource
        import numpy as np
        from roipool import _cpu

        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 5 * 2**29, used + 5 * 2**29))
        byte = np.dtype(np.uint8)
        first = _cpu.empty_array((1000 * 2**20,), byte)
        del first
        print(_cpu.empty_array((2 * 2**30,), byte).size)
        """
    )
    assert done.stdout == f"{2 * 2**30}\n", done.stderr


@pytest.mark.parametrize(("setting", "same"), [("", True), ("64", True), ("0", False)])
def test_the_setting(setting: str, same: bool) -> None:
    done = run_python(
        """
        import numpy as np
        from roipool import _cpu

        byte = np.dtype(np.uint8)
        first, other = (_cpu.empty_array((32 * 2**20,), byte) for _ in range(2))
        first[...] = 7
        del first
        print(_cpu.empty_array((32 * 2**20,), byte).max())
        """,
        ROIPOOL_KEPT_MIB=setting,
    )
    assert done.stdout == ("7\n" if same else "0\n"), done.stderr


def test_a_setting_that_is_no_number_is_refused() -> None:
    done = run_python("import roipool", ROIPOOL_KEPT_MIB="lots")
    assert "ValueError: ROIPOOL_KEPT_MIB is 'lots'; it must be a whole number" in done.stderr
