// The gradient of the features where a block adds bins that it lists one by one: those of one group
// of a position-sensitive call, few of each box, and those that are moved. A block, which owns a
// tile of some channels, lists the boxes that reach it, then those of their bins that do, and adds
// these in the order of boxes and bins. The result is therefore bitwise reproducible.
//
// Some of the listed bins at a time, a chunk, are staged in shared memory: their gradients, and the
// weights with which they read cells of the tile.
#include "backward_tiles.h"
#include "windows.h"
#if ROIPOOL_MOVED_BINS
#include "moved_windows.h"
#else
#include "planned_windows.h"
#endif

namespace roipool {

// ---- What a block knows of its tile

// A tile, and the bins of its group. Those of listed boxes are numbered through: box by box, row by
// row.
struct GroupPlace : Place {
  wide_int row, column;                        // of the group
  int first_row, first_column, rows, columns;  // of its bins in each box

  // Images are counted through their groups.
  __device__ GroupPlace(const Call& call, wide_int task) : Place(place_of_task(call, task)) {
    const Group group(call, image);
    image = group.image;
    row = group.row;
    column = group.column;
    const Chunk own = group.bins(call);
    first_row = own.first_row;
    first_column = own.first_column;
    rows = own.rows();
    columns = own.columns();
  }
  // `boxes`: the listed ones.
  __device__ BinOfBox bin(const int* boxes, wide_int number) const {
    const Division by_column = divide_with_rest(number, columns);
    const Division by_row = divide_with_rest(by_column.quotient, rows);
    return {boxes[by_row.quotient], first_row + static_cast<int>(by_row.rest),
            first_column + static_cast<int>(by_column.rest)};
  }
};
static_assert(sizeof(GroupPlace) == 88, "BYTES_OF_GROUP_PLACE in partition.py");

// A bin's cells of the tile, counted from the tile's first.
struct Reach {
  Window rows, columns;
};
static_assert(sizeof(Reach) == 16, "BYTES_OF_STAGED_REACH in partition.py");

// Shared memory after the tile's sums and the warps' votes.
struct Shared {
  GroupPlace* place;
  Value* gradients;  // of staged bins: channel by channel, bin by bin `pitch` further
  Value* down;       // row by row of the tile the weights of all bins; 0 where they read none
  Value* along;      // the same of its columns
  Reach* reaches;
  BinOfBox* listed;  // bins: as many as are staged at once, and one more for each thread
  int* boxes;        // listed ones: up to two for each thread
  int bins;          // that are staged at once

  __device__ explicit Shared(const Call& call) : bins(static_cast<int>(call.stage)) {
    place = reinterpret_cast<GroupPlace*>(hits_of_block(call) + warps_of_block());
    gradients = reinterpret_cast<Value*>(place + 1);
    down = gradients + bins * pitch_of_tile(call);
    along = down + bins * call.tile_rows;
    reaches = reinterpret_cast<Reach*>(along + bins * call.tile_columns);
    listed = reinterpret_cast<BinOfBox*>(reaches + bins);
    boxes = reinterpret_cast<int*>(listed + bins + blockDim.x);
  }
};

struct Block {
  const Call& call;
  char* scratch;
  Shared shared;
  Tile tile;

  // ---- Listing

  __device__ bool reaches_tile(wide_int box) const {
    const Windows windows(scratch, call);
    return (windows.images[box] == tile.image) & read_tile(windows, lines_of_box(call), box);
  }
  // All is looked at, for loads to be on their way at once.
  __device__ bool read_tile(const Windows& windows, const Lines& lines, wide_int box) const {
    const Window rows = windows.of_line(lines.down, box);
    const Window columns = windows.of_line(lines.across, box);
    return meets(rows, tile.top, tile.bottom) & meets(columns, tile.left, tile.right);
  }
  // Maps have so few rows and columns.
  static __device__ bool meets(const Window& cells, wide_int begin, wide_int end) {
    return (cells.first < cells.last) & (cells.first < static_cast<int>(end)) &
           (cells.last > static_cast<int>(begin));
  }

