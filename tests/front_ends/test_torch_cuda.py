"""The way of CUDA tensors, on the emulator: CPU tensors that pose as a GPU's, a stream of torch's.

What a GPU alone can show is not shown: that torch's stream, allocator and graphs are what they say.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _support import emulator
from _support.emulator import driver, memory, streams
from _support.emulator.arithmetic import launches
from _support.loops import each
from _support.operators import Request, forward_request, requests
from _support.pretended import OldStream, Pretended, TorchStream
from _support.tensors import ALL_CASES, DTYPES, FORMATS, SIZE, TensorCase, maps
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from roipool._definitions import MOVED, Definition
from roipool._dtypes import FLOATS
from roipool._levels import levels_by_area
from roipool._request import Pooling
from roipool.torch import _launches
from roipool.torch._autograd import device_of_plain
from roipool.torch._families import AVERAGE, AVERAGE_OF_MAPS, FAMILIES
from roipool.torch._kernels import KERNELS
from roipool.torch._library import levels_at_once
from roipool.torch._memory import MAP_INTEGERS, ON_CPU
from roipool.torch._operators import BRIDGES, kernel, of_operator, on_device

CASES = [case for case in ALL_CASES if not case.adaptive]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
# Types and layouts as programs have them, one of each together.
usual_forms = each(
    lambda dtype, memory_format, **_: (
        (dtype is torch.float32) == (memory_format is torch.contiguous_format)
    ),
    dtype={name: DTYPES[name] for name in ("float32", "bfloat16")},
    memory_format=FORMATS,
)


@pytest.fixture
def cupy() -> Iterator[ModuleType]:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as module:
        launches.clear()
        yield module


@pytest.mark.parametrize("stream", [OldStream, TorchStream])
def test_streams_of_every_torch(cupy: ModuleType, stream: type[OldStream]) -> None:
    bridge = Pretended(stream)
    case = next(case for case in CASES if case.op.forward == "roi_align")
    for request in all_requests(case, torch.float32, torch.contiguous_format):
        close(on_device(bridge, of_operator(*request[:2]))(*request.args), computed(request))
    check_launches(bridge)
    assert bridge.devices == {torch.device("cpu")}  # not torch's current one


def test_calls_are_made_on_the_device_of_their_tensors(
    cupy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch does not export a tensor of another device than its current one."""
    entered: list[int] = []

    def enter(number: int) -> AbstractContextManager[None]:
        entered.append(number)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device", enter)
    second: Any = SimpleNamespace(device="cuda:1", get_device=lambda: 1)
    with Pretended().on_device_of(second):
        assert entered == [1]


def check_launches(bridge: Pretended) -> None:
    """All on torch's stream, in memory of torch's; no array is copied in order to be read."""
    begin, end = "begin of stream 7", "end of stream 7"
    assert launches[0] == begin
    assert launches[-1] == end
    depth = 0
    for name in launches:
        depth += (name == begin) - (name == end)
        assert depth in (0, 1)
        assert depth or name == end, f"{name} is on no stream"
    assert any(name not in (begin, end) for name in launches)
    assert bridge.allocated > 0
    assert not {"ascontiguousarray", "astype", "copy"} & set(launches)


@every_case
@usual_forms
def test_kernels_compute_what_the_cpu_does(
    cupy: ModuleType, case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """Forward and gradients of every operation, through CuPy's arrays."""
    bridge = Pretended()
    for request in all_requests(case, dtype, memory_format):
        got = as_kernel(bridge, request)(*request.args)
        for mine, other in zip(_list(got), _list(computed(request)), strict=True):
            assert mine.dtype is other.dtype
            assert mine.stride() == other.stride()
            close(mine, other)
    check_launches(bridge)


@pytest.mark.parametrize("dtype", MAP_INTEGERS, ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if case.op.dtypes != FLOATS], ids=str)
def test_integers_are_read_in_place(cupy: ModuleType, case: TensorCase, dtype: torch.dtype) -> None:
    features = (40 * maps(torch.float32)).to(dtype)
    request = forward_request(case, features, case.boxes(dtype=torch.float32), case.indices())
    got = as_kernel(Pretended(), request)(*request.args)
    for mine, other in zip(_list(got), _list(computed(request)), strict=True):
        assert mine.dtype is other.dtype
        close(mine, other)
    assert not {"ascontiguousarray", "astype", "copy"} & set(launches)


