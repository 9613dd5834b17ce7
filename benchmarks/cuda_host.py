"""Measures the time in which Python issues a call on CuPy arrays, without CuPy and a GPU.

Stand-ins replace CuPy: arrays with precomputed attributes, and kernels that do nothing, so that
only roipool's own time is measured. CuPy adds a few microseconds for each launch and each new
array.

    python benchmarks/cuda_host.py            # print the table
    python benchmarks/cuda_host.py --write    # and write benchmarks/cuda_host.md
    python benchmarks/cuda_host.py --check    # exit status 1 if calls enter more functions
    python benchmarks/cuda_host.py --profile  # profile roi_align

The page also has calls on tensors, beside torchvision's dispatch on a CPU, where both libraries are
installed when it is written.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import ctypes
import functools
import math
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from harness.machine import facts

from roipool._cuda import driver

RESULT = Path(__file__).with_suffix(".md")
REPEATS, ROUNDS, CALLS = 60, 5, 20
GOAL = 20  # microseconds, with CuPy's or torch's part
# The stages of a call: files or folders of roipool, and their tasks.
STAGES = {
    "_front_ends.py": "whose arrays are they",
    "_kept.py": "calls that are kept",
    "ops": "the public function",
    "_arguments.py": "arguments are checked",
    "_boxes.py": "boxes are checked",
    "_arrays": "one library, one device",
    "_pooling.py": "the result is made",
    "_cuda": "kernels and their arguments",
    "cuda_host.py": "stand-ins",
}
PAGE = """\
# What Python takes to issue a call on a GPU

Written by `python benchmarks/cuda_host.py --write`: microseconds of processor time, the least of
{repeats} rounds of {calls} calls, with stand-ins for CuPy's arrays and kernels that do nothing.
{machine}.

{table}

- **new boxes**: with numbers of boxes that no call had before; **new sizes**: also with maps of
  sizes that no call had before.
- **of it stand-ins**: what they take for what a call asks of them. The goal is {goal} for a whole
  call, with the driver's launch and the library's own part.
- Measured the same way, a Python function that does nothing takes {nothing:.3f} us: to compare
  machines by.

{tensors}Functions of Python that one call enters, by what they are there for:

{stages}
"""
TENSORS = """\
The same for tensors, with the addresses of the host's and a launch that does nothing, beside a
call of torchvision's operator on a CPU that has nothing to pool ({versions}):

{table}

Public functions on tensors that pose as a GPU's, with all that torch does for them, its engine of
gradients included: functions of Python that a call enters, functions of C that these call, and
microseconds.

{whole}

"""


class Array:
    """A stand-in for a CuPy array, with the attributes that calls read."""

    __slots__ = ("columns", "data", "device", "dtype", "flags", "ndim", "shape", "size", "strides")
    __module__ = "cupy"

    def __init__(self, shape: tuple[int, ...], dtype: Any, columns: tuple[Any, ...] = ()) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(dtype), len(shape)
        self.size = math.prod(shape)
        # Only tables of boxes are indexed; in float32 their columns are precomputed.
        is_column = self.dtype == np.float32
        self.strides: tuple[int, ...] = (20, 4)[: self.ndim] if is_column else (8,)
        self.flags, self.data, self.device = FLAGS, DATA, DEVICE
        self.columns = columns  # the first column of a table, and the others

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> Any:
        return self.columns[place[1] != 0] if self.columns else self

    def reshape(self, *shape: int) -> Any:
        """Return the array; used only for boxes with reordered coordinates."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Return the array, which already has the type."""
        return self


Array.__name__ = "ndarray"


class Device:
    """The only device."""

    id, compute_capability = 0, "90"
    attributes: ClassVar = {
        "MaxSharedMemoryPerMultiprocessor": 228 << 10,
        "MaxSharedMemoryPerBlockOptin": 227 << 10,
    }

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


DEVICE, FLAGS = Device(), SimpleNamespace(c_contiguous=True)
DATA = SimpleNamespace(ptr=4096, device_id=0, memset_async=lambda value, size: None)
# A function of C that does nothing and returns 0, in the place of the driver's.
NOTHING = ctypes.cast(ctypes.pythonapi.PyErr_CheckSignals, ctypes.c_void_p).value


class Kernel:
    """A kernel that does nothing."""

    kernel = SimpleNamespace(ptr=4096)

    def __init__(self, code: str, name: str, options: tuple[str, ...]) -> None: ...

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: tuple[Any, ...],
        shared_mem: int = 0,
    ) -> None:
        """Read the addresses of arguments, without a launch.

        CuPy gets the address of a structure from NumPy, which takes 50 us if it has fields.
        """
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                argument.__array_interface__["data"]


