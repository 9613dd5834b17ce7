"""roipool's declaration of XLA's interface agrees with the installed jaxlib."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jax
import pytest
from _support.run_cpp import COMPILER, KERNELS
from _support.run_python import run_python

import roipool.jax

# Ours, theirs, and pairs of fields: all that a handler reads or writes.
STRUCTURES = {
    ("Extension", "XLA_FFI_Extension_Base"): "bytes struct_size, kind type, next next",
    ("InterfaceVersion", "XLA_FFI_Api_Version"): (
        "major_number major_version, minor_number minor_version"
    ),
    ("ErrorRequest", "XLA_FFI_Error_Create_Args"): "message message, code errc",
    ("StreamRequest", "XLA_FFI_Stream_Get_Args"): "context ctx, stream stream",
    ("Functions", "XLA_FFI_Api"): (
        "version api_version, create_error XLA_FFI_Error_Create, get_stream XLA_FFI_Stream_Get"
    ),
    ("Buffer", "XLA_FFI_Buffer"): "element dtype, data data, rank rank, sizes dims",
    ("Buffers", "XLA_FFI_Args"): "count size, items args",
    ("Buffers", "XLA_FFI_Rets"): "count size, items rets",
    ("Text", "XLA_FFI_ByteSpan"): "start ptr, length len",
    ("NumberList", "XLA_FFI_Array"): "element dtype, count size, data data",
    ("AttributeTable", "XLA_FFI_Attrs"): "count size, kinds types, names names, values attrs",
    ("CallFrame", "XLA_FFI_CallFrame"): (
        "functions api, context ctx, stage stage, operands args, results rets, attributes attrs"
    ),
    ("Metadata", "XLA_FFI_Metadata"): "version api_version, traits traits",
    ("MetadataExtension", "XLA_FFI_Metadata_Extension"): "base extension_base, metadata metadata",
}
NUMBERS = {
    "invalid_argument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "resource_exhausted": "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED",
    "internal_error": "XLA_FFI_Error_Code_INTERNAL",
    "element_int8": "XLA_FFI_DataType_S8",
    "element_uint8": "XLA_FFI_DataType_U8",
    "element_int16": "XLA_FFI_DataType_S16",
    "element_uint16": "XLA_FFI_DataType_U16",
    "element_int32": "XLA_FFI_DataType_S32",
    "element_int64": "XLA_FFI_DataType_S64",
    "element_float16": "XLA_FFI_DataType_F16",
    "element_float32": "XLA_FFI_DataType_F32",
    "element_float64": "XLA_FFI_DataType_F64",
    "element_bfloat16": "XLA_FFI_DataType_BF16",
    "attribute_is_list": "XLA_FFI_AttrType_ARRAY",
    "stage_initialize": "XLA_FFI_ExecutionStage_INITIALIZE",
    "stage_execute": "XLA_FFI_ExecutionStage_EXECUTE",
    "fits_command_buffers": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    "extension_is_metadata": "XLA_FFI_Extension_Metadata",
    "interface_major": "XLA_FFI_API_MAJOR",
}


def checks() -> list[str]:
    found = [f"(long long)ours::{own} == (long long){other}" for own, other in NUMBERS.items()]
    for (own, other), fields in STRUCTURES.items():
        for pair in fields.split(", "):
            mine, theirs = pair.split()
            found.append(f"offsetof(ours::{own}, {mine}) == offsetof({other}, {theirs})")
            found.append(f"sizeof(ours::{own}::{mine}) == sizeof({other}::{theirs})")
    for own, other in {
        "ErrorRequest": "XLA_FFI_Error_Create_Args",
        "StreamRequest": "XLA_FFI_Stream_Get_Args",
    }.items():
        found.append(f"sizeof(ours::{own}) == sizeof({other})")
    return found


def test_every_declaration_is_compared() -> None:
    text = (KERNELS / "cpu" / "xla_ffi.h").read_text()
    declared = set(re.findall(r"^struct (\w+) \{", text, re.MULTILINE)) - {"Prefix"}
    assert declared == {own for own, _ in STRUCTURES}
    numbers = set(re.findall(r"\b([a-z]+_[a-z0-9_]+) = \d+", text))
    assert numbers - {"oldest_minor", "newest_minor"} == set(NUMBERS)


def test_layouts_are_those_of_the_header(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (CXX, g++ or c++)")
    lines = [f'static_assert({check}, "{check}");' for check in checks()]
    program = (
        '#include <stddef.h>\n#include "xla/ffi/api/c_api.h"\n#include "cpu/xla_ffi.h"\n'
        "namespace ours = roipool::xla;\n"
    )
    file = tmp_path / "layouts.cpp"
    file.write_text(program + "\n".join(lines))
    include = [f"-I{jax.ffi.include_dir()}", f"-I{KERNELS}"]
    flags = ["-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof"]
    run = subprocess.run(
        [COMPILER, *flags, *include, str(file)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_every_build_has_a_handler_that_jaxlib_takes() -> None:
    assert roipool.jax.transport() == "handlers of XLA"


def test_a_jaxlib_that_refuses_the_handler() -> None:
    """JAX still works: calls use callbacks, with equal results, and a warning gives the reason."""
    answer = run_python(
        """
        import warnings
        import jax, jax.numpy as jnp, numpy as np, roipool

        def refuse(*args, **kwargs):
            raise ValueError("version 9.9 of the interface is not mine")

        jax.ffi.register_ffi_target = refuse
        features = np.arange(50, dtype=np.float32).reshape(1, 2, 5, 5)
        rois = np.array([[0, 1, 1, 4, 3]], np.float32)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = [jax.jit(lambda x: roipool.roi_align(x, rois, n))(features) for n in (2, 3)]
        for size, result in zip((2, 3), results):
            assert (np.asarray(result) == roipool.roi_align(features, rois, size)).all()
        (warning,) = caught
        assert warning.category is RuntimeWarning
        assert "version 9.9" in str(warning.message)
        assert (jnp.ones(3) + 1).sum() == 6
        assert roipool.jax.transport().startswith("callbacks of the host (jaxlib refuses")
        """
    )
    assert answer.returncode == 0, answer.stderr
