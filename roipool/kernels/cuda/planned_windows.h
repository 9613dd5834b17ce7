// Bins that share rows and columns with others: a plan has the taps of each. Included by
// listed_bins_backward.cu.
#pragma once
#include "windows.h"

namespace roipool {

__device__ inline Lines lines_of_bin(const Call& call, int row, int column) {
  return {row, call.rows.bins + column};
}
__device__ inline Lines lines_of_box(const Call& call) {
  const wide_int after = call.rows.bins + call.columns.bins;
  return {after, after + 1};
}

// By a block: those of a box that it has planned.
__device__ inline void write_windows(const Windows& windows, const Call& call, wide_int box,
                                     const BoxPlan<BinTaps>& plan) {
  if (threadIdx.x == 0) {
    const Lines lines = lines_of_box(call);
    windows.images[box] = plan.head->image;
    windows.of_line(lines.down, box) = plan.head->rows.window;
    windows.of_line(lines.across, box) = plan.head->columns.window;
  }
  for (wide_int bin = threadIdx.x; bin < call.rows.bins + call.columns.bins; bin += blockDim.x) {
    windows.of_line(bin, box) = plan.rows[bin].window;  // columns follow
  }
}

__device__ inline void plan_all(const Boxes& boxes, char* scratch, const Call& call) {
  plan_boxes<BinTaps>(boxes, scratch, call, [&](wide_int box, const BoxPlan<BinTaps>& plan) {
    write_windows(Windows(scratch, call), call, box, plan);
  });
}

__device__ inline void find_weights(const Call& call, char* scratch, const BinOfBox& bin,
                                    Direction direction, WeightsOfCells& weights) {
  const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, bin.box);
  const BinTaps::Bin line = direction == down ? plan.rows[bin.row] : plan.columns[bin.column];
  const Tap* taps = plan.entries(line);
  for (int tap = 0; tap < line.count; ++tap) weights.add(taps[tap].cell, taps[tap].weight);
}

}  // namespace roipool
