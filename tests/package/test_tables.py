"""What is written once is true of all that it speaks of: engines, libraries, operations."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
from _support.backends import Backend

import roipool
from roipool import _cpu, reference
from roipool._arrays import Library, _cupy, _numpy
from roipool._definitions import OPS, TRAITS
from roipool._pooling import Engine


def functions_of(protocol: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(protocol).items()
        if inspect.isfunction(value) and name[0] != "_"
    }


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Return names and kinds, without self."""
    listed = inspect.signature(function).parameters.values()
    return [(each.name, each.kind) for each in listed if each.name != "self"]


def check_functions(module: ModuleType, protocol: type) -> None:
    for name, function in functions_of(protocol).items():
        assert parameters(getattr(module, name)) == parameters(function), name


def test_the_cpu_engine_has_the_functions_of_an_engine() -> None:
    check_functions(_cpu, Engine)


def test_the_cuda_engine_has_the_functions_of_an_engine(gpu: Backend) -> None:
    check_functions(gpu.module, Engine)


@pytest.mark.parametrize("library", [_numpy, _cupy], ids=["numpy", "cupy"])
def test_libraries_have_the_functions_of_a_library(library: ModuleType) -> None:
    for name in functions_of(Library):
        assert callable(getattr(library, name)), name


def test_libraries_written_in_python_have_the_arguments_of_a_library() -> None:
    check_functions(_cupy, Library)


@pytest.mark.parametrize("name", OPS)
def test_operations_are_public_and_have_an_oracle(name: str) -> None:
    op = OPS[name]
    for function in (op.forward, op.backward, op.backward_boxes):
        if function is not None:
            assert function in roipool.__all__
            assert callable(getattr(reference, function))


def test_every_public_operation_has_a_row() -> None:
    listed = {
        function for op in OPS.values() for function in (op.forward, op.backward, op.backward_boxes)
    }
    public = {name for name in roipool.__all__ if name.startswith(("roi_", "crop_", "precise_"))}
    assert public == listed - {None}


@pytest.mark.parametrize("name", OPS)
def test_operations_have_the_arguments_that_their_row_says(name: str) -> None:
    op = OPS[name]
    options = {option for variant in op.variants.values() for option in variant.options}
    forward = set(inspect.signature(getattr(roipool, op.forward)).parameters)
    assert {"features", op.boxes, op.indices, op.size, *op.placing, *options} <= forward
    assert (op.filling in forward) == (op.filling is not None)
    assert ("return_argmax" in forward) == any(each.has_argmax for each in op.variants.values())
    backward = set(inspect.signature(getattr(roipool, op.backward)).parameters)
    assert {"grad_output", op.boxes, op.indices, "input_shape"} <= backward
    if op.backward_boxes is not None:
        by_boxes = set(inspect.signature(getattr(roipool, op.backward_boxes)).parameters)
        assert {"grad_output", "features", op.boxes, op.indices, *op.placing} <= by_boxes


@pytest.mark.parametrize("name", OPS)
def test_definitions_of_operations_are_in_the_header(name: str) -> None:
    for variant in OPS[name].variants.values():
        assert variant.definition in TRAITS
        assert variant.by_boxes is None or variant.by_boxes in TRAITS
