// The transpose of the average engine for position-sensitive calls. A channel of the maps gets
// gradients from the bins of one group only, few of each box: a block, which owns a tile of the
// channels of a group, lists those of all boxes that read its tile, and adds them in the order of
// boxes and bins. The result is therefore bitwise reproducible.
//
// Some of the listed bins at a time, a chunk, are staged in shared memory: their gradients, and the
// weights with which they read cells of the tile.
#include "backward_tiles.h"

namespace roipool {

// ---- What is known of all boxes

// In scratch memory, after the plans: the image of each box, and the cells that its bins read along
// their axis. Boxes lie side by side, for neighbouring threads test neighbouring ones.
struct Windows {
  wide_int* images;
  Window* cells;
  wide_int boxes;

  __device__ Windows(char* scratch, const Call& call) : boxes(call.boxes) {
    char* after = scratch + boxes * (call.plan_bytes + sizeof(PlanHead));
    images = reinterpret_cast<wide_int*>(after);
    cells = reinterpret_cast<Window*>(images + boxes);
  }
  // Of the rows of bins, and after them of the columns.
  __device__ Window& of_bin(wide_int bin, wide_int box) const { return cells[bin * boxes + box]; }
};
static_assert(sizeof(Window) == 8, "BYTES_OF_WINDOW in launch.py");

// By a block: those of a box that it has planned.
__device__ inline void write_windows(const Windows& windows, const Call& call, wide_int box,
                                     const BoxPlan<BinTaps>& plan) {
  if (threadIdx.x == 0) windows.images[box] = plan.head->image;
  for (wide_int bin = threadIdx.x; bin < call.rows.bins + call.columns.bins; bin += blockDim.x) {
    windows.of_bin(bin, box) = plan.rows[bin].window;  // columns follow
  }
}

// ---- What a block knows of its tile

struct BinOfBox {
  wide_int box;
  int row, column;
};

// A tile, and the bins of its group. Those of all boxes are numbered through: box by box, row by
// row.
struct GroupPlace : Place {
  wide_int row, column;  // of the group
  wide_int bins;
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
    bins = call.boxes * own.bins();
  }
  __device__ BinOfBox bin(wide_int number) const {
    if (rows * columns == 1) return {number, first_row, first_column};
    const Division by_column = divide_with_rest(number, columns);
    const Division by_row = divide_with_rest(by_column.quotient, rows);
    return {by_row.quotient, first_row + static_cast<int>(by_row.rest),
            first_column + static_cast<int>(by_column.rest)};
  }
};
static_assert(sizeof(GroupPlace) == 96, "BYTES_OF_GROUP_PLACE in partition.py");

// A bin's cells of the tile, counted from the tile's first.
struct Reach {
  Window rows, columns;
};
static_assert(sizeof(Reach) == 16, "BYTES_OF_STAGED_REACH in partition.py");

// Shared memory after the tile's sums and the warps' votes.
struct Shared {
  GroupPlace* place;
  wide_int* listed;  // bins: as many as are staged at once, and one more for each thread
  Reach* reaches;    // of staged bins, like what follows
  Value* gradients;  // channel by channel, bin by bin `pitch` further
  Value* down;       // row by row of the tile the weights of all bins; 0 where they read none
  Value* along;      // the same of its columns
  int bins;          // that are staged at once

  __device__ explicit Shared(const Call& call) : bins(static_cast<int>(call.stage)) {
    place = reinterpret_cast<GroupPlace*>(hits_of_block(call) + warps_of_block());
    listed = reinterpret_cast<wide_int*>(place + 1);
    reaches = reinterpret_cast<Reach*>(listed + bins + blockDim.x);
    gradients = reinterpret_cast<Value*>(reaches + bins);
    down = gradients + bins * pitch_of_tile(call);
    along = down + bins * call.tile_rows;
  }
};

struct Block {
  const Call& call;
  char* scratch;
  Shared shared;
  Tile tile;

  // ---- Listing

