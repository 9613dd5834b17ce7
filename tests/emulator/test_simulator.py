"""The simulator itself: its results, and the faults that it must report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.thorough  # the simulator is compiled first

SHARED = "extern __shared__ float roipool_shared_memory[];\n"


def run(
    cupy: Any,
    body: str,
    *arrays: Any,
    threads: int = 32,
    grid: int = 1,
    shared: int = 0,
    element: str = "float",
) -> None:
    """Run a kernel with parameters a, b, ..."""
    names = [f"{element}* {name}" for name, _ in zip("abcd", arrays, strict=False)]
    text = f'{SHARED}extern "C" __global__ void kernel({", ".join(names)}) {{ {body} }}\n'
    with cupy.cuda.Device():
        cupy.RawKernel(text, "kernel")((grid,), (threads,), arrays, shared_mem=shared)


def floats(cupy: Any, count: int) -> Any:
    return cupy.asarray(np.arange(count, dtype=np.float32))


# ---- Results


def test_small_numbers_are_flushed_as_on_a_gpu(cupy: Any) -> None:
    numbers, result = np.float32([1e-39, -1e-39, 2e-38, 1e-45]), cupy.zeros(4, np.float32)
    run(cupy, "b[threadIdx.x] = a[threadIdx.x] * 1.5f;", cupy.asarray(numbers), result, threads=4)
    np.testing.assert_array_equal(result.get(), np.float32([0, 0, 2e-38, 0]) * np.float32(1.5))


# ---- Faults

ORDERS = {
    "a race within a warp": "{write} {read}",
    "": "{write} __syncwarp(); {read}",
}
EXCHANGE = {
    "write": "roipool_shared_memory[threadIdx.x] = a[threadIdx.x];",
    "read": "b[threadIdx.x] = roipool_shared_memory[threadIdx.x ^ 1];",
}


@pytest.mark.parametrize("fault", ORDERS)
def test_races_within_a_warp(cupy: Any, fault: str) -> None:
    body, arrays = ORDERS[fault].format(**EXCHANGE), (floats(cupy, 32), floats(cupy, 32))
    if fault:
        with pytest.raises(RuntimeError, match=fault):
            run(cupy, body, *arrays, shared=128)
    else:
        run(cupy, body, *arrays, shared=128)
        np.testing.assert_array_equal(arrays[1].get(), np.arange(32) ^ 1)


BETWEEN = """
  roipool_shared_memory[threadIdx.x] = a[threadIdx.x];
  {first}
  float other = roipool_shared_memory[(threadIdx.x + 32) % 64];
  {second}
  roipool_shared_memory[threadIdx.x] = other;
"""


@pytest.mark.parametrize("missing", ["first", "second", "neither"])
def test_races_between_warps(cupy: Any, missing: str) -> None:
    barriers = dict.fromkeys(("first", "second"), "__syncthreads();")
    barriers[missing] = "__syncwarp();"
    body = BETWEEN.format(**barriers)
    if missing == "neither":
        run(cupy, body, floats(cupy, 64), threads=64, shared=256)
    else:
        with pytest.raises(RuntimeError, match="a race between warps"):
            run(cupy, body, floats(cupy, 64), threads=64, shared=256)


COUNTED = """
  int* shared = reinterpret_cast<int*>(roipool_shared_memory);
  if (threadIdx.x == 0) shared[0] = 0;
  {first}
  atomicAdd(shared, 1);
  {second}
  a[threadIdx.x] = shared[0];
