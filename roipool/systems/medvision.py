"""MedVision's system: see `roipool.compat.medvision`."""

from __future__ import annotations

from roipool.systems.core import UNALIGNED_VOLUME, VOLUMES
from roipool.systems.row import Oracle

_ALIGN = VOLUMES._replace(
    forward="compat.medvision.roi_align_3d",
    backward="compat.medvision.roi_align_3d_backward",
    pairs=False,
    fixed={},
    layouts=("NCHW",),
    oracle=Oracle(VOLUMES),
    layers=("medvision.RoIAlign",),
    compared={"medvision.roi_align_3d": UNALIGNED_VOLUME},
)
SYSTEMS = {"medvision.roi_align_3d": _ALIGN}
