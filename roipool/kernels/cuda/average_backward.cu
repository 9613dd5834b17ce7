// The transpose of the average engine.
#include "tiles.h"

namespace roipool {

// Adds one box's gradient to the rows of a tile that this thread owns.
__device__ inline void scatter_box(const Call& call, const Plans<Taps>& plans, wide_int box,
                                   const Storage* gradients, const Tile& tile) {
  const Strides strides = strides_of_pooled(call);
  gradients += box * strides.outer + tile.channel * strides.channel;
  for (wide_int row = 0; row < call.rows.bins; ++row) {
    const TapBin row_bin = plans.rows.bin(box, row);
    const Tap* rows = plans.rows.entries(box, row_bin);
    for (int j = 0; j < row_bin.count; ++j) {
      const Tap down = rows[j];
      if (!tile.has_row(down.cell)) continue;
      for (wide_int column = 0; column < call.columns.bins; ++column) {
        const TapBin column_bin = plans.columns.bin(box, column);
        const Tap* columns = plans.columns.entries(box, column_bin);
        const Value gradient =
            compute_value(gradients[row * strides.row + column * strides.column]);
        const Value part = down.weight * gradient;
        for (int i = 0; i < column_bin.count; ++i) {
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
