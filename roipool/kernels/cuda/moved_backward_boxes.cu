// The derivative of points_forward.cu by the numbers of boxes whose bins are moved: a block per
// box, which takes one bin after the other, sums in a fixed order.
#include "block_sum.h"
#include "sloped_bin.h"

namespace roipool {

// An offset of 1 moves its bin by `side`, as both ends of the box do if they move by 1, or as the
// low end of a rounded box. Neither of them makes a NaN of a 0.
__device__ inline Value by_offset(double by_both_ends, double side) {
  return by_both_ends == 0 || side == 0 ? Value(0) : static_cast<Value>(by_both_ends * side);
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    moved_backward_boxes(const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
                         const roipool::wide_int* __restrict__ levels,
                         const roipool::Storage* __restrict__ grad_output,
                         const roipool::Storage* __restrict__ features,
                         roipool::Value* __restrict__ grad_boxes, char*, const roipool::Call call) {
  using namespace roipool;
  const Strides pooled = strides_of_pooled(call);
  const wide_int bins = call.rows.bins * call.columns.bins;
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * blockDim.x);
  double* summands = roipool_shared_memory + sizeof(PlannedRegion) / sizeof(double);
  for (wide_int box = blockIdx.x; box < call.boxes; box += gridDim.x) {
    const PlannedRegion& planned = region_of_block({boxes, images, levels}, call, box);
    const Map<const Storage> map(call, features, planned.image);
    const Axis<Value>&down = planned.region.down, &across = planned.region.across;
    const double height = call.offset_factor * moved_side(definition, down);
    const double width = call.offset_factor * moved_side(definition, across);
    Value* gradient = grad_boxes + box * (numbers_of_corners + numbers_of_bin * bins);
    double by_corners[numbers_of_corners] = {};
    for (wide_int bin = 0; bin < bins; ++bin) {
      const Division position = divide_with_rest(bin, call.columns.bins);
      Value sums[numbers_of_corners] = {};
      const wide_int channels = planned.image < 0 ? 0 : call.channels;
      for (wide_int channel = thread; channel < channels; channel += blockDim.x * blockDim.y) {
        const Storage* own = map.cells_of_bin(call, position.quotient, position.rest);
        SlopedBin value(own + channel * map.strides.channel, map.strides);
        visit_bin_of_region(planned.region, bin, value);
        const Value upstream = compute_value(
            grad_output[box * pooled.outer + channel * pooled.channel +
                        position.quotient * pooled.row + position.rest * pooled.column]);
        for (int i = 0; i < numbers_of_corners; ++i) {
          sums[i] = multiply_add(upstream, value.slopes[i], sums[i]);
        }
      }
      double by_ends[numbers_of_corners];
      for (int i = 0; i < numbers_of_corners; ++i) {
        by_ends[i] = sum_of_block(sums[i], summands);
        by_corners[i] += by_ends[i];
      }
      if (thread > 0) continue;
      Value* offsets = gradient + numbers_of_corners + bin;
      offsets[0] = by_offset(by_ends[0] + by_ends[2], width);
      offsets[bins] = by_offset(by_ends[1] + by_ends[3], height);
    }
    for (int i = 0; thread == 0 && i < numbers_of_corners; ++i) {
      gradient[i] = rounds_boxes(definition) ? Value(0) : static_cast<Value>(by_corners[i]);
    }
  }
}
