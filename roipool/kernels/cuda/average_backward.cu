// The transpose of the average engine, as a gather: each cell of a tile asks which bins read it.
//
// A block owns a tile of one image's cells, a warp one row of it, a lane `pack` channels of that
// row, whose sums are in registers. The block visits the boxes that reach its tile in their order,
// and of a box some bins at a time: a chunk, staged in shared memory with the weights with which
// cells of the tile are read. A cell adds what it gets row by row of bins, so that the result is
// bitwise reproducible. While a chunk is added, the next one is loaded into registers.
#include "tiles.h"

namespace roipool {

const int tile_side = 8;  // cells; as in _cuda/division.py, like the two that follow
const int warps = tile_side;
// Of a chunk, values that a thread loads before the first is there.
const int values_of_thread = sizeof(Value) > 4 ? 8 : 16;
// From one bin's gradients to the next one's in shared memory: odd, for different banks.
const int pitch = warp_size * pack + 1;
const int boxes_at_once = warps * warp_size;

// ---- Plans

// A tap that knows its bin, so that threads can look at a box's taps one by one.
struct alignas(16) BinTap {
  int cell;  // no_cell where there is none
  int bin;
  Value weight;
};

// A plan of such taps. What a bin has reserved and not used are entries without a cell.
struct BinTaps {
  typedef Window Bin;  // the cells that it reads
  typedef BinTap Entry;
  typedef TapCounter<Value> Counter;

  struct Writer : TapWriter<Value, PlannedTaps<BinTap, false>> {
    typedef PlannedTaps<BinTap, false> Planned;
    int bin = 0;

    __device__ explicit Writer(const Planned& planned) : TapWriter<Value, Planned>(planned) {}
    __device__ void begin_bin(int number, wide_int samples) {
      bin = number;
      total = samples;
    }
  };
  static __device__ Writer writer(BinTap* entries, int room, BinTap* spare) {
    return Writer({entries, room, spare});
  }
  static __device__ Window finish(Writer& writer, int) {
    writer.finish();
    for (int tap = 0; tap < writer.taps.entries; ++tap) {
      BinTap& kept = writer.taps.taps[tap];
      kept.bin = writer.bin;
      if (tap >= writer.count) kept.cell = no_cell;
    }
    return writer.window;
  }
};

// ---- The boxes that reach a tile

struct alignas(16) Hit {
  int box;                    // of the boxes that are tested at once
  Window rows, columns;       // of bins: from the first to the last that read cells of the tile
  int row_taps, column_taps;  // entries of the box's plan
};
static_assert(sizeof(Hit) == 32, "BYTES_OF_HIT in division.py");

// A block's shared memory.
struct Shared {
  Hit* hits;
  int* hits_of_warp;
  Value* gradients;  // of a chunk: bin by bin, for each channel
  // Of the chunk and of the next one: for each row of bins those of the tile's rows, then for each
  // column of bins those of its columns.
  Value* weights;
  int number_of_weights;
  Place* tile;

  __device__ explicit Shared(const Call& call)
      : number_of_weights(static_cast<int>(call.stage_rows + call.stage_columns) * tile_side) {
    weights = reinterpret_cast<Value*>(roipool_shared_memory);
    gradients = weights + 2 * number_of_weights;
    hits = reinterpret_cast<Hit*>(gradients + call.stage);
    tile = reinterpret_cast<Place*>(hits + boxes_at_once);
    hits_of_warp = reinterpret_cast<int*>(tile + 1);
  }
  __device__ void clear(Value* some_weights) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < number_of_weights; i += boxes_at_once) some_weights[i] = Value(0);
  }
};
__device__ inline Value* column_weights(const Call& call, Value* weights) {
  return weights + static_cast<int>(call.stage_rows) * tile_side;
}

// By one warp: the bins of an axis that read some of its cells, from the first to the last.
__device__ inline Window bins_that_read(const Window* bins, int number, wide_int begin,
                                        wide_int end) {
  Window found;
  for (int first = 0; first < number; first += warp_size) {
    const int bin = first + lane_of_thread();
    const unsigned votes = __ballot_sync(~0u, bin < number && bins[bin].meets(begin, end));
    if (votes == 0) continue;
    found.include(first + __ffs(static_cast<int>(votes)) - 1);
    found.include(first + warp_size - 1 - __clz(static_cast<int>(votes)));
  }
  return found;
}