  // Lists this thread's item after the `listed` ones, in the order of the threads, if it is one of
  // those that `is_hit`; returns how many are listed now.
  template <typename Item>
  __device__ int list(bool is_hit, const Item& mine, Item* items, int listed) const {
    const unsigned votes = __ballot_sync(~0u, is_hit);
    const int warp = warp_of_thread(), lane = lane_of_thread();
    unsigned long long* numbers = hits_of_block(call);
    if (lane == 0) numbers[warp] = __popc(votes);
    __syncthreads();
    int before = listed;
    for (int other = 0; other < warps_of_block(); ++other) {
      const int number = static_cast<int>(numbers[other]);
      if (other < warp) before += number;
      listed += number;
    }
    if (is_hit) items[before + __popc(votes & ((1u << lane) - 1))] = mine;
    __syncthreads();  // all are listed, and all have counted
    return listed;
  }
  // Tests a box, or a bin of the listed boxes, by each thread, from `first` on.
  __device__ int list_boxes(wide_int first, int listed) const {
    const wide_int mine = first + threadIdx.x;
    const bool is_hit = reaches_tile(minimum(mine, call.boxes - 1)) & (mine < call.boxes);
    return list(is_hit, static_cast<int>(mine), shared.boxes, listed);
  }
  __device__ int list_bins(wide_int first, wide_int bins, int listed) const {
    const wide_int mine = first + threadIdx.x;
    const BinOfBox bin = shared.place->bin(shared.boxes, minimum(mine, bins - 1));
    const bool is_hit =
        read_tile(Windows(scratch, call), lines_of_bin(call, bin.row, bin.column), bin.box);
    return list(is_hit & (mine < bins), bin, shared.listed, listed);
  }

  // ---- Staging, of `number` listed bins

  __device__ void stage_reaches(const BinOfBox* listed, int number) const {
    for (int item = threadIdx.x; item < 2 * number; item += blockDim.x) {
      const bool vertical = item < number;
      const int at = vertical ? item : item - number;
      WeightsOfCells weights(vertical ? tile.top : tile.left, vertical ? tile.bottom : tile.right,
                             (vertical ? shared.down : shared.along) + at, shared.bins);
      find_weights(call, scratch, listed[at], vertical ? down : across, weights);
      (vertical ? shared.reaches[at].rows : shared.reaches[at].columns) = weights.window;
    }
  }
  // Neighbouring lanes load those of neighbouring channels (NHWC), or of the same one (NCHW).
  __device__ void stage_gradients(const Storage* grad_output, const BinOfBox* listed,
                                  int number) const {
    const Strides strides = strides_of_pooled(call);
    const int warp = warp_of_thread(), lane = lane_of_thread();
    grad_output += tile.first_channel * strides.channel;
    const auto of_bin = [&](int at) {
      const BinOfBox& bin = listed[at];
      return grad_output + bin.box * strides.outer + bin.row * strides.row +
             bin.column * strides.column;
    };
    if (channels_last) {
      if (lane >= tile.channels) return;
      for (int at = warp; at < number; at += warps_of_block()) {
        shared.gradients[at * tile.pitch + lane] = compute_value(of_bin(at)[lane]);
      }
    } else if (lane < number) {
      const Storage* from = of_bin(lane) + warp * strides.channel;
      Value* to = shared.gradients + lane * tile.pitch;
#pragma unroll 4
      for (int channel = warp; channel < tile.channels; channel += warps_of_block()) {
        to[channel] = compute_value(*from);
        from += warps_of_block() * strides.channel;
      }
    }
  }

  // ---- Adding

