// The lists that a block of an average's backward makes before it adds: boxes that reach its tile,
// and their bins that read it, numbered through.
#pragma once
#include "backward_tiles.h"

namespace roipool {

const int tile_side = 8;  // cells; as in partition.py, like those that follow
const int warps = tile_side;
const int chunk_bins = warp_size;
// Hits that are listed at once, bins that are described: one of each thread.
const int at_once = warps * warp_size;
// Boxes that each thread tests at once. With four, assemblers for compute capabilities from 10.0 on
// spill registers of maps, too.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
const int most_tests = 2;
#else
const int most_tests = of_volumes ? 2 : 4;
#endif
const int channels_of_block = warp_size * pack;
// From one bin's gradients to the next one's: bins and channels lie in different banks.
const int pitch = channels_of_block + pack;
// Values that lanes exchange: in pieces of 16 bytes; elements from one lane's row to the next.
const int piece = 16 / sizeof(Value);
const int exchange_pitch = tile_side + piece;

// A thread's number, warp and lane, read anew where they are used: the compiler would keep them in
// registers through the whole kernel, and spill others.
__device__ inline unsigned read_thread() {
#ifdef __CUDA_ARCH__
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#else
  return threadIdx.x;
#endif
}
__device__ inline int read_warp() { return static_cast<int>(read_thread() / warp_size); }
__device__ inline int read_lane() { return static_cast<int>(read_thread() % warp_size); }

// ---- Plans

// Which tiles a box reaches, in rows and columns of tiles; short, for each tile reads that of all
// boxes. Tiles beyond the 65,535th are taken for that one: such boxes then have no bin there.
struct alignas(16) MapReach {
  wide_int image;
  unsigned short top, bottom, left, right;  // half-open; an empty window's is empty, too

  static __device__ unsigned short tile_of_cell(int cell) {
    return static_cast<unsigned short>(minimum(cell / tile_side, 65534));
  }
  __device__ void set(const PlanHead& head) {
    image = head.image;
    top = tile_of_cell(head.rows.window.first);
    bottom = tile_of_cell(head.rows.window.last - 1) + 1;
    left = tile_of_cell(head.columns.window.first);
    right = tile_of_cell(head.columns.window.last - 1) + 1;
  }
  // All is looked at, for loads to be on their way at once.
  __device__ bool includes(const Place& tile) const {
    const int row = tile_of_cell(static_cast<int>(tile.top));
    const int column = tile_of_cell(static_cast<int>(tile.left));
    return (image == tile.image) & (row >= top) & (row < bottom) & (column >= left) &
           (column < right);
  }
};
struct alignas(16) VolumeReach : MapReach {
  int front, back;  // planes; half-open

  __device__ void set(const PlanHead& head) {
    MapReach::set(head);
    const Window& planes = head_of_axis(head, deep).window;
    front = planes.first;
    back = planes.last;
  }
  __device__ bool includes(const Place& tile) const {
    return MapReach::includes(tile) & (tile.plane >= front) & (tile.plane < back);
  }
};
typedef Select<of_volumes, VolumeReach, MapReach>::type Reach;
static_assert(sizeof(Reach) == (of_volumes ? 32 : 16), "BYTES_OF_REACH in launch.py");

// After the plans.
__device__ inline Reach* reach_in_scratch(char* scratch, const Call& call, wide_int box) {
  char* after = scratch + call.boxes * (call.plan_bytes + sizeof(PlanHead));
  return reinterpret_cast<Reach*>(after) + box;
}

// ---- Shared memory

// A box that reaches the tile.
struct alignas(8) Hit {
  int box;
  unsigned short front, back;  // of volumes: the bins along depth, where these can number all
  Window rows, columns;        // of bins: from the first to the last that read cells of the tile

  __device__ void set(Direction direction, const Window& bins) {
    if (of_volumes && direction == deep) {
      front = static_cast<unsigned short>(bins.first);
      back = static_cast<unsigned short>(bins.last);
    } else {
      (direction == down ? rows : columns) = bins;
    }
  }
  __device__ Window depth(const Call& call) const {
    Window bins;
    const bool are_few = call.volume.depth.bins <= 65535;
    bins.first = are_few ? front : 0;
    bins.last = are_few ? back : static_cast<int>(call.volume.depth.bins);
    return bins;
  }
  __device__ wide_int bins(const Call& call) const {
    const wide_int of_plane = wide_int(rows.last - rows.first) * (columns.last - columns.first);
    if constexpr (!of_volumes) return of_plane;
    const Window planes = depth(call);
    return of_plane * (planes.last - planes.first);
  }
};
static_assert(sizeof(Hit) == 24, "BYTES_OF_HIT in partition.py");

// The taps of a bin along one axis.
struct alignas(16) TapsOfBin {
  const Tap* taps;
  int count;
  int plane;  // of a row of volumes: where the tap of the tile's plane is, counted from the first
};
static_assert(sizeof(TapsOfBin) == 16, "BYTES_OF_BIN in partition.py");

// The weight with which a row of bins reads the row of a tap.
__device__ inline Value weight_of_row(const TapsOfBin& row, const Tap& tap) {
  if constexpr (!of_volumes) return tap.weight;
  return product_of_weights(row.taps[row.plane].weight, tap.weight);
}

// Weights with which the bins of a chunk read cells of the tile; 0 if they do not.
struct alignas(16) Weights {
  Value along[chunk_bins][tile_side];     // bin by bin those of the tile's columns
  Value down[tile_side][chunk_bins + 1];  // row by row of the tile those of the bins
};

const int staged_values = chunk_bins * pitch, exchanged_values = at_once * exchange_pitch;

// The boxes of a tile that a block adds: each `of`th that reaches it, from `number` on. For crowded
// tiles, `first` is the number of their first portion, and `is_last` whether all others have ended.
struct Portion {
  int number, of;
  int first;
  int is_last;