def table_of(boxes: int, numbers: int = 4) -> Array:
    """Return boxes with batch indices."""
    columns = Array((boxes,), np.float32), Array((boxes, numbers), np.float32)
    for each, place in zip(columns, (4096, 4100), strict=True):
        each.data = SimpleNamespace(ptr=place, device_id=0)
    return Array((boxes, numbers + 1), np.float32, columns)


def is_capturing() -> bool:
    """Return False."""
    return False


def get_current_stream(device: int) -> Any:
    """Return the only stream."""
    return STREAM


STREAM = SimpleNamespace(is_capturing=is_capturing, ptr=0)
NEW: dict[Any, Array] = {}


def empty(shape: Any, dtype: Any) -> Array:
    """Return a precomputed array, for any number of boxes."""
    key = (shape[1:] if isinstance(shape, tuple) else 0, dtype)
    if key not in NEW:
        NEW[key] = Array(shape if isinstance(shape, tuple) else (shape,), dtype)
    return NEW[key]


def ascontiguousarray(array: Array) -> Array:
    """Return the array, which is contiguous."""
    return array


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    """Replace `cupy` by the stand-in."""
    module = ModuleType("cupy")
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, getDevice=lambda: 0, is_hip=False)
    cuda = SimpleNamespace(
        Device=lambda number: DEVICE, runtime=runtime, get_current_stream=get_current_stream
    )
    functions = {"empty": empty, "ascontiguousarray": ascontiguousarray}
    vars(module).update(ndarray=Array, RawKernel=Kernel, cuda=cuda, __version__="", **functions)
    sys.modules["cupy"] = module
    saved, driver.functions = driver.functions, lambda: (NOTHING, NOTHING)  # type: ignore[assignment]
    try:
        yield
    finally:
        driver.functions = saved
        del sys.modules["cupy"]


def calls() -> dict[str, Callable[..., Callable[[], Any]]]:
    """Return functions that prepare a call for a number of boxes, and rows of the maps."""
    import roipool

    def maps_of(rows: int) -> Array:
        return Array((2, 256, rows, 84), np.float32)

    def align(boxes: int, rows: int = 50) -> Callable[[], Any]:
        table, maps = table_of(boxes), maps_of(rows)
        return lambda: roipool.roi_align(maps, table, 7, 1 / 16, 2)

    def align_backward(boxes: int, rows: int = 50) -> Callable[[], Any]:
        maps = maps_of(rows)
        table, grad = table_of(boxes), Array((boxes, 256, 7, 7), np.float32)
        return lambda: roipool.roi_align_backward(grad, table, maps.shape, 1 / 16, 2)

    def pool(boxes: int, rows: int = 50) -> Callable[[], Any]:
        maps = maps_of(rows)
        table = table_of(boxes)
        return lambda: roipool.roi_pool(maps, table, 7, 1 / 16)

    def pool_argmax(boxes: int, rows: int = 50) -> Callable[[], Any]:
        maps, table = maps_of(rows), table_of(boxes)
        return lambda: roipool.roi_pool(maps, table, 7, 1 / 16, return_argmax=True)

    def position_sensitive(boxes: int, rows: int = 50) -> Callable[[], Any]:
        maps, table = Array((2, 4 * 49, rows, 84), np.float32), table_of(boxes)
        return lambda: roipool.ps_roi_align(maps, table, 7, 1 / 16, sampling_ratio=2)

    def rotated(boxes: int, rows: int = 50) -> Callable[[], Any]:
        maps, table = maps_of(rows), table_of(boxes, 5)
        return lambda: roipool.roi_align_rotated(maps, table, 7, 1 / 16, 2)

    def crop(boxes: int, rows: int = 50) -> Callable[[], Any]:
        maps = maps_of(rows)
        corners, images = Array((boxes, 4), np.float32), Array((boxes,), np.int32)
        return lambda: roipool.crop_and_resize(maps, corners, images, (7, 7))

    def align_levels(boxes: int, rows: int = 50) -> Callable[[], Any]:
        table, levels = table_of(boxes), Array((boxes,), np.int64)
        pyramid = [Array((2, 256, 4 * rows >> k, 336 >> k), np.float32) for k in range(4)]
        scales = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
        return lambda: roipool.multilevel_roi_align(pyramid, table, 7, scales, 2, levels=levels)

    def align_levels_backward(boxes: int, rows: int = 50) -> Callable[[], Any]:
        table, levels = table_of(boxes), Array((boxes,), np.int64)
        grad = Array((boxes, 256, 7, 7), np.float32)
        shapes = tuple((2, 256, 4 * rows >> k, 336 >> k) for k in range(4))
        scales = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
        return lambda: roipool.multilevel_roi_align_backward(
            grad, table, shapes, scales, 2, levels=levels
        )

    return {
        "roi_align": align,
        "roi_align_backward": align_backward,
        "roi_pool": pool,
        "roi_pool, with argmax": pool_argmax,
        "ps_roi_align": position_sensitive,
        "roi_align_rotated": rotated,
        "crop_and_resize": crop,
        "multilevel_roi_align": align_levels,
        "multilevel_roi_align_backward": align_levels_backward,
    }


