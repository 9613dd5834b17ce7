"""The names of what implementations can claim to compute.

The spelling of ``roipool compare`` is the one that is shown: the module, the function and, in
brackets, a mode: ``roipool.roi_align``, ``mmcv.roi_align[max]``. A name may also say options that
have one value: ``torchvision.roi_align[aligned]``. Rows of the table of operations are taken, too:
``roi_align``, ``mmcv.roi_align max``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from roipool._errors import shown
from roipool.systems import SEMANTICS, shown_name

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "aligned": {"aligned": True},
    "opset 10": {"coordinate_transformation_mode": "output_half_pixel"},
    "opset 16": {"coordinate_transformation_mode": "half_pixel"},
}
# detectron2's layer is torchvision's operator, half a pixel shifted.
ALIASES = {"detectron2.ROIAlign": "torchvision.roi_align[aligned]"}


ROWS_BY_NAME = {shown_name(row): row for row in SEMANTICS}


def resolved(name: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the row that a name means, and the options that it says.

    Raises
    ------
    ValueError
        If it means none.
    """
    asked = ALIASES.get(str(name), str(name))
    if asked in SEMANTICS:
        return asked, {}
    if asked in ROWS_BY_NAME:
        return ROWS_BY_NAME[asked], {}
    function, _, said = asked.removesuffix("]").partition("[")
    row, options = ROWS_BY_NAME.get(function), OPTIONS.get(said, {})
    if row is not None and options and options.keys() <= {*SEMANTICS[row].options}:
        return row, options
    near = difflib.get_close_matches(asked, ROWS_BY_NAME, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"{shown(name)} is none of {', '.join(ROWS_BY_NAME)}{hint}")
