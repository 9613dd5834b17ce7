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
