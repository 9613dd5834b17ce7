// Backwards: a block owns one tile of cells of one image for a few channels, visits the boxes of
// that image in their order, adds up in shared memory, and writes every cell once. No two threads
// add to one sum: a thread has `pack` channels (its lane's) and some of the tile's rows. The result
// is therefore bitwise reproducible.
//
// The gradients of a box's bins are first staged in shared memory, some bins at a time (a chunk),
// by all threads of the block: neighbouring threads read neighbouring elements, and all owners
// share them.
#pragma once
#include "plan.h"

namespace roipool {

// Where a tile is.
struct Place {
  wide_int image;  // counted through the levels
  wide_int first_channel;
  wide_int top, left;
  wide_int bottom, right;
  int channels;  // of this tile: as many as a block has, or what is left of them
  int plane;     // of volumes: rows are those of this plane
};
static_assert(sizeof(Place) == 56, "BYTES_OF_PLACE in partition.py");

struct Tile : Place {
  int lane;     // this thread's channel, counted from the first
  int owner;    // this thread's rows: those that are owner modulo owners, counted from the top
  int owners;   // a power of two
  int pitch;    // from one cell's sums to the next cell's: odd, so that columns of cells in shared
                // memory lie in different banks
  Value* sums;  // of the tile's first cell, this thread's channel
  char* stage;
  wide_int columns;

  __device__ bool has_channel() const { return lane < channels; }

  __device__ bool has_row(wide_int y) const {
    return y >= top && y < bottom && (static_cast<int>(y - top) & (owners - 1)) == owner;
  }
  __device__ bool has_column(wide_int x) const { return x >= left && x < right; }
  __device__ Value& at(wide_int y, wide_int x) const {
    return sums[((y - top) * columns + (x - left)) * pitch];
  }
};

// Whether a box reads cells of a tile.
__device__ inline bool reaches(const PlanHead& box, const Place& tile) {
  return box.image == tile.image && box.rows.window.meets(tile.top, tile.bottom) &&
         box.columns.window.meets(tile.left, tile.right);
}

__device__ inline int warps_of_block() { return static_cast<int>(blockDim.x) / warp_size; }

// Shared memory holds a tile's sums, a bit per box of a batch that reaches it, and what is staged.
__device__ inline int pitch_of_tile(const Call& call) {
  return call.lanes > 1 ? static_cast<int>(call.lanes) + 1 : 1;
}
__device__ inline int sums_of_tile(const Call& call) {
  return static_cast<int>(call.tile_rows * call.tile_columns) * pitch_of_tile(call);
}
// In pieces of 8 bytes.
__device__ inline int pieces_of_sums(const Call& call) {
  return (sums_of_tile(call) * static_cast<int>(sizeof(Value)) + 7) / 8;
}
__device__ inline unsigned long long* hits_of_block(const Call& call) {
  return reinterpret_cast<unsigned long long*>(roipool_shared_memory) + pieces_of_sums(call);
}

// How a level's maps are cut into tiles of `rows` by `columns` cells.
struct Tiling {
  wide_int across, down, planes;

