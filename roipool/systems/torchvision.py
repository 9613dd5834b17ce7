"""torchvision's systems: see `roipool.compat.torchvision`."""

from __future__ import annotations

from typing import Any

from roipool.compat import torchvision
from roipool.reference import ROI_ALIGN, ROI_POOL
from roipool.systems.boxes import PER_IMAGE
from roipool.systems.core import LEVELS
from roipool.systems.oracles import ALIGN, POOL, from_lowest
from roipool.systems.row import Compared, Oracle, System, names_of
from roipool.verification import pyramids
from roipool.verification.case import Case
from roipool.verification.released import Answer
from roipool.verification.released import Case as Golden

_NAMES = names_of(torchvision.FORM)
_LIBRARY = ("torchvision",)


def _aligned(case: Golden) -> Any:
    return torchvision.roi_align(
        case.features, case.rois, case.size, case.scale, case.sampling or -1, case.aligned
    )


def _aligned_gradient(case: Golden) -> Any:
    return torchvision.roi_align_backward(
        case.grad, case.rois, case.features.shape, case.scale, case.sampling or -1, case.aligned
    )


def _pooled(case: Golden) -> tuple[Any, Any]:
    pooled = torchvision.roi_pool(
        case.features, case.rois, case.size, case.scale, return_argmax=True
    )
    assert isinstance(pooled, tuple)
    return pooled


def _pooled_gradient(case: Golden) -> Any:
    return torchvision.roi_pool_backward(
        case.grad, _pooled(case)[1], case.rois, case.features.shape
    )


def _of_pictures(case: Case) -> dict[str, Any]:
    pictures = [pyramids.picture_of(case)] * max(1, len(case.maps))
    return {"boxes": pyramids.tables_of_images(case), "image_shapes": pictures}


_POOL = System(
    "compat.torchvision.roi_pool",
    "compat.torchvision.roi_pool_backward",
    options=("spatial_scale",),
    fixed={"return_argmax": True},
    returns=("pooled", "argmax"),
    names=_NAMES,
    oracle=Oracle(POOL, finish=from_lowest),
    asked={"operation": "roi_pool"},
    goldens={
        "torchvision roi_pool": Answer("torchvision", "pool", lambda c: _pooled(c)[0], True),
        "torchvision roi_pool argmax": Answer(
            "torchvision", "pool_argmax", lambda c: _pooled(c)[1], True
        ),
        "torchvision roi_pool gradient": Answer("torchvision", "pool_grad", _pooled_gradient, True),
    },
    compared={
        "torchvision.roi_pool": Compared(
            libraries=_LIBRARY, rules=ROI_POOL, example="torchvision.roi_pool(x, rois, 2)"
        )
    },
)
_ALIGN = System(
    "compat.torchvision.roi_align",
    "compat.torchvision.roi_align_backward",
    samples="grid",
    options=("spatial_scale", "sampling_ratio", "aligned"),
    names=_NAMES,
    oracle=Oracle(ALIGN),
    asked={"operation": "roi_align"},
    goldens={
        "torchvision roi_align": Answer("torchvision", "align", _aligned),
        "torchvision roi_align gradient": Answer("torchvision", "align_grad", _aligned_gradient),
    },
    compared={
        "torchvision.roi_align": Compared(
            options={"aligned": False},
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="torchvision.roi_align(x, rois, 2, 1.0, 2)",
        ),
        "torchvision.roi_align[aligned]": Compared(
            options={"aligned": True},
            libraries=_LIBRARY,
            rules=ROI_ALIGN,
            example="torchvision.roi_align(x, rois, 2, 1.0, 2, aligned=True)",
        ),
    },
)
SYSTEMS = {
    "torchvision.roi_pool": _POOL,
    "torchvision.roi_align": _ALIGN,
    "torchvision.RoIAlign": _ALIGN.only_called(
        forward="compat.torchvision.RoIAlign.forward",
        backward="compat.torchvision.RoIAlign.backward",
    ),
    "torchvision.RoIPool": _POOL.only_called(
        forward="compat.torchvision.RoIPool.forward", backward="", fixed={}, returns=("pooled",)
    ),
    "torchvision.MultiScaleRoIAlign": System(
        "compat.torchvision.MultiScaleRoIAlign.forward",
        "compat.torchvision.MultiScaleRoIAlign.backward",
        options=("spatial_scale", "sampling_ratio", "canonical_scale", "canonical_level"),
        scales="powers of 2",
        fixed={"featmap_names": ["0", "1", "2"]},
        samples="grid",
        boxes=_of_pictures,
        names={"x": "features"},
        takes_no_rows=False,
        forms=PER_IMAGE,
        pyramid=pyramids.by_name,
        oracle=Oracle(LEVELS, pyramids.as_torchvision),
        is_semantics=False,
    ),
}
