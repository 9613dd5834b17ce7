"""Tensors as small calls on a GPU read them: by DLPack's functions of C, or not at all.

Tensors of the host pose as a GPU's.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from _support.loops import each
from _support.tensors import DTYPES, FORMATS
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from roipool._cpu import TensorCall, TensorReader
from roipool.torch._memory import ON_CPU, ON_CUDA, PLAIN, are_channels_last

GPU = 0
SHAPE = (2, 3, 5, 7)


@pytest.fixture
def reader() -> TensorReader:
    return TensorReader(PLAIN, ON_CPU, lambda: GPU)


def tensors() -> dict[str, Any]:
    """Return the arguments of a call with all that it can have, which is read."""
    return {
        "maps": torch.rand(SHAPE),
        "other": torch.rand(*SHAPE[:2], 4, 6),
        "table": torch.rand(9, 4),
        "indices": torch.zeros(9, dtype=torch.int32),
        "levels": torch.zeros(9, dtype=torch.int64),
        "argmax": torch.zeros(SHAPE, dtype=torch.int32),
    }


def read(reader: TensorReader, given: dict[str, Any]) -> TensorCall | None:
    maps, other, table, indices, levels, argmax = given.values()
    several, one = (
        reader.read((maps, other), table, indices, levels),
        reader.read([maps], table, indices, levels, None, argmax),
    )
    return one if several is not None else None


def code_of(dtype: torch.dtype) -> tuple[int, int]:
    """Return DLPack's code of a type, and its bits."""
    code = {torch.bfloat16: 4, torch.int32: 0, torch.int64: 0}.get(dtype, 2)
    return code, 8 * dtype.itemsize


@each(dtype=DTYPES, memory_format=FORMATS)
def test_calls_are_as_torch_says(
    reader: TensorReader, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    maps = [
        torch.rand(size).to(dtype).contiguous(memory_format=memory_format)
        for size in (SHAPE, (2, 3, 9, 1))
    ]
    for table, indices in (
        (torch.rand(9, 5), None),
        (torch.rand(9, 6)[:, :5], None),
        (torch.rand(5, 9).T, None),
        (torch.rand(9, 5)[:, 1:], torch.rand(9, 5)[:, 0]),
        (torch.rand(4, 9).double().T, torch.arange(9)),
        (torch.zeros(1, 4, dtype=torch.int32).expand(9, 4), torch.zeros(18).int()[::2]),
    ):
        call = reader.read(maps, table, indices, torch.zeros(9, dtype=torch.int64))
        assert call is not None
        assert call.channels_last is are_channels_last(maps)
        assert (call.device, call.boxes, call.columns) == (GPU, 9, 4)
        assert call.shapes == tuple(map(tuple, [each.shape for each in maps]))
        assert call.maps == tuple(each.data_ptr() for each in maps)
        images = table[:, 0] if indices is None else indices
        boxes = table[:, 1:] if indices is None else table
        assert call.regions[:2] == (boxes.data_ptr(), images.data_ptr())
        steps = [step * boxes.itemsize for step in boxes.stride()]
        of_images = *code_of(images.dtype), images.stride(0) * images.itemsize
        assert call.kind == (*code_of(dtype), *code_of(boxes.dtype), *steps, *of_images)
        is_float32 = boxes.dtype is torch.float32 and dtype is not torch.float64
        assert call.is_usual is (indices is None and is_float32 and table.is_contiguous())


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 3, 1, 1), (2, 1, 5, 7), (2, 3, 1, 7)])
def test_layouts_are_those_of_torch(reader: TensorReader, shape: tuple[int, ...]) -> None:
    """Whatever the strides of axes of one element."""
    table, plain = torch.rand(1, 5), torch.rand(shape)
    last = plain.contiguous(memory_format=torch.channels_last)
    odd = plain.as_strided(shape, [99 if n == 1 else s for n, s in zip(shape, plain.stride())])  # noqa: B905
    strided = torch.rand(*shape[:3], 2 * shape[3])[..., ::2]
    for maps in ([plain], [last], [odd], [strided], [plain, last], [last, last]):
        call, is_last = reader.read(maps, table), are_channels_last(maps)
        form = torch.channels_last if is_last else torch.contiguous_format
        stored = [each.is_contiguous(memory_format=form) for each in maps]
        assert (call is not None) is all(stored)
        assert call is None or call.channels_last is is_last
        for wanted, form in enumerate(FORMATS.values()):
            stored = [each.is_contiguous(memory_format=form) for each in maps]
            got = reader.read(maps, table, channels_last=bool(wanted))
            assert (got is not None) is all(stored)


