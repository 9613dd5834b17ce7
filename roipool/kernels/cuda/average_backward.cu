// The transpose of the average engine, as a gather: each cell of a tile asks which bins read it.
//
// A block owns a tile of one image's cells, a warp one row of it, a lane `pack` channels of that
// row, whose sums are in registers. The block lists the boxes that reach its tile, in their order,
// and numbers through the bins that read it, of all of them. Some of these bins at a time, a chunk,
// are staged in shared memory with the weights with which they read cells of the tile. A cell adds
// what it gets box by box and row by row of bins, so that the result is bitwise reproducible. While
// a chunk is added, the next one is loaded into registers.
#include "tiles.h"

namespace roipool {

const int tile_side = 8;  // cells; as in _cuda/division.py, like the two that follow
const int warps = tile_side;
const int chunk_bins = warp_size;
// Hits that are listed at once, bins that are described: one of each thread.
const int at_once = warps * warp_size;
const int most_tests = 4;  // of boxes by each thread, at once
const int channels_of_block = warp_size * pack;
// From one bin's gradients to the next one's: bins and channels lie in different banks.
const int pitch = channels_of_block + pack;
// What lanes exchange: values in pieces of 16 bytes, and from one lane's row to the next one's.
const int piece = 16 / sizeof(Value);
const int exchange_pitch = tile_side + piece;

// ---- Plans

// Taps whose bins also say which cells they read, so that threads can look for those of a tile.
struct BinTaps : Taps {
  struct alignas(16) Bin : TapBin {
    Window window;
  };
  static __device__ Bin finish(Writer& writer, int begin) {
    const TapBin bin = Taps::finish(writer, begin);
    return {bin, writer.window};
  }
};

// Which tiles a box reaches, in rows and columns of tiles; short, for each tile reads that of all
// boxes. Tiles beyond the 65,535th are taken for that one: such boxes then have no bin there.
struct alignas(16) Reach {
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
static_assert(sizeof(Reach) == 16, "BYTES_OF_REACH in launch.py");

// After the plans.
__device__ inline Reach* reach_in_scratch(char* scratch, const Call& call, wide_int box) {
  char* after = scratch + call.boxes * (call.plan_bytes + sizeof(PlanHead));
  return reinterpret_cast<Reach*>(after) + box;
}

// ---- Shared memory


// A box that reaches the tile.
struct alignas(8) Hit {
  int box;
  Window rows, columns;  // of bins: from the first to the last that read cells of the tile

