"""The definitions, the traits of each, and the operations that users call by them.

A table each, which tests, ``roipool verify``, ``roipool compare`` and the CUDA sources read, so
that no list of definitions or operations is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from roipool import _cpu
from roipool._arguments import Scale
from roipool._boxes import CORNERS, CROPS, DEFORMED, DEFORMED_BY_CLASS, ROTATED, VOLUMES, Form
from roipool._dtypes import FLOATS, FLOATS_AND_INTEGERS


class Depth(NamedTuple):
    """The third axis of volumes, whose planes follow each other as the rows of one map."""

    planes: int  # planes of the volumes
    bins: int  # bins along depth. Those of each follow each other as rows of bins.
    sampling: int  # samples per bin along depth; 0 is adaptive
    scale: float  # multiplies coordinates along depth to give planes
    row_scale: float  # the scale of rows: `Definition.scale` is that of columns


class Definition(NamedTuple):
    """A definition and the options that place its bins and samples."""

    name: str  # a row of ``kernels/definitions.h``
    # Multiplies box coordinates to give map cells. A pair, of rows and columns, reaches no engine:
    # see `Call.in_cells`.
    scale: Scale = 1.0
    # Samples per bin, vertically and horizontally; 0 is adaptive.
    sampling: tuple[int, int] = (0, 0)
    # Whether cell 0 covers ``[-0.5, 0.5]`` rather than ``[0, 1]``; of crops, whether samples
    # outside the map are those at its edge.
    aligned: bool = False
    angle_scale: float = 1.0  # multiplies a box's angle to give radians, counter-clockwise
    # Multiplies the offset of a bin to give the share of the box's side by which it is moved; of
    # ``garden_crop``, the share of a bin at which its one sample lies.
    offset_factor: float = 1.0
    # Groups of bins, down and across, of which each is pooled from channels of its own; 0: as many
    # as bins. (1, 1): not position-sensitive.
    group_size: tuple[int, int] = (1, 1)
    depth: Depth | None = None


class Traits(NamedTuple):
    """Traits of a definition that engines need before they evaluate it: its row in the header."""

    # Places of its samples: "grid", a regular grid in each bin; "cells", every cell of a bin;
    # "steps", one cell apart from the bin's start; "crop", one to a bin; "filter", every cell
    # around it, where neighbouring bins overlap; "moved", a grid that an offset moves; "points",
    # anywhere, so that rows and columns cannot be planned apart.
    kind: str
    # Samples of a bin along one axis of a grid, for each of the sampling ratio.
    samples_per_ratio: int
    # Samples along one axis for each map cell at most, where neither a sampling ratio nor the
    # number of bins says how many there are.
    max_per_cell: int


TRAITS: dict[str, Traits] = {name: Traits(*row) for name, row in _cpu.definition_traits().items()}
# Definitions whose rows and columns cannot be planned apart.
POINTWISE = frozenset(name for name, traits in TRAITS.items() if traits.kind == "points")
# Definitions whose bins are moved, each by offsets of its own.
MOVED = frozenset(name for name, traits in TRAITS.items() if traits.kind == "moved")
BY_BIN = _cpu.BY_BIN  # both
# Definitions of gradients of maxima, which go to cells that a box itself reaches.
BACKWARD_ONLY = frozenset(name for name in TRAITS if name.endswith("_gather"))


class Variant(NamedTuple):
    """One of the things that an operation can compute."""

    definition: str  # the definition of its forward
    options: Mapping[str, Any] = {}  # the arguments that choose it
    # Whether it is a maximum: then the forward takes ``return_argmax``, and the backward needs the
    # argmax. Otherwise it is an average, linear in the features.
    has_argmax: bool = False
    # The definitions of its gradients with respect to the boxes, and to the offsets of bins, where
    # it has them.
    by_boxes: str | None = None
    by_offsets: str | None = None

    @property
    def bin_value(self) -> str:
        """The kind of pooled value: an "average", one "cell", or the largest "sample"."""
        kind = TRAITS[self.definition].kind
        if self.has_argmax:
            return "cell" if kind == "cells" else "sample"
        # The one sample of a bin of a crop is a cell where it does not move with the box.
        return "cell" if kind == "crop" and self.by_boxes is None else "average"

    @property
    def is_integral(self) -> bool:
        """Whether a bin is an exact integral (`precise_roi_pool`), differentiable in its box."""
        return TRAITS[self.definition].kind == "cells" and self.by_boxes is not None


@dataclass(frozen=True)
class Op:
    """One operation: its public functions by name, and the names of their arguments.

    Some fields of its form are attributes here, too.
    """

    forward: str  # the public function that returns pooled values
    variants: Mapping[str, Variant]  # what it can compute, by a name for people
    # The other arguments that place bins and samples; forward and gradients share them.
    placing: tuple[str, ...] = ("spatial_scale",)
    form: Form = CORNERS
    # The argument with the value of bins outside the map, which the gradients lack.
    filling: str | None = None
    dtypes: tuple[str, ...] = FLOATS  # types of features that its forward takes

    @property
    def backward(self) -> str:
        return f"{self.forward}_backward"

    @property
    def backward_boxes(self) -> str | None:
        by_boxes = any(variant.by_boxes for variant in self.variants.values())
        return f"{self.backward}_{self.boxes}" if by_boxes else None

    @property
    def backward_offsets(self) -> str | None:
        return f"{self.backward}_{self.form.offsets}" if self.is_deformable else None

    @property
    def backward_mask(self) -> str | None:
        return f"{self.backward}_{self.form.mask}" if self.form.mask is not None else None

    @property
    def functions(self) -> dict[str, str]:
        """The public functions, by the attributes that name them."""
        names = ("forward", "backward", "backward_boxes", "backward_offsets", "backward_mask")
        found = {name: getattr(self, name) for name in names}
        return {name: function for name, function in found.items() if function is not None}

    @property
    def boxes(self) -> str:
        return self.form.boxes

    @property
    def indices(self) -> str:
        return self.form.indices

    @property
    def size(self) -> str:
        return self.form.size

    @property
    def columns(self) -> int:
        return len(self.form.columns)

    @property
    def is_rotated(self) -> bool:
        return "angle" in self.form.columns

    @property
    def is_deformable(self) -> bool:
        return self.form.offsets is not None

    @property
    def is_of_volumes(self) -> bool:
        return "z1" in self.form.columns

    @property
    def is_position_sensitive(self) -> bool:
        return "group_size" in self.placing


OPS: dict[str, Op] = {
    op.forward: op
    for op in (
        Op(
            "roi_pool",
            {"max": Variant("roi_pool", has_argmax=True)},
            dtypes=FLOATS_AND_INTEGERS,
        ),
        Op("roi_average_pool", {"avg": Variant("roi_average_pool")}),
        Op(
            "roi_align",
            {
                "avg": Variant("roi_align", {"mode": "avg"}, by_boxes="roi_align"),
                "max": Variant("roi_align", {"mode": "max"}, has_argmax=True),
            },
            placing=("spatial_scale", "sampling_ratio", "aligned"),
            dtypes=FLOATS_AND_INTEGERS,
        ),
        Op(
            "ps_roi_pool",
            {"avg": Variant("ps_roi_pool")},
            placing=("spatial_scale", "group_size"),
        ),
        Op(
            "ps_roi_align",
            {"avg": Variant("roi_align", by_boxes="roi_align")},
            placing=("spatial_scale", "sampling_ratio", "aligned", "group_size"),
        ),
        Op("precise_roi_pool", {"avg": Variant("precise_roi_pool", by_boxes="precise_roi_pool")}),
        Op(
            "roi_align_rotated",
            {"avg": Variant("roi_align_rotated", by_boxes="roi_align_rotated")},
            placing=("spatial_scale", "sampling_ratio", "aligned", "clockwise", "angle_unit"),
            form=ROTATED,
        ),
        Op(
            "deform_roi_pool",
            {
                "avg": Variant(
                    "deform_roi_pool", by_boxes="deform_roi_pool", by_offsets="deform_roi_pool"
                )
            },
            placing=("spatial_scale", "sampling_ratio", "gamma"),
            form=DEFORMED,
        ),
        Op(
            "deformable_ps_roi_pool",
            {"avg": Variant("deformable_ps_roi_pool", by_offsets="deformable_ps_roi_pool")},
            placing=("spatial_scale", "samples", "group_size", "gamma"),
            form=DEFORMED_BY_CLASS,
        ),
        Op(
            "crop_and_resize",
            {
                "bilinear": Variant(
                    "crop_bilinear",
                    {"method": "bilinear", "antialias": False},
                    by_boxes="crop_bilinear",
                ),
                "nearest": Variant("crop_nearest", {"method": "nearest", "antialias": False}),
                "antialias": Variant(
                    "crop_antialias",
                    {"method": "bilinear", "antialias": True},
                    by_boxes="crop_antialias",
                ),
            },
            placing=("border",),
            form=CROPS,
            filling="extrapolation_value",
            dtypes=FLOATS_AND_INTEGERS,
        ),
    )
}

# Definitions whose gradient with respect to the numbers of boxes engines compute.
MOVES_WITH_BOXES = frozenset(
    name
    for name, traits in TRAITS.items()
    if traits.kind in ("grid", "moved", "points", "filter")
    or name.startswith(("crop_bilinear", "garden_crop", "precise_roi_pool", "tensorflow_crop_"))
)

# Operations that pool each box from one of several maps: `features` is a sequence of maps, and
# `levels` says which is whose. Their placing arguments hold one scale for each map.
PYRAMID_OPS: dict[str, Op] = {
    op.forward: op
    for op in (
        Op(
            "multilevel_roi_align",
            {"avg": Variant("roi_align", by_boxes="roi_align")},
            placing=("spatial_scales", "sampling_ratio", "aligned"),
        ),
    )
}

# Operations on volumes: `features` has a third axis, and front ends merge it with the rows.
VOLUME_OPS: dict[str, Op] = {
    op.forward: op
    for op in (
        Op(
            "roi_align_3d",
            {"avg": Variant("roi_align", by_boxes="roi_align")},
            placing=("spatial_scale", "sampling_ratio", "aligned"),
            form=VOLUMES,
            dtypes=FLOATS_AND_INTEGERS,
        ),
    )
}
