// Tiles that many bins read. A launch would wait for their blocks alone, so the boxes of such a
// crowded tile are dealt to portions in turn, each with a block of its own. The block that ends
// last adds the sums of all portions in their order. Portions depend on the boxes alone, so the
// result is bitwise reproducible.
#pragma once
#include "backward_tile_bins.h"

namespace roipool {

// Before the plans in scratch, all 0 at first; the planning kernel counts.
struct alignas(16) Tally {
  unsigned long long bins;  // of all crowded tiles together
  unsigned tiles;           // crowded ones
};
static_assert(sizeof(Tally) == 16, "BYTES_OF_TALLY in partition.py");

__device__ inline char* plans_after_tally(const Call& call, char* scratch) {
  return scratch + call.tally_bytes;
}
__device__ inline Tally& tally_of(const Call& call, char* plans) {
  return *reinterpret_cast<Tally*>(plans - call.tally_bytes);
}
// After it: about how many bins read each tile.
__device__ inline unsigned* bins_of_tiles(const Call& call, char* plans) {
  return reinterpret_cast<unsigned*>(&tally_of(call, plans) + 1);
}
// Finished portions per tile and channel group, at the number of the tile's first portion.
__device__ inline unsigned* ended_portions(const Call& call, char* plans) {
  return bins_of_tiles(call, plans) + call.tiles;
}

// ---- Counting

// Cells of an axis that a box reads, and tiles of `side` cells that have some of them.
struct ReachedTiles {
  Window cells;
  int side, first, number;

  __device__ ReachedTiles(const Window& cells, int side)
      : cells(cells),
        side(side),
        first(cells.first / side),
        number(cells.last > cells.first ? (cells.last - 1) / side + 1 - first : 0) {}