// Lists those of `boxes_at_once` boxes that reach the tile, in their order; returns their number.
__device__ inline int list_hits(const Call& call, char* scratch, wide_int first, const Place& tile,
                                const Shared& shared) {
  const int warp = warp_of_thread(), lane = lane_of_thread();
  const wide_int box = first + threadIdx.x;
  const bool is_hit =
      box < call.boxes && reaches(*plan_in_scratch<BinTaps>(scratch, call, box).head, tile);
  const unsigned votes = __ballot_sync(~0u, is_hit);
  __syncthreads();  // all have used the list before
  if (lane == 0) shared.hits_of_warp[warp] = __popc(votes);
  __syncthreads();
  int before = 0, number = 0;
  for (int other = 0; other < warps; ++other) {
    if (other == warp) before = number;
    number += shared.hits_of_warp[other];
  }
  if (is_hit) {
    shared.hits[before + __popc(votes & ((1u << lane) - 1))].box = static_cast<int>(threadIdx.x);
  }
  __syncthreads();
  for (int n = warp; n < number; n += warps) {
    Hit& hit = shared.hits[n];
    const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, first + hit.box);
    const Window rows =
        bins_that_read(plan.rows, static_cast<int>(call.rows.bins), tile.top, tile.bottom);
    const Window columns =
        bins_that_read(plan.columns, static_cast<int>(call.columns.bins), tile.left, tile.right);
    if (lane > 0) continue;
    hit.rows = rows;
    hit.columns = columns;
    hit.row_taps = minimum(plan.head->rows.used, static_cast<int>(call.rows.capacity));
    hit.column_taps = minimum(plan.head->columns.used, static_cast<int>(call.columns.capacity));
  }
  __syncthreads();
  return number;
}

// ---- Chunks: some of the bins of a hit at a time, through all hits

struct Chunks {
  const Shared& shared;
  int hits;
  int number = 0;  // of the hit
  Hit hit;
  Chunk bins;  // whole rows, or a part of one; columns that no cell of the tile reads included

  __device__ Chunks(const Call& call, const Shared& shared, int hits) : shared(shared), hits(hits) {
    begin_hit(call);
  }
  __device__ bool is_end() const { return number >= hits; }

  // Passes over hits whose windows have cells of the tile, but whose bins read none of them.
  __device__ void begin_hit(const Call& call) {
    for (; number < hits; ++number) {
      hit = shared.hits[number];
      if (hit.rows.first < hit.rows.last) return place(call, hit.rows.first, 0);
    }
  }
  __device__ void place(const Call& call, int row, int column) {
    bins.first_row = row;
    bins.last_row = minimum(row + static_cast<int>(call.stage_rows), hit.rows.last);
    bins.first_column = column;
    bins.last_column =
        minimum(column + static_cast<int>(call.stage_columns), static_cast<int>(call.columns.bins));
  }
  __device__ void step(const Call& call) {
    if (bins.last_column < static_cast<int>(call.columns.bins)) {
      place(call, bins.first_row, bins.last_column);
    } else if (bins.last_row < hit.rows.last) {
      place(call, bins.last_row, 0);
    } else {
      ++number;
      begin_hit(call);
    }
  }
};

__device__ inline const Storage* moved(const Storage* from, wide_int bytes) {
  return reinterpret_cast<const Storage*>(reinterpret_cast<const char*>(from) + bytes);
}

// What a thread brings of a chunk to shared memory, in two steps: gradients, and one of the box's
// taps. Of the gradients, neighbouring threads have neighbouring elements: bins (NCHW) or channels
// (NHWC).
struct Load {
  static const int bins_at_once = channels_last ? warps : warp_size;  // of all threads
  static const int channels_at_once = channels_last ? warp_size : warps;
  static const int channels = warp_size * pack / channels_at_once;  // of a thread
  static const int bins = values_of_thread / channels;
  Storage gradients[bins][channels];
  BinTap tap;

  static __device__ int first_bin() { return channels_last ? warp_of_thread() : lane_of_thread(); }
  static __device__ int first_channel() {
    return channels_last ? lane_of_thread() : warp_of_thread();
  }

