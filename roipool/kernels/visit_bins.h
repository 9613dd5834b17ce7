// The evaluation of any definition by its number. Whoever includes this is compiled again with each
// change of a definition.
#pragma once
#include "crop_and_resize.h"
#include "definitions.h"
#include "deform_roi_pool.h"
#include "deformable_ps_roi_pool.h"
#include "garden_crop.h"
#include "precise_roi_pool.h"
#include "roi_align.h"
#include "roi_align_rotated.h"
#include "roi_pool.h"
#include "step_align.h"

namespace roipool {

// Adds the bins [first_bin, last_bin) along one axis of one box to the sink.
template <typename T, typename Sink>
ROIPOOL_HD void visit_bins(Definition definition, const Axis<T>& axis, int first_bin, int last_bin,
                           Sink& sink) {
  if (axis.size == 0) {
    for (int bin = first_bin; bin < last_bin; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: name(axis, first_bin, last_bin, sink); return;
    ROIPOOL_DEFINITIONS(ROIPOOL_CASE)
    ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

// Where a moved bin lies along an axis.
template <typename T>
struct MovedSide {
  T start;
  T length;
};
template <typename T>
ROIPOOL_HD MovedSide<T> side_of_moved_bin(Definition definition, const Axis<T>& axis, int bin) {
  if (rounds_boxes(definition)) {
    const CornerGrid<T> grid = corner_grid(axis, rounded_box(axis), bin);
    return {grid.start, grid.bin_length};
  }
  const MovedBin<T> moved = moved_bin(axis, sample_grid(axis), bin);
  return {moved.grid.start + T(moved.number) * moved.grid.bin_length, moved.grid.bin_length};
}

// Adds all bins of one box to the sink, for a pointwise definition.
template <typename T, typename Sink>
ROIPOOL_HD void visit_region(Definition definition, const Region<T>& region, Sink& sink) {
  const int bins = region.bins_down * region.bins_across;
  if (region.rows == 0 || region.columns == 0) {
    for (int bin = 0; bin < bins; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: name(region, 0, bins, sink); return;
    ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

}  // namespace roipool
