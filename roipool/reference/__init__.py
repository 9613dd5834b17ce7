"""The oracle: every region-of-interest pooling operation, slow and obvious.

An oracle answers what an operation *means*, so that fast code can be tested against something that
shares nothing with it. Everything here is written from the published definition of each operation:
one small function says which samples a bin of a box has and which pixels, with which weights, each
sample reads; four short loops average or maximise those samples, forward and backward. Samples are
points of the plane: nothing is separated into rows and columns, merged or precomputed, and only
channels are vectorised. It is too slow for work.

Values are computed and returned in float64. Coordinates are computed in `coordinate_dtype`, one
rounding per operation, in the order in which the published implementations write them: with
``coordinate_dtype=np.float32`` every floor, ceil and outside decision is the one that a float32
implementation takes.

Shapes, everywhere: features are ``(N, C, H, W)``, or ``(N, H, W, C)`` with ``layout="NHWC"``;
outputs, their gradients and argmax are ``(K, C, PH, PW)`` or ``(K, PH, PW, C)``, where
`output_size` is ``(PH, PW)``, or one int for both; `input_shape` is the features' shape in their
layout. `rois` is ``(K, 5)`` rows ``[batch_index, x1, y1, x2, y2]``, or
``(K, 4)`` with integers `batch_indices` of length K, or a sequence of N arrays ``(L_i, 4)``, one
per image. Their unit is the image's pixel; `spatial_scale` is map pixels per image pixel. Box
gradients are ``(K, 4)``, in the order of the box's own columns. Volumes have a third axis: before
the rows in shapes and sizes, as z behind y in boxes.

Masks are ``(K, h, w)`` or ``(K, 1, h, w)``, pasted ones ``(K, rows, columns)``, and their boxes
``(K, 4)``: x1, y1, x2, y2 in pixels.

Each operation is a class: its fields are boxes and options, its methods are the forward and the
gradients. The functions make such an object of their arguments, and call one of its methods.
"""

from roipool.reference._box_pooling import Oracle, function
from roipool.reference._crop_and_resize import Crop
from roipool.reference._deform_roi_pool import DeformRoiPool
from roipool.reference._deformable_ps_roi_pool import DeformablePsRoiPool
from roipool.reference._garden_crop import MultilevelGardenCrop
from roipool.reference._loops import channels_of_bin
from roipool.reference._masks import (
    compressed,
    paste_masks,
    paste_masks_backward,
    paste_masks_backward_boxes,
    run_lengths,
)
from roipool.reference._multilevel_roi_align import (
    MultilevelRoiAlign,
    MultilevelRoiPool,
    assign_levels,
)
from roipool.reference._one_bin import (
    BoxOnMap,
    bin_of,
    box_in_cells,
    counts_of,
    lines_of,
    value_of,
)
from roipool.reference._precise_roi_pool import PreciseRoiPool
from roipool.reference._riroi_align_rotated import MmcvRiroiAlignRotated
from roipool.reference._roi_align import MmcvRoiAlignMax, OnnxRoiAlignMax, PsRoiAlign, RoiAlign
from roipool.reference._roi_align_3d import RoiAlign3d
from roipool.reference._roi_align_rotated import RoiAlignRotated
from roipool.reference._roi_pool import MmcvRoiPool, PsRoiPool, RoiAveragePool, RoiPool
from roipool.reference._rules import (
    BORDERS,
    CAFFE_ROI_ALIGN,
    COUNTS,
    CROP_AND_RESIZE,
    DEFORMABLE_PS_ROI_POOL,
    DIVISORS,
    EDGES,
    MMCV_ROI_ALIGN_MAX,
    MMCV_ROI_POOL,
    MXNET_ROI_ALIGN,
    ONNX_ROI_ALIGN_MAX,
    OPENVINO_ROI_POOL,
    PRECISE_ROI_POOL,
    PS_ROI_POOL,
    READS,
    ROI_ALIGN,
    ROI_AVERAGE_POOL,
    ROI_POOL,
    ROUNDINGS,
    SPREADS,
    TORCHVISION_PS_ROI_POOL,
    TURNS,
    WEIGHTS,
    Rules,
)
from roipool.reference._step_align import CaffeRoiAlign, MxnetRoiAlign

