"""Which definition an op asks for: the link between the public functions and the backends."""

from __future__ import annotations

from typing import NamedTuple


class Geometry(NamedTuple):
    """A definition from ``kernels/definitions.h`` with its parameters.

    Parameters
    ----------
    definition : str
        The function's name in the kernel headers.
    scale : float
        Multiplies box coordinates to give map cells.
    sampling : tuple of int
        Samples per bin, vertically and horizontally; 0 is adaptive.
    aligned : bool
        Whether cell 0 covers ``[-0.5, 0.5]`` rather than ``[0, 1]``.
    angle_scale : float
        Multiplies a box's angle to give radians, counter-clockwise.
    """

    definition: str
    scale: float = 1.0
    sampling: tuple[int, int] = (0, 0)
    aligned: bool = False
    angle_scale: float = 1.0


class Traits(NamedTuple):
    """What callers must know of a definition beforehand, as in ``kernels/definitions.h``.

    Parameters
    ----------
    kind : str
        How the samples of a bin lie along one axis: ``grid``, ``cells``, ``steps`` or ``crop``;
        or ``points``, for a definition of both axes together.
    samples_per_ratio : int
        Of a grid: samples of a bin for each of the sampling ratio.
    max_per_cell : int
        Samples inside the map for each of its cells, where neither the sampling ratio nor the
        number of bins says how many there are.
    """

    kind: str
    samples_per_ratio: int
    max_per_cell: int


TRAITS = {
    "roi_pool": Traits("cells", 0, 1),
    "roi_average_pool": Traits("cells", 0, 1),
    "caffe_roi_pool_gather": Traits("cells", 0, 1),
    "mmcv_roi_pool": Traits("cells", 0, 1),
    "roi_align": Traits("grid", 1, 2),
    "onnx_roi_align_max": Traits("grid", 2, 4),
    "crop_bilinear": Traits("crop", 0, 0),
    "crop_nearest": Traits("crop", 0, 0),
    "crop_box_gradient": Traits("crop", 0, 0),
    "caffe_roi_align": Traits("steps", 0, 1),
    "mxnet_roi_align": Traits("steps", 0, 1),
    "mxnet_roi_align_gather": Traits("steps", 0, 1),
    "roi_align_rotated": Traits("points", 0, 0),
}
