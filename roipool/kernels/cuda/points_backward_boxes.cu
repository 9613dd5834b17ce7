// The derivative of points_forward.cu by the numbers of the boxes: a block per box, sums in a fixed
// order.
#include "block_sum.h"
#include "points.h"

namespace roipool {

// Adds up how one value of a bin moves with each number of its box.
struct SlopedBin {
  const Storage* map;
  Strides strides;
  Value slopes[numbers_of_region] = {};
  Value part = 0;

  __device__ SlopedBin(const Storage* map, const Strides& strides) : map(map), strides(strides) {}

  __device__ void begin_bin(int, wide_int total) { part = Value(1) / Value(total); }
  __device__ void add(wide_int, const Sample<Value>& y, const Sample<Value>& x,
                      const PointGradient<Value>& gradient) {
    add_corner(y.first, x.first, y.first_weight, x.first_weight, -y.slope, -x.slope, gradient);
    add_corner(y.first, x.second, y.first_weight, x.second_weight, -y.slope, x.slope, gradient);
    add_corner(y.second, x.first, y.second_weight, x.first_weight, y.slope, -x.slope, gradient);
    add_corner(y.second, x.second, y.second_weight, x.second_weight, y.slope, x.slope, gradient);
  }
  __device__ void add_corner(int row, int column, Value y_weight, Value x_weight, Value y_slope,
                             Value x_slope, const PointGradient<Value>& gradient) {
    const Value cell = compute_value(map[row * strides.row + column * strides.column]);
    for (int i = 0; i < numbers_of_region; ++i) {
      const Value slope = y_slope * gradient.y[i] * x_weight + y_weight * (x_slope * gradient.x[i]);
      // So that 0 * NaN adds nothing.
      if (slope != Value(0)) slopes[i] = multiply_add(slope * part, cell, slopes[i]);
    }
  }
};

}  // namespace roipool

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
    for (wide_int bin = share.bins.first; planned.image >= 0 && bin < share.bins.last;
         bin += share.bins.step) {
      const Division position = divide_with_rest(bin, call.columns.bins);
      for (wide_int channel = share.packs.first; channel < share.packs.last;
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