  // About how many of an axis's bins read cells of one of the tiles: as many as its cells make, and
  // one that is cut.
  __device__ unsigned bins(const AxisCall& axis, int tile) const {
    const int begin = maximum(cells.first, (first + tile) * side);
    const int end = minimum(cells.last, (first + tile + 1) * side);
    const wide_int share = divide(axis.bins * (end - begin), cells.last - cells.first);
    return static_cast<unsigned>(minimum(share + 1, axis.bins));
  }
};

// Adds `bins` to a tile that had `before`; when it becomes crowded, all are counted.
__device__ inline void count_crowd(const Call& call, Tally& tally, unsigned before, unsigned bins) {
  if (before + bins <= call.crowd) return;
  const bool was_crowded = before > call.crowd;
  if (!was_crowded) atomicAdd(&tally.tiles, 1u);
  atomicAdd(&tally.bins, static_cast<unsigned long long>(was_crowded ? bins : before + bins));
}

// All threads of a block count a box in the tiles that it reaches.
__device__ inline void count_box(const Call& call, const PlanHead& head, char* plans) {
  if (head.image < 0) return;
  Window all_planes = {0, 1};
  if constexpr (of_volumes) all_planes = head_of_axis(head, deep).window;
  const ReachedTiles planes(all_planes, 1);
  const ReachedTiles rows(head.rows.window, tile_side), columns(head.columns.window, tile_side);
  const int number = level_of_image(call, head.image);
  const Level& level = call.levels[number];
  const Tiling tiling(call, level, tile_side, tile_side);
  const wide_int plane = (head.image - number * call.images) * tiling.planes + planes.first;
  unsigned* first = bins_of_tiles(call, plans) + level.first_tile +
                    (plane * tiling.down + rows.first) * tiling.across + columns.first;
  const int tiles = planes.number * rows.number * columns.number;
  for (int item = threadIdx.x; item < tiles; item += blockDim.x) {
    const int line = item / columns.number, column = item % columns.number;
    const int deep_tile = line / rows.number, row = line % rows.number;
    unsigned bins = rows.bins(axis_call(call, down), row) * columns.bins(call.columns, column);
    if (of_volumes) bins *= planes.bins(call.volume.depth, deep_tile);
    unsigned* of_tile = first + (deep_tile * tiling.down + row) * tiling.across + column;
    count_crowd(call, tally_of(call, plans), atomicAdd(of_tile, bins), bins);
  }
}

// ---- Portions

// The most bins of a portion, not counting its last box: enough that there is room for all
// portions. For each tile there is less than one more than its bins make, and less than twice as
// many as they make.
__device__ inline unsigned most_bins(const Call& call, char* plans) {
  const Tally& tally = tally_of(call, plans);
  const wide_int room = call.portions - minimum<wide_int>(tally.tiles, divide(call.portions, 2));
  const wide_int most = divide(static_cast<wide_int>(tally.bins) + room - 1, room);
  return static_cast<unsigned>(minimum<wide_int>(maximum(call.crowd, most), ~0u));
}
// 0: not crowded.
__device__ inline int portions_of_tile(unsigned bins, unsigned most) {
  return bins > most ? static_cast<int>((bins - 1) / most + 1) : 0;
}

// A block's work: a tile, and its portion of the tile's boxes.
struct Work {
  wide_int tile;
  Portion portion;
  bool is_found;  // by this thread
};

// Finds one of all portions, counted through the crowded tiles: each thread counts those of some
// tiles. No thread does if there are not so many.
__device__ inline Work find_portion(const Call& call, char* plans, int wanted, Shared& shared) {
  const int warp = read_warp(), lane = read_lane();
  const unsigned most = most_bins(call, plans);
  const unsigned* bins = bins_of_tiles(call, plans);
  const wide_int share = divide(call.tiles + at_once - 1, at_once);
  const wide_int first = read_thread() * share, last = minimum(first + share, call.tiles);
  int own = 0;
  for (wide_int tile = first; tile < last; ++tile) own += portions_of_tile(bins[tile], most);
  int up_to = own;  // those of the warp's threads as far as this one
  for (int step = 1; step < warp_size; step *= 2) {
    const int other = __shfl_sync(~0u, up_to, lane - step);
    if (lane >= step) up_to += other;
  }
  if (lane == warp_size - 1) shared.of_warps[0][warp] = up_to;
  __syncthreads();
  int before = up_to - own;
  for (int other = 0; other < warp; ++other) before += shared.of_warps[0][other];
  if (wanted < before || wanted >= before + own) return {};
  wide_int tile = first;
  int portions = portions_of_tile(bins[tile], most);
  while (wanted >= before + portions) {
    before += portions;
    portions = portions_of_tile(bins[++tile], most);
  }
  return {tile, {wanted - before, portions, before}, true};
}

// All of a tile's boxes, unless it is crowded.
__device__ inline Work find_tile(const Call& call, char* plans, wide_int tile) {
  const unsigned bins = call.portions > 0 ? bins_of_tiles(call, plans)[tile] : 0;
  const bool is_crowded = bins > call.crowd && bins > most_bins(call, plans);
  return {tile, {0, 1, 0}, read_thread() == 0 && !is_crowded};
}

// Finds a block's work; returns whether there is any. The first tasks of each group of channels are
// those of portions.
__device__ inline bool find_work(const Call& call, char* plans, wide_int task, Shared& shared) {
  const Division by_group = divide_with_rest(task, call.portions + call.tiles);
  const bool is_portion = by_group.rest < call.portions;
  if (is_portion && tally_of(call, plans).tiles == 0) return false;
  if (read_thread() == 0) shared.portion.of = 0;
  Work work = is_portion ? find_portion(call, plans, static_cast<int>(by_group.rest), shared)
                         : find_tile(call, plans, by_group.rest - call.portions);
  if (work.is_found) {
    work.portion.first += static_cast<int>(by_group.quotient * call.portions);
    shared.portion = work.portion;
    shared.listing = {};
    shared.tile =
        place_of_tile(call, work.tile, by_group.quotient, tile_side, tile_side, channels_of_block);
  }
  __syncthreads();
  return shared.portion.of > 0;
}

// The sums of a portion, by all threads: after the plans.
template <typename Sums>
__device__ inline Items<Value, piece>* sums_in_scratch(const Call& call, char* plans, int portion) {
  Sums* sums = reinterpret_cast<Sums*>(reach_in_scratch(plans, call, call.boxes));
  return reinterpret_cast<Items<Value, piece>*>(sums + wide_int(portion) * at_once) + read_thread();
}

// Keeps the sums of a portion; in the block that ends last of those of its tile, which it returns,
// they then are the sums of all.
template <typename Sums>
__device__ inline bool join_portions(const Call& call, char* plans, Shared& shared, Sums& sums) {
  typedef Items<Value, piece> Piece;
  const int pieces = sizeof(Sums) / sizeof(Piece);
  const Portion& own = shared.portion;
  Piece* const of_thread = reinterpret_cast<Piece*>(&sums);
  Piece* kept = sums_in_scratch<Sums>(call, plans, own.first + own.number);
#pragma unroll
  for (int i = 0; i < pieces; ++i) kept[i * at_once] = of_thread[i];
  __threadfence();
  __syncthreads();
  if (read_thread() == 0) {
    const unsigned ended = atomicAdd(ended_portions(call, plans) + own.first, 1u);
    shared.portion.is_last = static_cast<int>(ended) + 1 == own.of;
    __threadfence();
  }
  __syncthreads();
  if (!own.is_last) return false;
  kept = sums_in_scratch<Sums>(call, plans, own.first);
#pragma unroll
  for (int i = 0; i < pieces; ++i) of_thread[i] = kept[i * at_once];
#pragma unroll 1
  for (int portion = 1; portion < own.of; ++portion) {
    kept = sums_in_scratch<Sums>(call, plans, own.first + portion);
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const Piece more = kept[i * at_once];
      for (int n = 0; n < piece; ++n) of_thread[i].item[n] += more.item[n];
      __syncwarp();  // for the next piece to be loaded later: registers are few
    }
  }
  return true;
}

}  // namespace roipool
