// The transpose of the average engine, as a gather: each cell of a tile adds the bins that read it.
//
// A block owns a tile of one image's cells for some channels; a warp has the sums of some cells in
// registers, a lane those of `pack` channels. The block lists the boxes that reach its tile, in
// their order, and numbers all of their bins that read it. Some of these bins at a
// time, a chunk, are staged in shared memory with the weights with which they read cells of the
// tile. A cell adds what it gets box by box and row by row of bins, so that the result is bitwise
// reproducible. While a chunk is added, the next one is loaded into registers.
#include "crowded_tiles.h"

namespace roipool {

// ---- Chunks

// The first channel of a lane, counted from the tile's. Where there are not enough for all, lanes
// have those of others, also of the tile before: they compute and write the same values.
__device__ inline int channel_of_lane(const Place& tile, int lane) {
  return minimum(lane * pack, tile.channels - pack);
}

// A chunk, as part of the described bins.
struct Staged {
  int first, bins;
};

// The values of a chunk that a thread copies to shared memory, in two steps: gradients, and a tap
// of a bin's row and one of its column. A warp copies the gradients of some channels of all bins
// (NCHW), or of all channels of some bins (NHWC).
struct Load {
  static const int packs = chunk_bins / warps;
  Items<Storage, pack> gradients[packs];
  Tap down, along;

  static __device__ int bin_of_taps() { return static_cast<int>(read_thread() / tile_side); }
  static __device__ int first_tap() { return static_cast<int>(read_thread() % tile_side); }

  // Threads without a bin load those of others.
  __device__ void begin(const Call& call, const Shared& shared, const Storage* grad_output,
                        const Staged& chunk) {
    if (channels_last) {
      load_bins(shared, grad_output, chunk);
    } else {
      load_channels(call, shared, grad_output, chunk);
    }
    down.cell = along.cell = no_cell;
    const int number = bin_of_taps();
    if (number >= chunk.bins) return;
    const int bin = chunk.first + number, tap = first_tap();
    if (tap < shared.rows[bin].count) down = shared.rows[bin].taps[tap];
    if (tap < shared.columns[bin].count) along = shared.columns[bin].taps[tap];
  }
  __device__ void load_bins(const Shared& shared, const Storage* grad_output, const Staged& chunk) {
    const int warp = read_warp();
    grad_output += channel_of_lane(shared.tile, read_lane());
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int bin = chunk.first + minimum(warp + p * warps, chunk.bins - 1);
      gradients[p] =
          *reinterpret_cast<const Items<Storage, pack>*>(grad_output + shared.gradients_at[bin]);
    }
  }
  __device__ void load_channels(const Call& call, const Shared& shared, const Storage* grad_output,
                                const Staged& chunk) {
    const wide_int step = strides_of_pooled(call).channel;
    const int warp = read_warp(), bin = minimum(read_lane(), chunk.bins - 1);
    grad_output += shared.gradients_at[chunk.first + bin];
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const Storage* from = grad_output + channel_of_lane(shared.tile, warp * packs + p) * step;
      for (int c = 0; c < pack; ++c) {
        gradients[p].item[c] = *from;
        from += step;
      }
    }
  }

  __device__ void end(Shared& shared, const Staged& chunk, Weights& weights) const {
    const int warp = read_warp(), lane = read_lane();
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int bin = channels_last ? warp + p * warps : lane;
      const int channel = (channels_last ? lane : warp * packs + p) * pack;
      Items<Value, pack> values;
      for (int c = 0; c < pack; ++c) values.item[c] = compute_value(gradients[p].item[c]);
      *reinterpret_cast<Items<Value, pack>*>(shared.gradients + bin * pitch + channel) = values;
    }
    const int bin = bin_of_taps();
    const TapsOfBin& rows = shared.rows[chunk.first + bin];
    const TapsOfBin& columns = shared.columns[chunk.first + bin];
    put_down(shared, bin, rows, down, weights);
    put_along(shared, bin, along, weights);
    if (bin >= chunk.bins) return;
#pragma unroll 1
    for (int tap = first_tap() + tile_side; tap < rows.count; tap += tile_side) {
      put_down(shared, bin, rows, rows.taps[tap], weights);
    }
#pragma unroll 1
    for (int tap = first_tap() + tile_side; tap < columns.count; tap += tile_side) {
      put_along(shared, bin, columns.taps[tap], weights);
    }
  }
  static __device__ void put_down(const Shared& shared, int bin, const TapsOfBin& rows,
                                  const Tap& tap, Weights& weights) {
    const unsigned cell = tap.cell - static_cast<int>(shared.tile.top);
    if (cell < tile_side) weights.down[cell][bin] = weight_of_row(rows, tap);
  }
  static __device__ void put_along(const Shared& shared, int bin, const Tap& tap,
                                   Weights& weights) {
    const unsigned cell = tap.cell - static_cast<int>(shared.tile.left);
    if (cell < tile_side) weights.along[bin][cell] = tap.weight;
  }
};