"""


@pytest.mark.parametrize("missing", ["first", "second", "neither"])
def test_atomics_are_in_a_race_with_other_accesses_alone(cupy: Any, missing: str) -> None:
    barriers = dict.fromkeys(("first", "second"), "__syncthreads();")
    barriers[missing] = ""
    result = floats(cupy, 64)
    if missing == "neither":
        run(cupy, COUNTED.format(**barriers), result, threads=64, shared=16)
        np.testing.assert_array_equal(result.get(), np.full(64, 64))
    else:
        with pytest.raises(RuntimeError, match="a race"):
            run(cupy, COUNTED.format(**barriers), result, threads=64, shared=16)


FAULTS = {
    "a write by all lanes": ("roipool_shared_memory[0] = a[threadIdx.x];", "a race within a warp"),
    "blocks write one number": ("a[threadIdx.x] = blockIdx.x;", "a race between blocks"),
    "a block reads another's": (
        "a[blockIdx.x] = a[(blockIdx.x + 1) % gridDim.x] + 1;",
        "a race between blocks",
    ),
    "half of a ballot": (
        "if (threadIdx.x < 16) a[threadIdx.x] = __ballot_sync(~0u, a[threadIdx.x] > 3);",
        "a collective that some of its lanes miss",
    ),
    "half of a __syncwarp": (
        "if (threadIdx.x < 16) { a[threadIdx.x] = 1; __syncwarp(); a[threadIdx.x + 1] = 2; }",
        "a collective that some of its lanes miss",
    ),
    "a barrier for some lanes": (
        "if (a[threadIdx.x] < 16) { __syncthreads(); a[threadIdx.x] = 1; } else a[0] = 3;",
        "a barrier that some threads of a warp miss",
    ),
    "a barrier for some warps": (
        "if (threadIdx.x < 32) __syncthreads();",
        "a barrier that some warps of a block miss",
    ),
    "beyond the end": ("a[threadIdx.x + blockIdx.x * 64 + 1] = 1;", "outside of the memory"),
    "before the beginning": ("a[(int)threadIdx.x - 1] = 1;", "outside of the memory"),
    "beyond shared memory": (
        "roipool_shared_memory[threadIdx.x + 1] = 1;",
        "outside of the memory",
    ),
    "misaligned": (
        "*(float2*)(a + 2 * threadIdx.x % 32 + 1) = make_float2(1, 2);",
        "a misaligned address",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported(cupy: Any, name: str) -> None:
    body, fault = FAULTS[name]
    with pytest.raises(RuntimeError, match=fault):
        run(cupy, body, floats(cupy, 64), threads=64, grid=2, shared=256)


# What the last block adds up, all have written before they counted themselves.
COUNTED_BLOCKS = """
  a[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x + 1;
  {fence}
  {barrier}
  if (threadIdx.x == 0) {{
    roipool_shared_memory[0] = atomicAdd(reinterpret_cast<int*>(c), 1) + 1 == gridDim.x;
    {fence_of_last}
  }}
  __syncthreads();
  if (roipool_shared_memory[0] == 0) return;
  b[threadIdx.x] = 0;
  for (int i = 0; i < gridDim.x; ++i) b[threadIdx.x] += a[i * blockDim.x + threadIdx.x];
"""


@pytest.mark.parametrize("missing", ["fence", "barrier", "fence_of_last", ""])
def test_the_last_block_reads_what_others_wrote(cupy: Any, missing: str) -> None:
    parts = {"fence": "__threadfence();", "barrier": "__syncthreads();"}
    parts |= {"fence_of_last": "__threadfence();", missing: ""}
    written, result = cupy.zeros(3 * 64, np.float32), cupy.zeros(64, np.float32)
    arrays = (written, result, cupy.zeros(1, np.float32))
    body = COUNTED_BLOCKS.format(**parts)
    if missing:
        with pytest.raises(RuntimeError, match="a race between blocks"):
            run(cupy, body, *arrays, threads=64, grid=3, shared=4)
    else:
        run(cupy, body, *arrays, threads=64, grid=3, shared=4)
        np.testing.assert_array_equal(result.get(), 6)


@pytest.mark.parametrize(
    "body", ["a[0] += 1; atomicAdd(b, 1);", "atomicAdd(a, 1); b[blockIdx.x + 1] = a[0];"]
)
def test_atomics_are_in_a_race_with_other_accesses_of_blocks(cupy: Any, body: str) -> None:
    numbers = [cupy.zeros(4, np.int32) for _ in range(2)]
    with pytest.raises(RuntimeError, match="a race between blocks"):
        run(cupy, body, *numbers, threads=1, grid=2, element="int")


def test_blocks_may_write_the_same(cupy: Any) -> None:
    result = cupy.zeros(32, np.float32)
    run(cupy, "a[threadIdx.x] = threadIdx.x;", result, grid=3)
    np.testing.assert_array_equal(result.get(), np.arange(32))
