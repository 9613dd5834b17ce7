"""Region-of-interest pooling as every framework defines it, forward and backward.

The array's type chooses where the work is done. ``roipool.compat`` holds each framework's own
version with its own names and numbers, ``roipool.reference`` the slow and obvious oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from roipool import _cpu  # noqa: F401
except ImportError as _error:  # private: checkers would count it among the package's names
    raise ImportError(
        f"roipool's compiled module cannot be imported ({_error}). In a source tree, install it "
        "first (pip install .) and leave the folder, or install it in place (pip install -e .)."
    ) from _error

from roipool._front_ends import load_front_ends
from roipool._lazy import importer_of
from roipool._masks.crop import crop_masks
from roipool._masks.paste import (
    paste_masks,
    paste_masks_backward,
    paste_masks_backward_boxes,
)
from roipool._masks.run_lengths import masks_to_rle
from roipool._settings import (
    free_memory,
    get_cache_limit,
    get_num_threads,
    set_cache_limit,
    set_debug,
    set_num_threads,
)
from roipool._system_info import show_config
from roipool._version import __version__
from roipool.ops.crop import crop
from roipool.ops.crop_and_resize import (
    crop_and_resize,
    crop_and_resize_backward,
    crop_and_resize_backward_boxes,
)
from roipool.ops.deform_roi_pool import (
    deform_roi_pool,
    deform_roi_pool_backward,
    deform_roi_pool_backward_mask,
    deform_roi_pool_backward_offsets,
    deform_roi_pool_backward_rois,
)
from roipool.ops.deformable_ps_roi_pool import (
    deformable_ps_roi_pool,
    deformable_ps_roi_pool_backward,
    deformable_ps_roi_pool_backward_offsets,
)
from roipool.ops.multilevel_roi_align import (
    assign_levels,
    multilevel_roi_align,
    multilevel_roi_align_backward,
    multilevel_roi_align_backward_rois,
)
from roipool.ops.precise_roi_pool import (
    precise_roi_pool,
    precise_roi_pool_backward,
    precise_roi_pool_backward_rois,
)
from roipool.ops.ps_roi_align import (
    ps_roi_align,
    ps_roi_align_backward,
    ps_roi_align_backward_rois,
)
from roipool.ops.ps_roi_pool import ps_roi_pool, ps_roi_pool_backward
from roipool.ops.roi_align import roi_align, roi_align_backward, roi_align_backward_rois
from roipool.ops.roi_align_3d import (
    roi_align_3d,
    roi_align_3d_backward,
    roi_align_3d_backward_rois,
)
from roipool.ops.roi_align_rotated import (
    roi_align_rotated,
    roi_align_rotated_backward,
    roi_align_rotated_backward_rois,
)
from roipool.ops.roi_average_pool import roi_average_pool, roi_average_pool_backward
from roipool.ops.roi_pool import roi_pool, roi_pool_backward

if TYPE_CHECKING:
    from roipool import compat, reference
else:  # most programs need neither
    __getattr__ = importer_of(__name__, ("compat", "reference"))

__all__ = [
    "__version__",
    "assign_levels",
    "compat",
    "crop",
    "crop_and_resize",
    "crop_and_resize_backward",
    "crop_and_resize_backward_boxes",
    "crop_masks",
    "deform_roi_pool",
    "deform_roi_pool_backward",
    "deform_roi_pool_backward_mask",
    "deform_roi_pool_backward_offsets",
    "deform_roi_pool_backward_rois",
    "deformable_ps_roi_pool",
    "deformable_ps_roi_pool_backward",
    "deformable_ps_roi_pool_backward_offsets",
    "free_memory",
    "get_cache_limit",
    "get_num_threads",
    "masks_to_rle",
    "multilevel_roi_align",
    "multilevel_roi_align_backward",
    "multilevel_roi_align_backward_rois",
    "paste_masks",
    "paste_masks_backward",
    "paste_masks_backward_boxes",
    "precise_roi_pool",
    "precise_roi_pool_backward",
    "precise_roi_pool_backward_rois",
    "ps_roi_align",
    "ps_roi_align_backward",
    "ps_roi_align_backward_rois",
    "ps_roi_pool",
    "ps_roi_pool_backward",
    "reference",
    "roi_align",
    "roi_align_3d",
    "roi_align_3d_backward",
    "roi_align_3d_backward_rois",
    "roi_align_backward",
    "roi_align_backward_rois",
    "roi_align_rotated",
    "roi_align_rotated_backward",
    "roi_align_rotated_backward_rois",
    "roi_average_pool",
    "roi_average_pool_backward",
    "roi_pool",
    "roi_pool_backward",
    "set_cache_limit",
    "set_debug",
    "set_num_threads",
    "show_config",
]

load_front_ends()


def __dir__() -> list[str]:
    """Return the public names, and the public submodules that are imported."""
    return sorted({*__all__, *({"dask", "jax", "testing", "torch"} & globals().keys())})
