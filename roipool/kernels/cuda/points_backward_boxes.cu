// The derivative of points_forward.cu by the numbers of the boxes: a block per box, sums in a fixed
// order.
#include "block_sum.h"
#include "sloped_bin.h"

extern "C" __global__ void __launch_bounds__(256)
    points_backward_boxes(const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
                          const roipool::wide_int* __restrict__ levels,
                          const roipool::Storage* __restrict__ grad_output,
                          const roipool::Storage* __restrict__ features,
                          roipool::Value* __restrict__ grad_boxes, char*,
                          const roipool::Call call) {
  using namespace roipool;
  const Strides pooled = strides_of_pooled(call);
  for (wide_int box = blockIdx.x; box < call.boxes; box += gridDim.x) {
    const Share share = share_of_thread(call, 0);
    const PlannedRegion& planned = region_of_block({boxes, images, levels}, call, box);
    const Map<const Storage> map(call, features, planned.image);
    Value sums[numbers_of_region] = {};
    for (Offset bin = share.bins.first; planned.image >= 0 && bin < share.bins.last;
         bin += share.bins.step) {
      const Division position = divide_with_rest(bin, call.columns.bins);
      for (Offset channel = share.packs.first; channel < share.packs.last;
           channel += share.packs.step) {
        SlopedBin value(map.cells + channel * map.strides.channel, map.strides);
        visit_bin_of_region(planned.region, bin, value);
        const Value gradient = compute_value(
            grad_output[box * pooled.outer + channel * pooled.channel +
                        position.quotient * pooled.row + position.rest * pooled.column]);
        for (int i = 0; i < numbers_of_region; ++i) {
          sums[i] = multiply_add(gradient, value.slopes[i], sums[i]);
        }
      }
    }
    double* summands = roipool_shared_memory + sizeof(PlannedRegion) / sizeof(double);
    for (int i = 0; i < numbers_of_region; ++i) {
      const double sum = sum_of_block(sums[i], summands);
      if (threadIdx.x + threadIdx.y == 0) {
        grad_boxes[numbers_of_region * box + i] = static_cast<Value>(sum);
      }
    }
  }
}