  // How many of the first `hits` it has.
  __device__ int number_of(int hits) const {
    return of == 1 ? hits : (hits + of - 1 - number) / of;
  }
};
static_assert(sizeof(Portion) == 16, "BYTES_OF_PORTION in partition.py");

// The progress of a block through the list of boxes.
struct Listing {
  int next;    // the first box that is not tested yet
  int seen;    // boxes before it that reach the tile
  int hits;    // of those, what the portion has and is listed
  int before;  // hits that were listed, and added, before those
};
static_assert(sizeof(Listing) == 16, "BYTES_OF_LISTING in partition.py");

struct Shared {
  Weights weights[2];  // of the chunk, and of the next one
  // Those of the chunk, bin by bin; after the last chunk, values that lanes exchange.
  alignas(16) Value gradients[staged_values > exchanged_values ? staged_values : exchanged_values];
  // Described bins: the offset of their gradients in elements, and their taps.
  wide_int gradients_at[at_once];
  TapsOfBin rows[at_once], columns[at_once];
  wide_int bins_up_to[at_once];  // of a hit: bins of it and of those before
  Hit hits[at_once];
  unsigned of_warps[most_tests][warps];  // of each: the votes of its lanes, or a number
  Place tile;
  Portion portion;
  Listing listing;  // here rather than in registers, which are few
};

// ---- The boxes that reach a tile, and their bins

// Tests the next boxes, `tests` by each thread, whose loads are then on their way together; lists
// those of the portion, in their order. Returns whether the list had room for all of them; where it
// had none, the rest are to be tested again.
template <int tests>
__device__ inline bool list_some(const Call& call, char* scratch, Shared& shared) {
  Listing listing = shared.listing;
  bool has_room = true;
  const int warp = read_warp(), lane = read_lane(), boxes = static_cast<int>(call.boxes);
  const int box = listing.next + static_cast<int>(read_thread());
  const Portion& portion = shared.portion;
  __syncthreads();  // all have used the votes before
#pragma unroll
  for (int test = 0; test < tests; ++test) {
    const int other = box + test * at_once;
    const Reach reach = *reach_in_scratch(scratch, call, minimum(other, boxes - 1));
    const unsigned votes = __ballot_sync(~0u, (other < boxes) & reach.includes(shared.tile));
    if (lane == 0) shared.of_warps[test][warp] = votes;
  }
  __syncthreads();
#pragma unroll 1
  for (int test = 0; test < tests; ++test) {
    const unsigned* votes = shared.of_warps[test];
    int number = listing.seen, before = listing.seen;
    for (int other = 0; other < warps; ++other) {
      if (other < warp) before += __popc(votes[other]);
      number += __popc(votes[other]);
    }
    const int hits = portion.number_of(number) - listing.before;
    has_room = hits <= at_once;
    if (!has_room) break;
    if (votes[warp] >> lane & 1) {
      const int hit = before + __popc(votes[warp] & ((1u << lane) - 1));
      const int turn = hit / portion.of;
      if (hit - turn * portion.of == portion.number) {
        shared.hits[turn - listing.before].box = box + test * at_once;
      }
    }
    listing = {listing.next + at_once, number, hits, listing.before};
  }
  if (read_thread() == 0) shared.listing = listing;
  __syncthreads();
  return has_room;
}

// Lists the next boxes of the portion, in their order, as many as there is room for.
__device__ inline void list_hits(const Call& call, char* scratch, Shared& shared) {
  const int boxes = static_cast<int>(call.boxes);
  Listing& listing = shared.listing;
  __syncthreads();
  if (read_thread() == 0) {
    listing.before = shared.portion.number_of(listing.seen);
    listing.hits = 0;
  }
  __syncthreads();
  for (bool has_room = true; has_room && listing.next < boxes;) {
    has_room = boxes - listing.next > at_once ? list_some<most_tests>(call, scratch, shared)
                                              : list_some<1>(call, scratch, shared);
  }
}

// By one warp: the bins of an axis that read some of its cells, from the first to the last. Where
// no bin does, although the box's window has cells there: the first, which adds nothing.
__device__ inline Window bins_that_read(const BinTaps::Bin* bins, int number, wide_int begin,
                                        wide_int end) {
  Window found;
#pragma unroll 1
  for (int first = 0; first < number; first += warp_size) {
    const int bin = first + read_lane();
    const unsigned votes = __ballot_sync(~0u, bin < number && bins[bin].window.meets(begin, end));
    if (votes == 0) continue;
    found.include(first + __ffs(static_cast<int>(votes)) - 1);
    found.include(first + warp_size - 1 - __clz(static_cast<int>(votes)));
  }
  if (found.first == found.last) found.last = found.first + 1;
  return found;
}

// By one warp: counts the bins of all hits.
__device__ inline void count_bins(const Call& call, Shared& shared, int hits) {
  const int lane = read_lane();
  wide_int before = 0;
#pragma unroll 1
  for (int first = 0; first < hits; first += warp_size) {
    wide_int* bins = shared.bins_up_to + first;
    bins[lane] = first + lane < hits ? shared.hits[first + lane].bins(call) : 0;
    if (lane == 0) bins[0] += before;
    for (int step = 1; step < warp_size; step *= 2) {
      __syncwarp();
      const wide_int other = lane < step ? 0 : bins[lane - step];
      __syncwarp();
      bins[lane] += other;
    }
    __syncwarp();
    before = bins[warp_size - 1];
  }
}

// The cells of a tile along an axis.
struct CellRange {
  wide_int first, last;
};
__device__ inline CellRange cells_of_tile(const Place& tile, Direction direction) {
  if constexpr (of_volumes) {
    if (direction == deep) return {tile.plane, tile.plane + 1};
  }
  const bool vertical = direction == down;
  return {vertical ? tile.top : tile.left, vertical ? tile.bottom : tile.right};
}

// Finds the bins of hits.
__device__ inline void find_bins(const Call& call, char* scratch, Shared& shared) {
  const Place& tile = shared.tile;
  const int hits = shared.listing.hits;
#pragma unroll 1
  for (int item = read_warp(); item < axes * hits; item += warps) {
    Hit& hit = shared.hits[item / axes];
    const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, hit.box);
    const Direction direction = static_cast<Direction>((item + 1) % axes);
    const CellRange cells = cells_of_tile(tile, direction);
    const Window bins =
        bins_that_read(lines_of_axis(call, plan, direction),
                       static_cast<int>(axis_call(call, direction).bins), cells.first, cells.last);
    if (read_lane() == 0) hit.set(direction, bins);
  }
  __syncthreads();
  if (read_warp() == 0) count_bins(call, shared, hits);
  __syncthreads();
}

