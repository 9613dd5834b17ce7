"""Front end for Dask arrays: maps in chunks of images, larger than a machine's memory.

``roipool.roi_align(x, rois, 7, ...)`` of a Dask array `x` is lazy and gives a Dask array. Chunks
may separate images but not cut them. One task per chunk pools the chunk's boxes where the chunk is
stored; chunks without boxes are not loaded. Boxes are NumPy arrays or lists, checked before
anything runs. ``multilevel_roi_align`` takes a list of Dask arrays and rechunks them like the
first: a task has one chunk of every map.

Every forward of ``roipool`` and ``roipool.compat`` takes them. Those of ``roipool``, which this
package has, too, have one more argument:

keep_order : bool
    True returns rows in the order of the boxes. If the boxes are not sorted by image, this shuffles
    the results between machines. False returns rows as they are computed, grouped by chunk;
    :func:`chunk_order` gives the box of each row.

An argmax is int64. There are no gradients. Workers use as many threads as their environment
allows: ``distributed`` starts them with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

from roipool.dask._calls import FORWARDS, chunk_order
from roipool.dask._calls import call as call

globals().update(FORWARDS)

__all__ = ["chunk_order", *FORWARDS]
