// Every definition roipool knows, by name. A new one is a function template in a header above and
// a row in this list.
#pragma once
#include "crop_and_resize.h"
#include "roi_align.h"
#include "roi_pool.h"
#include "step_align.h"

// clang-format off
#define ROIPOOL_DEFINITIONS(ROW) \
  ROW(roi_pool)                  \
  ROW(roi_average_pool)          \
  ROW(chainer_roi_average_pool)  \
  ROW(caffe_roi_pool_gather)     \
  ROW(mmcv_roi_pool)             \
  ROW(roi_align)                 \
  ROW(mmcv_roi_align)            \
  ROW(onnx_roi_align_max)        \
  ROW(crop_bilinear)             \
  ROW(crop_nearest)              \
  ROW(tensorflow_crop_bilinear)  \
  ROW(tensorflow_crop_nearest)   \
  ROW(tensorflow_crop_gradient)  \
  ROW(caffe_roi_align)           \
  ROW(mxnet_roi_align)           \
  ROW(mxnet_roi_align_gather)
// clang-format on

namespace roipool {

#define ROIPOOL_ENUMERATOR(name) define_##name,
enum Definition { ROIPOOL_DEFINITIONS(ROIPOOL_ENUMERATOR) definition_count };
#undef ROIPOOL_ENUMERATOR

// Whether a definition's samples lie on a grid in each bin, and that grid: the positions of samples
// outside the map, of which a sink is not told.
ROIPOOL_HD bool has_sample_grid(Definition definition) {
  return definition == define_roi_align || definition == define_mmcv_roi_align;
}

template <typename T>
ROIPOOL_HD SampleGrid<T> sample_grid_of(Definition definition, const Axis<T>& axis) {
  return definition == define_mmcv_roi_align ? mmcv_sample_grid(axis) : sample_grid(axis);
}

// Tells the sink of the bins [first_bin, last_bin) of one axis of one box.
template <typename T, typename Sink>
ROIPOOL_HD void visit_bins(Definition definition, const Axis<T>& axis, int first_bin, int last_bin,
                           Sink& sink) {
  if (axis.size == 0) {
    for (int bin = first_bin; bin < last_bin; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name) \
  case define_##name: name(axis, first_bin, last_bin, sink); return;
    ROIPOOL_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

}  // namespace roipool