  __device__ bool reads_tile(const BinOfBox& bin) const {
    // All is looked at, for loads to be on their way at once.
    const Windows windows(scratch, call);
    const wide_int image = windows.images[bin.box];
    const Window rows = windows.of_bin(bin.row, bin.box);
    const Window columns = windows.of_bin(call.rows.bins + bin.column, bin.box);
    return (image == tile.image) & meets(rows, tile.top, tile.bottom) &
           meets(columns, tile.left, tile.right);
  }
  // Maps have so few rows and columns.
  static __device__ bool meets(const Window& cells, wide_int begin, wide_int end) {
    return (cells.first < cells.last) & (cells.first < static_cast<int>(end)) &
           (cells.last > static_cast<int>(begin));
  }

  // Tests a bin by each thread, from `first` on, and lists those that read the tile after the
  // `listed` ones, in their order; returns how many are listed now.
  __device__ int list_bins(wide_int first, int listed) const {
    const GroupPlace& place = *shared.place;
    const wide_int mine = first + threadIdx.x;
    const bool is_hit = reads_tile(place.bin(minimum(mine, place.bins - 1)));
    const unsigned votes = __ballot_sync(~0u, (mine < place.bins) & is_hit);
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
    if (votes >> lane & 1) shared.listed[before + __popc(votes & ((1u << lane) - 1))] = mine;
    __syncthreads();  // all are listed, and all have counted
    return listed;
  }

  // ---- Staging, of `number` listed bins

  // Writes the weights with which a bin reads cells of the tile along an axis; returns these cells.
  __device__ Window stage_weights(const BinTaps::Bin& bin, const Tap* taps, wide_int begin,
                                  wide_int end, Value* weights) const {
    const int first = static_cast<int>(begin), cells = static_cast<int>(end - begin);
    const Window read = {maximum(bin.window.first - first, 0),
                         minimum(bin.window.last - first, cells)};
    for (int cell = read.first; cell < read.last; ++cell) weights[cell * shared.bins] = Value(0);
    for (int i = 0; i < bin.count; ++i) {
      const unsigned cell = taps[i].cell - first;
      if (cell < static_cast<unsigned>(cells)) weights[cell * shared.bins] = taps[i].weight;
    }
    return read;
  }
  __device__ void stage_reaches(const wide_int* listed, int number) const {
    for (int item = threadIdx.x; item < 2 * number; item += blockDim.x) {
      const bool vertical = item < number;
      const int at = vertical ? item : item - number;
      const BinOfBox bin = shared.place->bin(listed[at]);
      const BoxPlan<BinTaps> plan = plan_in_scratch<BinTaps>(scratch, call, bin.box);
      const BinTaps::Bin planned = vertical ? plan.rows[bin.row] : plan.columns[bin.column];
      const Window cells = stage_weights(
          planned, plan.entries(planned), vertical ? tile.top : tile.left,
          vertical ? tile.bottom : tile.right, (vertical ? shared.down : shared.along) + at);
      (vertical ? shared.reaches[at].rows : shared.reaches[at].columns) = cells;
    }
  }
  // Neighbouring lanes load those of neighbouring channels (NHWC), or of the same one (NCHW).
  __device__ void stage_gradients(const Storage* grad_output, const wide_int* listed,
                                  int number) const {
    const Strides strides = strides_of_pooled(call);
    const int warp = warp_of_thread(), lane = lane_of_thread();
    grad_output += tile.first_channel * strides.channel;
    const auto of_bin = [&](int at) {
      const BinOfBox bin = shared.place->bin(listed[at]);
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
    for (wide_int first = 0; first < shared.place->bins;) {
      int listed = 0;
      for (; first < shared.place->bins && listed < shared.bins; first += blockDim.x) {
        listed = list_bins(first, listed);
      }
      add_listed(grad_output, listed);
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
  using namespace roipool;
  plan_boxes<BinTaps>({boxes, images, levels}, scratch, call,
                      [&](wide_int box, const BoxPlan<BinTaps>& plan) {
                        write_windows(Windows(scratch, call), call, box, plan);
                      });
}

extern "C" __global__ void __launch_bounds__(256, 5)
    position_sensitive_backward(const roipool::Storage* __restrict__ grad_output,
                                roipool::Storage* __restrict__ grad_features,
                                char* __restrict__ scratch, const roipool::Call call) {
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