  // `grad_output` is that of the box, from the tile's first channel on. Threads without a bin or a
  // channel load the last one's, so that no branch parts the loads.
  __device__ void begin(const Call& call, const BinTap* taps, const Storage* grad_output,
                        const Hit& hit, const Chunk& chunk, const Place& tile) {
    const Strides strides = strides_of_pooled(call);
    const wide_int step = channels_at_once * strides.channel * sizeof(Storage);
    grad_output += chunk.first_row * strides.row + chunk.first_column * strides.column +
                   minimum(first_channel(), tile.channels - 1) * strides.channel;
#pragma unroll
    for (int b = 0; b < bins; ++b) {
      if (b * bins_at_once >= chunk.bins()) break;
      const Storage* from =
          grad_output + minimum(first_bin() + b * bins_at_once, chunk.bins() - 1) * strides.column;
#pragma unroll
      for (int c = 0; c < channels; ++c) {
        gradients[b][c] = *from;
        const bool is_last = first_channel() + (c + 1) * channels_at_once >= tile.channels;
        from = moved(from, is_last ? 0 : step);
      }
    }
    const int number = static_cast<int>(threadIdx.x);
    tap.cell = no_cell;
    if (number >= hit.row_taps + hit.column_taps) return;
    const BinTap& planned = tap_of(call, taps, hit, number);
    tap.cell = planned.cell;
    tap.bin = planned.bin;
    tap.weight = planned.weight;
  }
  static __device__ const BinTap& tap_of(const Call& call, const BinTap* taps, const Hit& hit,
                                         int number) {
    if (number < hit.row_taps) return taps[number];
    return taps[static_cast<int>(call.rows.capacity) + number - hit.row_taps];
  }

  template <typename TapsOfHit>
  __device__ void end(const Call& call, TapsOfHit taps_of_hit, const Hit& hit, const Chunk& chunk,
                      const Place& tile, Value* staged, Value* weights) {
#pragma unroll
    for (int b = 0; b < bins; ++b) {
      const int bin = first_bin() + b * bins_at_once;
      if (bin >= chunk.bins()) break;
      Value* to = staged + bin * pitch + first_channel();
      for (int c = 0; c < channels; ++c) to[c * channels_at_once] = compute_value(gradients[b][c]);
    }
    int number = static_cast<int>(threadIdx.x);
    put_tap(call, tap, number < hit.row_taps, chunk, tile, weights);
    if (hit.row_taps + hit.column_taps <= boxes_at_once) return;
    const BinTap* taps = taps_of_hit(hit);
#pragma unroll 1
    for (number += boxes_at_once; number < hit.row_taps + hit.column_taps;
         number += boxes_at_once) {
      put_tap(call, tap_of(call, taps, hit, number), number < hit.row_taps, chunk, tile, weights);
    }
  }
  static __device__ void put_tap(const Call& call, const BinTap& tap, bool of_row,
                                 const Chunk& chunk, const Place& tile, Value* weights) {
    const int cell = tap.cell - static_cast<int>(of_row ? tile.top : tile.left);
    const int bin = tap.bin - (of_row ? chunk.first_row : chunk.first_column);
    const int bins = of_row ? chunk.rows() : chunk.columns();
    if (cell < 0 || cell >= tile_side || bin < 0 || bin >= bins) return;
    (of_row ? weights : column_weights(call, weights))[bin * tile_side + cell] = tap.weight;
  }
};

// ---- A warp's sums: those of a row of cells

// Those of a bin, for the cells of a row or a column of the tile.
struct alignas(16) Weights {
  Value of_cell[tile_side];
};

struct RowSums {
  Value sums[tile_side][pack];

  // Without a branch for each weight, which would take longer than what it saves.
  __device__ void add_bin(const Weights& weights, Value row_weight, const Value* gradient) {
    const Weights along = weights;
    for (int c = 0; c < pack; ++c) {
      const Value scaled = row_weight * gradient[c * warp_size];
#pragma unroll
      for (int x = 0; x < tile_side; ++x) {
        const Value sum = multiply_add(along.of_cell[x], scaled, sums[x][c]);
        if (along.of_cell[x] != Value(0)) sums[x][c] = sum;
      }
    }
  }

  // Adds bins of these columns. Lanes without a channel add what happens to lie there.
  __device__ void add_chunk(const Call& call, const Chunk& chunk, const Window& columns,
                            const Value* staged, Value* weights) {
    const Value* row_weights = weights + warp_of_thread();
    const Value* along = column_weights(call, weights);
    const int line = chunk.columns() * pitch;
    const int first = maximum(columns.first - chunk.first_column, 0);
    const int last = minimum(columns.last, chunk.last_column) - chunk.first_column;
#pragma unroll 1
    for (int some = 0; some < chunk.rows(); some += warp_size) {
      const int lane = lane_of_thread(), row = some + lane;
      const bool reads = row < chunk.rows() && row_weights[row * tile_side] != Value(0);
      for (unsigned left = __ballot_sync(~0u, reads); left != 0; left &= left - 1) {
        const int reader = some + __ffs(static_cast<int>(left)) - 1;
        const Value row_weight = row_weights[reader * tile_side];
        const Value* gradients = staged + reader * line + lane;
#pragma unroll 1
        for (int column = first; column < last; ++column) {
          add_bin(*reinterpret_cast<const Weights*>(along + column * tile_side), row_weight,
                  gradients + column * pitch);
        }
      }
    }
  }

