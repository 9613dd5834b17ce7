// Moved bins, each with offsets of its own: samples are recomputed per tile, as the host cannot
// bound the plan. Included by listed_bins_backward.cu.
#pragma once
#include "points.h"
#include "windows.h"

namespace roipool {

__device__ inline wide_int bins_of_box(const Call& call) {
  return call.rows.bins * call.columns.bins;
}
__device__ inline Lines lines_of_bin(const Call& call, int row, int column) {
  const wide_int bin = row * call.columns.bins + column;
  return {bin, bins_of_box(call) + bin};
}
__device__ inline Lines lines_of_box(const Call& call) {
  return {2 * bins_of_box(call), 2 * bins_of_box(call) + 1};
}

// Regions reuse the scratch memory of plan heads and plans.
__device__ inline PlannedRegion& region_in_scratch(char* scratch, const Call& call, wide_int box) {
  return *reinterpret_cast<PlannedRegion*>(scratch + box * (call.plan_bytes + sizeof(PlanHead)));
}

// By a warp: the windows of a box's bins along an axis, and of all of them.
__device__ inline void write_windows(const Windows& windows, const Axis<Value>& axis, wide_int box,
                                     wide_int first_line, wide_int bins, wide_int line_of_box) {
  Window all;
  for (wide_int bin = lane_of_thread(); bin < bins; bin += warp_size) {
    const Window cells = cells_of_moved_bin(axis, static_cast<int>(bin));
    windows.of_line(first_line + bin, box) = cells;
    all.include(cells);
  }
  for (int step = warp_size / 2; step > 0; step /= 2) {
    const int lane = lane_of_thread() ^ step;
    const Window other = {__shfl_sync(~0u, all.first, lane), __shfl_sync(~0u, all.last, lane)};
    all.include(other);
  }
  if (lane_of_thread() == 0) windows.of_line(line_of_box, box) = all;
}

// A warp takes a box at a time.
__device__ inline void plan_all(const Boxes& boxes, char* scratch, const Call& call) {
  const Windows windows(scratch, call);
  const wide_int bins = bins_of_box(call);
  const Lines lines = lines_of_box(call);
  for (wide_int box = blockIdx.x; box < call.boxes; box += gridDim.x) {
    const PlannedRegion& planned = region_of_block(boxes, call, box);
    write_windows(windows, planned.region.down, box, 0, bins, lines.down);
    write_windows(windows, planned.region.across, box, bins, bins, lines.across);
    if (threadIdx.x > 0) continue;
    windows.images[box] = planned.image;
    region_in_scratch(scratch, call, box) = planned;
  }
}

// The samples of a bin along an axis count equally, those outside the map, too.
struct WeightsOfSamples {
  WeightsOfCells& weights;
  wide_int total = 0;

  __device__ explicit WeightsOfSamples(WeightsOfCells& weights) : weights(weights) {}

  __device__ void begin_bin(int, wide_int samples) { total = samples; }
  __device__ void add(wide_int, const Sample<Value>& sample, const PositionGradient<Value>&) {
    add_cell(sample.first, sample.first_weight);
    add_cell(sample.second, sample.second_weight);
  }
  __device__ void add_cell(int cell, Value weight) {
    if (weight != Value(0)) weights.add(cell, weight);
  }
};

__device__ inline void find_weights(const Call& call, char* scratch, const BinOfBox& bin,
                                    Direction direction, WeightsOfCells& weights) {
  const PointRegion& region = region_in_scratch(scratch, call, bin.box).region;
  WeightsOfSamples samples(weights);
  visit_bin(direction == down ? region.down : region.across,
            static_cast<int>(bin.row * call.columns.bins + bin.column), samples);
  const Value part = Value(1) / Value(samples.total);
  for (int cell = weights.window.first; cell < weights.window.last; ++cell) {
    weights.weights[cell * weights.step] *= part;
  }
}

}  // namespace roipool
