"""Both transports to the kernels give bitwise identical results, and the report names one."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import (
    ALL_CASES,
    CASES,
    OF_VOLUMES,
    SHAPE,
    SIZE,
    OperationCase,
    PyramidCase,
    VolumeCase,
    in_planes,
    maps,
    to_layout,
)
from _support.compare import assert_same_bits
from _support.jax_programs import request_of
from _support.loops import each
from _support.run_python import run_python

import roipool
import roipool.jax
from roipool import _cpu
from roipool.jax import _transport
from roipool.jax._transport import Request

WAYS = [_transport.call_host]
if not _transport.why_no_handler():
    WAYS.append(_transport.call_handler)


# How operands come about without a copy; a bitcast gives an array another shape.
IN_PLACE = {"parameter", "get-tuple-element", "bitcast"}


@pytest.mark.parametrize("case", [case for case in CASES if not case.adaptive], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_kernel_computes_the_bits_of_numpy(way: Any, case: OperationCase) -> None:
    """Both transports; programs for GPUs, and builds without handlers, use callbacks."""
    features, boxes = maps().astype(np.float32), case.boxes().astype(np.float32)
    indices = case.indices()
    request = request_of(lambda maps: case.pool(maps, boxes, indices), jnp.asarray(features))
    # Kernels take x before y.
    corners = boxes[:, [1, 0, 3, 2]] if case.op.boxes == "boxes" else boxes
    at = (jnp.asarray(case.numbers(corners)), jnp.asarray(indices, jnp.int32))

    def computed(kernel: str, results: list[Any], *operands: Any) -> list[Any]:
        shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in results]
        program = jax.jit(lambda *args: way(kernel, args, shapes, request))
        return [np.asarray(one) for one in program(*map(jnp.asarray, operands), *at)]

    def check(kernel: str, expected: list[Any], *operands: Any) -> None:
        for got, wanted in zip(computed(kernel, expected, *operands), expected, strict=True):
            assert_same_bits(got, wanted)

    if case.variant.has_argmax:
        pooled, argmax = case.pool(features, boxes, indices, return_argmax=True)
        check("maximum", [pooled, argmax], features)
        gradient = case.gradient(pooled, argmax, boxes, indices, SHAPE)
        check("maximum_backward", [gradient], pooled, argmax)
        return
    pooled = case.pool(features, boxes, indices)
    check("average", [pooled], features)
    check("average_backward", [case.gradient(pooled, None, boxes, indices, SHAPE)], pooled)
    if case.moves:
        slopes = case.number_gradient(pooled, features, boxes, indices)
        order = [1, 0, 3, 2] if case.op.boxes == "boxes" else slice(None)
        check("box_gradient", [slopes[:, order]], pooled, features)


def test_callbacks_take_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transport, "why_no_handler", lambda: "a test")
    jax.clear_caches()
    rois, features = [[0, 1, 1, 5, 6]], maps().astype(np.int8)
    found = jax.jit(lambda x: roipool.roi_align(x, rois, 2))(jnp.asarray(features))
    assert_same_bits(np.asarray(found), roipool.roi_align(features, rois, 2))


@pytest.mark.parametrize("case", [case for case in ALL_CASES if not case.adaptive], ids=str)
@each(layout=["NCHW", "NHWC"])
def test_xla_copies_no_maps(case: OperationCase, layout: str) -> None:
    """Nor pooled values, nor their gradients: kernels read and fill them as programs have them.

    Handlers get this memory itself; callbacks of the host get copies of it, whatever XLA does.
    """
    features = to_layout(jnp.asarray(maps(), "float32"), layout)
    boxes, indices = jnp.asarray(case.boxes(), "float32"), jnp.asarray(case.indices())
    options = {**case.options(), "layout": layout, case.op.indices: indices, case.op.size: SIZE}
    options |= case.per_bin(boxes, layout=layout)
    given: Any = features
    if isinstance(case, PyramidCase):
        given, options["levels"] = case.pyramid(features, layout), case.levels(boxes)
    if isinstance(case, VolumeCase):
        given, options["layout"] = in_planes(features, 2, layout), OF_VOLUMES[layout]
        options[case.op.size] = (SIZE[0], 1, SIZE[1])

    def pool(given: Any) -> Any:
        return getattr(roipool, case.op.forward)(given, **{case.op.boxes: boxes}, **options)

    def both(given: Any, upstream: Any) -> Any:
        pooled, pullback = jax.vjp(pool, given)
        return pooled, *pullback(upstream)

    program = jax.jit(both).lower(given, pool(given)).compile().as_text()
    made_by = dict(re.findall(r"%(\S+) = [^=]*?[\])}] ([a-z-]+)\(", program))
    calls = re.findall(r" custom-call\((.*?)\).*operand_layout_constraints={(.*?)}, api", program)
    assert len(calls) == 2
    for operands, layouts in calls:
        shapes = re.findall(r"\[([\d,]*)\]", layouts)
        maps_given = [
            operand.strip().removeprefix("%")
            for operand, shape in zip(operands.split(","), shapes, strict=True)
            if shape.count(",") == 3
        ]
        assert maps_given
        assert {made_by[name] for name in maps_given} <= IN_PLACE


def test_the_way_in_use_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    has_handler = _cpu.xla_handler() is not None
    assert roipool.jax.transport().startswith("handlers" if has_handler else "callbacks")
    roipool.show_config()
    assert roipool.jax.transport() in capsys.readouterr().out


def test_jax_is_not_imported_before_its_arrays_come() -> None:
    answer = run_python(
        """
        import sys, numpy as np, roipool
        roipool.roi_align(np.zeros((1, 1, 4, 4)), [[0, 0, 0, 2, 2]], 2)
        roipool.show_config()
        assert "jax" not in sys.modules
        """
    )
    assert answer.returncode == 0, answer.stderr
    assert "JAX" not in answer.stdout


def test_threads_are_those_of_roipool(same_threads_after: None) -> None:
    """Results are bitwise identical for any number of threads."""
    features = jnp.asarray(maps((2, 64, 32, 32)), jnp.float32)
    case = next(case for case in CASES if case.op.forward == "roi_align")
    boxes = jnp.asarray(case.boxes(200), jnp.float32)
    function = jax.jit(lambda x, r: case.pool(x, r, jnp.arange(200) % 2))
    results = []
    for threads in (1, 4):
        roipool.set_num_threads(threads)
        results.append(np.asarray(function(features, boxes)))
    assert_same_bits(*results)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_programs_for_other_devices_name_their_cost(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the callbacks, which JAX only compiles for devices that are there."""

    def zeros(kernel: str, operands: Any, results: Any, request: Request) -> list[Any]:
        return [jnp.zeros(each.shape, each.dtype) for each in results]

    monkeypatch.setattr(_transport, "call_host", zeros)

    def loss(features: Any, rois: Any) -> Any:
        return roipool.roi_align(features, rois, SIZE, batch_indices=jnp.zeros(5, int)).sum()

    traced = jax.jit(jax.grad(loss)).trace(
        jnp.asarray(maps(), jnp.float32), jnp.asarray(CASES[0].boxes(), jnp.float32)
    )
    words = r"roi_align runs on the CPU \(.*\): at every call, .* jax\.device_put\(array, jax\.dev"
    with pytest.warns(RuntimeWarning, match=words):
        traced.lower(lowering_platforms=(platform,))
