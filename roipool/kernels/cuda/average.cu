// The average engine: weighted sums of map cells (forward) and their transpose (backward).
#include "pool.h"
#include "tiles.h"

namespace roipool {

// The sums over one bin, a row of taps at a time, as on the CPU.
__device__ inline void sum_bin(const Storage* map, const Strides& strides, const Channels& channels,
                               const Tap* rows, wide_int row_count, const Tap* columns,
                               wide_int column_count, Value* sums) {
  for (int c = 0; c < pack; ++c) sums[c] = Value(0);
  for (wide_int j = 0; j < row_count; ++j) {
    const Tap row = rows[j];
    const Storage* line = map + row.cell * strides.row;
    Value across[pack] = {};
    for (wide_int i = 0; i < column_count; ++i) {
      const Tap column = columns[i];
      Value cells[pack];
      channels.load(line + column.cell * strides.column, cells);
      for (int c = 0; c < pack; ++c) across[c] = multiply_add(column.weight, cells[c], across[c]);
    }
    for (int c = 0; c < pack; ++c) sums[c] = multiply_add(row.weight, across[c], sums[c]);
  }
}

// Adds one box's gradient to the rows of a tile that this thread owns.
__device__ inline void scatter_box(const Call& call, const Plans<Taps>& plans, wide_int box,
                                   const Storage* gradients, const Tile& tile) {
  const Strides strides = strides_of_pooled(call);
  gradients += box * strides.outer + tile.channel * strides.channel;
  for (wide_int row = 0; row < call.rows.bins; ++row) {
    const TapBin row_bin = plans.rows.bin(box, row);
    const Tap* rows = plans.rows.entries(box, row_bin);
    for (wide_int j = 0; j < row_bin.count; ++j) {
      const Tap down = rows[j];
      if (!tile.has_row(down.cell)) continue;
      for (wide_int column = 0; column < call.columns.bins; ++column) {
        const TapBin column_bin = plans.columns.bin(box, column);
        const Tap* columns = plans.columns.entries(box, column_bin);
        const Value gradient =
            compute_value(gradients[row * strides.row + column * strides.column]);
        const Value part = down.weight * gradient;
        for (wide_int i = 0; i < column_bin.count; ++i) {
          const Tap along = columns[i];
          if (!tile.has_column(along.cell)) continue;
          Value& sum = tile.at(down.cell, along.cell);
          sum = multiply_add(along.weight, part, sum);
        }
      }
    }
  }
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_taps(const roipool::Value* boxes, const void* images, char* scratch,
              const roipool::Call call) {
  roipool::write_plans<roipool::Taps>(boxes, images, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256)
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

extern "C" __global__ void __launch_bounds__(256)
    average_backward(const roipool::Storage* __restrict__ grad_output,
                     roipool::Storage* __restrict__ grad_features, char* __restrict__ scratch,
                     const roipool::Call call) {
  using namespace roipool;
  const Plans<Taps> plans(scratch, call);
  own_tiles(
      call, grad_features,
      [&](wide_int box, const Tile& tile) {
        return plans.images[box] == tile.image &&
               plans.rows.windows[box].meets(tile.top, tile.bottom) &&
               plans.columns.windows[box].meets(tile.left, tile.right);
      },
      [&](wide_int box, const Tile& tile) {
        if (tile.has_channel) scatter_box(call, plans, box, grad_output, tile);
      });
}