def microseconds(calls: Iterable[Callable[[], Any]]) -> float:
    """Return the mean time of some calls."""
    start, number = time.thread_time_ns(), 0
    for number, call in enumerate(calls, 1):  # noqa: B007 - counted
        call()
    return (time.thread_time_ns() - start) / number / 1000


def entered(call: Callable[[], Any], counted: str = "call") -> Counter[tuple[str, str]]:
    """Return how often a call enters each function, by file or folder and name.

    With "c_call", those of C by where they are called.
    """
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == counted:
            found[stage_of(frame.f_code.co_filename), frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def stage_of(file: str) -> str:
    """Return the stage of a file: a file or folder of roipool, or the file's own name."""
    import roipool

    path, package = Path(file), Path(roipool.__file__).parent
    return path.relative_to(package).parts[0] if path.is_relative_to(package) else path.name


def least(calls: Sequence[Callable[[], Any]], rounds: int) -> float:
    """Return the mean time of a call in the fastest of several rounds, each with its own calls."""
    return min(microseconds(calls[first::rounds]) for first in range(rounds))


def least_in_turns(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the same for each call; they take turns, so that a busy machine affects all alike."""
    found = dict.fromkeys(runs, math.inf)
    for _ in range(REPEATS):
        for name, run in runs.items():  # whose later rounds find their code in the caches
            found[name] = min(found[name], least([run] * CALLS * ROUNDS, ROUNDS))
    return found


def time_of_nothing() -> float:
    """Return the time of a function that does nothing."""
    return least([lambda: None] * CALLS * REPEATS, REPEATS)


def time_of_stand_ins(used: Mapping[tuple[str, str], int]) -> float:
    """Return the time that a call spends in the stand-ins."""
    table, kernel = table_of(1000), Kernel("", "", ())
    bare = np.frombuffer(bytearray(256), "V256")
    alone: dict[str, Callable[[], Any]] = {
        "__len__": lambda: len(table),
        "__getitem__": lambda: table[:, 0],
        "__enter__": DEVICE.__enter__,
        "__exit__": DEVICE.__exit__,
        "__call__": lambda: kernel((1,), (1,), (*[table] * 5, bare), shared_mem=0),
        "astype": lambda: table.astype(np.float32, copy=False),
        "reshape": lambda: table.reshape(1, 2, 3),
        "empty": lambda: empty((1000, 256, 7, 7), table.dtype),
        "ascontiguousarray": lambda: ascontiguousarray(table),
        "is_capturing": is_capturing,
        "get_current_stream": lambda: get_current_stream(0),
    }
    nothing = time_of_nothing()
    times = {name: least([run] * CALLS * REPEATS, REPEATS) - nothing for name, run in alone.items()}
    here = Path(__file__).name
    return sum(times.get(name, 0) * count for (file, name), count in used.items() if file == here)


def measured() -> Iterator[tuple[list[str], list[str]]]:
    """Yield for each call a row of times, and a row of the functions that it enters."""
    makers = calls()
    known, new, sizes = (dict.fromkeys(makers, math.inf) for _ in range(3))
    # Each number of boxes once; launches are prepared for eight numbers from 1,024 to 2,048. Calls
    # take turns, so that a busy machine affects all of them.
    for first in range(1100, 1100 + REPEATS * CALLS, CALLS):
        for name, make in makers.items():
            same = make(1000)
            for _ in range(2):
                same()
            known[name] = min(known[name], microseconds([same] * CALLS))
            others = [make(boxes) for boxes in range(first, first + CALLS)]
            new[name] = min(new[name], microseconds(others))
            others = [make(boxes, boxes % 4093) for boxes in range(first, first + CALLS)]
            sizes[name] = min(sizes[name], microseconds(others))
    for name, make in makers.items():
        used = entered(make(1000))
        times = known[name], new[name], sizes[name], time_of_stand_ins(used)
        yield (
            [f"`{name}`", *(f"{each:.1f}" for each in times)],
            [f"`{name}`", *map(str, by_stage(used))],
        )


def by_stage(used: Mapping[tuple[str, str], int]) -> list[int]:
    """Return the number of functions that a call enters in each stage, and elsewhere."""
    counts = [sum(count for (file, _), count in used.items() if file == stage) for stage in STAGES]
    return [*counts, sum(used.values()) - sum(counts)]


def table_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """Measure, and return the page."""
    times, stages = zip(*measured(), strict=True)
    about = facts()
    return PAGE.format(
        repeats=REPEATS,
        calls=CALLS,
        goal=GOAL,
        nothing=time_of_nothing(),
        machine="{cpu}, Python {python}, NumPy {numpy}, {date}".format(**about),
        table=table_text(["call", "us", "new boxes", "new sizes", "of it stand-ins"], times),
        tensors=tensors(),
        stages=stages_text(stages),
    )


def stages_text(rows: Iterable[Sequence[str]]) -> str:
    """Return the table of functions."""
    return table_text(["call", *STAGES.values(), "elsewhere"], rows)


def tensors() -> str:
    """Return the part on tensors, empty where torch or torchvision is missing."""
    try:
        import torch
        import torchvision
    except ImportError:
        return ""
    features, rois = torch.zeros(2, 4, 50, 84), torch.zeros(4, 5)
    nothing = torch.zeros(0, 5)
    runs = {f"roipool, {name}": run for name, run in small_calls_of_tensors(features, rois).items()}
    runs["torchvision"] = lambda: torchvision.ops.roi_align(features, nothing, 7, 1 / 16, 2)
    assert all(run() is not None for run in runs.values())
    rows = [(name, f"{time:.1f}") for name, time in least_in_turns(runs).items()]
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    table = table_text(["call", "us"], rows)
    return TENSORS.format(versions=versions, table=table, whole=whole_calls_text())


def whole_calls_text() -> str:
    """Return the table of public functions on tensors."""
    import torch

    rows, runs = [], whole_calls_of_tensors()
    # Gradients are computed by the calling thread, where no tensor is on a GPU.
    with torch.autograd.set_multithreading_enabled(False):
        times = least_in_turns(runs)
        for name, run in runs.items():
            python, c = sum(entered(run).values()), sum(entered(run, "c_call").values())
            rows.append((f"`{name}`", str(python), str(c), f"{times[name]:.1f}"))
    return table_text(["call", "Python", "C", "us"], rows)


def whole_calls_of_tensors() -> dict[str, Callable[[], Any]]:
    """Return calls of public functions, also of torchvision's, whose boxes are none."""
    import torch
    import torchvision.ops as theirs

    import roipool as own

    pose_as_of_gpu()
    maps, rois, none = torch.zeros(2, 4, 50, 84), torch.zeros(4, 5), torch.zeros(0, 5)
    pyramid = [torch.zeros(2, 4, 200 >> k, 336 >> k) for k in range(4)]
    scales, levels = (1 / 4, 1 / 8, 1 / 16, 1 / 32), torch.zeros(4, dtype=torch.int64)
    calls: dict[str, tuple[Callable[..., Any], Any]] = {
        "roi_align": (lambda maps: own.roi_align(maps, rois, 7, 1 / 16, 2), maps),
        "torchvision's roi_align": (lambda maps: theirs.roi_align(maps, none, 7, 1 / 16, 2), maps),
        "roi_pool": (lambda maps: own.roi_pool(maps, rois, 7, 1 / 16), maps),
        "torchvision's roi_pool": (lambda maps: theirs.roi_pool(maps, none, 7, 1 / 16), maps),
        "multilevel_roi_align": (
            lambda maps: own.multilevel_roi_align(maps, rois, 7, scales, 2, levels=levels),
            pyramid,
        ),
    }
    found: dict[str, Callable[[], Any]] = {}
    for name, (function, given) in calls.items():
        leaves = (
            [each.clone().requires_grad_() for each in given]
            if given is pyramid
            else [given.clone().requires_grad_()]
        )
        at = leaves if given is pyramid else leaves[0]
        gradient = torch.zeros_like(function(given))
        found[name] = functools.partial(function, given)
        found[f"{name} and its gradient"] = functools.partial(
            gradients_of, function, at, leaves, gradient
        )
    return found


def gradients_of(function: Callable[..., Any], given: Any, leaves: Any, gradient: Any) -> Any:
    """Return the gradients of a call."""
    import torch

    return torch.autograd.grad(function(given), leaves, gradient)


def pose_as_of_gpu() -> None:
    """Let public functions take tensors of the host for those of a GPU, for good."""
    from roipool.torch import _autograd, _calls, _launches, _library
    from roipool.torch._families import FAMILIES

    _calls.is_on_gpu = lambda first: True
    _library.device = lambda tensor: contextlib.nullcontext()
    _autograd.device_of_plain = lambda *tensors: "CUDA"
    for family in FAMILIES.values():
        for verb in ("average", "average_backward", "maximum", "maximum_backward"):
            if (verb, "CUDA") in family.kernels:
                family.kernels[verb, "CUDA"] = getattr(_launches, verb)


def take_for_gpu(reader: Any) -> None:
    """Let a reader of tensors take the host for a GPU."""
    from roipool.torch._memory import ON_CPU

    reader.device_type, reader.current_device = ON_CPU, int  # 0


def small_calls_of_tensors(features: Any, rois: Any) -> dict[str, Callable[[], Any]]:
    """Return calls of verbs on tensors of the host, as if they were on a GPU of their number."""
    import torch

    from roipool._definitions import Definition
    from roipool._request import Pooling
    from roipool.torch import _launches
    from roipool.torch._families import AVERAGE, AVERAGE_OF_MAPS, MAXIMUM

    take_for_gpu(_launches.READER)
    _launches.current_stream = int  # 0
    scales = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
    pooling = Pooling(Definition("roi_align", 1 / 16, (2, 2)), (7, 7))
    pyramid = [torch.zeros(2, 4, 200 >> k, 336 >> k) for k in range(4)]
    levels, grad = torch.zeros(len(rois), dtype=torch.int64), torch.zeros(len(rois), 4, 7, 7)
    argmax = torch.zeros(grad.shape, dtype=torch.int32)
    last = features.contiguous(memory_format=torch.channels_last)
    of_one = AVERAGE.settings_of(pooling)
    of_pyramid = AVERAGE_OF_MAPS.settings_of(pooling._replace(scales=scales))
    cells = pooling.rules._replace(argmax_is_cell=True)
    of_maximum = MAXIMUM.settings_of(Pooling(Definition("roi_pool", 1 / 16), (7, 7), rules=cells))
    one, several = (tuple(features.shape),), tuple(tuple(each.shape) for each in pyramid)
    table, both = (rois, None, None), (rois, None, levels)
    calls = {
        "average": ("average", of_one, *table, features),
        "average, channels last": ("average", of_one, *table, last),
        "its gradient": ("average_backward", of_one._replace(shapes=one), *table, grad),
        "average of 4 maps": ("average", of_pyramid, *both, *pyramid),
        "its gradient of 4 maps": (
            "average_backward",
            of_pyramid._replace(shapes=several),
            *both,
            grad,
        ),
        "maximum": ("maximum", of_maximum, *table, features),
        "its gradient by argmax": (
            "maximum_backward",
            of_maximum._replace(shapes=one),
            *table,
            grad,
            argmax,
        ),
    }
    return {
        name: functools.partial(getattr(_launches, verb), *args)
        for name, (verb, *args) in calls.items()
    }


def check() -> int:
    """Return 1 if a call enters more functions than the page says, else 0."""
    lines = RESULT.read_text().splitlines()
    wrong = 0
    for name, make in calls().items():
        call = make(1000)
        for _ in range(3):  # the first finds out whose arrays these are, the second is kept
            call()
        number = sum(by_stage(entered(call)))
        *_, line = (line for line in lines if line.startswith(f"| `{name}` |"))
        known = sum(map(int, line.strip("| ").split(" | ")[1:]))
        if number > known:
            print(f"{name} enters {number} functions, {RESULT.name} says {known}")
            wrong = 1
    return wrong


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="also write the page")
    parser.add_argument("--check", action="store_true", help="compare with the page instead")
    parser.add_argument("--profile", action="store_true", help="profile roi_align instead")
    arguments = parser.parse_args()
    with stand_in():
        if arguments.check:
            return check()
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
