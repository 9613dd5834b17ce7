"""Properties of calls on CuPy arrays, on the emulator and, if there is one, on a GPU.

Boxes that are not checked on the host, forms of arguments, nothing read back, the edge to CuPy.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytest
from _support import cases, emulator
from _support.backends import Backend
from _support.catalogue import (
    both_layouts,
    in_layout,
    shape_in_layout,
)
from _support.emulator import memory, streams
from _support.run_python import NOT_INSTALLED, ONLY_ARRAYS, run_python

import roipool
from roipool._cuda.arguments import call_type
from roipool._cuda.source import OPTIONS, kernel_source
from roipool.compat import mmcv

# ---- Boxes of no image


BAD_IMAGES: list[tuple[Any, list[float]]] = [
    (np.int8, [-1, 2, 7]),
    (np.uint64, [2, 2**63]),
    (np.float16, [-1, 2, 0.5, np.nan, np.inf]),
    (np.int32, [-1, 2, 7]),
    (np.int64, [-1, 2, 2**40]),
    (np.float32, [-1, 2, 0.5, 1.5, np.nan, np.inf, 1e30]),
    (np.float64, [-1, 2, 0.5, 1.0000001, np.nan, -np.inf, 1e300]),
]


@pytest.mark.parametrize(("kind", "numbers"), BAD_IMAGES, ids=lambda value: str(value))
@both_layouts
def test_boxes_of_no_image_pool_nothing(
    gpu: Backend, layout: str, kind: Any, numbers: list[float]
) -> None:
    maps = in_layout(np.ones((2, 3, 6, 7), np.float32), layout)
    images = np.array([*numbers, 1], kind)
    boxes = np.tile(np.array([1, 1, 4, 5], np.float32), (len(images), 1))
    features, rois, indices = (gpu.to_device(array) for array in (maps, boxes, images))
    options: dict[str, Any] = {"batch_indices": indices, "layout": layout}
    whole = shape_in_layout((len(images), 3, 2, 2), layout)
    ones = gpu.to_device(np.ones(whole, np.float32))
    for mode in ("avg", "max"):
        pooled = roipool.roi_align(features, rois, 2, mode=mode, **options)
        assert not np.any(gpu.to_host(pooled)[:-1])
        assert np.all(gpu.to_host(pooled)[-1] == 1)
    pooled, argmax = roipool.roi_pool(features, rois, 2, return_argmax=True, **options)
    assert not np.any(gpu.to_host(pooled)[:-1])
    assert np.all(gpu.to_host(argmax)[:-1] == -1)
    crop = roipool.crop_and_resize(
        features, rois, indices, 2, extrapolation_value=3.0, layout=layout
    )
    assert np.all(gpu.to_host(crop)[:-1] == 3)
    valid = gpu.to_device(np.zeros(whole, np.int32))
    for gradient in (
        roipool.roi_align_backward(ones, rois, maps.shape, **options),
        roipool.roi_pool_backward(ones, valid, rois, maps.shape, **options),
    ):
        total = gpu.to_host(gradient)
        assert not np.any(total[0])
        assert total[1].sum() == 12
    slopes = gpu.to_host(roipool.roi_align_backward_rois(ones, features, rois, **options))
    assert not np.any(slopes[:-1])


def test_argmax_that_does_not_exist_gets_no_gradient(gpu: Backend) -> None:
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3]], np.float32))
    ones = gpu.to_device(np.ones((1, 1, 2, 2), np.float32))
    for numbers in ([-(2**31), 2**31 - 1, 36, -1], [2**62, -(2**62), 2**40, 36]):
        argmax = gpu.to_device(np.array(numbers).reshape(1, 1, 2, 2))
        pool = roipool.roi_pool_backward(ones, argmax, rois, (1, 1, 6, 6))
        align = roipool.roi_align_backward(
            ones, rois, (1, 1, 6, 6), 1.0, 2, mode="max", argmax=argmax
        )
        assert not np.any(gpu.to_host(pool))
        assert not np.any(gpu.to_host(align))


def test_debugging_checks_values(gpu: Backend) -> None:
    maps = gpu.to_device(np.ones((2, 1, 4, 4), np.float32))
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3], [2, 0, 0, 3, 3]], np.float32))
    roipool.roi_pool(maps, rois, 1)
    roipool.set_debug(True)
    try:
        with pytest.raises(ValueError, match=r"rois\[1, 0\] is 2\.0, but batch indices must be"):
            roipool.roi_pool(maps, rois, 1)
        assert roipool.roi_pool(maps, rois[:1], 1).shape == (1, 1, 1, 1)
        argmax = gpu.to_device(np.full((1, 1, 1, 1), 16))
        with pytest.raises(ValueError, match="argmax must be from -1 to 15"):
            roipool.roi_pool_backward(
                gpu.to_device(np.ones((1, 1, 1, 1), np.float32)), argmax, rois[:1], (2, 1, 4, 4)
            )
    finally:
        roipool.set_debug(False)


def test_set_debug_takes_a_bool() -> None:
    with pytest.raises(TypeError, match="enabled must be a bool, got 1"):
        roipool.set_debug(1)  # type: ignore[arg-type]


# ---- Forms of arguments


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_forms_of_rois(gpu: Backend, kind: Any) -> None:
    maps = gpu.to_device(np.random.default_rng(0).normal(size=(2, 3, 9, 8)).astype(np.float32))
    table = np.array([[0, 1, 2, 5.5, 6], [1, 0.5, 0, 7, 3], [1, 2, 2, 4, 8.25]], kind)
    expected = gpu.to_host(roipool.roi_align(maps, gpu.to_device(table), 2))
    on_gpu = gpu.to_device(table)
    wide = gpu.to_device(np.repeat(np.repeat(table, 2, axis=0), 3, axis=1))[::2, ::3]
    indices = table[:, 0].astype(np.int64)
    forms: list[dict[str, Any]] = [
        {"rois": wide},
        {"rois": [on_gpu[:1, 1:], on_gpu[1:, 1:]]},
        *(
            {"rois": on_gpu[:, 1:], "batch_indices": gpu.to_device(indices.astype(type_))}
            for type_ in (np.int8, np.uint16, np.int32, np.int64, np.float16, np.float32)
        ),
        {"rois": on_gpu[:, 1:], "batch_indices": gpu.to_device(np.repeat(indices, 2))[::2]},
    ]
    for form in forms:
        got = roipool.roi_align(maps, output_size=2, **form)
        np.testing.assert_array_equal(gpu.to_host(got), expected)


@both_layouts
def test_any_strides_of_maps_and_out(gpu: Backend, layout: str) -> None:
    maps = np.random.default_rng(0).normal(size=(2, 8, 9, 8)).astype(np.float32)
    rois = gpu.to_device(np.array([[0, 1, 2, 5.5, 6], [1, 0.5, 0, 7, 3]], np.float32))
    expected = gpu.to_host(
        roipool.roi_align(gpu.to_device(in_layout(maps, layout)), rois, 2, layout=layout)
    )
    # An address that is not a multiple of 16 bytes, and no C order.
    shifted = np.concatenate([np.zeros(1, np.float32), in_layout(maps, layout).ravel()])
    odd = gpu.to_device(shifted)[1:].reshape(in_layout(maps, layout).shape)
    back = gpu.to_device(np.ascontiguousarray(in_layout(maps, layout)[..., ::-1]))[..., ::-1]
    for features in (odd, back):
        for make in (
            lambda: gpu.to_device(np.zeros(expected.shape, np.float32)),
            lambda: gpu.to_device(np.zeros((2, *expected.shape[1:]), np.float32)[:, ::-1])[:, ::-1],
        ):
            out = make()
            got = roipool.roi_align(features, rois, 2, layout=layout, out=out)
            assert got is out
            np.testing.assert_array_equal(gpu.to_host(got), expected)


def test_out_may_overlap_batch_indices(gpu: Backend) -> None:
    """Kernels read boxes while they write: the first box's result would overwrite the second."""
    maps = gpu.to_device(np.arange(1, 3, dtype=np.float32).repeat(20).reshape(2, 1, 4, 5))
    rois = gpu.to_device(np.tile(np.array([0, 0, 3, 3], np.float32), (4, 1)))
    memory = gpu.to_device(np.array([1, 0, 1, 0, 9, 9, 9, 9], np.float32))
    out = memory.reshape(4, 1, 1, 2)
    got = roipool.roi_align(maps, rois, (1, 2), batch_indices=memory[:4], out=out)
    assert got is out
    np.testing.assert_array_equal(gpu.to_host(got).ravel(), [2, 2, 1, 1, 2, 2, 1, 1])


