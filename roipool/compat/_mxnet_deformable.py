"""MXNet's deformable position-sensitive pooling, part of ``compat.mxnet``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from roipool import _arguments as check
from roipool._boxes import Form
from roipool._definitions import Definition
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat import _deformable_ps as deformable

FORM = Form(
    size="pooled_size",
    features="data",
    grad_output="out_grad",
    input_shape="data_shape",
    read=functools.partial(conventions.numbered_boxes, unknown_image="zero"),
)
DEFORMABLE_FORM = FORM._replace(offsets="trans")


def check_name(name: Any) -> None:
    """Check the name of an operator in a graph, which has no effect."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str or None, got {shown(name)}")


def _deformable(
    spatial_scale: float,
    group_size: int,
    pooled_size: int,
    part_size: int,
    sample_per_part: int,
    trans_std: float,
) -> tuple[Definition, tuple[int, int], tuple[int, int]]:
    """Return the definition, the rows and columns of bins, and those of parts."""
    size = check.size_pair("pooled_size", pooled_size)
    parts = check.sampling_pair("part_size", part_size)
    definition = deformable.placed(
        conventions.float32_share("spatial_scale", spatial_scale),
        check.sampling_pair("sample_per_part", sample_per_part, least=1),
        check.sampling_pair("group_size", group_size, least=1),
        conventions.float32_share("trans_std", trans_std),
    )
    return definition, size, (parts[0] or size[0], parts[1] or size[1])


@for_every_array
def contrib_DeformablePSROIPooling(  # noqa: N802
    data: ArrayT,
    rois: Any,
    trans: ArrayT | None,
    spatial_scale: float,
    output_dim: int,
    group_size: int,
    pooled_size: int,
    part_size: int = 0,
    sample_per_part: int = 1,
    trans_std: float = 0.0,
    no_trans: bool = False,
    *,
    name: str | None = None,
) -> ArrayT:
    """Deformable position-sensitive pooling like ``mxnet.contrib.DeformablePSROIPooling``.

    Parameters
    ----------
    data : ndarray
        Maps, shape (N, output_dim * group_size * group_size, H, W).
    rois : array_like
        Shape (K, 5): batch index, x1, y1, x2, y2 in image pixels.
    trans : ndarray or None
        Offsets of the parts of boxes, shape (K, 2 * classes, part_size, part_size): to the right,
        then down, of each class of the result's channels. None only with `no_trans`.
    spatial_scale : float
        Map cells per image pixel, from 0 to 1.
    group_size : int
        Groups of bins, down and across.
    pooled_size : int
        Bins, down and across.
    part_size : int
        Parts of a box that have offsets, down and across; 0: as many as bins.
    sample_per_part : int
        Samples per bin, down and across.
    trans_std : float
        Multiplies offsets to give shares of the box's sides, from 0 to 1; kept in float32.
    no_trans : bool
        Whether no bin moves; `trans` is then not read.

    Returns
    -------
    ndarray
        Shape (K, output_dim, pooled_size, pooled_size).

    See Also
    --------
    roipool.deformable_ps_roi_pool : The same rule, but for the part of a bin where there are 22
        bins or more: MXNet divides in floating point.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import mxnet
    >>> data = np.tile(np.arange(9, dtype=np.float32), (1, 4, 9, 1))
    >>> trans = np.zeros((1, 2, 2, 2), np.float32)
    >>> trans[0, 0, 1] = 1
    >>> mxnet.contrib_DeformablePSROIPooling(
    ...     data, [[0, 2, 2, 5, 5]], trans, 1.0, 1, 2, 2, sample_per_part=2, trans_std=0.1
    ... ).round(3)
    array([[[[2. , 4. ],
             [2.4, 4.4]]]], dtype=float32)
    """
    trans = deformable.offsets_unless(no_trans, "trans", trans)
    with deformable.FloatCall(DEFORMABLE_FORM, data=data, rois=rois, trans=trans) as call:
        check_name(name)
        placed, size, parts = _deformable(
            spatial_scale, group_size, pooled_size, part_size, sample_per_part, trans_std
        )
        maps, regions, pooling = call.checked_forward(placed, size)
        call.check_part_size(parts)
        conventions.check_output_dim(output_dim, "data", maps.shape[1], pooling)
        return call.average([maps], regions, pooling)


@for_every_array
def contrib_DeformablePSROIPooling_backward(  # noqa: N802
    out_grad: ArrayT,
    rois: Any,
    trans: ArrayT | None,
    data_shape: Sequence[int],
    spatial_scale: float,
    output_dim: int,
    group_size: int,
    pooled_size: int,
    part_size: int = 0,
    sample_per_part: int = 1,
    trans_std: float = 0.0,
    no_trans: bool = False,
) -> ArrayT:
    """Return the gradient of :func:`contrib_DeformablePSROIPooling` for `data`; 0 for `rois`."""
    trans = deformable.offsets_unless(no_trans, "trans", trans)
    with deformable.FloatCall(DEFORMABLE_FORM, out_grad=out_grad, rois=rois, trans=trans) as call:
        placed, size, parts = _deformable(
            spatial_scale, group_size, pooled_size, part_size, sample_per_part, trans_std
        )
        gradient, regions, pooling, shape = call.checked_backward(placed, data_shape)
        call.check_part_size(parts)
        conventions.check_bins("out_grad", gradient, size, "pooled_size")
        conventions.check_output_dim(output_dim, "data", shape[1], pooling)
        return call.average_backward(gradient, regions, pooling, shape)


@for_every_array
def contrib_DeformablePSROIPooling_backward_trans(  # noqa: N802
    out_grad: ArrayT,
    data: ArrayT,
    rois: Any,
    trans: ArrayT,
    spatial_scale: float,
    output_dim: int,
    group_size: int,
    pooled_size: int,
    part_size: int = 0,
    sample_per_part: int = 1,
    trans_std: float = 0.0,
) -> ArrayT:
    """Return the gradient of :func:`contrib_DeformablePSROIPooling` for `trans`.

    As in MXNet it is 0 for a sample at a whole coordinate, where interpolation has a kink.

    Parameters
    ----------
    out_grad : ndarray
        Gradient of the forward's result, in the dtype of `data`.

    Returns
    -------
    ndarray
        The shape of `trans`; float64 for float64 maps, else float32.
    """
    arrays = {"out_grad": out_grad, "data": data, "rois": rois, "trans": trans}
    with deformable.FloatCall(DEFORMABLE_FORM, **arrays) as call:
        placed, size, parts = _deformable(
            spatial_scale, group_size, pooled_size, part_size, sample_per_part, trans_std
        )
        gradient, maps, regions, pooling = call.checked_backward_boxes(placed)
        call.check_part_size(parts)
        conventions.check_bins("out_grad", gradient, size, "pooled_size")
        conventions.check_output_dim(output_dim, "data", maps[0].shape[1], pooling)
        return call.moved_backward_offsets(gradient, maps, regions, pooling)
