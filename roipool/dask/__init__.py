"""Front end for Dask arrays: maps in chunks of images, larger than a machine's memory.

``roipool.roi_align(x, rois, 7, ...)`` of a Dask array `x` is lazy and gives a Dask array, and so is
every other forward of ``roipool`` and ``roipool.compat``. Chunks may separate images but not cut
them. One task per chunk pools the chunk's boxes where the chunk is stored; chunks without boxes are
not loaded. Boxes are NumPy arrays or lists, checked before anything runs. Functions of several maps
take a list of Dask arrays and rechunk them like the first: a task has one chunk of every map.

Results are in the order of the boxes; :func:`chunk_order` gives one that shuffles nothing between
machines. An argmax is int64. There are no gradients. Workers use as many threads as their
environment allows: ``distributed`` starts them with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

from roipool.dask._calls import call as call
from roipool.dask._calls import chunk_order

__all__ = ["chunk_order"]
