// All definitions, by name, with their traits. A new one is a function template in a header that
// visit_bins.h includes and a row in one of these lists, which _definitions.py reads through _cpu.
#pragma once
#include "config.h"

// ROW(name, kind, samples_per_ratio, max_per_cell), whose columns `Traits` explains. The first list
// is of separable definitions, which are evaluated for rows and columns apart (sample.h), the
// second of pointwise ones (region.h), the third of separable ones that read `Axis::offsets`:
// their bins are moved, or have their sample at an offset.
// clang-format off
#define ROIPOOL_DEFINITIONS(ROW)              \
  ROW(roi_pool,                 cells, 0, 1)  \
  ROW(roi_average_pool,         cells, 0, 1)  \
  ROW(chainer_roi_average_pool, cells, 0, 1)  \
  ROW(caffe_roi_pool_gather,    cells, 0, 1)  \
  ROW(mmcv_roi_pool,            cells, 0, 1)  \
  ROW(openvino_roi_pool,        cells, 0, 1)  \
  ROW(ps_roi_pool,              cells, 0, 1)  \
  ROW(chainercv_ps_roi_pool,    cells, 0, 1)  \
  ROW(torchvision_ps_roi_pool,  cells, 0, 1)  \
  ROW(roi_align,                grid,  1, 2)  \
  ROW(mmcv_roi_align,           grid,  1, 2)  \
  ROW(paddle_roi_align,         grid,  1, 2)  \
  ROW(openvino_roi_align,       grid,  1, 2)  \
  ROW(chainercv_ps_roi_align,   grid,  1, 2)  \
  ROW(megengine_roi_align,      grid,  1, 2)  \
  ROW(onnx_roi_align_max,       grid,  2, 4)  \
  ROW(crop_bilinear,            crop,  0, 0)  \
  ROW(crop_nearest,             crop,  0, 0)  \
  ROW(crop_antialias,           filter, 0, 2)  \
  ROW(tensorflow_crop_bilinear, crop,  0, 0)  \
  ROW(tensorflow_crop_nearest,  crop,  0, 0)  \
  ROW(tensorflow_crop_gradient, crop,  0, 0)  \
  ROW(caffe_roi_align,          steps, 0, 1)  \
  ROW(mxnet_roi_align,          steps, 0, 1)  \
  ROW(mxnet_roi_align_gather,   steps, 0, 1)  \
  ROW(precise_roi_pool,         cells, 0, 1)
#define ROIPOOL_POINTWISE_DEFINITIONS(ROW)    \
  ROW(roi_align_rotated,        points, 0, 0)
#ifdef ROIPOOL_PLAYGROUND  // whose boxes have no offsets
#define ROIPOOL_MOVED_DEFINITIONS(ROW)
#else
#define ROIPOOL_MOVED_DEFINITIONS(ROW)        \
  ROW(garden_crop,              crop,  0, 0)  \
  ROW(deform_roi_pool,          moved, 1, 2)  \
  ROW(mmcv_deform_roi_pool,     moved, 1, 2)  \
  ROW(mmcv_deform_roi_offsets,  moved, 1, 2)  \
  ROW(deformable_ps_roi_pool,   moved, 1, 2)
#endif
// clang-format on

namespace roipool {

#define ROIPOOL_ENUMERATOR(name, kind, samples_per_ratio, max_per_cell) define_##name,
enum Definition : int {
  ROIPOOL_DEFINITIONS(ROIPOOL_ENUMERATOR) ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_ENUMERATOR)
      ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_ENUMERATOR) definition_count
};
#undef ROIPOOL_ENUMERATOR

// How the samples of a bin lie along one axis.
enum DefinitionKind {
  kind_grid,    // sampling_ratio evenly spaced samples; samples outside the map count
  kind_cells,   // adjacent whole cells
  kind_steps,   // samples one cell apart
  kind_crop,    // one sample
  kind_filter,  // cells around one sample, which those of neighbouring bins overlap
  kind_moved,   // a grid, moved from where the bin lies: bins are numbered through the whole box
  kind_points   // pointwise: anywhere in the plane
};

// Properties of a definition that callers need before they evaluate it, to bound its plans.
struct Traits {
  DefinitionKind kind;
  int samples_per_ratio;  // of a grid, moved or not: samples of a bin for each of sampling_ratio
  int max_per_cell;       // samples inside the map for each of its cells, where neither
                          // sampling_ratio nor the number of bins says how many there are
};

ROIPOOL_HD Traits traits_of(Definition definition) {
  switch (definition) {
#define ROIPOOL_TRAITS(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: return {kind_##kind, samples_per_ratio, max_per_cell};
    ROIPOOL_DEFINITIONS(ROIPOOL_TRAITS)
    ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_TRAITS)
    ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_TRAITS)
#undef ROIPOOL_TRAITS
    default: return {kind_cells, 0, 0};
  }
}

// Whether boxes are rounded: they have no gradient, though their moved bins have one.
#ifdef ROIPOOL_PLAYGROUND
ROIPOOL_HD bool rounds_boxes(Definition) { return false; }
#else
ROIPOOL_HD bool rounds_boxes(Definition definition) {
  return definition == define_deformable_ps_roi_pool;
}
#endif

}  // namespace roipool