__device__ inline void clear(Weights& weights) {
  typedef Items<Value, piece> Piece;
  const unsigned number = sizeof(Weights) / sizeof(Piece), thread = read_thread();
#pragma unroll
  for (unsigned i = 0; i < number; i += at_once) {
    if (i + thread >= number) return;
    reinterpret_cast<Piece*>(&weights)[i + thread] = {};
  }
}

// ---- A warp's sums: those of short runs of cells, each of another row and other columns

// The bins of a chunk read neighbouring rows: so that all warps have some of them to add.
const int runs = 2, run = tile_side / runs;
__device__ inline int row_of_run(int number) {
  return (read_warp() + number * (tile_side / runs)) % tile_side;
}

struct Sums {
  Value sums[runs][run][pack];

  // Adds the bins of a chunk.
  __device__ void add_chunk(const Shared& shared, const Weights& weights) {
    const int lane = read_lane();
    const Value* gradients = shared.gradients + lane * pack;
#pragma unroll
    for (int number = 0; number < runs; ++number) {
      const Value* down = weights.down[row_of_run(number)];
      bool reads = false;
      for (int x = 0; x < run; ++x) reads |= weights.along[lane][number * run + x] != Value(0);
      for (unsigned left = __ballot_sync(~0u, reads & (down[lane] != Value(0))); left != 0;
           left &= left - 1) {
        const int bin = __ffs(static_cast<int>(left)) - 1;
        add_bin(number, weights.along[bin] + number * run, down[bin], gradients + bin * pitch);
      }
    }
  }
  // Without a branch for each weight, which would take longer than what it saves.
  __device__ void add_bin(int number, const Value* weights, Value row_weight,
                          const Value* gradients) {
    const Items<Value, run> along = *reinterpret_cast<const Items<Value, run>*>(weights);
    const Items<Value, pack> packed = *reinterpret_cast<const Items<Value, pack>*>(gradients);
    for (int c = 0; c < pack; ++c) {
      const Value scaled = row_weight * packed.item[c];
#pragma unroll
      for (int x = 0; x < run; ++x) {
        Value& sum = sums[number][x][c];
        const Value more = multiply_add(along.item[x], scaled, sum);
        if (along.item[x] != Value(0)) sum = more;
      }
    }
  }

  // Neighbouring threads write neighbouring elements: channels of a cell, or cells of a channel,
  // which the block's threads exchange in shared memory.
  __device__ void write(const Call& call, const Place& tile, Storage* maps, Value* exchange) const {
    const Map<Storage> map = map_of_tile(call, maps, tile);
    const Strides& strides = map.strides;
    Storage* corner = map.cells + tile.first_channel * strides.channel + tile.top * strides.row +
                      tile.left * strides.column;
    if (channels_last) {
      write_cells(tile, corner, strides);
    } else {
      write_channels(tile, corner, strides, exchange);
    }
  }
  __device__ void write_cells(const Place& tile, Storage* corner, const Strides& strides) const {
    corner += channel_of_lane(tile, read_lane());
#pragma unroll
    for (int number = 0; number < runs; ++number) {
      const int row = row_of_run(number);
      if (tile.top + row >= tile.bottom) continue;
      Storage* to = corner + row * strides.row + number * run * strides.column;
#pragma unroll
      for (int x = 0; x < run; ++x) {
        if (tile.left + number * run + x >= tile.right) break;
        Items<Storage, pack> items;
        for (int c = 0; c < pack; ++c) store_value(sums[number][x][c], &items.item[c]);
        *reinterpret_cast<Items<Storage, pack>*>(to) = items;
        to += strides.column;
      }
    }
  }
  __device__ void write_channels(const Place& tile, Storage* corner, const Strides& strides,
                                 Value* exchange) const {
    const int lane = read_lane(), row = read_warp();
    const Offset step = static_cast<Offset>(strides.channel);
    corner += row * strides.row;
    const bool is_inside = tile.top + row < tile.bottom;
    const bool is_whole =
        tile.right - tile.left == tile_side && step % piece == 0 && is_aligned<piece>(corner);
    const Value* others = exchange + row * warp_size * exchange_pitch;
#pragma unroll
    for (int c = 0; c < pack; ++c) {
#pragma unroll
      for (int number = 0; number < runs; ++number) {
        Value* own = exchange + (row_of_run(number) * warp_size + lane) * exchange_pitch;
        Items<Value, run> cells;
        for (int x = 0; x < run; ++x) cells.item[x] = sums[number][x][c];
        *reinterpret_cast<Items<Value, run>*>(own + number * run) = cells;
      }
      __syncthreads();
      if (is_inside && is_whole) {
        write_exchanged<piece>(tile, corner, step, others);
      } else if (is_inside) {
        write_exchanged<1>(tile, corner, step, others);
      }
      corner += step;
      __syncthreads();
    }
  }
  // `number` cells at once, of one of the channels of each lane.
  template <int number>
  static __device__ void write_exchanged(const Place& tile, Storage* row, Offset step,
                                         const Value* exchange) {
    const int turns = tile_side / number, lanes = warp_size / turns;
    const int own = read_lane(), x = own % turns * number, first = own / turns;
    if (tile.left + x >= tile.right) return;
#pragma unroll 1
    for (int lane = first; lane < warp_size; lane += lanes) {
      const Items<Value, number> cells =
          *reinterpret_cast<const Items<Value, number>*>(exchange + lane * exchange_pitch + x);
      Items<Storage, number> stored;
      for (int i = 0; i < number; ++i) store_value(cells.item[i], &stored.item[i]);
      *reinterpret_cast<Items<Storage, number>*>(row + channel_of_lane(tile, lane) * step + x) =
          stored;
    }
  }
};

