"""Programs for NVIDIA's GPUs, whose kernels a stand-in for CUDA's driver runs on the emulator."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support import emulator, stand_in
from _support.cases import maps
from _support.jax_programs import check_operation, request_of
from _support.kernel_calls import FULL, KERNELS, PARTIAL
from _support.run_python import run_python
from front_ends import contract
from front_ends.test_jax_contract import JAX

import roipool
import roipool.jax
from roipool._cuda import nvrtc
from roipool.jax import _cuda, _transport
from roipool.jax._cuda import NoLaunchError
from roipool.verification.catalogue import Entry

ROIS = np.array([[0, 1, 2, 13, 15], [1, 4, 5, 19, 9], [0, -3, 2, 5, 30]], np.float32)
MAPS = maps((2, 8, 20, 22)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def driver() -> Iterator[None]:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with stand_in.active():
        yield


@pytest.fixture(autouse=True)
def nothing_loaded() -> None:
    stand_in.library().begin_anew()
    stand_in.calls()
    stand_in.launched()


# Computed by JAX's own functions, on the host, or always with an argmax.
NOT_LAUNCHED = {"assign_levels", "locate_argmax", "identify_argmax", "maximum_forward"}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "entry",
    [FULL, pytest.param(PARTIAL, marks=pytest.mark.thorough)],
    ids=lambda entry: entry.name,
)
def test_every_kernel(entry: Entry, name: str) -> None:
    check_operation(name, entry)
    assert set(stand_in.launched()) >= KERNELS[name] - NOT_LAUNCHED


@pytest.mark.thorough
class TestContract(contract.Derivatives, contract.Batches):
    arrays = JAX


def pool(maps: Any, rois: Any = ROIS) -> Any:
    return roipool.roi_align(maps, jnp.asarray(rois), 3, 1.0)


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)


def test_a_gradient_in_a_batch() -> None:
    """One launch for the whole batch, and two for its gradient."""
    batch = np.stack([MAPS, 2 * MAPS])
    upstream = np.cos(np.arange(3 * 8 * 9, dtype=np.float32)).reshape(3, 8, 3, 3)
    slopes = jax.jit(jax.vmap(jax.grad(lambda maps: (pool(maps) * upstream).sum())))
    expected = roipool.roi_align_backward(upstream, ROIS, MAPS.shape, 1.0)
    close(slopes(batch), np.stack([expected, expected]))
    assert stand_in.launched() == ["plan_bin_taps", "average_backward"]
    pooled = roipool.roi_align(MAPS, ROIS, 3, 1.0)
    close(jax.jit(jax.vmap(pool))(batch), np.stack([pooled, 2 * pooled]))
    assert stand_in.launched() == ["average_forward"]


def test_programs_of_equal_kernels_share_them() -> None:
    """They are loaded once for the device, and nothing is looked for later."""
    for program in (jax.jit(pool), jax.jit(lambda maps: pool(maps) + 1)):
        for given in (jnp.asarray(MAPS), jnp.asarray(MAPS) * 2):
            program(given).block_until_ready()
    assert stand_in.calls() == {"load": 1, "find": 1, "set": 0, "fill": 0, "launch": 4}


# ---- Pyramids

SCALES = (1.0, 0.5, 0.25, 0.125)
PYRAMID = [maps((2, 3, side, side + 2)).astype(np.float32) for side in (16, 8, 4)]
IN_PYRAMID = np.array([[0, 1.3, 1, 20, 20], [1, 3, 4, 30.2, 31], [0, 2, 2, 6, 7]], np.float32)


def test_a_pyramid_with_a_map_without_cells_and_a_box_without_a_map() -> None:
    features = [PYRAMID[0], np.zeros((2, 3, 0, 5), np.float32), *PYRAMID[1:]]
    levels = np.array([0, 7, 2])
    program = jax.jit(
        lambda maps, rois, levels: roipool.multilevel_roi_align(
            maps, rois, (2, 3), SCALES, 2, levels=levels
        )
    )
    kept = [0, 2]
    expected = np.zeros((3, 3, 2, 3), np.float32)
    options = {"levels": levels[kept]}
    expected[kept] = roipool.multilevel_roi_align(
        features, IN_PYRAMID[kept], (2, 3), SCALES, 2, **options
    )
    given = [*map(jnp.asarray, features)], jnp.asarray(IN_PYRAMID), jnp.asarray(levels)
    pooled, pullback = jax.vjp(program, *given)
    close(pooled, expected)
    by_maps, by_rois, _ = pullback(pooled)
    shapes = [each.shape for each in features]
    gradients = roipool.multilevel_roi_align_backward(
        expected[kept], IN_PYRAMID[kept], shapes, SCALES, 2, **options
    )
    for got, wanted in zip(by_maps, gradients, strict=True):
        close(got, wanted)
    slopes = roipool.multilevel_roi_align_backward_rois(
        expected[kept], features, IN_PYRAMID[kept], SCALES, 2, **options
    )
    close(by_rois[np.array(kept), 1:], slopes)
    assert not by_rois[1].any()


def test_a_pyramid_without_cells() -> None:
    """Nothing is launched for its gradients."""
    features = [jnp.zeros((2, 3, 0, 5)), jnp.zeros((2, 3, 4, 0))]
    levels = jnp.asarray([0, 1, 0])
    program = jax.jit(
        lambda maps, rois: roipool.multilevel_roi_align(maps, rois, 2, (1.0, 0.5), levels=levels)
    )
    pooled, pullback = jax.vjp(program, features, jnp.asarray(IN_PYRAMID))
    assert not pooled.any()
    stand_in.launched()
    by_maps, by_rois = pullback(pooled)
    assert [each.shape for each in by_maps] == [each.shape for each in features]
    assert not by_rois.any()
    assert stand_in.launched() == []


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_boxes(count: int) -> None:
    rois = ROIS[:count]
    pooled, pullback = jax.vjp(jax.jit(pool), jnp.asarray(MAPS), jnp.asarray(rois))
    expected = roipool.roi_align(MAPS, rois, 3, 1.0)
    close(pooled, expected)
    gradient, by_rois = pullback(pooled)
    close(gradient, roipool.roi_align_backward(expected, rois, MAPS.shape, 1.0))
    assert by_rois.shape == rois.shape


# ---- Devices and threads

TWO_DEVICES = """
import threading
import jax, jax.numpy as jnp, numpy as np
import roipool
from _support import stand_in
from _support.cases import maps

