// The average engine: weighted sums of map cells. A bin is summed down its columns first, then
// along its rows, in both of the two paths: they are bitwise identical.
#include "pool.h"

namespace roipool {

// The sum down one column of cells.
__device__ inline void sum_column(const Storage* column, const Strides& strides, const Tap* rows,
                                  int row_count, Value* sums) {
  for (int c = 0; c < pack; ++c) sums[c] = Value(0);
#pragma unroll 1
  for (int j = 0; j < row_count; ++j) {
    const Tap row = rows[j];
    Value cells[pack];
    Channels::load(column + row.cell * strides.row, strides.channel, cells);
    for (int c = 0; c < pack; ++c) sums[c] = multiply_add(row.weight, cells[c], sums[c]);
  }
}

// The call, as all threads of a block see it.
struct Average {
  const Storage* features;
  Storage* output;
  const Call& call;
  Plans<Taps> plans;
  Strides maps;
  Strides pooled;

  __device__ Average(const Storage* features, Storage* output, char* scratch, const Call& call)
      : features(features),
        output(output),
        call(call),
        plans(scratch, call),
        maps(strides_of_maps(call)),
        pooled(strides_of_pooled(call)) {}

  __device__ const Storage* map_of(wide_int box, const Channels& channels) const {
    const wide_int image = maximum<wide_int>(plans.images[box], 0);
    return features + image * maps.outer + channels.first * maps.channel;
  }

  __device__ void store(wide_int box, wide_int row, wide_int column, const Channels& channels,
                        const Value* values) const {
    Channels::store(values,
                    output + box * pooled.outer + channels.first * pooled.channel +
                        row * pooled.row + column * pooled.column,
                    pooled.channel);
  }

  __device__ void store_empty(wide_int box, wide_int row, wide_int column,
                              const Channels& channels) const {
    Value values[pack];
    for (int c = 0; c < pack; ++c) values[c] = static_cast<Value>(call.empty_value);
    store(box, row, column, channels, values);
  }

  // One value from the map itself.
  __device__ void pool(wide_int box, wide_int row, wide_int column,
                       const Channels& channels) const {
    const TapBin row_bin = plans.rows.bin(box, row);
    const TapBin column_bin = plans.columns.bin(box, column);
    if (row_bin.count == 0 || column_bin.count == 0) {
      store_empty(box, row, column, channels);
      return;
    }
    const Storage* map = map_of(box, channels);
    const Tap* rows = plans.rows.entries(box, row_bin);
    const Tap* columns = plans.columns.entries(box, column_bin);
    Value sums[pack] = {};
#pragma unroll 1
    for (int i = 0; i < column_bin.count; ++i) {
      const Tap along = columns[i];
      Value down[pack];
      sum_column(map + along.cell * maps.column, maps, rows, row_bin.count, down);
      for (int c = 0; c < pack; ++c) sums[c] = multiply_add(along.weight, down[c], sums[c]);
    }
    store(box, row, column, channels, sums);
  }
};

// ---- NCHW: a warp takes one pack of channels of a box. Cells of a row lie side by side, so its
// lanes first sum down all columns of the box's window, then along them from shared memory.

struct alignas(sizeof(Value) * pack < 16 ? sizeof(Value) * pack : 16) Sums {
  Value item[pack];
};

// Whether summing down every column of the window costs little more than down those that are read.
__device__ inline bool is_dense(const AxisPlan<Taps>& columns, wide_int box, int width) {
  const TapBin& last = columns.bin(box, columns.bins - 1);
  return width > 0 && width <= 2 * (last.begin + last.count);
}

__device__ inline void pool_window(const Average& average, wide_int box, const Channels& channels,
                                   Window window, int first_row, int rows, Sums* down) {
  const int lane = static_cast<int>(threadIdx.x);
  const int width = window.last - window.first;
  const AxisPlan<Taps>& row_plan = average.plans.rows;
  const AxisPlan<Taps>& column_plan = average.plans.columns;
  const Storage* map = average.map_of(box, channels) + window.first;
  __syncwarp();  // all have read what was there
  for (Walk cell(lane, width, warp_size); cell.row < rows; cell.step()) {
    const TapBin bin = row_plan.bin(box, first_row + cell.row);
    sum_column(map + cell.column, average.maps, row_plan.entries(box, bin), bin.count,
               down[cell.row * width + cell.column].item);
  }
  __syncwarp();
  for (Walk bin(lane, static_cast<int>(column_plan.bins), warp_size); bin.row < rows; bin.step()) {
    const int row = first_row + bin.row;
    const TapBin column_bin = column_plan.bin(box, bin.column);
    if (column_bin.count == 0 || row_plan.bin(box, row).count == 0) {
      average.store_empty(box, row, bin.column, channels);
      continue;
    }
    const Tap* columns = column_plan.entries(box, column_bin);
    const Sums* line = down + bin.row * width - window.first;
    Value sums[pack] = {};
#pragma unroll 1
    for (int i = 0; i < column_bin.count; ++i) {
      const Tap along = columns[i];
      const Sums cells = line[along.cell];
      for (int c = 0; c < pack; ++c) sums[c] = multiply_add(along.weight, cells.item[c], sums[c]);
    }
    average.store(box, row, bin.column, channels, sums);
  }
}

__device__ inline void pool_planes(const Average& average) {
  const Call& call = average.call;
  const wide_int packs = divide(call.channels + pack - 1, pack);
  const int room = static_cast<int>(call.stage);
  Sums* down = reinterpret_cast<Sums*>(roipool_shared_memory) + threadIdx.y * room;
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    const Division box = divide_with_rest(task, call.parts);
    if (is_skipped(call, average.plans.images[box.quotient])) continue;
    const Window window = average.plans.columns.windows[box.quotient];
    const int width = window.last - window.first;
    const bool dense = width <= room && is_dense(average.plans.columns, box.quotient, width);
    const wide_int first = box.rest * call.share;
    const wide_int last = minimum(first + call.share, packs);
    for (wide_int number = first + threadIdx.y; number < last; number += blockDim.y) {
      const Channels channels(call, number);
      if (!dense) {
        for (wide_int row = 0; row < call.rows.bins; ++row) {
          for (wide_int column = threadIdx.x; column < call.columns.bins; column += warp_size) {
            average.pool(box.quotient, row, column, channels);
          }
        }
        continue;
      }
      const int rows_at_once = static_cast<int>(minimum<wide_int>(room / width, call.rows.bins));
      for (wide_int row = 0; row < call.rows.bins; row += rows_at_once) {
        const wide_int rows = minimum<wide_int>(rows_at_once, call.rows.bins - row);
        pool_window(average, box.quotient, channels, window, static_cast<int>(row),
                    static_cast<int>(rows), down);
      }
    }
  }
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_taps(const roipool::Value* boxes, const void* images, char* scratch,
              const roipool::Call call) {
  roipool::write_plans<roipool::Taps>(boxes, images, scratch, call);
}

// NCHW: blocks of (32, warps). NHWC: see pool.h.
extern "C" __global__ void __launch_bounds__(256, 4)
    average_forward(const roipool::Storage* __restrict__ features,
                    roipool::Storage* __restrict__ output, char* __restrict__ scratch,
                    const roipool::Call call) {
  using namespace roipool;
  const Average average(features, output, scratch, call);
  if (channels_last) {
    for_each_value(call,
                   [&](wide_int box, wide_int row, wide_int column, const Channels& channels) {
                     if (is_skipped(call, average.plans.images[box])) return;
                     average.pool(box, row, column, channels);
                   });
  } else {
    pool_planes(average);
  }
}
