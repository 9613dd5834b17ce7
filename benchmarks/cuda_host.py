"""How long Python takes to issue a call on CuPy arrays, without CuPy and without a GPU.

CuPy is stood in for by arrays whose attributes are there already and by kernels that do nothing, so
that what remains is roipool's own time. CuPy adds its own: some microseconds for each launch and
each new array.

    python benchmarks/cuda_host.py            # print the table
    python benchmarks/cuda_host.py --write    # and write benchmarks/cuda_host.md
    python benchmarks/cuda_host.py --profile  # where the time of roi_align goes
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import math
import pstats
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from harness.machine import facts

RESULT = Path(__file__).with_suffix(".md")
REPEATS, CALLS = 200, 50
ROUNDS = 10  # of calls with new numbers of boxes
GOAL = 12  # microseconds
PAGE = """\
# What Python takes to issue a call on a GPU

Written by `python benchmarks/cuda_host.py --write`: microseconds of processor time, the least of
{repeats} rounds of {calls} calls, with stand-ins for CuPy's arrays and kernels that do nothing.
{machine}.
Goal: {goal} us. *New*: calls with numbers of boxes that no call had before; the least of {rounds}
rounds.

{table}
"""


class Array:
    """A CuPy array as far as calls look at it: nothing but attributes."""

    __slots__ = (
        "columns", "data", "device", "dtype", "flags", "ndim", "shape", "size", "strides",
    )  # fmt: skip
    __module__ = "cupy"

    def __init__(self, shape: tuple[int, ...], dtype: Any, columns: tuple[Any, ...] = ()) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(dtype), len(shape)
        self.size = math.prod(shape)
        self.strides: tuple[int, ...] = (20, 4)[: self.ndim]  # read of boxes alone
        self.flags, self.data, self.device = FLAGS, DATA, DEVICE
        self.columns = columns  # the first of a table, and the others

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> Any:
        return self.columns[place[1] != 0] if self.columns else self

    def reshape(self, *shape: int) -> Any:
        """Return the array; only boxes whose coordinates change places come here."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Return the array, which has that type."""
        return self


Array.__name__ = "ndarray"


class Device:
    """The only one."""

    id, compute_capability = 0, "90"

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


DEVICE, FLAGS = Device(), SimpleNamespace(c_contiguous=True)
DATA = SimpleNamespace(ptr=4096)


class Kernel:
    """A kernel that does nothing."""

    def __init__(self, code: str, name: str, options: tuple[str, ...]) -> None: ...

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: tuple[Any, ...],
        shared_mem: int = 0,
    ) -> None:
        """Find the addresses of arguments, and launch nothing.

        CuPy asks NumPy for that of a structure, which takes 50 us if it has fields.
        """
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                argument.__array_interface__["data"]


def table_of(boxes: int) -> Array:
    """Return boxes with their images."""
    columns = Array((boxes,), np.float32), Array((boxes, 4), np.float32)
    return Array((boxes, 5), np.float32, columns)


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    """Let `cupy` be the stand-in."""
    new: dict[Any, Array] = {}

    def empty(shape: Any, dtype: Any) -> Array:
        key = (shape, dtype)
        if key not in new:
            new[key] = Array(shape if isinstance(shape, tuple) else (shape,), dtype)
        return new[key]

    stream = SimpleNamespace(is_capturing=lambda: False)
    module = ModuleType("cupy")
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, is_hip=False)
    cuda = SimpleNamespace(
        Device=lambda number: DEVICE, runtime=runtime, get_current_stream=lambda device: stream
    )
    vars(module).update(ndarray=Array, RawKernel=Kernel, empty=empty, cuda=cuda, __version__="")
    sys.modules["cupy"] = module
    try:
        yield
    finally:
        del sys.modules["cupy"]


def calls() -> dict[str, Callable[[int], Callable[[], Any]]]:
    """Return what makes a call for a number of boxes."""
    import roipool

    maps = Array((2, 256, 50, 84), np.float32)

    def align(boxes: int) -> Callable[[], Any]:
        table = table_of(boxes)
        return lambda: roipool.roi_align(maps, table, 7, 1 / 16, 2)

    def align_backward(boxes: int) -> Callable[[], Any]:
        table, grad = table_of(boxes), Array((boxes, 256, 7, 7), np.float32)
        return lambda: roipool.roi_align_backward(grad, table, maps.shape, 1 / 16, 2)

    def pool(boxes: int) -> Callable[[], Any]:
        table = table_of(boxes)
        return lambda: roipool.roi_pool(maps, table, 7, 1 / 16)

    def crop(boxes: int) -> Callable[[], Any]:
        rows, images = Array((boxes, 4), np.float32), Array((boxes,), np.int32)
        return lambda: roipool.crop_and_resize(maps, rows, images, (7, 7))

    return {
        "roi_align": align, "roi_align_backward": align_backward, "roi_pool": pool,
        "crop_and_resize": crop,
    }  # fmt: skip


def microseconds(calls: Iterable[Callable[[], Any]]) -> float:
    """Return the time of some calls, of one on average."""
    start, number = time.thread_time_ns(), 0
    for number, call in enumerate(calls, 1):  # noqa: B007 - counted
        call()
    return (time.thread_time_ns() - start) / number / 1000


def times() -> Iterator[list[str]]:
    """Yield each call with its time, and that of a first one with new numbers of boxes."""
    for name, make in calls().items():
        same = make(1000)
        same()
        known = min(microseconds([same] * CALLS) for _ in range(REPEATS))
        # Each number once; launches are prepared for a few numbers between 1,024 and 2,048.
        several = [make(boxes) for boxes in range(1100, 1100 + ROUNDS * CALLS)]
        new = min(microseconds(several[first::ROUNDS]) for first in range(ROUNDS))
        yield [f"`{name}`", f"{known:.1f}", f"{new:.1f}"]


def page() -> str:
    """Measure, and return the page."""
    lines = [["call", "us", "us, new"], ["---", "---:", "---:"], *times()]
    about = facts()
    machine = f"{about['cpu']}, Python {about['python']}, NumPy {about['numpy']}, {about['date']}"
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return PAGE.format(
        rounds=ROUNDS, repeats=REPEATS, calls=CALLS, goal=GOAL, machine=machine, table=table
    )


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="write the page, too")
    parser.add_argument("--profile", action="store_true", help="profile roi_align instead")
    arguments = parser.parse_args()
    with stand_in():
        if arguments.profile:
            call = calls()["roi_align"](1000)
            call()
            with cProfile.Profile() as profile:
                for _ in range(20_000):
                    call()
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            return 0
        found = page()
    print(found)
    if arguments.write:
        RESULT.write_text(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
