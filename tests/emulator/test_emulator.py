"""The emulator itself: it runs CUDA correctly, and rejects what CuPy or a GPU would reject."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support import emulator

TYPES = """
namespace roipool { typedef float Value; }
extern __shared__ double roipool_shared_memory[];
"""


@pytest.fixture
def cupy() -> Iterator[Any]:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    with emulator.active() as module:
        yield module


def run(cupy: Any, body: str, threads: int, *arrays: Any, grid: int = 1, shared: int = 0) -> None:
    """Run a kernel whose parameters a, b, ... are float arrays."""
    parameters = ", ".join(f"float* {name}" for name, _ in zip("abcd", arrays, strict=False))
    text = f'{TYPES}extern "C" __global__ void kernel({parameters}) {{ {body} }}\n'
    with cupy.cuda.Device():
        cupy.RawKernel(text, "kernel")((grid,), (threads,), arrays, shared_mem=shared)


def test_threads_and_blocks_have_their_numbers(cupy: Any) -> None:
    result = cupy.zeros(12, np.float32)
    run(
        cupy,
        "a[blockIdx.x * blockDim.x + threadIdx.x] = 10 * blockIdx.x + threadIdx.x;",
        4,
        result,
        grid=3,
    )
    assert result.get().tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


REVERSE = """
  float* shared = reinterpret_cast<float*>(roipool_shared_memory);
  shared[threadIdx.x] = a[threadIdx.x];
  {barrier}
  b[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
"""


@pytest.mark.parametrize(("barrier", "threads"), [("__syncthreads();", 70), ("__syncwarp();", 32)])
def test_barriers_wait_for_all(cupy: Any, barrier: str, threads: int) -> None:
    numbers = np.arange(threads, dtype=np.float32)
    result = cupy.zeros(threads, np.float32)
    body = REVERSE.replace("{barrier}", barrier)
    run(cupy, body, threads, cupy.asarray(numbers), result, shared=4 * threads)
    np.testing.assert_array_equal(result.get(), numbers[::-1])


def test_a_missing_barrier_is_seen(cupy: Any) -> None:
    numbers = np.arange(70, dtype=np.float32)
    result = cupy.zeros(70, np.float32)
    run(cupy, REVERSE.replace("{barrier}", ""), 70, cupy.asarray(numbers), result, shared=280)
    assert np.any(result.get() != numbers[::-1])


@pytest.mark.parametrize(
    "body",
    [
        "if (threadIdx.x == 3) return; __syncthreads(); a[0] = 1;",
        "if (threadIdx.x == 3) { __syncwarp(); } else { __syncthreads(); }",
        "for (int i = 0; i < int(threadIdx.x); ++i) __syncthreads();",
    ],
)
def test_a_barrier_that_some_threads_miss_is_an_error(cupy: Any, body: str) -> None:
    with pytest.raises(RuntimeError, match="a barrier was reached by some threads only"):
        run(cupy, body, 8, cupy.zeros(1, np.float32))
    # And the next launch is not disturbed.
    result = cupy.zeros(8, np.float32)
    run(cupy, "__syncthreads(); a[threadIdx.x] = threadIdx.x;", 8, result)
    np.testing.assert_array_equal(result.get(), np.arange(8))


def test_ballots_are_of_a_warp(cupy: Any) -> None:
    result = cupy.zeros(64, np.float32)
    run(
        cupy,
        "a[threadIdx.x] = __ffs(__ballot_sync(~0u, threadIdx.x >= 5 && threadIdx.x != 32));",
        64,
        result,
    )
    np.testing.assert_array_equal(result.get(), [6] * 32 + [2] * 32)


def test_leading_zeros(cupy: Any) -> None:
    result = cupy.zeros(33, np.float32)
    run(cupy, "a[threadIdx.x] = __clz(threadIdx.x == 32 ? 0 : 1 << threadIdx.x);", 33, result)
    np.testing.assert_array_equal(result.get(), [*range(31, -1, -1), 32])


def test_lanes_know_who_brings_the_same(cupy: Any) -> None:
    result = cupy.zeros(64, np.float32)
    run(cupy, "a[threadIdx.x] = __popc(__match_any_sync(~0u, -int(threadIdx.x % 5)));", 64, result)
    np.testing.assert_array_equal(result.get(), ([7, 7, 6, 6, 6] * 7)[:32] * 2)


@pytest.mark.parametrize("number", ["float", "double"])
def test_shuffles_bring_what_a_lane_has(cupy: Any, number: str) -> None:
    result = cupy.zeros(64, np.float32)
    body = f"int i = threadIdx.x; a[i] = __shfl_sync(~0u, {number}(i), i % 32 - 1);"
    run(cupy, body, 64, result)
    lanes = np.arange(64)  # -1 means the last one
    np.testing.assert_array_equal(result.get(), lanes // 32 * 32 + (lanes - 1) % 32)


def test_any_is_of_a_warp(cupy: Any) -> None:
    result = cupy.zeros(64, np.float32)
    run(cupy, "a[threadIdx.x] = __any_sync(~0u, threadIdx.x == 40);", 64, result)
    np.testing.assert_array_equal(result.get(), [0] * 32 + [1] * 32)


def test_atomics(cupy: Any) -> None:
    body = """
      int* shared = reinterpret_cast<int*>(roipool_shared_memory);
      const int i = threadIdx.x;
      if (i == 0) shared[0] = shared[1] = shared[2] = 40;
      __syncthreads();
      a[i] = atomicAdd(shared, 2);
      atomicMin(shared + 1, 70 - i);
      atomicMax(shared + 2, i);
      __syncthreads();
      for (int n = 0; n < 3; ++n) b[n] = shared[n];
    """
    before, after = cupy.zeros(64, np.float32), cupy.zeros(3, np.float32)
    run(cupy, body, 64, before, after, shared=16)
    assert sorted(before.get()) == list(range(40, 168, 2))
    np.testing.assert_array_equal(after.get(), [168, 7, 63])


def test_shared_memory_beyond_what_was_asked_for_is_seen(cupy: Any) -> None:
    body = "reinterpret_cast<float*>(roipool_shared_memory)[4] = a[0];"
    run(cupy, body, 1, cupy.zeros(1, np.float32), shared=20)
    if not emulator.compiler.sanitizers():
        with pytest.raises(RuntimeError, match="more shared memory was written than asked for"):
            run(cupy, body, 1, cupy.zeros(1, np.float32), shared=16)


def test_float32_is_flushed_as_by_cupy(cupy: Any) -> None:
    tiny = np.array([1e-38 / 2, -1e-38 / 2, 1.5e-38], np.float32)
    result = cupy.zeros(3, np.float32)
    run(cupy, "a[threadIdx.x] = b[threadIdx.x] * 0.5f * 2;", 3, result, cupy.asarray(tiny))
    np.testing.assert_array_equal(result.get(), [0, 0, 0])


def test_half_conversions_are_numpys(cupy: Any) -> None:
    body = """
      for (int i = 0; i < 65536; ++i) {
        a[i] = float_of_half(i);
        b[i] = float_of_half(half_of_float(c[i]));
      }
    """
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    numbers = np.random.default_rng(0).integers(0, 2**32, 2**16, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        numbers[:40000] = every[:40000].astype(np.float32) * np.float32(1 + 2**-11)
    widened, rounded = (cupy.zeros(2**16, np.float32) for _ in range(2))
    run(cupy, body, 1, widened, rounded, cupy.asarray(numbers))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(widened.get(), every.astype(np.float32))
        expected = numbers.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(rounded.get(), expected)


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        (np.zeros(4, np.float32), AssertionError),  # an array in host memory
        (3, TypeError),
        (3.0, TypeError),
        (None, TypeError),
        (np.int32(3), AssertionError),  # too narrow for a pointer
    ],
    ids=repr,
)
def test_bad_arguments_are_refused(cupy: Any, argument: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(cupy, "a[0] = 0;", 1, argument)


def test_values_are_not_read_by_accident(cupy: Any) -> None:
    array = cupy.zeros(1, np.float32)
    for read in (bool, int, float, list, np.add.reduce, np.asarray):
        with pytest.raises((AssertionError, TypeError)):
            read(array)
    with emulator.cupy_module.no_reads(), pytest.raises(AssertionError, match="waits"):
        array.get()


def test_fresh_memory_holds_no_zeros(cupy: Any) -> None:
    assert np.all(np.isnan(cupy.empty(8, np.float32).get()))
    assert np.all(cupy.empty(8, np.int32).get() < -1)


def test_errors_of_the_compiler_name_the_file(cupy: Any) -> None:
    with pytest.raises(SyntaxError, match="no_such_name"):
        run(cupy, "a[0] = no_such_name;", 1, cupy.zeros(1, np.float32))


# ---- Sanitizers

SANITIZE = Path(__file__).with_name("sanitize.sh")


BROKEN = [
    ("a[3] = shared[3];", None),
    ("a[3] = shared[4];", "AddressSanitizer: use-after-poison"),
    ("int n = blockDim.x; a[0] = n + 0x7fffffff;", "signed integer overflow"),
    ("shared[4] = 0;", "AddressSanitizer: use-after-poison"),
    ("a[0] = a[4];", "AddressSanitizer: heap-buffer-overflow"),
    ("a[-1] = 0;", "AddressSanitizer: heap-buffer-overflow"),
    ("int n = blockDim.x; a[0] = 1 << (n + 31);", "shift exponent 32 is too large"),
    ("a[0] = static_cast<int>(a[1] + 3e9f);", "outside the range of representable values"),
]


@pytest.mark.thorough  # each is a process of its own
@pytest.mark.parametrize(("body", "error"), BROKEN)
def test_sanitizers_end_a_broken_kernel(body: str, error: str | None) -> None:
    code = f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parents[n]) for n in range(2)]}
        import numpy
        from _support import emulator
        from test_emulator import run
        with emulator.active() as cupy:
            body = "float* shared = reinterpret_cast<float*>(roipool_shared_memory);" {body!r}
            run(cupy, body, 1, cupy.zeros(4, numpy.float32), shared=16)
        print("went on")
    """
    done = subprocess.run(
        ["bash", str(SANITIZE), sys.executable, "-P", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert (done.returncode == 0) == (error is None), done.stderr
    assert (done.stdout == "went on\n") == (error is None)
    assert (error or "") in done.stderr
