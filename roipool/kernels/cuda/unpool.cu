// Unpooling: the gradient of a maximum whose argmax may be any cell of the map, with weight 1. A
// block owns a pack of channels of a run of an image's cells: it reads the argmax of all boxes of
// that image in their order, adds up in shared memory, and writes every cell once. The result is
// therefore bitwise reproducible.
//
// Its warps take turns with batches of values. Each has sums of its own, so that none waits for
// another; in the end the sums of a cell are added in the order of the warps.
#include "plan.h"

namespace roipool {

typedef ROIPOOL_ARGMAX_TYPE Index;  // int or wide_int; this file's own #define

template <typename T>
struct UnsignedOf {
  typedef unsigned type;
};
template <>
struct UnsignedOf<wide_int> {
  typedef unsigned long long type;
};
typedef UnsignedOf<Index>::type UnsignedIndex;
typedef UnsignedOf<Offset>::type UnsignedOffset;  // into some boxes' values here

const int most_turns = 4;  // warps of a block: MOST_TURNS in partition.py
const int most_threads = most_turns * warp_size;
const int listed_boxes = 512;  // at once: LISTED_BOXES in partition.py
const int most_listed_values = 1 << 30;
// A batch: groups of a value per lane, for each channel of a pack.
const int groups = 4;
const int batch_values = groups * warp_size;
// Values that a lane gathers from others at once, twice at most: as many as there are registers
// for.
const int gathered = sizeof(Value) > 4 || channels_last ? 2 : 5;

// A run of cells of one image, for as many channels as a block has.
struct Run {
  wide_int image;
  wide_int first_channel;
  wide_int begin, end;  // cells, counted through the map row by row

  __device__ int cells() const { return static_cast<int>(end - begin); }
  // Those that an argmax can name: if it is an int, a map may have more cells.
  __device__ UnsignedIndex named_cells() const {
    const wide_int last = sizeof(Index) < sizeof(wide_int) ? minimum(end, wide_int(1) << 31) : end;
    return static_cast<UnsignedIndex>(maximum<wide_int>(last - begin, 0));
  }
};

__device__ inline Run run_of_task(const Call& call, wide_int task) {
  const Division by_run = divide_with_rest(task, call.parts);
  const Division by_group =
      divide_with_rest(by_run.quotient, divide(call.channels + pack - 1, pack));
  const wide_int begin = by_run.rest * call.share;
  // The last block's channels begin early enough: some are added up, and written, twice.
  return {by_group.quotient, minimum(by_group.rest * pack, call.channels - pack), begin,
          minimum(begin + call.share, call.levels[0].rows * call.levels[0].columns)};
}

__device__ inline unsigned lanes_before() { return (1u << lane_of_thread()) - 1; }
__device__ inline unsigned lanes_after() { return ~1u << lane_of_thread(); }

// The shared memory of a block, and a warp's part of it.
struct Room {
  int pitch;   // from the sums of a channel to those of the next; odd, for different banks
  int turns;   // warps of the block
  int own;     // this warp's sums: the first of them
  int unused;  // a place after all sums, of this thread alone
  Value* sums;
  UnsignedOffset* boxes;  // where the values of the listed boxes begin
  unsigned* masks;        // which boxes are listed

  __device__ explicit Room(const Call& call)
      : pitch(static_cast<int>(call.share) | 1),
        turns(static_cast<int>(blockDim.x) / warp_size),
        own(warp_of_thread() * pack * pitch) {
    const int all_sums = turns * pack * pitch;
    unused = all_sums + static_cast<int>(threadIdx.x);
    sums = reinterpret_cast<Value*>(roipool_shared_memory);
    const int end = all_sums + static_cast<int>(blockDim.x);
    boxes = reinterpret_cast<UnsignedOffset*>(sums + (end + 1) / 2 * 2);
    masks = reinterpret_cast<unsigned*>(boxes + listed_boxes + 1);
  }
  __device__ void clear() const {
    const int thread = static_cast<int>(threadIdx.x);
    for (int at = thread; at < unused - thread; at += blockDim.x) sums[at] = Value(0);
  }
  // The sum of a cell, in one of the block's channels.
  __device__ Value total(int channel, int cell) const {
    const Value* of_turn = sums + channel * pitch + cell;
    Value total = *of_turn;
    for (int others = turns - 1; others > 0; --others) {
      of_turn += pack * pitch;
      total += *of_turn;
    }
    return total;
  }
};

// Lists those of `count` boxes from `first` on that are of an image. Returns how many they are.
__device__ inline int list_boxes(const Call& call, const void* images, wide_int image,
                                 wide_int first, int count, const Room& room) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int number = thread; number < listed_boxes; number += blockDim.x) {
    const bool is_listed = number < count && image_of_box(images, call, first + number) == image;
    const unsigned mask = __ballot_sync(~0u, is_listed);
    if (lane_of_thread() == 0) room.masks[number / warp_size] = mask;
  }
  __syncthreads();
  const UnsignedOffset box_values = static_cast<UnsignedOffset>(strides_of_pooled(call).outer);
  int listed = 0;
