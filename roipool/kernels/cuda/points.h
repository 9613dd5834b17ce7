// Pointwise definitions: engines ask them bin by bin, since a plan of every box would need more
// memory than the host could bound. Only its Region is computed before.
#pragma once
#include "forward_blocks.h"

namespace roipool {

struct alignas(16) PlannedRegion {
  Region<Value> region;  // top ... right are the cells that the box can read
  wide_int image;        // negative: none
};
static_assert(sizeof(PlannedRegion) <= 160, "BYTES_OF_REGION in launch.py");

__device__ inline Region<Value> common_region(const Call& call) {
  Region<Value> region = {};
  region.scale = static_cast<Value>(call.levels[0].scale);
  region.rows = call.levels[0].rows;
  region.columns = call.levels[0].columns;
  region.bins_down = static_cast<int>(call.rows.bins);
  region.bins_across = static_cast<int>(call.columns.bins);
  region.sampling_down = call.rows.sampling;
  region.sampling_across = call.columns.sampling;
  region.aligned = call.aligned != 0;
  region.bottom = region.rows;
  region.right = region.columns;
  return region;
}

__device__ inline PlannedRegion region_of(const Boxes& boxes, const Call& call, wide_int box) {
  PlannedRegion planned;
  planned.image = image_of_box(boxes, call, box);
  planned.region = region_of_box(common_region(call), boxes.corners + box * call.box_stride,
                                 call.coordinate_stride, call.angle_scale);
  ROIPOOL_JOIN(ROIPOOL_DEFINITION, _reach)(&planned.region);
  return planned;
}

// That of the block's box, in shared memory. All threads have used the one before when it is
// written.
__device__ inline const PlannedRegion& region_of_block(const Boxes& boxes, const Call& call,
                                                       wide_int box) {
  PlannedRegion& planned = *reinterpret_cast<PlannedRegion*>(roipool_shared_memory);
  __syncthreads();
  if (threadIdx.x + threadIdx.y == 0) planned = region_of(boxes, call, box);
  __syncthreads();
  return planned;
}

template <typename Sink>
__device__ inline void visit_bin_of_region(const Region<Value>& region, wide_int bin, Sink& sink) {
  ROIPOOL_DEFINITION(region, static_cast<int>(bin), static_cast<int>(bin) + 1, sink);
}

// Calls add(y, x, weight) for the cells of a sample that count, each weight a part of the average.
template <typename Add>
__device__ inline void for_each_corner(const Sample<Value>& y, const Sample<Value>& x, Value part,
                                       Add add) {
  const int ys[2] = {y.first, y.second}, xs[2] = {x.first, x.second};
  const Value y_weights[2] = {y.first_weight, y.second_weight};
  const Value x_weights[2] = {x.first_weight, x.second_weight};
  for (int j = 0; j < 2; ++j) {
    for (int i = 0; i < 2; ++i) {
      const Value weight = y_weights[j] * x_weights[i] * part;
      if (weight != Value(0)) add(ys[j], xs[i], weight);
    }
  }
}

}  // namespace roipool
