"""Common interfaces and tables agree with all engines, libraries and operations."""

from __future__ import annotations

import ast
import importlib
import inspect
from types import ModuleType
from typing import Any

import pytest
from _support.sources import SOURCES

import roipool
from roipool import _cpu, reference
from roipool._arrays import Library, _cupy, _numpy
from roipool._definitions import OPS, PYRAMID_OPS, TRAITS, VOLUME_OPS
from roipool._request import MaxRules

ALL_OPS = OPS | PYRAMID_OPS | VOLUME_OPS

# ---- Engines, by their sources: the CUDA engine cannot be imported without CuPy


def signatures(file: str, name: str = "") -> dict[str, str]:
    """Return the arguments of the functions of a module or of one of its classes, by name."""
    tree: Any = ast.parse((SOURCES / "roipool" / file).read_text())
    if name:
        (tree,) = (node for node in tree.body if getattr(node, "name", "") == name)
    return {
        node.name: arguments(node.args)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def arguments(given: ast.arguments) -> str:
    """Return names, kinds and defaults of arguments, without self and annotations."""
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        each.annotation = None
    given.args = [each for each in given.args if each.arg != "self"]
    return f"({ast.unparse(given)})"


ENGINE = signatures("_engines.py", "Engine")
ON_DEVICES = signatures("_engines.py", "DeviceEngine")


def test_the_cpu_engine_has_the_functions_of_an_engine() -> None:
    stub = signatures("_cpu.pyi")
    assert {name: stub[name] for name in ENGINE} == ENGINE


def test_the_stub_is_the_cpu_engine() -> None:
    """mypy reads the stub, and nothing but this test the functions themselves."""
    for name, expected in signatures("_cpu.pyi").items():
        assert str(inspect.signature(getattr(_cpu, name))) == expected, name


def test_the_cuda_engine_has_the_functions_of_an_engine() -> None:
    found = signatures("_cuda/engine.py")
    expected = ENGINE | ON_DEVICES
    assert {name: found[name] for name in expected} == expected


# ---- Array libraries


def functions_of(protocol: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(protocol).items()
        if inspect.isfunction(value) and name[0] != "_"
    }


@pytest.mark.parametrize("library", [_numpy, _cupy], ids=["numpy", "cupy"])
def test_libraries_have_the_functions_of_a_library(library: ModuleType) -> None:
    for name in functions_of(Library):
        assert callable(getattr(library, name)), name


def test_functions_written_in_python_have_the_arguments_of_a_library() -> None:
    expected, found = signatures("_arrays/__init__.py", "Library"), signatures("_arrays/_cupy.py")
    written = expected.keys() & found.keys()  # others are made from NumPy's, or of attributes
    assert len(written) > len(expected) / 2
    assert {name: found[name] for name in written} == {name: expected[name] for name in written}


# ---- Operations


def functions_of_rows() -> set[str]:
    """Return the public functions of all operations, by the tables."""
    return {name for op in ALL_OPS.values() for name in op.functions.values()}


@pytest.mark.parametrize("name", ALL_OPS)
def test_operations_are_public_and_have_an_oracle(name: str) -> None:
    op = ALL_OPS[name]
    for attribute, function in op.functions.items():
        assert function in roipool.__all__
        if attribute != "backward_mask":  # a sum of pooled values
            assert callable(getattr(reference, function))


def test_every_public_operation_has_a_row() -> None:
    """Every function that takes maps, or their gradient, belongs to an operation."""
    public = {
        name
        for name in roipool.__all__
        if inspect.isfunction(function := getattr(roipool, name))
        and not function.__module__.startswith("roipool._masks.")
        and {"features", "grad_output"} & inspect.signature(function).parameters.keys()
    }
    assert public == functions_of_rows()


@pytest.mark.parametrize("name", ALL_OPS)
def test_operations_have_the_arguments_that_their_row_says(name: str) -> None:
    op = ALL_OPS[name]
    options = {option for variant in op.variants.values() for option in variant.options}
    forward = set(inspect.signature(getattr(roipool, op.forward)).parameters)
    assert {"features", op.boxes, op.indices, op.size, *op.placing, *options} <= forward
    assert (op.filling in forward) == (op.filling is not None)
    assert ("return_argmax" in forward) == any(each.has_argmax for each in op.variants.values())
    backward = set(inspect.signature(getattr(roipool, op.backward)).parameters)
    shape = "input_shapes" if name in PYRAMID_OPS else "input_shape"
    assert {"grad_output", op.boxes, op.indices, shape} <= backward
    if op.backward_boxes is not None:
        by_boxes = set(inspect.signature(getattr(roipool, op.backward_boxes)).parameters)
        assert {"grad_output", "features", op.boxes, op.indices, *op.placing} <= by_boxes


@pytest.mark.parametrize("name", ALL_OPS)
def test_modules_of_operations_say_their_definition(name: str) -> None:
    """docs/internals/add-a-definition.md says what such a module has."""
    op = ALL_OPS[name]
    module = importlib.import_module(f"roipool.ops.{name}")
    placing = {"spatial_scale" if each == "spatial_scales" else each for each in op.placing}
    choices = {option for variant in op.variants.values() for option in variant.options}
    found = inspect.signature(module.definition).parameters
    of_volumes = {"planes", "depth"} if op.is_of_volumes else set()
    assert placing <= set(found) <= placing | choices | of_volumes
    kinds = {"float", "float | Sequence[float]", "int | Sequence[int]", "bool", "str"}
    if op.is_of_volumes:
        kinds = {"Sequence[float]", "Sequence[int]", "int", "bool"}
    assert {each.annotation for each in found.values()} <= kinds
    assert isinstance(getattr(module, "RULES", MaxRules()), MaxRules)


@pytest.mark.parametrize("name", ALL_OPS)
def test_definitions_of_operations_are_in_the_header(name: str) -> None:
    for variant in ALL_OPS[name].variants.values():
        assert variant.definition in TRAITS
        assert variant.by_boxes is None or variant.by_boxes in TRAITS