given = maps((2, 8, 20, 22)).astype(np.float32)
rois = np.array([[0, 1, 2, 13, 15], [1, 4, 5, 19, 9], [0, -3, 2, 5, 30]], np.float32)
expected = roipool.roi_align(given, rois, 3, 1.0)
with stand_in.active():
    program = jax.jit(lambda maps: roipool.roi_align(maps, jnp.asarray(rois), 3, 1.0))
    there = [jax.device_put(given, device) for device in jax.devices()]
    assert len(there) == 2
    begin = threading.Barrier(8)
    wrong = []

    def work(number):
        begin.wait()
        for turn in range(20):
            got = np.asarray(program(there[(number + turn) % 2]))
            if not np.allclose(got, expected, rtol=1e-5, atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    assert not wrong
    print(stand_in.calls())
"""


def test_threads_and_devices() -> None:
    """Each GPU loads a program's kernels once, whichever threads begin with it."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    flags = "--xla_force_host_platform_device_count=2"
    answer = run_python(TWO_DEVICES, PYTHONPATH=path, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
    assert answer.returncode == 0, answer.stderr
    counts = {"load": 2, "find": 2, "set": 0, "fill": 0, "launch": 160}
    assert answer.stdout == f"{counts}\n"


# ---- Errors of the driver


def unpool(pooled: Any, argmax: Any) -> Any:
    """Compute a gradient whose kernel needs more shared memory than it has by default."""
    return roipool.roi_pool_backward(pooled, argmax, ROIS, LARGE.shape, layout="NHWC")


LARGE = maps((2, 64, 39, 39)).transpose(0, 2, 3, 1).astype(np.float32)
FUNCTIONS = {
    "load": "cuModuleLoadData",
    "find": "cuModuleGetFunction",
    "set": "cuFuncSetAttribute",
    "launch": "cuLaunchKernel",
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_error_of_the_driver_is_one_of_the_program(function: str) -> None:
    """It has the driver's words; the next call tries again."""
    both = roipool.roi_pool(np.ascontiguousarray(LARGE), ROIS, 3, layout="NHWC", return_argmax=True)
    program = jax.jit(unpool)
    words = f"roipool: {FUNCTIONS[function]}: out of memory \\(error 2\\)"
    with stand_in.failing(function, 2), pytest.raises(Exception, match=words):
        jax.block_until_ready(program(*both))
    close(program(*both), unpool(*both))
    assert stand_in.calls()["set"] > 0


def test_an_error_while_scratch_memory_is_cleared() -> None:
    """Of a gradient whose tiles may be crowded."""
    rois = np.tile(ROIS, (60, 1))
    upstream = np.ones((len(rois), 8, 3, 3), np.float32)
    program = jax.jit(lambda grad: roipool.roi_align_backward(grad, rois, MAPS.shape, 1.0))
    with (
        stand_in.failing("fill", 700),
        pytest.raises(Exception, match=r"cuMemsetD8Async: unknown error \(error 700\)"),
    ):
        jax.block_until_ready(program(upstream))
    expected = roipool.roi_align_backward(upstream, rois, MAPS.shape, 1.0)
    np.testing.assert_allclose(program(upstream), expected, rtol=1e-5)
    assert stand_in.calls()["fill"] == 2


# ---- Programs without launches


def without_launch(words: str) -> None:
    """Check that a program computes on the host, and says why."""
    with pytest.warns(RuntimeWarning, match=rf"roi_align runs on the CPU \({words}.*at every call"):
        got = jax.jit(pool)(MAPS)
    close(got, roipool.roi_align(MAPS, ROIS, 3, 1.0))
    assert stand_in.launched() == []


def missing(*_: Any) -> Any:
    raise FileNotFoundError("nvidia-cuda-nvrtc is not installed")


def refused(*_: Any) -> Any:
    raise SyntaxError("invalid value for --gpu-architecture")


@pytest.mark.parametrize(
    ("owner", "name", "value", "words"),
    [
        (_transport, "why_not_on_gpus", lambda: "no driver", "no driver"),
        (nvrtc, "machine_code", missing, "NVRTC, CUDA's compiler, is missing: nvidia-cuda-nvrtc"),
        (nvrtc, "machine_code", refused, "NVRTC refuses a kernel: invalid value"),
        (_cuda, "gpu_numbers", lambda: [1, 2], ".* of compute capability 8.0, 9.0: hide some by"),
        (_cuda, "gpu_numbers", lambda: [3], "the GPU has compute capability 6.1; .* need 7.0"),
        (_cuda, "gpu_numbers", lambda: [9], "CUDA's driver: invalid argument"),
    ],
)
def test_what_is_missing_is_said(
    owner: Any, name: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jax.clear_caches()
    monkeypatch.setattr(owner, name, value)
    without_launch(words)


def test_a_machine_without_a_gpu() -> None:
    """Where this test runs on one, it tells nothing."""
    reason = roipool.jax.transport("cuda")
    assert reason.startswith(("handlers of XLA", "callbacks of the host (JAX has no CUDA"))
    with pytest.raises(ValueError, match="platform must be 'cpu' or 'cuda', got 'tpu'"):
        roipool.jax.transport("tpu")


def test_an_argmax_that_may_need_64_bits() -> None:
    program = jax.jit(lambda maps: roipool.roi_align(maps, ROIS, 3, 1.0, 0, mode="max"))
    with pytest.warns(RuntimeWarning, match="argmax of such large maps, or of an adaptive grid"):
        got = program(MAPS)
    close(got, roipool.roi_align(MAPS, ROIS, 3, 1.0, 0, mode="max"))


def test_more_maps_than_a_kernel_takes() -> None:
    features = [MAPS[:, :, :2, :2]] * 65
    pool = lambda maps: roipool.multilevel_roi_align(  # noqa: E731
        maps, ROIS, 2, [1.0] * 65, levels=np.array([0, 64, 3])
    )
    with pytest.warns(RuntimeWarning, match=r"\(65 maps are more than 64\)"):
        got = jax.jit(pool)([*map(jnp.asarray, features)])
    close(got, pool(features))


# ---- Sizes beyond what can be run here


def program_for(shape: tuple[int, ...], boxes: int = 3) -> dict[str, Any]:
    """Return what a program carries of an average of maps of a shape."""
    request = request_of(pool, jnp.asarray(MAPS))
    operands = [
        jax.ShapeDtypeStruct(shape, np.float32),
        jax.ShapeDtypeStruct((boxes, 4), np.float32),
        jax.ShapeDtypeStruct((boxes,), np.int32),
    ]
    results = [jax.ShapeDtypeStruct((boxes, shape[1], 3, 3), np.float32)]
    return _cuda.program_of("average", operands, results, request.pooling)[0]


def test_maps_beyond_32_bits_have_wide_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    keep = lambda source, *_: sources.append(source) or b"none"  # noqa: E731
    monkeypatch.setattr(nvrtc, "machine_code", keep)
    program_for((1, 2, 1000, 1000))
    program_for((1, 2, 2**15, 2**15))
    assert [re.findall(r"ROIPOOL_OFFSET (\w+)", each)[0] for each in sources] == ["int", "wide_int"]


def test_a_grid_has_no_more_blocks_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "machine_code", lambda *_: b"none")
    numbers = program_for((1, 2**12, 8, 8), 2**27)["numbers"]
    assert numbers[4] == 2**31 - 1


def test_axes_beyond_32_bits_have_no_launch() -> None:
    with pytest.raises(NoLaunchError, match="maps must have at most 2147483647 rows and columns"):
        program_for((1, 1, 2**31, 1))