#pragma unroll
  for (int i = 0; i < listed_boxes / warp_size; ++i) {
    const unsigned mask = room.masks[i];
    if (thread < warp_size && (mask >> thread & 1) != 0) {
      room.boxes[listed + __popc(mask & lanes_before())] = (i * warp_size + thread) * box_values;
    }
    listed += __popc(mask);
  }
  // Lanes beyond the last value load one of the first box, so that no branch parts the loads.
  for (int i = listed + thread; i <= listed_boxes; i += blockDim.x) room.boxes[i] = 0;
  __syncthreads();
  return listed;
}

// The values of a batch that a lane has loaded.
struct Loaded {
  Index argmax[groups][pack];
  Storage gradients[groups][pack];
};

// The listed boxes' values in a warp's channels: box by box, and bin by bin.
struct Source {
  const Index* argmax;  // of the first box and channel
  const Storage* gradients;
  const UnsignedOffset* boxes;
  wide_int channel_stride;
  UnsignedOffset bin_stride;
  Walk batch;  // this lane's first value of the next batch: a row is a box, a column a bin
  Walk group;  // steps from group to group instead

  __device__ void load(Loaded& loaded) {
    group.row = batch.row;
    group.column = batch.column;
#pragma unroll
    for (int i = 0; i < groups; ++i) {
      const UnsignedOffset at = boxes[minimum(group.row, listed_boxes)] + group.column * bin_stride;
#pragma unroll
      for (int c = 0; c < pack; ++c) {
        loaded.argmax[i][c] = (argmax + c * channel_stride)[at];
        loaded.gradients[i][c] = (gradients + c * channel_stride)[at];
      }
      group.step();
    }
    batch.step();
  }
};

// A batch of values. The first lane with a cell adds those of all lanes that have it, in their
// order, which it gathers from lane to lane.
struct Batch {
  int at[groups][pack];  // the cell's sum, if this lane is its first; otherwise the unused place
  // The next lane with the same cell; -1 if there is none, by which a shuffle means the last lane.
  int next[groups][pack];
  // This lane's value, that of the next one, and so on; then -0, which changes no sum.
  Value values[groups][pack][1 + 2 * gathered];
  int most[groups];  // lanes with one cell, as far as this lane knows
  // For any lane: whether there is another one with its cell; whether there are more than are
  // gathered at once, and more than twice as many.
  int several, many[groups], others;

  // Finds out which lanes have the same cell. `left`: how many values there are from this lane's
  // first one on.
  __device__ void match(const Loaded& loaded, int left, const Run& run, const Room& room) {
    const UnsignedIndex begin = static_cast<UnsignedIndex>(run.begin), cells = run.named_cells();
#pragma unroll
    for (int i = 0; i < groups; ++i) {
      most[i] = 0;
#pragma unroll
      for (int c = 0; c < pack; ++c) {
        const UnsignedIndex cell = static_cast<UnsignedIndex>(loaded.argmax[i][c]) - begin;
        const bool is_inside = (cell < cells) & (i * warp_size < left);
        const int sum = static_cast<int>(cell) + room.own + c * room.pitch;
        const int its = is_inside ? sum : room.unused;
        const unsigned same = __match_any_sync(~0u, its);
        at[i][c] = (same & lanes_before()) == 0 ? its : room.unused;
        next[i][c] = __ffs(static_cast<int>(same & lanes_after())) - 1;
        most[i] = maximum(most[i], __popc(same));
        values[i][c][0] = compute_value(loaded.gradients[i][c]);
      }
    }
  }
  __device__ void gather() {
    int most_of_all = 0, any_many = 0;
#pragma unroll
    for (int i = 0; i < groups; ++i) {
      most_of_all = maximum(most_of_all, most[i]);
      many[i] = __any_sync(~0u, most[i] > 1 + gathered);
      any_many |= many[i];
    }
    several = __any_sync(~0u, most_of_all > 1);
    others = __any_sync(~0u, most_of_all > 1 + 2 * gathered);
    if (several) gather_values(1);
    if (any_many) gather_values(1 + gathered);
  }
  __device__ void gather_values(int first) {
#pragma unroll
    for (int i = 0; i < groups; ++i) {
#pragma unroll
      for (int c = 0; c < pack; ++c) {
        Value* own = values[i][c];
#pragma unroll
        for (int j = first; j < first + gathered; ++j) {
          const Value its = __shfl_sync(~0u, own[j - 1], next[i][c]);
          own[j] = j == 1 && next[i][c] < 0 ? -Value(0) : its;
        }
      }
    }
  }
  __device__ void add(Value* sums) const {
#pragma unroll
    for (int i = 0; i < groups; ++i) {
      Value totals[pack];
#pragma unroll
      for (int c = 0; c < pack; ++c) totals[c] = sums[at[i][c]];
      add_values(i, 0, 1, totals);
      if (several) {
        add_values(i, 1, 1 + gathered, totals);
        if (many[i]) {
          add_values(i, 1 + gathered, 1 + 2 * gathered, totals);
          if (others) add_others(i, totals);
        }
      }
#pragma unroll
      for (int c = 0; c < pack; ++c) sums[at[i][c]] = totals[c];
      __syncwarp();
    }
  }
  __device__ void add_values(int i, int first, int last, Value* totals) const {
#pragma unroll
    for (int j = first; j < last; ++j) {
#pragma unroll
      for (int c = 0; c < pack; ++c) totals[c] += values[i][c][j];
    }
  }
  __device__ void add_others(int i, Value* totals) const {
    Value value[pack];
#pragma unroll
    for (int c = 0; c < pack; ++c) value[c] = values[i][c][2 * gathered];
    for (int lanes = 1 + 2 * gathered; __any_sync(~0u, most[i] > lanes); ++lanes) {
#pragma unroll
      for (int c = 0; c < pack; ++c) {
        value[c] = __shfl_sync(~0u, value[c], next[i][c]);
        totals[c] += value[c];
      }
    }
  }
};

