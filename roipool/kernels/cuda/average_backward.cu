// The transpose of the average engine.
#include "tiles.h"

namespace roipool {

// Adds the gradients of a chunk of one box's bins to the rows of the tile that this thread owns.
__device__ inline void scatter_chunk(const Plans<Taps>& plans, wide_int box, const Chunk& chunk,
                                     const Value* gradients, const Tile& tile) {
  for (wide_int row = chunk.first_row; row < chunk.last_row; ++row) {
    const TapBin row_bin = plans.rows.bin(box, row);
    const Tap* rows = plans.rows.entries(box, row_bin);
#pragma unroll 1
    for (int j = 0; j < row_bin.count; ++j) {
      const Tap down = rows[j];
      if (!tile.has_row(down.cell)) continue;
      const Value* gradient = gradients + chunk.bin_index(row, chunk.first_column) * tile.pitch;
      Value* sums = &tile.at(down.cell, tile.left);
#pragma unroll 1
      for (wide_int column = chunk.first_column; column < chunk.last_column; ++column) {
        const TapBin column_bin = plans.columns.bin(box, column);
        const Tap* columns = plans.columns.entries(box, column_bin);
        const Value part = down.weight * *gradient;
        gradient += tile.pitch;
#pragma unroll 1
        for (int i = 0; i < column_bin.count; ++i) {
          const Tap along = columns[i];
          if (!tile.has_column(along.cell)) continue;
          Value* sum = sums + static_cast<int>(along.cell - tile.left) * tile.pitch;
          *sum = multiply_add(along.weight, part, *sum);
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

extern "C" __global__ void __launch_bounds__(256, 6)
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
        Value* gradients = reinterpret_cast<Value*>(tile.stage);
        for_each_chunk(
            call, box, tile,
            [&](wide_int at, const Chunk&, int, int offset) {
              gradients[offset] = compute_value(grad_output[at]);
            },
            [&](const Chunk& chunk) {
              scatter_chunk(plans, box, chunk, gradients + tile.lane, tile);
            });
      });
}