class Subclass(Tensor):
    """A type of tensors that no other knows."""


def freed(tensor: Tensor, left: int = 0) -> Tensor:
    tensor.untyped_storage().resize_(left)
    return tensor


def behind_another(tensor: Tensor) -> Tensor:
    """Return values that do not begin where their storage does."""
    return torch.cat([tensor.flatten(), tensor.flatten()])[tensor.numel() :].view(tensor.shape)


def fake(tensor: Tensor) -> Tensor:
    with FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


def wrapped(transform: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    """Return a function that returns what a transform of torch.func gives to functions."""

    def tensor_within(tensor: Tensor) -> Tensor:
        seen: list[Tensor] = []
        transform(lambda given: (seen.append(given), given.sum())[1])(tensor)
        return seen[0]

    return tensor_within


def unaligned(tensor: Tensor) -> Tensor:
    data = torch.zeros(tensor.nbytes + 1, dtype=torch.uint8).numpy()[1:]
    return torch.from_numpy(data.view(tensor.numpy().dtype).reshape(tensor.shape))


def nested(tensor: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are a prototype
        return torch.nested.nested_tensor([tensor])


NOT_READ: dict[str, Callable[[Tensor], Any]] = {
    "freed": freed,
    "freed behind another": lambda tensor: freed(behind_another(tensor)),
    "one byte less": lambda tensor: freed(tensor, tensor.nbytes - 1),
    "one byte less behind another": lambda tensor: freed(
        behind_another(tensor), 2 * tensor.nbytes - 1
    ),
    "zeros without memory": lambda tensor: torch._efficientzerotensor(
        tensor.shape, dtype=tensor.dtype
    ),
    "subclass": lambda tensor: tensor.as_subclass(Subclass),
    "fake": fake,
    "meta": lambda tensor: tensor.to("meta"),
    "sparse": Tensor.to_sparse,
    "nested": nested,
    "within vmap": wrapped(torch.func.vmap),
    "within functionalize": wrapped(torch.func.functionalize),
    "bytes": lambda tensor: tensor.to(torch.uint8),
    "bool": Tensor.bool,
    "complex": lambda tensor: tensor.to(torch.complex64),
    "float8": lambda tensor: tensor.to(torch.float8_e4m3fn),
    "no elements": lambda tensor: tensor[:0],
    "an axis more": lambda tensor: tensor[None],
    "number": lambda tensor: 3,
    "array": Tensor.numpy,
    "list": Tensor.tolist,
    "unaligned": unaligned,
}


@pytest.mark.parametrize("argument", tensors())
@pytest.mark.parametrize("make", NOT_READ.values(), ids=NOT_READ)
def test_tensors_that_are_not_read(
    reader: TensorReader, argument: str, make: Callable[[Tensor], Any]
) -> None:
    assert read(reader, tensors()) is not None
    given = tensors()
    given[argument] = make(given[argument])
    assert read(reader, given) is None


@pytest.mark.parametrize("argument", ["maps", "other", "table", "indices"])
def test_negated_views_are_not_read(reader: TensorReader, argument: str) -> None:
    given = tensors()
    given["indices"] = given["indices"].float()
    given[argument] = torch._neg_view(given[argument])
    assert given[argument].is_contiguous()
    assert read(reader, given) is None


def test_tensors_of_another_device_are_not_read(reader: TensorReader) -> None:
    assert read(reader, tensors()) is not None
    reader.current_device = lambda: GPU + 1
    assert read(reader, tensors()) is None
    reader.current_device, reader.device_type = lambda: GPU, ON_CUDA
    assert read(reader, tensors()) is None


WRONG: dict[str, dict[str, Any]] = {
    "no map": {"maps": None},
    "no other map": {"other": None},
    "no boxes": {"table": None},
    "type of another map": {"other": torch.rand(*SHAPE).double()},
    "type of all maps": {"maps": torch.ones(SHAPE).int(), "other": torch.ones(SHAPE).int()},
    "channels": {"other": torch.rand(2, 4, 5, 7)},
    "images": {"other": torch.rand(1, 3, 5, 7)},
    "layouts": {"other": torch.rand(SHAPE).contiguous(memory_format=torch.channels_last)},
    "number of indices": {"indices": torch.zeros(8)},
    "number of levels": {"levels": torch.zeros(8, dtype=torch.int64)},
    "type of levels": {"levels": torch.zeros(9, dtype=torch.int32)},
    "strides of levels": {"levels": torch.zeros(18, dtype=torch.int64)[::2]},
    "type of boxes": {"table": torch.rand(9, 4).half()},
    "type of indices": {"indices": torch.zeros(9, dtype=torch.int16)},
    "type of argmax": {"argmax": torch.zeros(SHAPE)},
    "shape of argmax": {"argmax": torch.zeros(2, 3, 5, 6, dtype=torch.int32)},
    "layout of argmax": {
        "argmax": torch.zeros(SHAPE).int().contiguous(memory_format=torch.channels_last)
    },
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_tensors_that_do_not_fit_are_not_read(reader: TensorReader, wrong: dict[str, Any]) -> None:
    assert read(reader, {**tensors(), **wrong}) is None


def test_maps_are_a_tuple_or_a_list(reader: TensorReader) -> None:
    table = torch.rand(9, 5)
    others: list[Any] = [(), [], torch.rand(SHAPE), {"a": torch.rand(SHAPE)}, None, 3, "maps"]
    for maps in others:
        assert reader.read(maps, table) is None


def test_what_autograd_and_inference_mode_do_is_read(reader: TensorReader) -> None:
    with torch.inference_mode():
        table = torch.rand(9, 5)
    leaf = torch.rand(SHAPE, requires_grad=True)
    for maps in (leaf, leaf * 2, torch.nn.Parameter(leaf.detach()), leaf.detach()):
        call = reader.read((maps,), table)
        assert call is not None
        assert call.maps == (maps.data_ptr(),)


# ---- Versions of DLPack


def with_functions(*versions: int) -> Any:
    """Return a type of tensors with functions of such major versions, the newest first."""
    functions = ctypes.c_void_p * 8

    def address_of(capsule: Any) -> int:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        found: int = pointer(capsule, b"dlpack_exchange_api")
        return found

    earlier, kept = None, []
    for version in reversed(versions):
        copy = functions.from_buffer_copy(
            ctypes.string_at(address_of(Tensor.__dlpack_c_exchange_api__), 64)
        )
        copy[0], copy[1] = version, earlier
        earlier = ctypes.addressof(copy)
        kept.append(copy)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = ctypes.create_string_buffer(b"dlpack_exchange_api")
    capsule = new(earlier, name, None)
    members = {"__dlpack_c_exchange_api__": capsule, "kept": (kept, name)}
    for method in ("is_neg", "storage_offset", "untyped_storage"):
        members[method] = getattr(Tensor, method)
    return type("Tensor", (), members)


@pytest.mark.parametrize("versions", [(1,), (2, 1), (3, 2, 1), (2,), (3, 2)], ids=str)
def test_only_functions_of_a_known_version_are_called(versions: tuple[int, ...]) -> None:
    made = TensorReader((with_functions(*versions), Tensor), ON_CPU, lambda: GPU)
    assert (read(made, tensors()) is not None) is (1 in versions)


def test_nothing_is_read_without_the_functions() -> None:
    """As before torch 2.10."""
    kind = type("Tensor", (), dict.fromkeys(("is_neg", "storage_offset", "untyped_storage"), id))
    made = TensorReader((kind, Tensor), ON_CPU, lambda: GPU)
    assert read(made, tensors()) is None
