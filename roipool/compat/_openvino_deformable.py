"""OpenVINO's ``DeformablePSROIPooling``: see `roipool.compat.openvino`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from roipool import _arguments as check
from roipool._definitions import Definition
from roipool._front_ends import for_every_array
from roipool._types import ArrayT
from roipool.compat import _conventions as conventions
from roipool.compat._deformable_ps import ExactCall, placed
from roipool.compat._openvino_pooling import POOL_FORM

DeformableMode: TypeAlias = Literal["bilinear_deformable"]
_MODES: tuple[DeformableMode, ...] = get_args(DeformableMode)
FORM = POOL_FORM._replace(size="group_size", features="feature_maps", offsets="offsets")


def _definition(
    spatial_scale: float, mode: str, spatial_bins_x: int, spatial_bins_y: int, trans_std: float
) -> Definition:
    check.choice("mode", mode, _MODES)
    samples = tuple(
        check.sampling_pair(name, value, least=1)[0]
        for name, value in (("spatial_bins_y", spatial_bins_y), ("spatial_bins_x", spatial_bins_x))
    )
    scale = conventions.float32_number("spatial_scale", spatial_scale)
    factor = conventions.float32_number("trans_std", trans_std)
    return placed(scale, (samples[0], samples[1]), conventions.EACH_BIN, factor)


@for_every_array
def DeformablePSROIPooling(  # noqa: N802 - OpenVINO's name
    feature_maps: ArrayT,
    coords: Any,
    offsets: ArrayT | None = None,
    *,
    output_dim: int,
    spatial_scale: float,
    group_size: int = 1,
    mode: DeformableMode = "bilinear_deformable",
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    trans_std: float = 1.0,
    part_size: int = 1,
) -> ArrayT:
    """Deformable position-sensitive pooling, as the OpenVINO operation of opset 1.

    Parameters
    ----------
    feature_maps : ndarray
        Maps, shape (N, output_dim * group_size * group_size, H, W).
    coords : array_like
        Shape (K, 5): batch index (truncated to an integer), x1, y1, x2, y2 in image pixels. A batch
        index of -1 ends the list: this box and all later ones are pooled to 0.
    offsets : ndarray, optional
        Offsets of the parts of boxes, shape (K, 2 * classes, part_size, part_size): to the right,
        then down, of each class of the result's channels. None moves no bin.
    group_size : int
        Bins, down and across, each pooled from channels of its own.
    mode : {"bilinear_deformable"}
        The only mode.
    spatial_bins_x, spatial_bins_y : int
        Samples per bin, across and down.
    trans_std : float
        Multiplies offsets to give shares of the box's sides; kept in float32.
    part_size : int
        Parts of a box that have offsets, down and across.

    Returns
    -------
    ndarray
        Shape (K, output_dim, group_size, group_size).

    See Also
    --------
    roipool.deformable_ps_roi_pool : The same rule, with gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from roipool.compat import openvino
    >>> maps = np.tile(np.arange(9, dtype=np.float32), (1, 4, 9, 1))
    >>> offsets = np.array([[[[1]], [[0]]]], np.float32)
    >>> openvino.DeformablePSROIPooling(
    ...     maps, [[0, 2, 2, 5, 5]], offsets, output_dim=1, spatial_scale=1.0, group_size=2,
    ...     spatial_bins_x=2, spatial_bins_y=2, trans_std=0.1
    ... ).round(3)
    array([[[[2.4, 4.4],
             [2.4, 4.4]]]], dtype=float32)
    """
    with ExactCall(FORM, feature_maps=feature_maps, coords=coords, offsets=offsets) as call:
        definition = _definition(spatial_scale, mode, spatial_bins_x, spatial_bins_y, trans_std)
        maps, regions, pooling = call.checked_forward(definition, group_size)
        call.check_part_size(check.size_pair("part_size", part_size))
        conventions.check_output_dim(output_dim, "feature_maps", maps.shape[1], pooling)
        return call.average([maps], regions, pooling)


@for_every_array
def DeformablePSROIPooling_backward(  # noqa: N802
    grad_output: ArrayT,
    coords: Any,
    offsets: ArrayT | None,
    input_shape: Sequence[int],
    *,
    output_dim: int,
    spatial_scale: float,
    group_size: int = 1,
    mode: DeformableMode = "bilinear_deformable",
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    trans_std: float = 1.0,
    part_size: int = 1,
) -> ArrayT:
    """Return the gradient of :func:`DeformablePSROIPooling` for the maps, which OpenVINO lacks.

    Parameters
    ----------
    grad_output : ndarray
        Shape (K, output_dim, group_size, group_size).

    Returns
    -------
    ndarray
        Shape `input_shape`: the derivative of the forward.
    """
    with ExactCall(FORM, grad_output=grad_output, coords=coords, offsets=offsets) as call:
        definition = _definition(spatial_scale, mode, spatial_bins_x, spatial_bins_y, trans_std)
        gradient, regions, pooling, shape = call.checked_backward(definition, input_shape)
        call.check_part_size(check.size_pair("part_size", part_size))
        size = check.size_pair("group_size", group_size)
        conventions.check_bins("grad_output", gradient, size, "group_size")
        conventions.check_output_dim(output_dim, "feature_maps", shape[1], pooling)
        return call.average_backward(gradient, regions, pooling, shape)
