// The average engine: weighted sums of map cells.
#include "pool.h"

namespace roipool {

// The sums over one bin, a row of taps at a time, as on the CPU.
__device__ inline void sum_bin(const Storage* map, const Strides& strides, const Channels& channels,
                               const Tap* rows, int row_count, const Tap* columns,
                               int column_count, Value* sums) {
  for (int c = 0; c < pack; ++c) sums[c] = Value(0);
  for (int j = 0; j < row_count; ++j) {
    const Tap row = rows[j];
    const Storage* line = map + row.cell * strides.row;
    Value across[pack] = {};
    for (int i = 0; i < column_count; ++i) {
      const Tap column = columns[i];
      Value cells[pack];
      channels.load(line + column.cell * strides.column, cells);
      for (int c = 0; c < pack; ++c) across[c] = multiply_add(column.weight, cells[c], across[c]);
    }
    for (int c = 0; c < pack; ++c) sums[c] = multiply_add(row.weight, across[c], sums[c]);
  }
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_taps(const roipool::Value* boxes, const void* images, char* scratch,
              const roipool::Call call) {
  roipool::write_plans<roipool::Taps>(boxes, images, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    average_forward(const roipool::Storage* __restrict__ features,
                    roipool::Storage* __restrict__ output, char* __restrict__ scratch,
                    const roipool::Call call) {
  using namespace roipool;
  const Plans<Taps> plans(scratch, call);
  const Strides maps = strides_of_maps(call);
  const Strides pooled = strides_of_pooled(call);
  for_each_value(call, maps, [&](wide_int box, wide_int row, wide_int column,
                                 const Channels& channels) {
    const TapBin rows = plans.rows.bin(box, row);
    const TapBin columns = plans.columns.bin(box, column);
    Value sums[pack];
    if (rows.count > 0 && columns.count > 0) {
      const Storage* map =
          features + plans.images[box] * maps.outer + channels.first * maps.channel;
      sum_bin(map, maps, channels, plans.rows.entries(box, rows), rows.count,
              plans.columns.entries(box, columns), columns.count, sums);
    } else {
      for (int c = 0; c < pack; ++c) sums[c] = static_cast<Value>(call.empty_value);
    }
    channels.store(sums,
                   output + box * pooled.outer + channels.first * pooled.channel +
                       row * pooled.row + column * pooled.column,
                   pooled.channel);
  });
}
