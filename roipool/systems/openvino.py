"""OpenVINO's systems, which only the library itself computes."""

from __future__ import annotations

from roipool.systems.row import Compared

_LIBRARY = ("openvino",)
COMPARED = {
    "openvino.ROIPooling": Compared(libraries=_LIBRARY, asked={"operation": "roi_pool"}),
    "openvino.ROIAlign[asymmetric]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": False}
    ),
    "openvino.ROIAlign[half_pixel_for_nn]": Compared(
        libraries=_LIBRARY, asked={"operation": "roi_align", "aligned": True}
    ),
}