  // Neighbouring threads write neighbouring elements: channels of a cell, or cells of a channel,
  // which the lanes exchange in shared memory.
  __device__ void write(const Call& call, const Place& tile, Storage* maps, Value* exchange) const {
    const Map<Storage> map(call, maps, tile.image);
    const Strides& strides = map.strides;
    const wide_int y = tile.top + warp_of_thread();
    const int lane = lane_of_thread();
    if (y >= tile.bottom) return;
    Storage* row = map.cells + tile.first_channel * strides.channel + y * strides.row +
                   tile.left * strides.column;
    if (channels_last) {
#pragma unroll
      for (int x = 0; x < tile_side; ++x) {
        if (tile.left + x >= tile.right) return;
        for (int c = 0; c < pack; ++c) {
          const int channel = lane + c * warp_size;
          if (channel < tile.channels) store_value(sums[x][c], row + channel);
        }
        row += strides.column;
      }
      return;
    }
    const int line = tile_side + 1;  // odd, for different banks
    const int x = lane % tile_side, first = lane / tile_side, at_once = warp_size / tile_side;
    const bool is_inside = tile.left + x < tile.right;
    const wide_int step = at_once * strides.channel;
    exchange += warp_of_thread() * warp_size * line;
    row += first * strides.channel + x;
#pragma unroll
    for (int c = 0; c < pack; ++c) {
      for (int cell = 0; cell < tile_side; ++cell) exchange[lane * line + cell] = sums[cell][c];
      __syncwarp();
#pragma unroll
      for (int n = 0; n < warp_size; n += at_once) {
        if (is_inside && c * warp_size + first + n < tile.channels) {
          store_value(exchange[(first + n) * line + x], row);
        }
        row += step;
      }
      __syncwarp();
    }
  }
};

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    plan_bin_taps(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                  char* scratch, const roipool::Call call) {
  roipool::plan_boxes<roipool::BinTaps>({boxes, images, levels}, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    average_backward(const roipool::Storage* __restrict__ grad_output,
                     roipool::Storage* __restrict__ grad_features, char* __restrict__ scratch,
                     const roipool::Call call) {
  using namespace roipool;
  const Shared shared(call);
  const Strides strides = strides_of_pooled(call);
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    // In shared memory rather than in registers, which are few.
    if (threadIdx.x == 0) *shared.tile = place_of_task(call, task);
    __syncthreads();
    const Place& tile = *shared.tile;
    RowSums row = {};
    for (wide_int first = 0; first < call.boxes; first += boxes_at_once) {
      Chunks next(call, shared, list_hits(call, scratch, first, tile, shared));
      const auto taps_of_hit = [&](const Hit& hit) -> const BinTap* {
        return plan_in_scratch<BinTaps>(scratch, call, first + hit.box).all_entries;
      };
      Load load;
      Chunk chunk = {};  // that is staged: none
      Window columns;
      Value* weights = shared.weights;
      Value* next_weights = weights + shared.number_of_weights;
      for (;;) {
        shared.clear(next_weights);
        const bool is_more = !next.is_end();
        if (is_more) {
          load.begin(call, taps_of_hit(next.hit),
                     grad_output + (first + next.hit.box) * strides.outer +
                         tile.first_channel * strides.channel,
                     next.hit, next.bins, tile);
        }
        row.add_chunk(call, chunk, columns, shared.gradients, weights);
        if (!is_more) break;
        __syncthreads();  // all have used the chunk before, and weights are 0
        load.end(call, taps_of_hit, next.hit, next.bins, tile, shared.gradients, next_weights);
        __syncthreads();
        chunk = next.bins;
        columns = next.hit.columns;
        Value* used = weights;
        weights = next_weights;
        next_weights = used;
        next.step(call);
      }
    }
    __syncthreads();
    row.write(call, tile, grad_features, shared.gradients);
    __syncthreads();
  }
}