__all__ = [
    "BORDERS",
    "CAFFE_ROI_ALIGN",
    "COUNTS",
    "CROP_AND_RESIZE",
    "DEFORMABLE_PS_ROI_POOL",
    "DIVISORS",
    "EDGES",
    "MMCV_ROI_ALIGN_MAX",
    "MMCV_ROI_POOL",
    "MXNET_ROI_ALIGN",
    "ONNX_ROI_ALIGN_MAX",
    "OPENVINO_ROI_POOL",
    "PRECISE_ROI_POOL",
    "PS_ROI_POOL",
    "READS",
    "ROI_ALIGN",
    "ROI_AVERAGE_POOL",
    "ROI_POOL",
    "ROUNDINGS",
    "SPREADS",
    "TORCHVISION_PS_ROI_POOL",
    "TURNS",
    "WEIGHTS",
    "BoxOnMap",
    "Rules",
    "assign_levels",
    "bin_of",
    "box_in_cells",
    "caffe_roi_align",
    "channels_of_bin",
    "compressed",
    "counts_of",
    "crop_and_resize",
    "crop_and_resize_backward",
    "crop_and_resize_backward_boxes",
    "deform_roi_pool",
    "deform_roi_pool_backward",
    "deform_roi_pool_backward_offsets",
    "deform_roi_pool_backward_rois",
    "deformable_ps_roi_pool",
    "deformable_ps_roi_pool_backward",
    "deformable_ps_roi_pool_backward_offsets",
    "lines_of",
    "mmcv_riroi_align_rotated",
    "mmcv_riroi_align_rotated_backward",
    "mmcv_roi_align_max",
    "mmcv_roi_pool",
    "multilevel_garden_crop",
    "multilevel_garden_crop_backward",
    "multilevel_garden_crop_backward_rois",
    "multilevel_roi_align",
    "multilevel_roi_align_backward",
    "multilevel_roi_align_backward_rois",
    "multilevel_roi_pool",
    "multilevel_roi_pool_backward",
    "mxnet_roi_align",
    "onnx_roi_align_max",
    "paste_masks",
    "paste_masks_backward",
    "paste_masks_backward_boxes",
    "precise_roi_pool",
    "precise_roi_pool_backward",
    "precise_roi_pool_backward_rois",
    "ps_roi_align",
    "ps_roi_align_backward",
    "ps_roi_align_backward_rois",
    "ps_roi_pool",
    "ps_roi_pool_backward",
    "roi_align",
    "roi_align_3d",
    "roi_align_3d_backward",
    "roi_align_3d_backward_rois",
    "roi_align_backward",
    "roi_align_backward_rois",
    "roi_align_rotated",
    "roi_align_rotated_backward",
    "roi_align_rotated_backward_rois",
    "roi_average_pool",
    "roi_average_pool_backward",
    "roi_pool",
    "roi_pool_backward",
    "run_lengths",
    "value_of",
]

