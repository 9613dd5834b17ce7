"""The table of systems: one row for each, with everything that the tools need to know about it.

A system is a public function of one framework, in `roipool.compat`, with its gradients; roipool's
own operations are systems, too. Random calls, `roipool verify`, the conformance checks, `roipool
compare`, the documentation and the tests read the rows. To add a system, write the function in
`roipool/compat/FRAMEWORK.py` and its row in `roipool/systems/FRAMEWORK.py`:
docs/internals/add-a-system.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roipool import compat
from roipool.reference import Rules
from roipool.systems import (
    caffe,
    chainer,
    chainercv,
    core,
    detectron2,
    maskrcnn_benchmark,
    masks,
    medicaldetectiontoolkit,
    medvision,
    megengine,
    mmcv,
    model_garden,
    mxnet,
    onnx,
    openvino,
    paddle,
    precise_roi_pooling,
    roialign_pytorch,
    rotated,
    tensorflow,
    torchvision,
)
from roipool.systems.core import shown_name
from roipool.systems.row import Compared, Oracle, System
from roipool.systems.stored import Results

__all__ = [
    "COMPARED",
    "RULES",
    "SEMANTICS",
    "SYSTEMS",
    "Compared",
    "Oracle",
    "Results",
    "System",
    "asked_of",
    "functions",
    "oracle_of",
    "shown_name",
]

# In the order in which `roipool compare` shows them.
_MODULES = (
    core,
    caffe,
    chainer,
    chainercv,
    mxnet,
    mmcv,
    maskrcnn_benchmark,
    medicaldetectiontoolkit,
    medvision,
    megengine,
    tensorflow,
    model_garden,
    roialign_pytorch,
    torchvision,
    detectron2,
    onnx,
    openvino,
    paddle,
    precise_roi_pooling,
    rotated,
    masks,
)


def _with_derived(name: str, row: System) -> dict[str, System]:
    """Return a row, and those of its own gradient and of its layers."""
    rows = {name: row}
    if row.own_gradient is not None:
        rows[f"{name} gradient"] = row.own_gradient
    for layer in row.layers:
        module, _, kind = layer.partition(" ")[0].partition(".")
        rows[layer] = row.of_layer(layer, getattr(getattr(compat, module), kind))
    return rows


# All rows by name; random calls are drawn from them.
SYSTEMS: dict[str, System] = {
    derived: each
    for module in _MODULES
    for name, row in getattr(module, "SYSTEMS", {}).items()
    for derived, each in _with_derived(name, row).items()
}
# The rows that define semantics with which other implementations can be compared.
SEMANTICS = {name: row for name, row in SYSTEMS.items() if row.is_semantics}


def _compared(module: Any) -> dict[str, Compared]:
    """Return the entries of a module for `roipool compare`, within its rows and outside them."""
    of_rows = {
        shown: one._replace(row=f"{name} gradient" if one.of_gradient else name)
        for name, row in getattr(module, "SYSTEMS", {}).items()
        for shown, one in row.compared.items()
    }
    return of_rows | getattr(module, "COMPARED", {})


COMPARED: dict[str, Compared] = {
    shown: one for module in _MODULES for shown, one in _compared(module).items()
}


def oracle_of(name: str) -> Oracle:
    """Return the oracle of a system."""
    row = SYSTEMS[name]
    return row.oracle or Oracle(row)


def asked_of(compared: Compared) -> Mapping[str, Any]:
    """Return the fields of an installed library's `Task` that select a system."""
    if not compared.row:
        return compared.asked
    row, options = SYSTEMS[compared.row], compared.options
    asked = {**row.asked, **compared.asked}
    if row.layouts != ("NCHW",):
        asked["layout"] = row.layouts[0]
    if "aligned" in options:
        asked["aligned"] = options["aligned"]
    elif "coordinate_transformation_mode" in options:
        asked["aligned"] = options["coordinate_transformation_mode"] == "half_pixel"
    return asked


# The rules of each system in `roipool compare`, by name.
RULES: dict[str, Rules] = {
    shown: one.rules.of_boxes(aligned=asked_of(one).get("aligned", False))
    for shown, one in COMPARED.items()
    if one.rules is not None
}


def functions() -> set[str]:
    """Return the names of the public functions and methods of all systems."""
    every = [
        (row.forward, row.backward, row.box_gradient, row.offset_gradient)
        for row in SYSTEMS.values()
    ]
    return {name for names in every for name in names if name}