  __device__ Tiling(const Call& call, const Level& level, wide_int rows, wide_int columns)
      : across(divide(level.columns + columns - 1, columns)),
        down(divide(cells_of_axis(call, level, Direction::down) + rows - 1, rows)),
        planes(of_volumes ? call.volume.planes : 1) {}
};

// A tile, counted through levels, images and planes, of `rows` by `columns` cells; of `together`
// channels, the `group`th so many.
__device__ inline Place place_of_tile(const Call& call, wide_int tile_number, wide_int group,
                                      wide_int rows, wide_int columns, wide_int together) {
  int number = 0;
  while (number + 1 < level_count && tile_number >= call.levels[number + 1].first_tile) ++number;
  const Level& level = call.levels[number];
  const Tiling tiling(call, level, rows, columns);
  const wide_int height = cells_of_axis(call, level, Direction::down);
  const Division by_column = divide_with_rest(tile_number - level.first_tile, tiling.across);
  const Division by_row = divide_with_rest(by_column.quotient, tiling.down);
  wide_int image = by_row.quotient;
  Place tile;
  if constexpr (of_volumes) {
    const Division by_plane = divide_with_rest(image, tiling.planes);
    tile.plane = static_cast<int>(by_plane.rest);
    image = by_plane.quotient;
  }
  tile.left = by_column.rest * columns;
  tile.top = by_row.rest * rows;
  tile.first_channel = group * together;
  tile.channels = static_cast<int>(minimum(together, call.channels - tile.first_channel));
  tile.image = number * call.images + image;
  tile.bottom = minimum(tile.top + rows, height);
  tile.right = minimum(tile.left + columns, level.columns);
  return tile;
}

// The map of a tile; of volumes, its plane.
template <typename Element>
__device__ inline Map<Element> map_of_tile(const Call& call, Element* maps, const Place& tile) {
  Map<Element> map(call, maps, tile.image);
  if constexpr (of_volumes) map.cells += tile.plane * call.volume.plane_rows * map.strides.row;
  return map;
}

__device__ inline Tile tile_at(const Call& call, const Place& place) {
  const int lanes = static_cast<int>(call.lanes);
  Tile tile;
  static_cast<Place&>(tile) = place;
  tile.lane = static_cast<int>(threadIdx.x) % lanes;
  tile.owner = static_cast<int>(threadIdx.x) / lanes;
  tile.owners = static_cast<int>(blockDim.x) / lanes;
  tile.pitch = pitch_of_tile(call);
  tile.columns = call.tile_columns;
  tile.sums = reinterpret_cast<Value*>(roipool_shared_memory) + tile.lane;
  tile.stage = reinterpret_cast<char*>(hits_of_block(call) + warps_of_block());
  return tile;
}

__device__ inline Place place_of_task(const Call& call, wide_int task) {
  const Division by_group = divide_with_rest(task, call.tiles);
  return place_of_tile(call, by_group.rest, by_group.quotient, call.tile_rows, call.tile_columns,
                       call.lanes * pack);
}
__device__ inline Tile tile_of_task(const Call& call, wide_int task) {
  return tile_at(call, place_of_task(call, task));
}

// Bins of a box: all, or those of one group; or what is staged together: whole rows of them, or a
// part of one row.
struct Chunk {
  int first_row, last_row;
  int first_column, last_column;

  __device__ int rows() const { return last_row - first_row; }
  __device__ int columns() const { return last_column - first_column; }
  __device__ int bins() const { return rows() * columns(); }
  __device__ int bin_index(int row, int column) const {
    return (row - first_row) * columns() + column - first_column;
  }
};

__device__ inline Chunk every_bin(const Call& call) {
  return {0, static_cast<int>(call.rows.bins), 0, static_cast<int>(call.columns.bins)};
}

// A group of bins and its image, of position-sensitive calls; tiles count images through groups.
struct Group {
  wide_int image, row, column;