crop_and_resize: Oracle = function(Crop, "crop_and_resize")
crop_and_resize_backward: Oracle = function(Crop, "crop_and_resize_backward", "backward")
crop_and_resize_backward_boxes: Oracle = function(
    Crop, "crop_and_resize_backward_boxes", "backward_boxes"
)
deform_roi_pool: Oracle = function(DeformRoiPool, "deform_roi_pool")
deform_roi_pool_backward: Oracle = function(DeformRoiPool, "deform_roi_pool_backward", "backward")
deform_roi_pool_backward_rois: Oracle = function(
    DeformRoiPool, "deform_roi_pool_backward_rois", "backward_boxes"
)
deform_roi_pool_backward_offsets: Oracle = function(
    DeformRoiPool, "deform_roi_pool_backward_offsets", "backward_offsets"
)
deformable_ps_roi_pool: Oracle = function(DeformablePsRoiPool, "deformable_ps_roi_pool")
deformable_ps_roi_pool_backward: Oracle = function(
    DeformablePsRoiPool, "deformable_ps_roi_pool_backward", "backward"
)
deformable_ps_roi_pool_backward_offsets: Oracle = function(
    DeformablePsRoiPool, "deformable_ps_roi_pool_backward_offsets", "backward_offsets"
)
multilevel_garden_crop: Oracle = function(MultilevelGardenCrop, "multilevel_garden_crop")
multilevel_garden_crop_backward: Oracle = function(
    MultilevelGardenCrop, "multilevel_garden_crop_backward", "backward"
)
multilevel_garden_crop_backward_rois: Oracle = function(
    MultilevelGardenCrop, "multilevel_garden_crop_backward_rois", "backward_boxes"
)
multilevel_roi_align: Oracle = function(MultilevelRoiAlign, "multilevel_roi_align")
multilevel_roi_align_backward: Oracle = function(
    MultilevelRoiAlign, "multilevel_roi_align_backward", "backward"
)
multilevel_roi_align_backward_rois: Oracle = function(
    MultilevelRoiAlign, "multilevel_roi_align_backward_rois", "backward_boxes"
)
multilevel_roi_pool: Oracle = function(MultilevelRoiPool, "multilevel_roi_pool")
multilevel_roi_pool_backward: Oracle = function(
    MultilevelRoiPool, "multilevel_roi_pool_backward", "backward"
)
precise_roi_pool: Oracle = function(PreciseRoiPool, "precise_roi_pool")
precise_roi_pool_backward: Oracle = function(
    PreciseRoiPool, "precise_roi_pool_backward", "backward"
)
precise_roi_pool_backward_rois: Oracle = function(
    PreciseRoiPool, "precise_roi_pool_backward_rois", "backward_boxes"
)
mmcv_riroi_align_rotated: Oracle = function(MmcvRiroiAlignRotated, "mmcv_riroi_align_rotated")
mmcv_riroi_align_rotated_backward: Oracle = function(
    MmcvRiroiAlignRotated, "mmcv_riroi_align_rotated_backward", "backward"
)
roi_align: Oracle = function(RoiAlign, "roi_align")
roi_align_backward: Oracle = function(RoiAlign, "roi_align_backward", "backward")
roi_align_backward_rois: Oracle = function(RoiAlign, "roi_align_backward_rois", "backward_boxes")
ps_roi_align: Oracle = function(PsRoiAlign, "ps_roi_align")
ps_roi_align_backward: Oracle = function(PsRoiAlign, "ps_roi_align_backward", "backward")
ps_roi_align_backward_rois: Oracle = function(
    PsRoiAlign, "ps_roi_align_backward_rois", "backward_boxes"
)
mmcv_roi_align_max: Oracle = function(MmcvRoiAlignMax, "mmcv_roi_align_max")
onnx_roi_align_max: Oracle = function(OnnxRoiAlignMax, "onnx_roi_align_max")
roi_align_3d: Oracle = function(RoiAlign3d, "roi_align_3d")
roi_align_3d_backward: Oracle = function(RoiAlign3d, "roi_align_3d_backward", "backward")
roi_align_3d_backward_rois: Oracle = function(
    RoiAlign3d, "roi_align_3d_backward_rois", "backward_boxes"
)
roi_align_rotated: Oracle = function(RoiAlignRotated, "roi_align_rotated")
roi_align_rotated_backward: Oracle = function(
    RoiAlignRotated, "roi_align_rotated_backward", "backward"
)
roi_align_rotated_backward_rois: Oracle = function(
    RoiAlignRotated, "roi_align_rotated_backward_rois", "backward_boxes"
)
roi_pool: Oracle = function(RoiPool, "roi_pool")
roi_pool_backward: Oracle = function(RoiPool, "roi_pool_backward", "backward")
mmcv_roi_pool: Oracle = function(MmcvRoiPool, "mmcv_roi_pool")
roi_average_pool: Oracle = function(RoiAveragePool, "roi_average_pool")
roi_average_pool_backward: Oracle = function(
    RoiAveragePool, "roi_average_pool_backward", "backward"
)
ps_roi_pool: Oracle = function(PsRoiPool, "ps_roi_pool")
ps_roi_pool_backward: Oracle = function(PsRoiPool, "ps_roi_pool_backward", "backward")
caffe_roi_align: Oracle = function(CaffeRoiAlign, "caffe_roi_align")
mxnet_roi_align: Oracle = function(MxnetRoiAlign, "mxnet_roi_align")
