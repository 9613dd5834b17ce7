"""Count the bins of the largest tiles and portions in the backward of averages on a GPU.

A block adds the bins of a tile, or of a portion of a crowded one, and a launch takes at least as
long as its largest block. These are counts, not times, by the kernel that plans boxes; an emulator
runs it, so that no GPU is needed.

    python benchmarks/crowded_tiles.py --workload 'W1a,W3*'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from _support import emulator
from harness.workloads import changed, choose, task_of

from roipool._boxes import Regions
from roipool._cuda.partition import BYTES_OF_TALLY, Limits, Sizes
from roipool._definitions import Definition
from roipool._request import Pooling

COLUMNS = ("workload", "map", "boxes", "tiles", "crowded", "bins", "portions", "bins of each")


class Counted(NamedTuple):
    """The tiles of a call, and the most bins of a tile and of a portion."""

    tiles: int
    crowded: int
    bins: int
    portions: int
    bins_of_each: int

    @classmethod
    def of(cls, bins: Any, room: int, crowd: int) -> Counted:
        """Divide the bins of tiles into at most `room` portions, as the kernel does."""
        crowded = bins[bins > crowd]
        most = max(crowd, -(-int(crowded.sum()) // max(room - min(len(crowded), room // 2), 1)))
        shared = bins[bins > most]
        portions = -(-shared // most)
        largest = np.where(bins > most, -(-bins // np.maximum(-(-bins // most), 1)), bins)
        return cls(len(bins), len(shared), int(bins.max()), int(portions.sum()), int(largest.max()))


def counted(regions: Regions, pooling: Pooling, shape: tuple[int, ...]) -> Counted:
    """Plan the boxes of a call on the emulator; return what its blocks have to add."""
    import cupy

    from roipool._cuda import engine, launch

    there = Regions(*map(cupy.asarray, regions[:2]))
    sizes = Sizes(*engine.sizes_of(np.dtype(np.float32), there, pooling, shape))
    launches = launch.average_backward(sizes, False)
    kernels = engine.kernels_of(launches)
    scratch = cupy.zeros(launches.scratch, np.uint8)
    with there.boxes.device:
        kernels.plan.launch(len(there.boxes), *there[:2], engine.NULL, scratch)
    tiles = launches.engine.call.tiles
    bins = scratch.get()[BYTES_OF_TALLY:][: 4 * tiles].view(np.uint32).astype(np.int64)
    return Counted.of(bins, launches.engine.call.portions, Limits().crowd)


def rows(chosen: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each map of each workload."""
    for workload in choose(chosen):
        task = task_of(changed(workload, channels=1), np.float32, backward=True)
        for level in task.levels:
            height, width = level.features.shape[2:]
            sampling = (task.sampling_ratio,) * 2
            definition = Definition("roi_align", level.scale, sampling, aligned=task.aligned)
            regions = Regions(
                np.ascontiguousarray(level.rois[:, 1:]), level.rois[:, 0].astype(np.int64)
            )
            pooling = Pooling(definition, task.output_size)
            found = counted(regions, pooling, level.features.shape)
            yield (workload.title, f"{height} x {width}", len(level.rois), *found)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", default="W1a,W2a,W3*", help="names, codes or patterns")
    arguments = parser.parse_args()
    with emulator.active():
        lines = [COLUMNS, ("---",) * len(COLUMNS), *rows(arguments.workload)]
    for line in lines:
        print(f"| {' | '.join(map(str, line))} |")


if __name__ == "__main__":
    main()