  // Whether a bin reads rows that threads of this warp own.
  __device__ bool reads_rows_of_warp(const Window& rows) const {
    const int others = tile.owners - 1, lanes = static_cast<int>(call.lanes);
    const int first_owner = warp_of_thread() * warp_size / lanes;
    const int from_owner = (first_owner - rows.first) & others;
    const int from_row = (rows.first - first_owner) & others;
    return (from_owner < rows.last - rows.first) | (from_row < warp_size / lanes);
  }
  // To this thread's rows and channel.
  __device__ void add_bin(int at) const {
    const Reach reach = shared.reaches[at];
    const Value gradient = shared.gradients[at * tile.pitch + tile.lane];
    int row = reach.rows.first + ((tile.owner - reach.rows.first) & (tile.owners - 1));
    for (; row < reach.rows.last; row += tile.owners) {
      const Value weight = shared.down[row * shared.bins + at];
      if (weight == Value(0)) continue;
      add_row(weight * gradient, reach.columns, at,
              tile.sums + row * static_cast<int>(tile.columns) * tile.pitch);
    }
  }
  __device__ void add_row(Value scaled, const Window& columns, int at, Value* sums) const {
    const Value* weights = shared.along + columns.first * shared.bins + at;
    sums += columns.first * tile.pitch;
#pragma unroll 2
    for (int left = columns.last - columns.first; left > 0; --left) {
      const Value more = multiply_add(*weights, scaled, *sums);
      if (*weights != Value(0)) *sums = more;
      weights += shared.bins;
      sums += tile.pitch;
    }
  }

  __device__ void add_listed(const Storage* grad_output, int listed) const {
    for (int first = 0; first < listed; first += shared.bins) {
      const int number = minimum(listed - first, shared.bins);
      stage_reaches(shared.listed + first, number);
      stage_gradients(grad_output, shared.listed + first, number);
      __syncthreads();
      const int lane = lane_of_thread();
      unsigned left =
          __ballot_sync(~0u, lane < number && reads_rows_of_warp(shared.reaches[lane].rows));
      if (!tile.has_channel()) left = 0;
      for (; left != 0; left &= left - 1) add_bin(__ffs(static_cast<int>(left)) - 1);
      __syncthreads();  // all have used the chunk
    }
  }
  __device__ void add_all(const Storage* grad_output) const {
    const int most = 2 * static_cast<int>(blockDim.x);
    for (wide_int first = 0; first < call.boxes;) {
      int boxes = 0;
      for (; first < call.boxes && boxes + static_cast<int>(blockDim.x) <= most;
           first += blockDim.x) {
        boxes = list_boxes(first, boxes);
      }
      const wide_int bins = wide_int(boxes) * shared.place->rows * shared.place->columns;
      for (wide_int bin = 0; bin < bins;) {
        int listed = 0;
        for (; bin < bins && listed < shared.bins; bin += blockDim.x) {
          listed = list_bins(bin, bins, listed);
        }
        add_listed(grad_output, listed);
      }
    }
  }

  __device__ void write(Storage* maps) const {
    Map<Storage> map(call, maps, tile.image);
    map.cells = map.cells_of_group(call, shared.place->row, shared.place->column);
    write_tile(call, tile, map);
  }
};

__device__ inline void clear_sums(const Call& call) {
  unsigned long long* sums = reinterpret_cast<unsigned long long*>(roipool_shared_memory);
  const int pieces = pieces_of_sums(call);
#pragma unroll 4
  for (int i = threadIdx.x; i < pieces; i += blockDim.x) sums[i] = 0;
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    plan_windows(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                 char* scratch, const roipool::Call call) {
  roipool::plan_all({boxes, images, levels}, scratch, call);
}

// Regions of moved bins point into the table of boxes, which has their offsets.
extern "C" __global__ void __launch_bounds__(256, 5)
    listed_bins_backward(const roipool::Value*, const roipool::Storage* __restrict__ grad_output,
                         roipool::Storage* __restrict__ grad_features, char* __restrict__ scratch,
                         const roipool::Call call) {
  using namespace roipool;
  const Shared shared(call);
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    if (threadIdx.x == 0) *shared.place = GroupPlace(call, task);
    clear_sums(call);
    __syncthreads();
    const Block block = {call, scratch, shared, tile_at(call, *shared.place)};
    block.add_all(grad_output);
    block.write(grad_features);
    __syncthreads();
  }
}
