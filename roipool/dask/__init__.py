"""Front end for Dask arrays: maps in chunks of images, larger than a machine's memory.

``roipool.roi_align(x, rois, 7, ...)`` of a Dask array `x` is lazy and gives a Dask array. Chunks
may cut the maps between images; each chunk's boxes go where the chunk is, one task per chunk, and
chunks without boxes are not even loaded. Boxes are NumPy arrays or lists, checked before anything
runs. ``multilevel_roi_align`` takes a list of Dask arrays, which are chunked as the first is: a
task has one chunk of every map.

Functions are those of ``roipool``, forwards only, with one more argument:

keep_order : bool
    By default rows come in the order of the boxes, as without Dask. Unless the boxes are sorted by
    image, that is a shuffle of the results between machines; with False rows come as they are
    computed, grouped by chunk: :func:`chunk_order` says which is whose.

An argmax is int64. There are no gradients. Workers use the threads that their environment allows:
``distributed`` starts them with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

from roipool.dask._lazy import FORWARDS, REFUSED, chunk_order

globals().update(FORWARDS | REFUSED)

__all__ = ["chunk_order", *FORWARDS]
