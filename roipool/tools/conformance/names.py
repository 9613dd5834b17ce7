"""The names of semantics.

Names are shown as in ``roipool compare``: module, function and, in brackets, a mode or fixed
options: ``roipool.roi_align``, ``mmcv.roi_align[max]``, ``torchvision.roi_align[aligned]``. The
keys of the table of systems are accepted, too: ``roi_align``, ``mmcv.roi_align max``.
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
# detectron2's layer is torchvision's operator, aligned.
ALIASES = {"detectron2.ROIAlign": "torchvision.roi_align[aligned]"}


ROWS_BY_NAME = {shown_name(row): row for row in SEMANTICS}


def resolved(name: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the key of the system that a name means, and the options in the name.

    Raises
    ------
    ValueError
        If there is no such system.
    """
    text = ALIASES.get(str(name), str(name))
    if text in SEMANTICS:
        return text, {}
    if text in ROWS_BY_NAME:
        return ROWS_BY_NAME[text], {}
    function, _, said = text.removesuffix("]").partition("[")
    row, options = ROWS_BY_NAME.get(function), OPTIONS.get(said, {})
    if row is not None and options and options.keys() <= {*SEMANTICS[row].options}:
        return row, options
    near = difflib.get_close_matches(text, ROWS_BY_NAME, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"{shown(name)} is not one of {', '.join(ROWS_BY_NAME)}{hint}")
