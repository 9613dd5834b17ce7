// Definitions whose bins share no rows and columns: engines ask them bin by bin, since a plan of
// every box would need more memory than the host could bound. Only its region is computed before.
#pragma once
#include "forward_blocks.h"

#if ROIPOOL_MOVED_BINS
#include "moved_bins.h"
#else
#include "rotated_boxes.h"
#endif

namespace roipool {

struct alignas(16) PlannedRegion {
  PointRegion region;
  wide_int image;  // negative: none
};
static_assert(sizeof(PlannedRegion) <= (ROIPOOL_MOVED_BINS ? 256 : 160),
              "bytes_of_region in launch.py");

__device__ inline PlannedRegion region_of(const Boxes& boxes, const Call& call, wide_int box) {
  PlannedRegion planned;
  planned.image = image_of_box(boxes, call, box);
  planned.region = region_of_box(boxes, call, box, planned.image);
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