// Adds the listed boxes' gradients whose argmax lies in the run. While a batch is added, the warp's
// next one is loaded.
__device__ inline void add_batches(Source& source, int values, const Run& run, const Room& room) {
  const int first = warp_of_thread() * batch_values;
  if (first >= values) return;
  Loaded loaded;
  source.load(loaded);
  Batch batch;
  for (int begin = first; begin < values; begin += room.turns * batch_values) {
    batch.match(loaded, values - begin - lane_of_thread(), run, room);
    source.load(loaded);
    batch.gather();
    batch.add(room.sums);
  }
}

// Adds the gradients of all boxes whose argmax lies in the run.
__device__ inline void add_gradients(const Call& call, const Storage* grad_output,
                                     const Index* argmax, const void* images, const Run& run,
                                     const Room& room) {
  const Strides strides = strides_of_pooled(call);
  const int bins = static_cast<int>(call.rows.bins * call.columns.bins);
  const int boxes_at_once = minimum(listed_boxes, maximum(most_listed_values / bins, 1));
  const Walk batch(warp_of_thread() * batch_values + lane_of_thread(), bins,
                   room.turns * batch_values);
  const Walk group(0, bins, warp_size);
  for (wide_int first = 0; first < call.boxes; first += boxes_at_once) {
    const int count = static_cast<int>(minimum<wide_int>(call.boxes - first, boxes_at_once));
    const int listed = list_boxes(call, images, run.image, first, count, room);
    const wide_int corner = first * strides.outer + run.first_channel * strides.channel;
    Source source = {argmax + corner,
                     grad_output + corner,
                     room.boxes,
                     strides.channel,
                     static_cast<UnsignedOffset>(strides.column),
                     batch,
                     group};
    add_batches(source, listed * bins, run, room);
  }
}

// Writes the block's sums, neighbouring threads neighbouring elements.
__device__ inline void write_run(const Call& call, const Run& run, const Room& room,
                                 Storage* maps) {
  const Map<Storage> map(call, maps, run.image);
  const Strides& strides = map.strides;
  const int cells = run.cells();
  Storage* corner = map.cells + run.first_channel * strides.channel + run.begin * strides.column;
  for (Walk at(threadIdx.x, channels_last ? pack : cells, blockDim.x);
       at.row < (channels_last ? cells : pack); at.step()) {
    const int cell = channels_last ? at.row : at.column;
    const int channel = channels_last ? at.column : at.row;
    store_value(room.total(channel, cell),
                corner + channel * strides.channel + cell * strides.column);
  }
}

}  // namespace roipool

// A block for each pack of channels, and run of cells.
extern "C" __global__ void __launch_bounds__(roipool::most_threads)
    unpool(const roipool::Storage* __restrict__ grad_output,
           const roipool::Index* __restrict__ argmax, roipool::Storage* __restrict__ grad_features,
           const void* __restrict__ images, const roipool::Call call) {
  using namespace roipool;
  const Room room(call);
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    const Run run = run_of_task(call, task);
    room.clear();
    add_gradients(call, grad_output, argmax, images, run, room);  // waits before it adds
    __syncthreads();
    write_run(call, run, room, grad_features);
    __syncthreads();
  }
}