  __device__ wide_int bins() const {
    return wide_int(rows.last - rows.first) * (columns.last - columns.first);
  }
};
static_assert(sizeof(Hit) == 24, "BYTES_OF_HIT in division.py");

// The taps of a bin along one axis.
struct alignas(16) TapsOfBin {
  const Tap* taps;
  int count;
};

// With which the bins of a chunk read cells of the tile; 0: not at all.
struct alignas(16) Weights {
  Value along[chunk_bins][tile_side];    // bin by bin those of the tile's columns
  Value down[tile_side][chunk_bins + 1];  // row by row of the tile those of the bins
};

struct Shared {
  Weights weights[2];  // of the chunk, and of the next one
  // Of the chunk, bin by bin; after the last one what lanes exchange.
  alignas(16) Value gradients[chunk_bins * pitch > at_once * exchange_pitch
                                  ? chunk_bins * pitch
                                  : at_once * exchange_pitch];
  // Of the bins that are described: where their gradients begin, in elements, and their taps.
  wide_int gradients_at[at_once];
  TapsOfBin rows[at_once], columns[at_once];
  wide_int bins_up_to[at_once];  // of a hit: bins of it and of those before
  Hit hits[at_once];
  int hits_of_warp[most_tests][warps];
  Place tile;
};

// ---- The boxes that reach a tile, and their bins

// Tests boxes from `first` on, `tests` by each thread, whose loads are then on their way together;
// lists those that reach the tile, in their order. Returns how many boxes it has dealt with: fewer
// where the list has no room for the hits of more.
template <int tests>
__device__ inline int list_some(const Call& call, char* scratch, int first, Shared& shared,
                                int& hits) {
  const int warp = warp_of_thread(), lane = lane_of_thread(), boxes = static_cast<int>(call.boxes);
  const int box = first + static_cast<int>(threadIdx.x);
  unsigned votes[tests];
#pragma unroll
  for (int test = 0; test < tests; ++test) {
    const int other = box + test * at_once;
    const Reach reach = *reach_in_scratch(scratch, call, minimum(other, boxes - 1));
    votes[test] = __ballot_sync(~0u, (other < boxes) & reach.includes(shared.tile));
  }
  __syncthreads();  // all have used the numbers before
  for (int test = 0; test < tests; ++test) {
    if (lane == 0) shared.hits_of_warp[test][warp] = __popc(votes[test]);
  }
  __syncthreads();
#pragma unroll
  for (int test = 0; test < tests; ++test) {
    int number = hits, before = hits;
    for (int other = 0; other < warps; ++other) {
      if (other < warp) before += shared.hits_of_warp[test][other];
      number += shared.hits_of_warp[test][other];
    }
    if (number > at_once) return test * at_once;
    if (votes[test] >> lane & 1) {
      const int earlier = __popc(votes[test] & ((1u << lane) - 1));
      shared.hits[before + earlier].box = box + test * at_once;
    }
    hits = number;
  }
  return tests * at_once;
}

// Lists boxes that reach the tile, in their order, from `first` on, as many as there is room for;
// returns the first that it has not dealt with.
__device__ inline int list_hits(const Call& call, char* scratch, int first, Shared& shared,
                                int& hits) {
  const int boxes = static_cast<int>(call.boxes);
  int done = at_once;
  for (hits = 0; first < boxes && done > 0; first += done) {
    done = boxes - first > at_once ? list_some<most_tests>(call, scratch, first, shared, hits)
                                   : list_some<1>(call, scratch, first, shared, hits);
  }
  return first;
}

// By one warp: the bins of an axis that read some of its cells, from the first to the last. Where
// no bin does, although the box's window has cells there: the first, which adds nothing.
__device__ inline Window bins_that_read(const BinTaps::Bin* bins, int number, wide_int begin,
                                        wide_int end) {
  Window found;
#pragma unroll 1
  for (int first = 0; first < number; first += warp_size) {
    const int bin = first + lane_of_thread();
    const unsigned votes = __ballot_sync(~0u, bin < number && bins[bin].window.meets(begin, end));
    if (votes == 0) continue;
    found.include(first + __ffs(static_cast<int>(votes)) - 1);
    found.include(first + warp_size - 1 - __clz(static_cast<int>(votes)));
  }
  if (found.first == found.last) found.last = found.first + 1;
  return found;
}

// By one warp: counts the bins of all hits.
__device__ inline void count_bins(Shared& shared, int hits) {
  const int lane = lane_of_thread();
  wide_int before = 0;
#pragma unroll 1
  for (int first = 0; first < hits; first += warp_size) {
    wide_int* bins = shared.bins_up_to + first;
    bins[lane] = first + lane < hits ? shared.hits[first + lane].bins() : 0;
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

// Finds the bins of hits.
__device__ inline void find_bins(const Call& call, char* scratch, Shared& shared, int hits) {
  const Place& tile = shared.tile;
  __syncthreads();
#pragma unroll 1
  for (int item = warp_of_thread(); item < 2 * hits; item += warps) {
    Hit& hit = shared.hits[item / 2];
    const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, hit.box);
    const bool vertical = item % 2 == 0;
    const Window bins =
        bins_that_read(vertical ? plan.rows : plan.columns,
                       static_cast<int>((vertical ? call.rows : call.columns).bins),
                       vertical ? tile.top : tile.left, vertical ? tile.bottom : tile.right);
    if (lane_of_thread() == 0) (vertical ? hit.rows : hit.columns) = bins;
  }
  __syncthreads();
  if (warp_of_thread() == 0) count_bins(shared, hits);
  __syncthreads();
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

// Each thread describes a bin, of those from `first` on.
__device__ inline void describe_bins(const Call& call, char* scratch, Shared& shared, int hits,
                                     wide_int first) {
  const int thread = static_cast<int>(threadIdx.x);
  if (first + thread >= shared.bins_up_to[hits - 1]) return;
  const int number = hit_of_bin(shared, hits, first + thread);
  const Hit& hit = shared.hits[number];
  const int width = hit.columns.last - hit.columns.first;
  const wide_int before = number == 0 ? 0 : shared.bins_up_to[number - 1];
  const Division place = divide_with_rest(first + thread - before, width);
  const int row = hit.rows.first + static_cast<int>(place.quotient);
  const int column = hit.columns.first + static_cast<int>(place.rest);
  const Strides strides = strides_of_pooled(call);
  const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, hit.box);
  const TapBin along = plan.columns[column], down = plan.rows[row];
  shared.gradients_at[thread] = hit.box * strides.outer + row * strides.row +
                                column * strides.column +
                                shared.tile.first_channel * strides.channel;
  shared.rows[thread] = {plan.all_entries + down.begin, down.count};
  shared.columns[thread] = {plan.all_entries + along.begin, along.count};
}

// ---- Chunks

// The first channel of a lane, counted from the tile's. Where there are not enough for all, lanes
// have those of others, also of the tile before: they compute and write the same values.
__device__ inline int channel_of_lane(const Place& tile, int lane) {
  return minimum(lane * pack, tile.channels - pack);
}

// Of the bins that are described.
struct Staged {
  int first, bins;
};

// What a thread brings of a chunk to shared memory, in two steps: gradients, and a tap of a bin's
// row and one of its column. Of the gradients, a warp brings those of some channels of all bins
// (NCHW), or of all channels of some bins (NHWC).
struct Load {
  static const int packs = chunk_bins / warps;
  Items<Storage, pack> gradients[packs];
  Tap down, along;

  static __device__ int bin_of_taps() { return static_cast<int>(threadIdx.x) / tile_side; }
  static __device__ int first_tap() { return static_cast<int>(threadIdx.x) % tile_side; }

  // Threads without a bin load those of others.
  __device__ void begin(const Call& call, const Shared& shared, const Storage* grad_output,
                        const Staged& chunk) {
    if (channels_last) {
      load_bins(shared, grad_output, chunk);
    } else {
      load_channels(call, shared, grad_output, chunk);
    }
    down.cell = along.cell = no_cell;
    if (bin_of_taps() >= chunk.bins) return;
    const int bin = chunk.first + bin_of_taps(), tap = first_tap();
    if (tap < shared.rows[bin].count) down = shared.rows[bin].taps[tap];
    if (tap < shared.columns[bin].count) along = shared.columns[bin].taps[tap];
  }
  __device__ void load_bins(const Shared& shared, const Storage* grad_output,
                            const Staged& chunk) {
    grad_output += channel_of_lane(shared.tile, lane_of_thread());
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int bin = chunk.first + minimum(warp_of_thread() + p * warps, chunk.bins - 1);
      gradients[p] =
          *reinterpret_cast<const Items<Storage, pack>*>(grad_output + shared.gradients_at[bin]);
    }
  }
  __device__ void load_channels(const Call& call, const Shared& shared, const Storage* grad_output,
                                const Staged& chunk) {
    const wide_int step = strides_of_pooled(call).channel;
    const int bin = minimum(lane_of_thread(), chunk.bins - 1);
    grad_output += shared.gradients_at[chunk.first + bin];
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const Storage* from =
          grad_output + channel_of_lane(shared.tile, warp_of_thread() * packs + p) * step;
      for (int c = 0; c < pack; ++c) {
        gradients[p].item[c] = *from;
        from += step;
      }
    }
  }

