// The transpose of points_forward.cu. A block asks each box for those samples only that reach its
// tile.
#include "backward_tiles.h"
#include "points.h"

namespace roipool {

// Adds the gradient of one bin to the rows of the tile that this thread owns.
struct ScatteredBin {
  const Tile& tile;
  Value gradient;
  Value part = 0;

  __device__ ScatteredBin(const Tile& tile, Value gradient) : tile(tile), gradient(gradient) {}

  __device__ void begin_bin(int, wide_int total) { part = Value(1) / Value(total); }
  __device__ void add(wide_int, const Sample<Value>& y, const Sample<Value>& x,
                      const PointGradient<Value>&) {
    for_each_corner(y, x, part, [&](int row, int column, Value weight) {
      if (!tile.has_row(row) || !tile.has_column(column)) return;
      Value& sum = tile.at(row, column);
      sum = multiply_add(weight, gradient, sum);
    });
  }
};

__device__ inline PointRegion region_in_tile(const PointRegion& region, const Tile& tile) {
  PointRegion part = region;
  part.top = maximum(region.top, tile.top);
  part.bottom = minimum(region.bottom, tile.bottom);
  part.left = maximum(region.left, tile.left);
  part.right = minimum(region.right, tile.right);
  return part;
}

__device__ inline PlannedRegion& region_in_scratch(char* scratch, wide_int box) {
  return reinterpret_cast<PlannedRegion*>(scratch)[box];
}

__device__ inline bool has_cells(const PointRegion& region) {
  return region.top < region.bottom && region.left < region.right;
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_regions(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                 char* scratch, const roipool::Call call) {
  using namespace roipool;
  const wide_int step = static_cast<wide_int>(gridDim.x) * blockDim.x;
  for (wide_int box = static_cast<wide_int>(blockIdx.x) * blockDim.x + threadIdx.x;
       box < call.boxes; box += step) {
    region_in_scratch(scratch, box) = region_of({boxes, images, levels}, call, box);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    points_backward(const roipool::Storage* __restrict__ grad_output,
                    roipool::Storage* __restrict__ grad_features, char* __restrict__ scratch,
                    const roipool::Call call) {
  using namespace roipool;
  own_tiles(
      call, grad_features,
      [&](wide_int box, const Tile& tile) {
        const PlannedRegion& planned = region_in_scratch(scratch, box);
        return planned.image == tile.image && has_cells(region_in_tile(planned.region, tile));
      },
      [&](wide_int box, const Tile& tile, const Chunk& bins) {
        Value* gradients = reinterpret_cast<Value*>(tile.stage);
        const PointRegion region = region_in_tile(region_in_scratch(scratch, box).region, tile);
        for_each_chunk(
            call, box, tile, bins,
            [&](wide_int at, const Chunk&, int, int offset) {
              gradients[offset] = compute_value(grad_output[at]);
            },
            [&](const Chunk& chunk) {
              for (int row = chunk.first_row; row < chunk.last_row; ++row) {
                for (int column = chunk.first_column; column < chunk.last_column; ++column) {
                  const int offset = chunk.bin_index(row, column) * tile.pitch + tile.lane;
                  ScatteredBin bin(tile, gradients[offset]);
                  visit_bin_of_region(region, row * call.columns.bins + column, bin);
                }
              }
            });
      });
}
