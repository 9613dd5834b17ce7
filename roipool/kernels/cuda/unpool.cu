// Unpooling: the gradient of a maximum whose argmax may be any cell of the map, with weight 1. A
// warp owns one channel of a run of an image's cells: it reads the argmax of all boxes of that
// image in their order, 32 at a time, adds up in shared memory, and writes every cell once. Lanes
// with the same cell take turns. The result is therefore bitwise reproducible.
#include "plan.h"

namespace roipool {

typedef ROIPOOL_ARGMAX_TYPE Index;  // int or wide_int; this file's own #define

// Indices that a lane loads before it uses the first, so that it waits for memory once.
const int loads_at_once = 8;

// A run of cells of one image, for as many channels as a block has warps.
struct Run {
  wide_int image;
  wide_int first_channel;
  wide_int begin, end;  // cells, counted through the map row by row

  __device__ int cells() const { return static_cast<int>(end - begin); }
};

__device__ inline Run run_of_task(const Call& call, wide_int task) {
  const Division by_run = divide_with_rest(task, call.parts);
  const Division by_group =
      divide_with_rest(by_run.quotient, divide(call.channels + call.lanes - 1, call.lanes));
  const wide_int begin = by_run.rest * call.share;
  return {by_group.quotient, by_group.rest * call.lanes, begin,
          minimum(begin + call.share, call.levels[0].rows * call.levels[0].columns)};
}

__device__ inline unsigned lanes_before() { return (1u << lane_of_thread()) - 1; }

// The cell to which a lane adds; negative: none. Lanes with the same one take turns, on which all
// agree before the first addition, so that they do not wait for one another again.
struct Target {
  int cell;
  int turn;
  bool has_more;  // turns than the first

  __device__ void take_turns() {
    turn = __popc(__match_any_sync(~0u, cell) & lanes_before());
    has_more = __any_sync(~0u, cell >= 0 && turn > 0);
  }
  __device__ void add(Value number, Value* sums) const {
    if (cell >= 0 && turn == 0) sums[cell] += number;
    __syncwarp();
    if (!has_more) return;
    for (int now = 1; __any_sync(~0u, cell >= 0 && turn >= now); ++now) {
      if (cell >= 0 && turn == now) sums[cell] += number;
      __syncwarp();
    }
  }
};

// Adds the gradients whose argmax lies in the run, in one channel. `lanes_of_boxes` is shared
// memory for an int per lane: the lanes whose boxes are of the run's image.
__device__ inline void add_gradients(const Call& call, const Storage* grad_output,
                                     const Index* argmax, const void* images, const Run& run,
                                     wide_int channel, Value* sums, int* lanes_of_boxes) {
  const Strides strides = strides_of_pooled(call);
  const wide_int bins = call.rows.bins * call.columns.bins;
  const int lane = lane_of_thread();
  for (wide_int first = 0; first < call.boxes; first += warp_size) {
    const wide_int box = first + lane;
    const bool is_ours = box < call.boxes && image_of_box(images, call, box) == run.image;
    const unsigned ours = __ballot_sync(~0u, is_ours);
    if (is_ours) lanes_of_boxes[__popc(ours & lanes_before())] = lane;
    __syncwarp();
    const wide_int values = __popc(ours) * bins;
    Walk place(lane, static_cast<int>(bins), warp_size);  // its rows are our boxes
    for (wide_int value = lane; value < values + lane; value += loads_at_once * warp_size) {
      Index indices[loads_at_once];
      Storage gradients[loads_at_once];
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i) {
        // Lanes without a value load one of the first box, so that no branch parts the loads.
        const bool has_value = value + i * warp_size < values;
        const int box_lane = lanes_of_boxes[has_value ? place.row : 0];
        const wide_int at = (first + box_lane) * strides.outer + channel * strides.channel +
                            place.column * strides.column;
        const Index index = argmax[at];
        indices[i] = has_value ? index : -1;
        gradients[i] = grad_output[at];
        place.step();
      }
      Target targets[loads_at_once];
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i) {
        const bool is_inside = indices[i] >= run.begin && indices[i] < run.end;
        targets[i].cell = is_inside ? static_cast<int>(indices[i] - run.begin) : -1;
        targets[i].take_turns();
      }
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i) targets[i].add(compute_value(gradients[i]), sums);
    }
    __syncwarp();  // all have read lanes_of_boxes
  }
}

// Writes the block's sums, neighbouring threads neighbouring elements.
__device__ inline void write_run(const Call& call, const Run& run, const Value* sums, int pitch,
                                 Storage* maps) {
  const Map<Storage> map(call, maps, run.image);
  const Strides& strides = map.strides;
  const int lanes = static_cast<int>(call.lanes), cells = run.cells();
  Storage* corner = map.cells + run.first_channel * strides.channel + run.begin * strides.column;
  for (int number = threadIdx.x; number < cells * lanes; number += blockDim.x) {
    const int cell = channels_last ? number / lanes : number % cells;
    const int lane = channels_last ? number % lanes : number / cells;
    if (run.first_channel + lane >= call.channels) continue;
    store_value(sums[lane * pitch + cell], corner + lane * strides.channel + cell * strides.column);
  }
}

}  // namespace roipool

// Blocks of as many warps as `lanes`.
extern "C" __global__ void __launch_bounds__(256, 3)
    unpool(const roipool::Storage* __restrict__ grad_output,
           const roipool::Index* __restrict__ argmax, roipool::Storage* __restrict__ grad_features,
           const void* __restrict__ images, const roipool::Call call) {
  using namespace roipool;
  const int pitch = static_cast<int>(call.share) | 1;  // odd, for different banks
  const int warp = warp_of_thread();
  Value* all_sums = reinterpret_cast<Value*>(roipool_shared_memory);
  Value* sums = all_sums + warp * pitch;
  int* lanes_of_boxes = reinterpret_cast<int*>(all_sums + call.lanes * pitch) + warp * warp_size;
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    const Run run = run_of_task(call, task);
    for (int cell = lane_of_thread(); cell < run.cells(); cell += warp_size) sums[cell] = Value(0);
    const wide_int channel = run.first_channel + warp;
    if (channel < call.channels) {
      add_gradients(call, grad_output, argmax, images, run, channel, sums, lanes_of_boxes);
    }
    __syncthreads();
    write_run(call, run, all_sums, pitch, grad_features);
    __syncthreads();
  }
}
