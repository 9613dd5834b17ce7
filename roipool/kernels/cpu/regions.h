// Pointwise definitions to plans: a box's bins and cells as one axis of PH * PW bins and H * W
// cells, so that its plan is a sparse matrix of bins by cells, and another axis of one bin and one
// cell with the weight 1. Engines execute both as they do the plans of rows and columns.
#pragma once
#include "evaluate.h"

namespace roipool {

template <typename T>
Region<T> region_of(const Request& request, wide_int box) {
  Region<T> common = {};
  common.scale = T(request.scale);
  common.rows = request.images[box] < 0 ? 0 : request.map_rows;
  common.columns = request.map_columns;
  common.bins_down = request.bins_down;
  common.bins_across = request.bins_across;
  common.sampling_down = request.sampling[0];
  common.sampling_across = request.sampling[1];
  common.aligned = request.aligned;
  common.bottom = common.rows;
  common.right = common.columns;
  const T* numbers = static_cast<const T*>(request.boxes) + numbers_of_region * box;
  return region_of_box(common, numbers, 1, request.angle_scale);
}

template <typename T, typename Bins>
Bins visit_points(const Request& request, wide_int box, const Bins& bins) {
  WatchedBins<Bins> sink(bins, request.watch);
  visit_region(request.definition, region_of<T>(request, box), sink);
  sink.finish_bin();
  return sink.bins;
}

template <typename T>
void count_points(const Request& request, const AxisPlan& plan, wide_int box) {
  const wide_int row = box * plan.bins;
  visit_points<T>(request, box, PointCounts<T>{plan.begin + row + 1, plan.bin_window + row});
  if (request.entries == padded_taps) level_entries(plan.begin + row + 1, plan.bins);
}

template <typename T, bool Slopes>
void write_points_with(const Request& request, const AxisPlan& plan, wide_int box) {
  const PointBins<T, Slopes> bins = {plan, box * plan.bins, request.map_columns, {}};
  const Window window = visit_points<T>(request, box, bins).window;
  plan.window_first[box] = window.first;
  plan.window_last[box] = window.last;
}

template <typename T>
void write_points(const Request& request, const AxisPlan& plan, wide_int box) {
  if (request.entries == taps_with_gradient) {
    write_points_with<T, true>(request, plan, box);
  } else {
    write_points_with<T, false>(request, plan, box);
  }
}

// The other axis: one bin that is one cell.
template <typename T>
void write_identity(const AxisPlan& plan, wide_int box) {
  const wide_int entry = plan.begin[box];
  plan.cell[entry] = 0;
  static_cast<T*>(plan.weight)[entry] = T(1);
  plan.count[box] = 1;
  plan.window_first[box] = 0;
  plan.window_last[box] = 1;
}

}  // namespace roipool