  __device__ void end(Shared& shared, const Staged& chunk, Weights& weights) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int bin = channels_last ? warp_of_thread() + p * warps : lane_of_thread();
      const int channel = (channels_last ? lane_of_thread() : warp_of_thread() * packs + p) * pack;
      Items<Value, pack> values;
      for (int c = 0; c < pack; ++c) values.item[c] = compute_value(gradients[p].item[c]);
      *reinterpret_cast<Items<Value, pack>*>(shared.gradients + bin * pitch + channel) = values;
    }
    put_down(shared, down, weights);
    put_along(shared, along, weights);
    if (bin_of_taps() >= chunk.bins) return;
    const TapsOfBin& rows = shared.rows[chunk.first + bin_of_taps()];
    const TapsOfBin& columns = shared.columns[chunk.first + bin_of_taps()];
#pragma unroll 1
    for (int tap = first_tap() + tile_side; tap < rows.count; tap += tile_side) {
      put_down(shared, rows.taps[tap], weights);
    }
#pragma unroll 1
    for (int tap = first_tap() + tile_side; tap < columns.count; tap += tile_side) {
      put_along(shared, columns.taps[tap], weights);
    }
  }
  static __device__ void put_down(const Shared& shared, const Tap& tap, Weights& weights) {
    const unsigned cell = tap.cell - static_cast<int>(shared.tile.top);
    if (cell < tile_side) weights.down[cell][bin_of_taps()] = tap.weight;
  }
  static __device__ void put_along(const Shared& shared, const Tap& tap, Weights& weights) {
    const unsigned cell = tap.cell - static_cast<int>(shared.tile.left);
    if (cell < tile_side) weights.along[bin_of_taps()][cell] = tap.weight;
  }
};

__device__ inline void clear(Weights& weights) {
  typedef Items<Value, piece> Piece;
  const int number = sizeof(Weights) / sizeof(Piece);
#pragma unroll
  for (int i = 0; i < number; i += at_once) {
    if (i + static_cast<int>(threadIdx.x) >= number) return;
    reinterpret_cast<Piece*>(&weights)[i + threadIdx.x] = {};
  }
}