def test_mixed_kinds_are_refused(gpu: Backend) -> None:
    maps = np.ones((1, 1, 4, 4), np.float32)
    rois = np.array([[0, 0, 0, 3, 3]], np.float32)
    with pytest.raises(TypeError, match="features is on the GPU, rois is not"):
        roipool.roi_pool(gpu.to_device(maps), rois, 1)
    with pytest.raises(TypeError, match="features is on the GPU, rois is not"):
        roipool.roi_pool(gpu.to_device(maps), rois.tolist(), 1)
    with pytest.raises(TypeError, match="rois is on the GPU, features is not"):
        roipool.roi_pool(maps, gpu.to_device(rois), 1)
    with pytest.raises(TypeError, match="rois is not"):
        roipool.roi_pool(gpu.to_device(maps), [gpu.to_device(rois[:, 1:]), rois[:, 1:]], 1)
    with pytest.raises(TypeError, match="rois is on the GPU, features, rois is not"):
        roipool.roi_pool(maps, [rois[:, 1:], gpu.to_device(rois[:, 1:])], 1)
    with pytest.raises(TypeError, match="out is not"):
        roipool.roi_pool(
            gpu.to_device(maps), gpu.to_device(rois), 1, out=np.ones((1, 1, 1, 1), np.float32)
        )
    with pytest.raises(TypeError, match="spatial_scale must be a real number"):
        roipool.roi_pool(gpu.to_device(maps), gpu.to_device(rois), 1, gpu.to_device(np.float32(1)))


