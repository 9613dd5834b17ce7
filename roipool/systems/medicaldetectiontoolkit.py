"""medicaldetectiontoolkit's system: see `roipool.compat.medicaldetectiontoolkit`."""

from __future__ import annotations

from typing import Any

from roipool.compat import medicaldetectiontoolkit
from roipool.systems import volumes
from roipool.systems.case import Case
from roipool.systems.core import UNALIGNED_VOLUME, VOLUMES
from roipool.systems.row import Oracle, names_of


def _boxes(case: Case) -> dict[str, Any]:
    """Return boxes y1, x1, y2, x2, z1, z2, of which y is along the first axis of a volume."""
    return {"rois": volumes.with_depth(case).rois[:, [0, 3, 2, 6, 5, 1, 4]]}


_ALIGN = VOLUMES._replace(
    forward="compat.medicaldetectiontoolkit.roi_align_3d",
    backward="compat.medicaldetectiontoolkit.roi_align_3d_backward",
    pairs=False,
    fixed={},
    boxes=_boxes,
    names=names_of(medicaldetectiontoolkit.FORM),
    layouts=("NCHW",),
    stored=("mdt_align_3d",),
    oracle=Oracle(VOLUMES),
    layers=("medicaldetectiontoolkit.RoIAlign",),
    compared={"medicaldetectiontoolkit.roi_align_3d": UNALIGNED_VOLUME},
)
SYSTEMS = {"medicaldetectiontoolkit.roi_align_3d": _ALIGN}
