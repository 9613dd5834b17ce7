// How a backward owns the maps: a block has one tile of cells of one image for a few channels, walks
// the boxes of that image in their order, adds up in shared memory, and writes every cell once. No
// two threads add to one number: a thread has one channel (its lane) and some of the tile's rows.
// The result is therefore the same bits every time.
#pragma once
#include "plan.h"

namespace roipool {

struct Tile {
  wide_int image;
  wide_int channel;  // of this thread
  bool has_channel;  // false for lanes beyond the last channel
  wide_int top, left;
  wide_int bottom, right;
  int owner;   // this thread's rows: those that are owner modulo owners, counted from the top
  int owners;  // a power of two
  int pitch;   // from one cell's sums to the next cell's: odd, so that columns of cells in
               // shared memory lie in different banks
  Value* sums;  // of the tile's first cell, this thread's channel
  wide_int columns;

  __device__ bool has_row(wide_int y) const {
    return y >= top && y < bottom && (static_cast<int>(y - top) & (owners - 1)) == owner;
  }
  __device__ bool has_column(wide_int x) const { return x >= left && x < right; }
  __device__ Value& at(wide_int y, wide_int x) const {
    return sums[((y - top) * columns + (x - left)) * pitch];
  }
};

__device__ inline Tile tile_of_task(const Call& call, wide_int task) {
  const int lanes = static_cast<int>(call.lanes);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const wide_int across = divide(call.columns.size + call.tile_columns - 1, call.tile_columns);
  const wide_int down = divide(call.rows.size + call.tile_rows - 1, call.tile_rows);
  const wide_int groups = divide(call.channels + lanes - 1, lanes);
  const Division by_column = divide_with_rest(task, across);
  const Division by_row = divide_with_rest(by_column.quotient, down);
  const Division by_group = divide_with_rest(by_row.quotient, groups);
  Tile tile;
  tile.left = by_column.rest * call.tile_columns;
  tile.top = by_row.rest * call.tile_rows;
  tile.channel = by_group.rest * lanes + lane;
  tile.image = by_group.quotient;
  tile.has_channel = tile.channel < call.channels;
  tile.bottom = minimum(tile.top + call.tile_rows, call.rows.size);
  tile.right = minimum(tile.left + call.tile_columns, call.columns.size);
  tile.owner = static_cast<int>(threadIdx.x) / lanes;
  tile.owners = static_cast<int>(blockDim.x) / lanes;
  tile.pitch = lanes > 1 ? lanes + 1 : 1;
  tile.columns = call.tile_columns;
  tile.sums = reinterpret_cast<Value*>(roipool_shared_memory) + lane;
  return tile;
}

// Writes the block's sums, neighbouring threads neighbouring numbers.
__device__ inline void write_tile(const Call& call, const Tile& tile, Storage* maps) {
  const Strides strides = strides_of_maps(call);
  const int lanes = static_cast<int>(call.lanes);
  const wide_int first_channel = tile.channel - static_cast<int>(threadIdx.x) % lanes;
  const Value* sums = reinterpret_cast<const Value*>(roipool_shared_memory);
  const int cells = static_cast<int>(call.tile_rows * call.tile_columns);
  Storage* corner = maps + tile.image * strides.outer + first_channel * strides.channel +
                    tile.top * strides.row + tile.left * strides.column;
  for (int number = threadIdx.x; number < cells * lanes; number += blockDim.x) {
    const int cell = channels_last ? number / lanes : number % cells;
    const int lane = channels_last ? number % lanes : number / cells;
    const int y = cell / static_cast<int>(call.tile_columns);
    const int x = cell % static_cast<int>(call.tile_columns);
    if (tile.top + y >= tile.bottom || tile.left + x >= tile.right) continue;
    if (first_channel + lane >= call.channels) continue;
    store_value(sums[cell * tile.pitch + lane],
                corner + lane * strides.channel + y * strides.row + x * strides.column);
  }
}

// Calls `scatter(box, tile)` for every box that `reaches(box, tile)`, in order. The threads test a
// block's worth of boxes at a time, one each.
template <typename Reaches, typename Scatter>
__device__ inline void own_tiles(const Call& call, Storage* maps, Reaches reaches,
                                 Scatter scatter) {
  const int numbers = static_cast<int>(call.tile_rows * call.tile_columns) *
                      (call.lanes > 1 ? static_cast<int>(call.lanes) + 1 : 1);
  Value* sums = reinterpret_cast<Value*>(roipool_shared_memory);
  unsigned* hits = reinterpret_cast<unsigned*>(sums + (numbers + 1) / 2 * 2);  // a bit per box
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    const Tile tile = tile_of_task(call, task);
    for (int i = threadIdx.x; i < numbers; i += blockDim.x) sums[i] = Value(0);
    for (wide_int first = 0; first < call.boxes; first += blockDim.x) {
      const wide_int mine = first + threadIdx.x;
      const unsigned hit = __ballot_sync(~0u, mine < call.boxes && reaches(mine, tile));
      if (threadIdx.x % warp_size == 0) hits[threadIdx.x / warp_size] = hit;
      __syncthreads();
      for (int warp = 0; warp < warps; ++warp) {
        for (unsigned left = hits[warp]; left != 0; left &= left - 1) {
          scatter(first + warp * warp_size + __ffs(left) - 1, tile);
        }
      }
      __syncthreads();
    }
    __syncthreads();
    write_tile(call, tile, maps);
    __syncthreads();
  }
}

}  // namespace roipool