def all_requests(
    case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> list[Request]:
    """Return the calls of operators by every function of a case."""
    features = maps(dtype, memory_format)
    gradient = maps(dtype, memory_format, seed=1, shape=(5, 3 // case.groups, *SIZE))
    return requests(case, features, gradient, case.boxes(dtype=torch.float32), case.indices())


def as_kernel(bridge: Pretended, request: Request) -> Any:
    """Return the kernel of an operator."""
    return kernel(bridge, request.verb, of_operator(request.family, request.verb))


def computed(request: Request) -> Any:
    """Return what the operator computes on the CPU."""
    return request.overload(*request.args)


def _list(values: Any) -> list[Tensor]:
    return [*values] if isinstance(values, (list, tuple)) else [values]


def close(mine: Tensor, other: Tensor) -> None:
    if not mine.is_floating_point():
        assert torch.equal(mine, other)
        return
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 1.6e-2}[mine.dtype]
    torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance * 8)


@pytest.fixture
def align(cupy: ModuleType) -> Request:
    """A call of ROI align on two boxes."""
    case = next(case for case in CASES if case.op.forward == "roi_align")
    boxes = torch.tensor([[1, 1, 4, 4.0], [1, 1, 4, 4]])
    return forward_request(case, maps(torch.float32), boxes, torch.tensor([1, 1]))


def test_a_box_of_no_image_pools_nothing(cupy: ModuleType, align: Request) -> None:
    """Nothing is read back to check it."""
    wrong = align.replaced(align.boxes_at + 1, torch.tensor([5, 1]))
    with cupy.no_reads():
        pooled = as_kernel(Pretended(), wrong)(*wrong.args)
    assert not pooled[0].any()
    assert pooled[1].any()


def test_zeros_without_memory_are_not_read(align: Request) -> None:
    empty = torch._efficientzerotensor(align.args[0].shape)
    assert empty.data_ptr() == 0
    request = align.replaced(0, empty)
    assert as_kernel(Pretended(), align)(*align.args).all()
    assert not as_kernel(Pretended(), request)(*request.args).any()


def test_boxes_that_are_to_be_read_with_the_other_sign(align: Request) -> None:
    boxes = align.args[align.boxes_at]
    negative = torch.complex(torch.zeros_like(boxes), -boxes).conj().imag
    assert negative.is_neg()
    alike = [
        as_kernel(Pretended(), each)(*each.args)
        for each in (align, align.replaced(align.boxes_at, negative))
    ]
    assert alike[0].any()
    assert torch.equal(*alike)


@pytest.mark.parametrize("dtype", [*DTYPES.values(), torch.int32, torch.int64, torch.uint8])
def test_levels_are_assigned_at_once(cupy: ModuleType, dtype: torch.dtype) -> None:
    bridge = Pretended()
    rois = torch.randint(0, 250, (70, 5), generator=torch.Generator().manual_seed(1)).to(dtype)
    areas = [64.0, 1600.0, 6400.0, 25600.0]
    is_narrow = dtype.is_floating_point and dtype is not torch.float64
    corners = rois[:, 1:].to(torch.float32 if is_narrow else torch.float64)
    levels = on_device(bridge, levels_at_once)(corners, areas)
    expected = levels_by_area(rois[:, 1:].double(), torch.zeros(70, dtype=torch.int64), areas)
    assert levels.dtype is torch.int64
    assert len(set(levels.tolist())) > 3
    assert torch.equal(levels, expected)
    check_launches(bridge)


def test_plain_tensors_of_one_device_need_no_dispatcher() -> None:
    features, boxes = torch.ones(1, 1, 4, 4), torch.zeros(2, 5)
    for others in ((), (torch.zeros(2),), (torch.zeros(2), features)):
        assert device_of_plain(features, boxes, None, *others) == "CPU"
        assert device_of_plain(features, boxes.to("meta"), None, *others) is None
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(features)
        assert device_of_plain(fake, fake, None, *others) is None
    assert set(BRIDGES) == {"CPU", "CUDA"}
    for family in FAMILIES.values():
        assert set(family.kernels) == set(itertools.product(family.overloads, BRIDGES))


def test_errors_of_devices_come_before_anything_is_launched(align: Request) -> None:
    for place in (align.boxes_at, align.boxes_at + 1):
        wrong = align.replaced(place, align.args[place].to("meta"))
        with pytest.raises(ValueError, match=r"average: .* must be on the device of features"):
            as_kernel(Pretended(), wrong)(*wrong.args)
    assert [name for name in launches if "stream" not in name] == []


def test_results_are_memory_that_torch_allocated(cupy: ModuleType) -> None:
    """So that `record_stream` counts; torch ignores it for memory that comes by DLPack."""

    class Recording(Pretended):
        def allocate(self, device: torch.device, size: int) -> Any:
            memory = super().allocate(device, size)
            storages.update(one.untyped_storage()._cdata for one in self._allocated.values())
            return memory

    storages: set[int] = set()
    case = next(case for case in CASES if case.variant.has_argmax)
    bridge = Recording()
    for memory_format in FORMATS.values():
        request, _ = all_requests(case, torch.float32, memory_format)
        _, argmax = as_kernel(bridge, request)(*request.args)
        assert argmax.untyped_storage()._cdata in storages
        assert torch.equal(argmax, computed(request)[1])


# ---- Small calls, which the driver launches at once


@pytest.fixture
def one_gpu(cupy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors of the host be on a GPU of their number, 0, with the current stream 7."""
    monkeypatch.setattr(_launches.READER, "device_type", ON_CPU)
    monkeypatch.setattr(_launches.READER, "current_device", lambda: 0)
    monkeypatch.setattr(_launches, "current_stream", lambda gpu: 7)
    _launches.kept_verb.cache_clear()
    driver.launched.clear()


def small(request: Request) -> Any:
    """Return what a small call computes, or None."""
    args = request.family.from_operator(request.verb, request.args)
    results = getattr(_launches, request.verb)(*args)
    return None if results is None else request.family.to_results(request.verb, results)


def check_small(request: Request) -> None:
    """A small call gives the bits of the general path, and launches on torch's stream."""
    expected = _list(as_kernel(Pretended(), request)(*request.args))
    driver.launched.clear()
    got = small(request)
    assert got is not None, request.verb
    assert {stream for stream, _ in driver.launched} == {7}
    for mine, other in zip(_list(got), expected, strict=True):
        assert mine.dtype is other.dtype
        assert mine.stride() == other.stride()
        assert torch.equal(mine, other)


@every_case
@usual_forms
def test_small_calls_give_the_same_bits(
    one_gpu: None, case: TensorCase, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    for request in all_requests(case, dtype, memory_format):
        settings, boxes, *_ = request.family.from_operator(request.verb, request.args)
        definition = settings.definition
        if request.verb.endswith("_boxes") or definition.depth or definition.name in MOVED:
            continue  # which take the general path
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        check_small(request.replaced(request.boxes_at, boxes.to(wide)))


@each(dtype=DTYPES, memory_format=FORMATS)
def test_small_pyramids_give_the_same_bits(
    one_gpu: None, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """For shapes that no call had before, and boxes that are columns of a table."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    pooling = Pooling(Definition("roi_align", 0.5), (3, 4), scales=(0.5, 0.25))
    settings = AVERAGE_OF_MAPS.settings_of(pooling)
    for shape in ((2, 16, 9, 11), (1, 16, 20, 7)):
        pyramid = [maps(dtype, memory_format, seed=k, shape=shape) for k in range(2)]
        table = torch.tensor([[0, 1, 1, 9, 12], [0, 3, 2, 30, 9]] * 40, dtype=wide)
        levels = torch.arange(len(table)) % 2
        at = table[:, 1:], table[:, 0], levels
        gradient = maps(dtype, memory_format, seed=5, shape=(len(table), 16, 3, 4))
        last = memory_format is torch.channels_last
        of = settings._replace(shapes=(shape, shape), channels_last=last)
        for verb, with_verb, arrays in (
            ("average", settings, pyramid),
            ("average_backward", of, [gradient]),
        ):
            args = AVERAGE_OF_MAPS.to_operator(verb, with_verb, *at, *arrays)
            check_small(Request(AVERAGE_OF_MAPS, verb, args))


@each(dtype=DTYPES, memory_format=FORMATS, sampling={"adaptive": 0, "fixed": 2})
def test_small_calls_of_tables_give_the_same_bits(
    one_gpu: None, dtype: torch.dtype, memory_format: torch.memory_format, sampling: int
) -> None:
    driver.launched.clear()
    pooling = Pooling(Definition("roi_align", 0.5, (sampling, sampling)), (3, 4))
    settings = AVERAGE.settings_of(pooling)
    with_cuts = settings._replace(cuts=True)
    compute = kernel(Pretended(), "roi_align", of_operator(AVERAGE, "average"))
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for number, shape in enumerate([(2, 16, 9, 11), (1, 16, 20, 7)]):
        features = maps(dtype, memory_format, shape=shape)
        table = torch.tensor([[0, 1, 1, 9, 12], [0.7, 3, 2, 30, 9], [9, 1, 1, 5, 5]], dtype=wide)
        pooled = _launches.average(with_cuts, table, None, None, features)
        assert pooled is not None
        args = AVERAGE.to_operator(
            "average", settings, table[:, 1:], table[:, 0].trunc().double(), None, features
        )
        expected = compute(*args)
        assert torch.equal(pooled, expected)
        assert pooled.stride() == expected.stride()
        assert driver.launched == [(7, "average_forward")] * (number + 1)
    by_columns, wide = table.T.contiguous().T, torch.cat([table, table], dim=1)
    for view in (by_columns, wide[:, :5], wide[:, 5:]):
        pooled = _launches.average(with_cuts, view, None, None, features)
        assert pooled is not None
        assert torch.equal(pooled, expected)


def test_calls_that_are_not_small(one_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AVERAGE.settings_of(Pooling(Definition("roi_align"), (3, 4)))

    def fast(features: Tensor, table: Tensor) -> Tensor | None:
        return _launches.average(settings, table, None, None, features)

    features, table = maps(torch.float32), torch.tensor([[0.0, 1, 1, 4, 4]])
    assert fast(features, table) is not None
    freed = maps(torch.float32)
    freed.untyped_storage().resize_(0)
    negative = torch.complex(torch.zeros_like(table), -table).conj().imag
    for others in (
        (features[..., ::2], table),
        (features.to(torch.uint8), table),
        (features, table.double()),
        (features, table[:, 1:]),
        (features, table[:0]),
        (features, negative),
        (freed, table),
    ):
        assert fast(*others) is None
    others = (driver, "status", 201), (_launches.READER, "current_device", lambda: 1)
    for changes in others:
        with monkeypatch.context() as changed:
            changed.setattr(*changes)
            assert fast(features, table) is None
    assert len(driver.launched) == 1


@pytest.mark.parametrize("cuts", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.float64])
def test_tables_of_another_type_take_the_general_path(
    one_gpu: None, dtype: torch.dtype, cuts: bool
) -> None:
    """Small calls that are recorded for autograd give their table as it is."""
    maps_dtype = torch.float32 if dtype is torch.float64 else torch.float64
    features = maps(maps_dtype)
    table = torch.tensor([[0, 1, 1, 4, 4], [1, 1, 2, 5, 4], [7, 1, 1, 4, 4]]).to(dtype)
    if cuts and dtype.is_floating_point:
        table[0, 0] = 0.5
    pooling = Pooling(Definition("roi_align"), (3, 4))
    settings = AVERAGE.settings_of(pooling)._replace(cuts=cuts)
    compute = on_device(Pretended(), KERNELS["average"][0])
    got = compute(settings, table, None, None, features)
    boxes, indices = table[:, 1:], table[:, 0].long()
    expected = compute(settings, boxes, indices, None, features)
    assert torch.equal(got, expected)
    assert got[:2].any(dim=(1, 2, 3)).all()
    assert not got[2].any()
    assert driver.launched == []


@pytest.mark.parametrize("wrong", ["shape", "type", "strides", "maps", "freed", "levels"])
def test_gradients_that_are_not_small(one_gpu: None, wrong: str) -> None:
    shapes = ((2, 16, 9, 11), (2, 16 + (wrong == "maps"), 5, 6))
    pooling = Pooling(Definition("roi_align"), (3, 4), scales=(0.5, 0.25))
    settings = AVERAGE_OF_MAPS.settings_of(pooling)._replace(shapes=shapes)
    channels = 15 if wrong == "shape" else 16
    gradient = maps(torch.float32, shape=(6, channels, 3, 4 * (1 + (wrong == "strides"))))
    gradient = gradient[..., ::2] if wrong == "strides" else gradient
    boxes, images = torch.ones(6, 4), torch.zeros(6)
    levels = torch.zeros(6, dtype=torch.int32 if wrong == "levels" else torch.int64)
    if wrong == "type":
        boxes = boxes.double()
    if wrong == "freed":
        boxes.untyped_storage().resize_(0)
    assert _launches.average_backward(settings, boxes, images, levels, gradient) is None
    assert driver.launched == []


# ---- Graphs


class CachingAllocator(TorchDispatchMode):
    """torch's allocator: new tensors get memory that earlier ones have freed.

    While a graph is captured they come from a pool of its own, which nobody else gets any of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.common = self.pool = memory.Pool()

    @contextmanager
    def capturing(self, pool: memory.Pool) -> Iterator[streams.Graph]:
        """Capture a graph, as `torch.cuda.graph` does."""
        self.pool = pool
        try:
            with streams.capturing() as graph:
                yield graph
        finally:
            self.pool = self.common

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.empty.memory_format or not made.numel():
            return made
        block = np.asarray(self.pool.malloc(made.numel() * made.itemsize))
        return torch.from_numpy(block).view(made.dtype).as_strided(made.shape, made.stride())


def replayed(allocator: CachingAllocator, call: Any, pool: memory.Pool) -> tuple[Any, Any]:
    """Return a call's results and those of its graph, captured with memory of a pool.

    Everything that torch has free is overwritten before the graph runs.
    """
    with allocator:
        expected = [result.clone() for result in _list(call())]
        with allocator.capturing(pool) as graph:
            captured = _list(call())
    for result in captured:
        result.zero_()
    others = allocator.common.take_all()
    for other in others:
        other.fill(0)
    graph.launch()
    assert not any(other.any() for other in others)
    return expected, captured


@every_case
def test_graphs_of_torch_keep_their_memory(cupy: ModuleType, case: TensorCase) -> None:
    """All that a call allocates is torch's, which keeps what it has given to a capture."""
    for request in all_requests(case, torch.float32, torch.contiguous_format):
        call = functools.partial(as_kernel(Pretended(), request), *request.args)
        expected, captured = replayed(CachingAllocator(), call, memory.Pool())
        for got, wanted in zip(captured, expected, strict=True):
            assert torch.equal(got, wanted), request.verb


def test_graphs_without_a_pool_of_their_own_go_wrong(cupy: ModuleType) -> None:
    """So the test above would see memory that is not torch's, or that torch did not keep."""
    case = next(case for case in CASES if case.op.forward == "roi_align")
    allocator = CachingAllocator()
    given = all_requests(case, torch.float32, torch.contiguous_format)
    backward = next(each for each in given if each.verb == "average_backward")
    call = functools.partial(as_kernel(Pretended(), backward), *backward.args)
    with pytest.raises(AssertionError):
        replayed(allocator, call, allocator.common)
