// Averages of pointwise definitions: a thread adds up the samples of a bin for a pack of channels.
#include "points.h"

namespace roipool {

// Samples between which sums are brought together in double: a bin of a large box has millions.
const int samples_of_sum = 16;

struct AveragedBin {
  const Storage* map;
  Strides strides;
  double totals[pack] = {};
  Value sums[pack] = {};
  Value part = 0;
  int samples = 0;
  bool is_empty = true;

  __device__ AveragedBin(const Storage* map, const Strides& strides) : map(map), strides(strides) {}

  __device__ void begin_bin(int, wide_int total) { part = Value(1) / Value(total); }
  __device__ void add(wide_int, const Sample<Value>& y, const Sample<Value>& x,
                      const PointGradient<Value>&) {
    for_each_corner(y, x, part, [&](int row, int column, Value weight) {
      Value cells[pack];
      Channels::load(map + row * strides.row + column * strides.column, strides.channel, cells);
      for (int c = 0; c < pack; ++c) sums[c] = multiply_add(weight, cells[c], sums[c]);
      is_empty = false;
    });
    if (++samples % samples_of_sum == 0) bring_together();
  }
  __device__ void bring_together() {
    for (int c = 0; c < pack; ++c) {
      totals[c] += static_cast<double>(sums[c]);
      sums[c] = Value(0);
    }
  }
  __device__ void finish(Value empty) {
    bring_together();
    for (int c = 0; c < pack; ++c) sums[c] = is_empty ? empty : static_cast<Value>(totals[c]);
  }
};

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256, 2)
    points_forward(const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
                   const roipool::wide_int* __restrict__ levels,
                   const roipool::Storage* __restrict__ features,
                   roipool::Storage* __restrict__ output, char*, const roipool::Call call) {
  using namespace roipool;
  const Strides pooled = strides_of_pooled(call);
  const PlannedRegion* planned = nullptr;
  const auto prepare = [&](wide_int box, const Bins&) {
    planned = &region_of_block({boxes, images, levels}, call, box);
  };
  for_each_value(
      call, prepare, [&](wide_int box, wide_int row, wide_int column, const Channels& channels) {
        const Map<const Storage> map(call, features, planned->image);
        AveragedBin bin(map.cells_of_bin(call, row, column) + channels.first * map.strides.channel,
                        map.strides);
        if (planned->image >= 0 && planned->region.rows > 0 && planned->region.columns > 0) {
          visit_bin_of_region(planned->region, row * call.columns.bins + column, bin);
        }
        bin.finish(static_cast<Value>(call.empty_value));
        Channels::store(bin.sums,
                        output + box * pooled.outer + channels.first * pooled.channel +
                            row * pooled.row + column * pooled.column,
                        pooled.channel);
      });
}
