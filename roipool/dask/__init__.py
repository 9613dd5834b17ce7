"""Front end for Dask arrays: maps in chunks of images, larger than a machine's memory.

``roipool.roi_align(x, rois, 7, ...)`` of a Dask array `x` is lazy and gives a Dask array, and so is
every other forward of ``roipool`` and ``roipool.compat``. One task per chunk of images pools the
chunk's boxes where the chunk is stored; chunks without boxes are not loaded. Boxes are NumPy arrays
or lists, checked before anything runs. Functions of several maps take a list of Dask arrays and
rechunk them like the first: a task has one chunk of every map.

Where chunks cut images, as tiles of slides and satellite pictures do, a task pools the boxes whose
centres are in a tile, and reads the tiles that these boxes reach; the results are those of the
whole map, bit for bit. A task's array has the size of the image, but Linux and macOS hold memory
only for the tiles. Pyramids, volumes, and boxes that are rotated, deformed or position-sensitive
need whole images: their chunks are merged.

Results are in the order of the boxes; :func:`chunk_order` gives one that shuffles nothing between
machines. An argmax is int64. There are no gradients. Workers use as many threads as their
environment allows: ``distributed`` starts them with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

from roipool.dask._calls import call as call
from roipool.dask._calls import chunk_order

__all__ = ["chunk_order"]