def test_wrong_arguments_are_refused_as_on_the_cpu(gpu: Backend) -> None:
    maps = gpu.to_device(np.ones((1, 1, 4, 4), np.float32))
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3]], np.float32))
    with pytest.raises(TypeError, match=r"features must have dtype .* got int64"):
        roipool.roi_pool(gpu.to_device(np.ones((1, 1, 4, 4), np.int64)), rois, 1)
    with pytest.raises(ValueError, match=r"rois must have shape .* got \(1, 3\)"):
        roipool.roi_pool(maps, rois[:, :3], 1)
    with pytest.raises(ValueError, match=r"batch_indices must have shape \(1,\)"):
        roipool.roi_pool(maps, rois[:, 1:], 1, batch_indices=rois[0])
    with pytest.raises(TypeError, match="argmax must be an integer array"):
        roipool.roi_pool_backward(maps[:, :, :1, :1], maps[:, :, :1, :1], rois, maps.shape)
    with pytest.raises(ValueError, match="out must have shape"):
        roipool.roi_pool(maps, rois, 1, out=maps)


def test_too_many_maps_are_refused(gpu: Backend) -> None:
    maps = [gpu.to_device(np.ones((1, 1, 4, 4), np.float32))] * 65
    rois = gpu.to_device(np.array([[0, 0, 0, 3, 3]], np.float32))
    levels = gpu.to_device(np.array([64]))
    with pytest.raises(ValueError, match="64 maps at most, got 65"):
        roipool.multilevel_roi_align(maps, rois, 1, [1.0] * 65, levels=levels)
    pooled = roipool.multilevel_roi_align(maps[1:], rois, 1, [1.0] * 64, levels=levels - 1)
    np.testing.assert_array_equal(gpu.to_host(pooled), np.ones((1, 1, 1, 1)))


def test_arrays_on_two_gpus_are_refused() -> None:
    code = """
        import roipool
        from cupy import ndarray
        for rois in (ndarray(1), [ndarray(0), ndarray(1)]):
            try:
                roipool.roi_pool(ndarray(0), rois, 1)
            except ValueError as error:
                print(error)
    """
    done = run_python(code, modules={"cupy": ONLY_ARRAYS})
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first.endswith("on one GPU, got features on 0, rois on 1")
    assert second.endswith("on one GPU, got features on 0, rois on 0 and 1")


# ---- No synchronisation, and no unnecessary launches


def test_boxes_of_each_image_are_pooled_from_it(gpu: Backend) -> None:
    maps = np.stack([np.full((3, 6, 7), image, np.float32) for image in range(3)])
    tables = [np.array([[1, 1, 4, 5]] * count, np.float32) for count in (2, 1, 2)]
    there = [gpu.to_device(one) for one in (maps, *tables)]
    pooled = gpu.to_host(roipool.roi_align(there[0], there[1:], 2))
    assert pooled[:, 0, 0, 0].tolist() == [0, 0, 1, 2, 2]


Calls: TypeAlias = dict[str, tuple[Callable[[], Any], list[str]]]  # by name: calls and launches


