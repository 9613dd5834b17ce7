"""Paddle's systems, which only the library itself computes."""

from __future__ import annotations

from roipool.reference import ROI_ALIGN, ROI_POOL
from roipool.systems.row import Compared

_LIBRARY = ("paddle",)
COMPARED = {
    "paddle.roi_pool": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_pool"}, rules=ROI_POOL
    ),
    "paddle.roi_align": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": True}, rules=ROI_ALIGN
    ),
    "paddle.roi_align[not aligned]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": False}, rules=ROI_ALIGN
    ),
}
