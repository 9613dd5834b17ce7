// The level of a feature pyramid that each box is on, by its area. The scales of levels are the
// areas from which on boxes are on them, in squared pixels; the first needs none.
#include "call.h"

namespace roipool {

// What roipool/ops/multilevel_roi_align.py computes for other arrays: the same numbers.
__device__ inline wide_int level_of_corners(const Value* corners, const Call& call) {
  const wide_int step = call.coordinate_stride;
  const double width = double(corners[2 * step]) - double(corners[0]);
  const double height = double(corners[3 * step]) - double(corners[step]);
  const double area = width * height * double(width > 0);  // NaN is on no level above the first
  wide_int level = 0;
  for (int other = 1; other < level_count; ++other) level += area >= call.levels[other].scale;
  return level;
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    assign_levels(const roipool::Value* __restrict__ boxes, roipool::wide_int* __restrict__ levels,
                  const roipool::Call call) {
  using namespace roipool;
  const wide_int threads = wide_int(gridDim.x) * blockDim.x;
  for (wide_int box = wide_int(blockIdx.x) * blockDim.x + threadIdx.x; box < call.boxes;
       box += threads) {
    levels[box] = level_of_corners(boxes + box * call.box_stride, call);
  }
}
