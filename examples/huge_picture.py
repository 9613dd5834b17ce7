"""Crops of a picture of 100,000 x 100,000 pixels, which is never loaded whole.

    python examples/huge_picture.py

The picture is a zarr array of tiles (``pip install "zarr>=3"``), 30 GB if it were in memory; a few
tiles of it are written. roipool reads the tiles that the boxes touch. The program prints the peak
of its memory.
"""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path

import numpy as np
import zarr

import roipool

SIDE, TILE = 100_000, 1024
STAINED = np.random.default_rng(0).integers(0, SIDE // TILE, (40, 2))  # tiles: row, column


def write_slide(folder: Path) -> zarr.Array:
    """Return a slide with some tiles of tissue; the others take no room."""
    slide = zarr.create_array(
        folder / "slide.zarr", shape=(SIDE, SIDE, 3), chunks=(TILE, TILE, 3), dtype=np.uint8
    )
    tissue = np.random.default_rng(1).integers(120, 240, (TILE, TILE, 3), np.uint8)
    for row, column in STAINED * TILE:
        slide[row : row + TILE, column : column + TILE] = tissue
    return slide


def main() -> None:
    """Crop cells of the slide, in two sizes."""
    rng = np.random.default_rng(2)
    corners = STAINED.repeat(25, axis=0)[:, ::-1] * TILE + rng.integers(0, TILE, (1000, 2))
    boxes = np.hstack([corners, corners + rng.integers(40, 400, (1000, 1))])
    with tempfile.TemporaryDirectory() as folder:
        slide = write_slide(Path(folder))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        crops = roipool.crop(slide, boxes, size=128)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print("slide:", slide.shape, f"{slide.nbytes / 1e9:.0f} GB")
    print("crops:", crops.shape, crops.dtype, f"{crops.nbytes / 1e6:.0f} MB")
    print(f"peak of memory: {more // 1024} MiB above that of the program before")


if __name__ == "__main__":
    main()
