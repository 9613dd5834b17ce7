"""OpenVINO's systems; only the library itself computes them."""

from __future__ import annotations

from roipool.reference import ROI_ALIGN, ROI_POOL
from roipool.systems.row import Compared

_LIBRARY = ("openvino",)
COMPARED = {
    "openvino.ROIPooling": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_pool"}, rules=ROI_POOL
    ),
    "openvino.ROIAlign[asymmetric]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": False}, rules=ROI_ALIGN
    ),
    "openvino.ROIAlign[half_pixel_for_nn]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": True}, rules=ROI_ALIGN
    ),
}
