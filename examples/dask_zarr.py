"""Pools boxes from maps larger than memory: a Zarr store, read, pooled and written by chunk.

    pip install ".[dask]" distributed zarr
    python examples/dask_zarr.py [--images 256] [--memory 400MiB]

Workers hold a few chunks at a time, whatever the number of images.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from distributed import Client, LocalCluster

import roipool
import roipool.dask

SHAPE, CHUNK, BOXES_PER_IMAGE = (32, 100, 100), 4, 20


def write_maps(path: Path, images: int) -> None:
    """Write feature maps, chunk by chunk."""
    store = zarr.create_array(
        path, shape=(images, *SHAPE), chunks=(CHUNK, *SHAPE), dtype="float32", compressors=None
    )
    rng = np.random.default_rng(0)
    for first in range(0, images, CHUNK):
        count = min(CHUNK, images - first)
        store[first : first + count] = rng.standard_normal((count, *SHAPE), dtype=np.float32)


def make_boxes(images: int) -> np.ndarray:
    """Return boxes in image pixels, in any order."""
    rng = np.random.default_rng(1)
    count = BOXES_PER_IMAGE * images
    corner, side = rng.uniform(0, 300, (count, 2)), rng.uniform(8, 90, (count, 2))
    return np.column_stack([rng.integers(0, images, count), corner, corner + side])


def peak_mib() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Pool all boxes on two workers, and compare some with the call on one machine."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--memory", default="400MiB", help="of each worker")
    arguments = parser.parse_args()
    boxes = make_boxes(arguments.images)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=arguments.memory,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        write_maps(Path(folder) / "maps.zarr", arguments.images)
        maps = da.from_zarr(Path(folder) / "maps.zarr")
        boxes = boxes[roipool.dask.chunk_order(maps, boxes[:, 0])]
        pooled = roipool.roi_align(maps, boxes, 7, 1 / 4, 2)
        pooled.rechunk({0: 256}).to_zarr(Path(folder) / "pooled.zarr")
        peaks = client.run(peak_mib).values()
        result = zarr.open_array(Path(folder) / "pooled.zarr", mode="r")
        first = boxes[boxes[:, 0] < CHUNK]
        own = roipool.roi_align(maps[:CHUNK].compute(), first, 7, 1 / 4, 2)
        same = np.array_equal(result[: len(first)], own)
    print(f"maps {maps.nbytes / 2**20:.0f} MiB, pooled {pooled.nbytes / 2**20:.0f} MiB")
    print(f"a worker's peak {max(peaks):.0f} MiB; the first chunk's rows equal: {same}")


if __name__ == "__main__":
    main()