// ---- A warp's sums: those of short runs of cells, each of another row and other columns

// The bins of a chunk read neighbouring rows: so that all warps have some of them to add.
const int runs = 2, run = tile_side / runs;
__device__ inline int row_of_run(int number) {
  return (warp_of_thread() + number * (tile_side / runs)) % tile_side;
}

struct Sums {
  Value sums[runs][run][pack];

  // Adds the bins of a chunk.
  __device__ void add_chunk(const Shared& shared, const Weights& weights) {
#pragma unroll
    for (int number = 0; number < runs; ++number) {
      const Value* down = weights.down[row_of_run(number)];
      const Value* gradients = shared.gradients + lane_of_thread() * pack;
      const int lane = lane_of_thread();
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
    const Map<Storage> map(call, maps, tile.image);
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
    corner += channel_of_lane(tile, lane_of_thread());
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
    const int lane = lane_of_thread(), row = warp_of_thread();
    const wide_int step = strides.channel;
    corner += row * strides.row;
    const bool is_inside = tile.top + row < tile.bottom;
    const bool is_whole = tile.right - tile.left == tile_side && step % piece == 0 &&
                          is_aligned<piece>(corner);
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
  static __device__ void write_exchanged(const Place& tile, Storage* row, wide_int step,
                                         const Value* exchange) {
    const int turns = tile_side / number, lanes = warp_size / turns;
    const int x = lane_of_thread() % turns * number, first = lane_of_thread() / turns;
    Items<Value, number> cells[turns];
    Storage* to[turns];
#pragma unroll
    for (int n = 0; n < turns; ++n) {
      const int lane = first + n * lanes;
      cells[n] =
          *reinterpret_cast<const Items<Value, number>*>(exchange + lane * exchange_pitch + x);
      to[n] = row + channel_of_lane(tile, lane) * step + x;
    }
    if (tile.left + x >= tile.right) return;
#pragma unroll
    for (int n = 0; n < turns; ++n) {
      Items<Storage, number> stored;
      for (int i = 0; i < number; ++i) store_value(cells[n].item[i], &stored.item[i]);
      *reinterpret_cast<Items<Storage, number>*>(to[n]) = stored;
    }
  }
};

// Of a tile that no box reaches (NCHW): a thread writes `piece` cells of a row, of some channels.
__device__ inline void write_zeros(const Call& call, const Place& tile, Storage* maps) {
  const Map<Storage> map(call, maps, tile.image);
  const int pieces = tile_side / piece, rows_at_once = at_once / pieces;
  const int thread = static_cast<int>(threadIdx.x);
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

// Adds the bins of the hits that are listed, of which the sums have none yet.
__device__ inline void add_hits(const Call& call, char* scratch, Shared& shared, int hits,
                                const Storage* grad_output, Sums& sums) {
  find_bins(call, scratch, shared, hits);
  const wide_int& bins = shared.bins_up_to[hits - 1];
  for (wide_int first = 0; first < bins; first += at_once) {
    describe_bins(call, scratch, shared, hits, first);
    clear(shared.weights[0]);
    __syncthreads();
    const int described = static_cast<int>(minimum<wide_int>(bins - first, at_once));
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

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    plan_bin_taps(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                  char* scratch, const roipool::Call call) {
  using namespace roipool;
  plan_boxes<BinTaps>({boxes, images, levels}, scratch, call,
                      [&](wide_int box, const PlanHead& head) {
                        reach_in_scratch(scratch, call, box)->set(head);
                      });
}

extern "C" __global__ void __launch_bounds__(256, 3)
    average_backward(const roipool::Storage* __restrict__ grad_output,
                     roipool::Storage* __restrict__ grad_features, char* __restrict__ scratch,
                     const roipool::Call call) {
  using namespace roipool;
  Shared& shared = *reinterpret_cast<Shared*>(roipool_shared_memory);
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    // In shared memory rather than in registers, which are few.
    if (threadIdx.x == 0) shared.tile = place_of_task(call, task, tile_side, tile_side, channels_of_block);
    __syncthreads();
    Sums sums = {};
    bool is_reached = false;
    for (int first = 0; first < call.boxes;) {
      int hits;
      first = list_hits(call, scratch, first, shared, hits);
      if (hits == 0) continue;
      is_reached = true;
      add_hits(call, scratch, shared, hits, grad_output, sums);
    }
    if (is_reached || channels_last) {
      sums.write(call, shared.tile, grad_features, shared.gradients);
    } else {
      write_zeros(call, shared.tile, grad_features);
    }
    __syncthreads();
  }
}