  __device__ Group(const Call& call, wide_int number) : image(number), row(0), column(0) {
    if (!position_sensitive) return;
    const Division by_column = divide_with_rest(number, call.columns.groups);
    const Division by_row = divide_with_rest(by_column.quotient, call.rows.groups);
    image = by_row.quotient;
    row = by_row.rest;
    column = by_column.rest;
  }
  __device__ Chunk bins(const Call& call) const {
    if (!position_sensitive) return every_bin(call);
    return {static_cast<int>(first_bin_of_group(call.rows, row)),
            static_cast<int>(first_bin_of_group(call.rows, row + 1)),
            static_cast<int>(first_bin_of_group(call.columns, column)),
            static_cast<int>(first_bin_of_group(call.columns, column + 1))};
  }
  __device__ Map<Storage> map(const Call& call, Storage* maps) const {
    Map<Storage> own(call, maps, image);
    if (position_sensitive) own.cells = own.cells_of_group(call, row, column);
    return own;
  }
};

// For each chunk of some of a box's bins: `stage(at, chunk, bin, offset)` for every value of the
// tile's channels, where `at` is its offset in arrays of pooled values, `bin` counts in the chunk,
// and `offset` is that in staged arrays; then `use(chunk)`.
template <typename Stage, typename Use>
__device__ inline void for_each_chunk(const Call& call, wide_int box, const Tile& tile,
                                      const Chunk& of, Stage stage, Use use) {
  const Strides strides = strides_of_pooled(call);
  const wide_int origin = box * strides.outer + tile.first_channel * strides.channel;
  const int warp = warp_of_thread(), lane = lane_of_thread();
  const bool has_whole_rows = of.columns() == static_cast<int>(call.columns.bins);
  const int rows = has_whole_rows ? static_cast<int>(call.stage_rows) : 1;
  const int columns = static_cast<int>(call.stage_columns);
  Chunk chunk;
  for (int row = of.first_row; row < of.last_row; row += rows) {
    chunk.first_row = row;
    chunk.last_row = minimum(row + rows, of.last_row);
    for (int column = of.first_column; column < of.last_column; column += columns) {
      chunk.first_column = column;
      chunk.last_column = minimum(column + columns, of.last_column);
      const int bins = chunk.bins();
      // What goes along memory: bins (NCHW) or channels (NHWC).
      const int across = channels_last ? tile.channels : bins;
      const int down = channels_last ? bins : tile.channels;
      const wide_int step = channels_last ? strides.column : strides.channel;
      wide_int line = origin + row * strides.row + column * strides.column + warp * step;
      __syncthreads();  // all have used the chunk before
      for (int outer = warp; outer < down; outer += warps_of_block()) {
#pragma unroll 1
        for (int inner = lane; inner < across; inner += warp_size) {
          const int bin = channels_last ? outer : inner;
          const int channel = channels_last ? inner : outer;
          stage(line + inner, chunk, bin, bin * tile.pitch + channel);
        }
        line += warps_of_block() * step;
      }
      __syncthreads();
      if (tile.has_channel()) use(chunk);
    }
  }
}

// Writes the block's sums, neighbouring threads neighbouring elements: a warp for each channel and
// its lanes for cells (NCHW), or the other way round.
__device__ inline void write_tile(const Call& call, const Tile& tile, const Map<Storage>& map) {
  const Strides& strides = map.strides;
  const Value* sums = reinterpret_cast<const Value*>(roipool_shared_memory);
  const int rows = static_cast<int>(tile.bottom - tile.top);
  const int width = static_cast<int>(call.tile_columns);
  const int warp = warp_of_thread(), lane = lane_of_thread();
  const int first_cell = channels_last ? warp : lane, first_channel = channels_last ? lane : warp;
  const int cells_at_once = channels_last ? warps_of_block() : warp_size;
  const int channels_at_once = channels_last ? warp_size : warps_of_block();
  const wide_int step = channels_at_once * strides.channel;
  Storage* corner = map.cells + tile.top * strides.row + tile.left * strides.column +
                    (tile.first_channel + first_channel) * strides.channel;
  for (Walk cell(first_cell, width, cells_at_once); cell.row < rows; cell.step()) {
    if (tile.left + cell.column >= tile.right) continue;
    const Value* sum = sums + (cell.row * width + cell.column) * tile.pitch;
    Storage* to = corner + cell.row * strides.row + cell.column * strides.column;
#pragma unroll 4
    for (int channel = first_channel; channel < tile.channels; channel += channels_at_once) {
      store_value(sum[channel], to);
      to += step;
    }
  }
}

// Calls `scatter(box, tile, bins)` for every box that `reaches(box, tile)`, in order, with those of
// its bins that read the tile's channels. The threads test a block's worth of boxes at a time, one
// each.
template <typename Reaches, typename Scatter>
__device__ inline void own_tiles(const Call& call, Storage* maps, Reaches reaches,
                                 Scatter scatter) {
  unsigned long long* sums = reinterpret_cast<unsigned long long*>(roipool_shared_memory);
  const int pieces = pieces_of_sums(call);
  unsigned long long* hits = hits_of_block(call);
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    Tile tile = tile_of_task(call, task);
    const Group group(call, tile.image);
    tile.image = group.image;
    const Chunk bins = group.bins(call);
#pragma unroll 4
    for (int i = threadIdx.x; i < pieces; i += blockDim.x) sums[i] = 0;
    for (wide_int first = 0; first < call.boxes; first += blockDim.x) {
      const wide_int mine = first + threadIdx.x;
      const unsigned hit = __ballot_sync(~0u, mine < call.boxes && reaches(mine, tile));
      if (threadIdx.x % warp_size == 0) hits[threadIdx.x / warp_size] = hit;
      __syncthreads();
      for (int warp = 0; warp < warps_of_block(); ++warp) {
        for (unsigned left = static_cast<unsigned>(hits[warp]); left != 0; left &= left - 1) {
          scatter(first + warp * warp_size + __ffs(static_cast<int>(left)) - 1, tile, bins);
        }
      }
      __syncthreads();
    }
    __syncthreads();
    write_tile(call, tile, group.map(call, maps));
    __syncthreads();
  }
}

}  // namespace roipool