// The bins of all listed hits.
__device__ inline wide_int bins_of_hits(const Shared& shared) {
  return shared.bins_up_to[shared.listing.hits - 1];
}

// The first hit that has more than `bin` bins with those before it.
__device__ inline int hit_of_bin(const Shared& shared, int hits, wide_int bin) {
  int first = 0, last = hits - 1;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (shared.bins_up_to[middle] > bin) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

// Describes a row of bins of a hit, counted from its first; returns its number in the box. Of
// volumes, one that does not read the tile's plane has no taps.
__device__ inline int describe_row(const Call& call, const BoxPlan<BinTaps>& plan,
                                   const Place& tile, const Hit& hit, int number, TapsOfBin& taps) {
  if constexpr (!of_volumes) {
    const TapBin rows = plan.rows[hit.rows.first + number];
    taps.taps = plan.all_entries + rows.begin;
    taps.count = rows.count;
    return hit.rows.first + number;
  }
  const int height = hit.rows.last - hit.rows.first;
  const int z = hit.depth(call).first + number / height, y = hit.rows.first + number % height;
  const TapBin planes = plan.rows[z], rows = lines_of_axis(call, plan, down)[y];
  taps.taps = plan.all_entries + rows.begin;
  taps.count = 0;
  for (int tap = planes.begin; tap < planes.begin + planes.count; ++tap) {
    if (plan.all_entries[tap].cell != tile.plane) continue;
    taps.plane = tap - rows.begin;
    taps.count = rows.count;
  }
  return z * static_cast<int>(call.volume.rows.bins) + y;
}

// Each thread describes a bin, of those from `first` on.
__device__ inline void describe_bins(const Call& call, char* scratch, Shared& shared,
                                     wide_int first) {
  const int thread = static_cast<int>(read_thread());
  if (first + thread >= bins_of_hits(shared)) return;
  const int number = hit_of_bin(shared, shared.listing.hits, first + thread);
  const Hit& hit = shared.hits[number];
  const int width = hit.columns.last - hit.columns.first;
  const wide_int before = number == 0 ? 0 : shared.bins_up_to[number - 1];
  const Division place = divide_with_rest(first + thread - before, width);
  const int column = hit.columns.first + static_cast<int>(place.rest);
  const Strides strides = strides_of_pooled(call);
  const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, hit.box);
  const TapBin along = plan.columns[column];
  const int row = describe_row(call, plan, shared.tile, hit, static_cast<int>(place.quotient),
                               shared.rows[thread]);
  shared.gradients_at[thread] = hit.box * strides.outer + row * strides.row +
                                column * strides.column +
                                shared.tile.first_channel * strides.channel;
  shared.columns[thread] = {plan.all_entries + along.begin, along.count};
}

}  // namespace roipool
