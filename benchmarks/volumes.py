"""Time ROI align of volumes beside that of maps, and beside the loop of a fork on a CPU.

    python benchmarks/volumes.py --threads 2

Everything runs in turns, and the least time of each counts. *Per sample* is the time of
`roi_align_3d` for each sample of a channel, over that of `roi_align` on maps that have as many
cells and as long boxes. *Loop* is the time of `volume_loop.cpp`, which needs g++ and has one
thread, over that of `roi_align_3d`.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roipool

LOOP = Path(__file__).with_name("volume_loop.cpp")
CHANNELS, BINS, REPEATS = 64, 7, 9
BOXES = {2: 700, 3: 100}  # of maps, of volumes: as many pooled values
# Planes, rows and columns of volumes, and rows and columns of maps with as many cells.
SIZES = {"in the cache": ((24, 24, 24), (118, 118)), "in memory": ((64, 64, 64), (512, 512))}
SIDES = {"4 to 16": (4, 16), "16 to 48": (16, 48)}  # cells

Array = NDArray[np.float32]


def boxes_of(size: tuple[int, ...], sides: tuple[int, int]) -> Array:
    """Return boxes of image 0 within a map or volume, of sides uniform on a logarithmic scale."""
    rng = np.random.default_rng(0)
    extent = np.array(size[::-1])
    shape = (BOXES[len(size)], len(size))
    side = np.minimum(np.exp(rng.uniform(*np.log(sides), shape)), extent)
    first = rng.uniform(0, 1, shape) * (extent - side)
    return np.column_stack([np.zeros(len(first)), first, first + side]).astype(np.float32)


def samples_of(rois: Array, ratio: int) -> float:
    """Return how many samples a call has in each channel."""
    axes = rois.shape[1] // 2
    lengths = (rois[:, 1 + axes :] - rois[:, 1 : 1 + axes]) / BINS
    counts = np.full(lengths.shape, ratio) if ratio else np.ceil(lengths)
    return float((counts.prod(axis=1) * BINS**axes).sum())


class Workload:
    """Calls on maps or volumes.

    Parameters
    ----------
    size : tuple of int
        Planes, rows and columns, or rows and columns.
    sides : tuple of int
        The shortest and the longest side of a box.
    ratio : int
        Samples per bin and axis; 0 is adaptive.
    """

    def __init__(self, size: tuple[int, ...], sides: tuple[int, int], ratio: int) -> None:
        self.rois, self.ratio = boxes_of(size, sides), ratio
        rng = np.random.default_rng(1)
        self.features = rng.standard_normal((1, CHANNELS, *size), dtype=np.float32)
        name = "roi_align_3d" if len(size) == 3 else "roi_align"
        self.forward: Any = getattr(roipool, name)
        self.backward: Any = getattr(roipool, f"{name}_backward")
        self.by_boxes: Any = getattr(roipool, f"{name}_backward_rois")
        self.pooled = self.forward(self.features, self.rois, BINS, 1.0, ratio)

    @property
    def samples(self) -> float:
        """Samples of a call in each channel."""
        return samples_of(self.rois, self.ratio)

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Return the calls by name."""
        at = 1.0, self.ratio
        shape = self.features.shape
        return {
            "forward": lambda: self.forward(self.features, self.rois, BINS, *at),
            "backward": lambda: self.backward(self.pooled, self.rois, shape, *at),
            "boxes": lambda: self.by_boxes(self.pooled, self.features, self.rois, *at),
        }


class Loop:
    """The loop of a fork, compiled."""

    def __init__(self, folder: str) -> None:
        library = Path(folder) / "volume_loop.so"
        flags = "-O3 -march=native -shared -fPIC".split()
        subprocess.run(["g++", *flags, "-o", str(library), str(LOOP)], check=True)
        self._library = ctypes.CDLL(str(library))

    def calls(self, work: Workload) -> dict[str, Callable[[], Any]]:
        """Return its calls; their results are compared with roipool's first."""
        sizes = np.array(work.features.shape[1:], np.int32)
        pooled, gradient = np.zeros_like(work.pooled), np.zeros_like(work.features)

        def run(name: str, volumes: Array, values: Array) -> Array:
            arrays = (volumes, sizes, work.rois)
            options = len(work.rois), BINS, work.ratio
            addresses = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
            getattr(self._library, name)(*addresses, *options, ctypes.c_void_p(values.ctypes.data))
            return values

        def backward() -> Array:
            gradient.fill(0)
            run("backward", gradient, work.pooled)
            return gradient

        calls = {"forward": lambda: run("forward", work.features, pooled), "backward": backward}
        for name, call in calls.items():
            np.testing.assert_allclose(call(), work.calls()[name](), rtol=1e-3, atol=1e-3)
        return calls


def least_times(*calls: Callable[[], Any]) -> list[float]:
    """Return the least time of each call, in seconds; they take turns."""
    times = [math.inf] * len(calls)
    for _ in range(REPEATS):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[number] = min(times[number], time.perf_counter() - start)
    return times


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="threads of roipool")
    roipool.set_num_threads(parser.parse_args().threads)
    print("| volumes | sides | samples | | time | per sample | loop |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(folder)
        for place, (volume, plane) in SIZES.items():
            for what, sides in SIDES.items():
                if sides[1] > max(volume):
                    continue
                for ratio in (2, 0):
                    deep, flat = (Workload(size, sides, ratio) for size in (volume, plane))
                    theirs = loop.calls(deep)
                    for name, call in deep.calls().items():
                        slow = [theirs[name]] if name in theirs else []
                        own, of_maps, *of_loop = least_times(call, flat.calls()[name], *slow)
                        per_sample = (own / deep.samples) / (of_maps / flat.samples)
                        times = f"{of_loop[0] / own:.1f}x" if of_loop else ""
                        print(
                            f"| {place} | {what} | {ratio or 'adaptive'} | {name} "
                            f"| {own * 1e3:.1f} ms | {per_sample:.2f} | {times} |",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