def calls_of_one_map(gpu: Backend) -> Calls:
    """Return calls on one float32 map, and the launches of each."""
    maps = gpu.to_device(np.ones((2, 4, 8, 8), np.float32))
    rois = gpu.to_device(np.array([[0, 1, 1, 5, 6], [1, 0, 0, 7, 7]], np.float32))
    grad = gpu.to_device(np.ones((2, 4, 2, 2), np.float32))
    argmax = gpu.to_device(np.zeros((2, 4, 2, 2), np.int32))
    boxes, images = rois[:, 1:], rois[:, 0]
    shape = (2, 4, 8, 8)
    return {
        "roi_pool": (
            lambda: roipool.roi_pool(maps, rois, 2, return_argmax=True),
            ["maximum_forward_argmax"],
        ),
        "roi_pool_backward": (
            lambda: roipool.roi_pool_backward(grad, argmax, rois, shape),
            ["unpool"],
        ),
        "roi_align": (
            lambda: roipool.roi_align(maps, boxes, 2, batch_indices=images),
            ["average_forward"],
        ),
        "roi_align max": (
            lambda: roipool.roi_align(maps, rois, 2, mode="max"),
            ["maximum_forward"],
        ),
        "roi_align_backward": (
            lambda: roipool.roi_align_backward(grad, rois, shape),
            ["plan_bin_taps", "average_backward"],
        ),
        "roi_align_backward max": (
            lambda: roipool.roi_align_backward(grad, rois, shape, mode="max", argmax=argmax),
            ["plan_samples", "maximum_backward"],
        ),
        "roi_align_backward_rois": (
            lambda: roipool.roi_align_backward_rois(grad, maps, rois),
            ["average_backward_boxes"],
        ),
        "crop_and_resize": (
            lambda: roipool.crop_and_resize(maps, boxes, images, 2),
            ["reshape", "average_forward"],
        ),
        "one array per image": (
            lambda: roipool.roi_align(maps, [boxes[:1], boxes[1:]], 2),
            ["setitem", "fill", "setitem", "fill", "average_forward"],
        ),
    }


def calls_of_a_pyramid(gpu: Backend) -> Calls:
    """Return calls on two float32 maps, and the launches of each."""
    maps = gpu.to_device(np.ones((2, 4, 8, 8), np.float32))
    rois = gpu.to_device(np.array([[0, 1, 1, 5, 6], [1, 0, 0, 7, 7]], np.float32))
    grad = gpu.to_device(np.ones((2, 4, 2, 2), np.float32))
    levels = gpu.to_device(np.array([1, 0]))
    shape = (2, 4, 8, 8)
    return {
        "multilevel_roi_align": (
            lambda: roipool.multilevel_roi_align([maps, maps], rois, 2, [1, 0.5], levels=levels),
            ["average_forward"],
        ),
        "multilevel_roi_align of sizes": (
            lambda: roipool.multilevel_roi_align([maps, maps], rois, 2, [1, 0.5]),
            ["assign_levels", "average_forward"],
        ),
        "multilevel_roi_align_backward_rois": (
            lambda: roipool.multilevel_roi_align_backward_rois(
                grad, [maps, maps], rois, [1, 0.5], levels=levels
            ),
            ["average_backward_boxes"],
        ),
        "multilevel_roi_align_backward": (
            lambda: roipool.multilevel_roi_align_backward(
                grad, rois, [shape, shape], [1, 0.5], levels=levels
            ),
            ["plan_bin_taps", "average_backward"],
        ),
    }


def calls(gpu: Backend) -> Calls:
    """Return calls on float32 arrays, and the launches of each."""
    return calls_of_one_map(gpu) | calls_of_a_pyramid(gpu)


def test_nothing_is_read_back_and_launches_are_few() -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as cupy:
        for name, (call, expected) in calls(Backend("emulator")).items():
            cupy.launches.clear()
            with cupy.no_reads():
                call()
            assert cupy.launches == expected, name