// Zeros for a tile that no box reaches (NCHW): a thread writes `piece` cells of a row, of some
// channels.
__device__ inline void write_zeros(const Call& call, const Place& tile, Storage* maps) {
  const Map<Storage> map = map_of_tile(call, maps, tile);
  const int pieces = tile_side / piece, rows_at_once = at_once / pieces;
  const int thread = static_cast<int>(read_thread());
  const wide_int x = tile.left + thread % pieces * piece;
  const wide_int y = tile.top + thread / pieces % tile_side;
  if (y >= tile.bottom) return;
  const int channels_at_once = rows_at_once / tile_side;
  const int channels = tile.channels, first = thread / pieces / tile_side;
  const wide_int step = map.strides.channel;
  Storage* to = map.cells + (tile.first_channel + first) * step + y * map.strides.row + x;
  const int cells = static_cast<int>(tile.right - x);
  const bool is_whole = cells >= piece && step % piece == 0 && is_aligned<piece>(to);
#pragma unroll 4
  for (int channel = first; channel < channels; channel += channels_at_once) {
    if (is_whole) {
      *reinterpret_cast<Items<Storage, piece>*>(to) = {};
    } else {
      for (int i = 0; i < piece; ++i) {
        if (i < cells) to[i] = {};
      }
    }
    to += channels_at_once * step;
  }
}

// Adds the bins of all listed hits to the sums.
__device__ inline void add_hits(const Call& call, char* scratch, Shared& shared,
                                const Storage* grad_output, Sums& sums) {
  find_bins(call, scratch, shared);
  for (wide_int first = 0; first < bins_of_hits(shared); first += at_once) {
    describe_bins(call, scratch, shared, first);
    clear(shared.weights[0]);
    __syncthreads();
    const int described =
        static_cast<int>(minimum<wide_int>(bins_of_hits(shared) - first, at_once));
    Load load;
    int next = 0;  // the weights of the next chunk
    for (int begin = 0;; begin += chunk_bins) {
      const Staged chunk = {begin, minimum(described - begin, chunk_bins)};
      const bool is_more = chunk.bins > 0;
      if (is_more) load.begin(call, shared, grad_output, chunk);
      if (begin > 0) sums.add_chunk(shared, shared.weights[next ^ 1]);
      __syncthreads();  // all have used the chunk before, and weights are 0
      if (!is_more) break;
      load.end(shared, chunk, shared.weights[next]);
      next ^= 1;
      clear(shared.weights[next]);
      __syncthreads();
    }
  }
}

// Adds all boxes of the block's portion to the sums; returns whether there are any.
__device__ inline bool add_portion(const Call& call, char* scratch, Shared& shared,
                                   const Storage* grad_output, Sums& sums) {
  const Listing& listing = shared.listing;
  while (listing.next < call.boxes) {
    list_hits(call, scratch, shared);
    if (listing.hits > 0) add_hits(call, scratch, shared, grad_output, sums);
  }
  return listing.seen > 0;
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    plan_bin_taps(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                  char* __restrict__ scratch, const roipool::Call call) {
  using namespace roipool;
  char* plans = plans_after_tally(call, scratch);
  plan_boxes<BinTaps>({boxes, images, levels}, plans, call,
                      [&](wide_int box, const BoxPlan<BinTaps>& plan) {
                        if (threadIdx.x == 0) reach_in_scratch(plans, call, box)->set(*plan.head);
                        if (call.portions > 0) count_box(call, *plan.head, plans);
                      });
}

extern "C" __global__ void __launch_bounds__(256, 3)
    average_backward(const roipool::Storage* __restrict__ grad_output,
                     roipool::Storage* __restrict__ grad_features, char* scratch,
                     const roipool::Call call) {
  using namespace roipool;
  Shared& shared = *reinterpret_cast<Shared*>(roipool_shared_memory);
  char* plans = plans_after_tally(call, scratch);
  // A block's work is described in shared memory rather than in registers, which are few; a turn
  // takes one, a task two.
  for (unsigned turn = 0;; ++turn) {
    const wide_int task = blockIdx.x + wide_int(turn) * gridDim.x;
    if (task >= call.tasks) break;
    if (find_work(call, plans, task, shared)) {
      Sums sums = {};
      const bool is_reached = add_portion(call, plans, shared, grad_output, sums);
      if (shared.portion.of == 1 || join_portions(call, plans, shared, sums)) {
        if (is_reached || channels_last) {
          sums.write(call, shared.tile, grad_features, shared.gradients);
        } else {
          write_zeros(call, shared.tile, grad_features);
        }
      }
    }
    __syncthreads();
  }
}