def every_call(gpu: Backend) -> dict[str, Callable[[], Any]]:
    """Return the calls above, all functions of the catalogue, and a call for argmax positions."""
    found = {name: call for name, (call, _) in calls(gpu).items()}
    features = gpu.to_device(cases.maps().astype(np.float32))
    for case in cases.CASES:
        boxes, indices = gpu.to_device(case.boxes()), gpu.to_device(case.indices())
        grad_shape = (len(boxes), cases.SHAPE[1] // case.groups, *cases.SIZE)
        grad = gpu.to_device(np.ones(grad_shape, np.float32))
        argmax, more = None, {}
        if case.variant.has_argmax:
            more = {"return_argmax": True}
            argmax = case.pool(features, boxes, indices, **more)[1]
        found[f"{case}"] = partial(case.pool, features, boxes, indices, **more)
        found[f"{case}, gradient"] = partial(
            case.gradient, grad, argmax, boxes, indices, cases.SHAPE
        )
        if case.moves:
            found[f"{case}, by boxes"] = partial(case.box_gradient, grad, features, boxes, indices)
    rois = gpu.to_device(np.array([[0, 1, 1, 5, 6], [1, 0, 0, 7, 7]], np.float32))
    align = partial(mmcv.roi_align, features, rois, 2, pool_mode="max", return_argmax=True)
    pooled, y, x = align()
    found["argmax as positions"] = align
    found["gradient at positions"] = lambda: mmcv.roi_align_backward(
        pooled, rois, y, x, cases.SHAPE, pool_mode="max"
    )
    return found


def results(found: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple."""
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


@pytest.mark.thorough
def test_graphs_keep_their_memory() -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as cupy:
        for name, call in every_call(Backend("emulator")).items():
            pool = memory.Pool()
            with cupy.cuda.using_allocator(pool.malloc):
                expected = call()  # its allocations return to the pool
                with streams.capturing() as graph:
                    captured = call()
                others = pool.take_all()
                for other in others:
                    other.fill(7)
                graph.launch()
            assert all(np.all(other == 7) for other in others), name
            for got, wanted in zip(results(captured), results(expected), strict=True):
                np.testing.assert_array_equal(got.get(), wanted.get(), err_msg=name)


@pytest.mark.gpu
def test_calls_can_be_captured_in_a_graph() -> None:
    import cupy

    for name, call in every_call(Backend("cuda")).items():
        expected = results(call())  # compiles
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            call()  # fills the stream's part of CuPy's pool of memory
            stream.begin_capture()
            captured = results(call())
            graph = stream.end_capture()
            for result in captured:
                result.fill(7)
            others = [cupy.full(size, 7, np.uint8) for size in 64 * [2**8, 2**10, 2**12, 2**14]]
            graph.launch(stream)
        stream.synchronize()
        assert all(bool(cupy.all(other == 7)) for other in others), name
        for got, wanted in zip(captured, expected, strict=True):
            np.testing.assert_array_equal(got.get(), wanted.get(), err_msg=name)


# ---- The interface to CuPy


def test_numbers_at_other_addresses_are_refused(gpu: Backend) -> None:
    """CUDA fails for good at the first of them, and so does CuPy's copy."""
    packed = gpu.to_device(np.zeros(2 * 9 * 8 * 22, np.uint8))
    maps = gpu.to_device(np.zeros((2, 3, 9, 8), np.float32))
    rois = gpu.to_device(np.zeros((2, 5), np.float32))

    def array(shape: tuple[int, ...], strides: tuple[int, ...], begin: int = 0) -> Any:
        module = sys.modules["cupy"]
        return module.ndarray(shape, np.float32, packed[begin:].data, strides)

    rows, odd = array((2, 5), (22, 4)), array((2, 5), (20, 4), 2)
    for wrong, strides in ((rows, "(22, 4)"), (odd, "(20, 4)")):
        with pytest.raises(
            ValueError,
            match=f"rois must have its float32 numbers at multiples of 4.*{re.escape(strides)}",
        ):
            roipool.roi_align(maps, wrong, 2)
    with pytest.raises(ValueError, match=r"features must .* got strides \(1584, 528, 58, 4\)"):
        roipool.roi_align(array((2, 3, 9, 8), (1584, 528, 58, 4)), rois, 2)
    with pytest.raises(ValueError, match="out must have its float32 numbers"):
        roipool.roi_align(maps, rois, 2, out=array((2, 3, 2, 2), (48, 16, 8, 4), 1))
    whole = array((2, 5), (40, 4))
    assert gpu.to_host(roipool.roi_align(maps, whole, 2)).shape == (2, 3, 2, 2)


def test_a_home_that_cannot_be_written(gpu: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy makes the folder of its cache when a kernel is compiled."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/home/user/.cupy")

    gpu.module.kernels_for.cache_clear()
    monkeypatch.setattr(gpu.module, "function_of", lambda *_: refuse)
    maps, rois = gpu.to_device(np.ones((1, 2, 5, 6), np.float32)), gpu.to_device(np.zeros((1, 5)))
    with pytest.raises(
        PermissionError, match=r"Permission denied: .* CUPY_CACHE_DIR.*_IN_MEMORY=1"
    ):
        roipool.roi_align(maps, rois, 2)
    gpu.module.kernels_for.cache_clear()


CUPY_OF = """
import sys, types
runtime = types.SimpleNamespace(is_hip={is_hip}, getDeviceCount=lambda: 1)
device = types.SimpleNamespace(compute_capability="{capability}")
cuda = types.SimpleNamespace(runtime=runtime, Device=lambda number: device)
sys.modules["cupy"] = types.SimpleNamespace(cuda=cuda)
from roipool._cuda import engine
engine.check_device(0)
"""


@pytest.mark.parametrize(
    ("is_hip", "capability", "message"),
    [
        (True, "90", "roipool's kernels are for NVIDIA GPUs; this CuPy is made for AMD's (ROCm)"),
        (
            False,
            "61",
            "GPU 0 has compute capability 6.1; roipool's kernels need 7.0 (Volta) or later",
        ),
        (False, "120", ""),
    ],
)
def test_gpus_that_cannot_run_kernels(is_hip: bool, capability: str, message: str) -> None:
    text = CUPY_OF.format(is_hip=is_hip, capability=capability)
    done = run_python(text)
    assert done.stderr.rpartition("RuntimeError: ")[2].strip() == message


def launch_text(gpu: Backend, body: str, *arrays: Any) -> None:
    """Run a text that includes call.h with int64 arrays a, b, c and a zeroed call."""
    text = kernel_source(
        "cuda/call.h",
        storage="float",
        definition="roi_pool",
        channels_last=0,
        pack=1,
        position_sensitive=0,
        of_volumes=0,
        plan_is_shared=1,
        offset="int",
        levels=1,
    )
    parameters = ", ".join(f"long long* {name}" for name, _ in zip("abc", arrays, strict=False))
    text += f'extern "C" __global__ void check({parameters}, const roipool::Call call) {{'
    kernel = sys.modules["cupy"].RawKernel(text + body + "}\n", "check", OPTIONS)
    with arrays[0].device:  # an emulated launch also compares the sizes of all arguments
        kernel((1,), (1,), (*arrays, np.zeros(1, call_type(1))))


def test_division_of_any_size(gpu: Backend) -> None:
    rng = np.random.default_rng(14)
    numbers, divisors = (rng.integers(0, 2**63, 500) >> rng.integers(0, 63, 500) for _ in range(2))
    divisors = np.maximum(divisors, 1)
    quotients = gpu.to_device(np.zeros(500, np.int64))
    launch_text(
        gpu,
        "for (int i = 0; i < 500; ++i) a[i] = roipool::divide(b[i], c[i]);",
        quotients,
        gpu.to_device(numbers),
        gpu.to_device(divisors),
    )
    np.testing.assert_array_equal(gpu.to_host(quotients), numbers // divisors)


def test_call_has_the_same_fields_on_both_sides(gpu: Backend) -> None:
    fields = []
    for name, (type_, offset) in sorted(call_type(1).fields.items()):
        inner = type_.base.fields or {}
        whole = f"{name}[0]" if type_.shape else name
        fields += [(f"{whole}.{part}", offset + at) for part, (_, at) in sorted(inner.items())]
        if not inner:
            fields.append((name, offset))
    begin = "reinterpret_cast<const char*>(&call)"  # NVRTC has no offsetof
    lines = [
        f"a[{i}] = reinterpret_cast<const char*>(&call.{name}) - {begin};"
        for i, (name, _) in enumerate(fields)
    ]
    places = gpu.to_device(np.zeros(len(fields), np.int64))
    launch_text(gpu, "\n".join(lines), places)
    assert gpu.to_host(places).tolist() == [offset for _, offset in fields]


def test_without_cupy_the_extra_is_named() -> None:
    code = """
        try:
            import roipool._cuda.engine
        except ImportError as error:
            print(error)
    """
    printed = run_python(code, modules={"cupy": NOT_INSTALLED}).stdout
    assert 'pip install ".[cuda12]"' in printed


def test_without_a_device_the_driver_is_named() -> None:
    cupy = """
        class cuda:
            class runtime:
                def getDeviceCount():
                    raise RuntimeError("cudaErrorInsufficientDriver")
    """
    code = """
        try:
            import roipool._cuda.engine
        except RuntimeError as error:
            print(error)
    """
    found = run_python(code, modules={"cupy": cupy}).stdout
    assert "cudaErrorInsufficientDriver" in found
    assert '".[cuda12]"' in found
