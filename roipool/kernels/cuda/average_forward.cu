// The average engine: weighted sums of map cells. A bin is summed down its columns first, then
// along its rows, in both of the two paths: they are bitwise identical.
#include "pool.h"

namespace roipool {

// A pack of channels.
struct alignas(sizeof(Value) * pack < 16 ? sizeof(Value) * pack : 16) Sums {
  Value item[pack] = {};

  __device__ void add(Value weight, const Value* values) {
    for (int c = 0; c < pack; ++c) item[c] = multiply_add(weight, values[c], item[c]);
  }
};

// The call, as all threads of a block see it.
struct Average {
  const Storage* features;
  Storage* output;
  const Call& call;
  BoxPlan<Taps> plan;
  Strides maps;
  Strides pooled;

  __device__ Average(const Storage* features, Storage* output, char* scratch, const Call& call)
      : features(features),
        output(output),
        call(call),
        plan(plan_of_block<Taps>(scratch, call)),
        maps(strides_of_maps(call)),
        pooled(strides_of_pooled(call)) {}

  __device__ const Storage* map_of(const Channels& channels) const {
    const wide_int image = maximum<wide_int>(plan.head->image, 0);
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

  // The sum down one column of cells. Two cells are loaded before the first is used.
  __device__ Sums sum_column(const Storage* column, const TapBin& bin) const {
    const Offset row_stride = static_cast<Offset>(maps.row);
    const Tap* rows = plan.entries(bin);
    Sums sums;
    int j = 0;
#pragma unroll 1
    for (; j + 1 < bin.count; j += 2) {
      const Tap one = rows[j], other = rows[j + 1];
      Value cells[pack], other_cells[pack];
      Channels::load(column + one.cell * row_stride, maps.channel, cells);
      Channels::load(column + other.cell * row_stride, maps.channel, other_cells);
      sums.add(one.weight, cells);
      sums.add(other.weight, other_cells);
    }
    if (j < bin.count) {
      const Tap last = rows[j];
      Value cells[pack];
      Channels::load(column + last.cell * row_stride, maps.channel, cells);
      sums.add(last.weight, cells);
    }
    return sums;
  }

  // One value from the map itself.
  __device__ void pool(wide_int box, wide_int row, wide_int column,
                       const Channels& channels) const {
    const TapBin row_bin = plan.rows[row], column_bin = plan.columns[column];
    if (row_bin.count == 0 || column_bin.count == 0) {
      store_empty(box, row, column, channels);
      return;
    }
    const Storage* map = map_of(channels);
    const Tap* columns = plan.entries(column_bin);
    Sums sums;
#pragma unroll 1
    for (int i = 0; i < column_bin.count; ++i) {
      const Tap along = columns[i];
      const Storage* cells = map + along.cell * static_cast<Offset>(maps.column);
      sums.add(along.weight, sum_column(cells, row_bin).item);
    }
    store(box, row, column, channels, sums.item);
  }
};

// ---- NCHW: a warp takes one pack of channels of a box. Cells of a row lie side by side, so its
// lanes first sum down all columns of the box's window, then along them from shared memory.

// Whether summing down every column of the window costs little more than down those that are read.
__device__ inline bool is_dense(const AxisHead& columns) {
  return columns.window.meets(0, columns.window.last) &&
         columns.window.last - columns.window.first <= 2 * columns.used;
}

__device__ inline void pool_window(const Average& average, wide_int box, const Channels& channels,
                                   int first_row, int rows, Sums* down) {
  const int lane = static_cast<int>(threadIdx.x);
  const BoxPlan<Taps>& plan = average.plan;
  const Window window = plan.head->columns.window;
  const int width = window.last - window.first;
  const Storage* map = average.map_of(channels) + window.first;
  __syncwarp();  // all have read what was there
  for (Walk cell(lane, width, warp_size); cell.row < rows; cell.step()) {
    down[cell.row * width + cell.column] =
        average.sum_column(map + cell.column, plan.rows[first_row + cell.row]);
  }
  __syncwarp();
  const int columns = static_cast<int>(average.call.columns.bins);
  for (Walk bin(lane, columns, warp_size); bin.row < rows; bin.step()) {
    const int row = first_row + bin.row;
    const TapBin column_bin = plan.columns[bin.column];
    if (column_bin.count == 0 || plan.rows[row].count == 0) {
      average.store_empty(box, row, bin.column, channels);
      continue;
    }
    const Tap* taps = plan.entries(column_bin);
    const Sums* line = down + bin.row * width - window.first;
    Sums sums;
#pragma unroll 1
    for (int i = 0; i < column_bin.count; ++i) {
      const Tap along = taps[i];
      sums.add(along.weight, line[along.cell].item);
    }
    average.store(box, row, bin.column, channels, sums.item);
  }
}

// One pack of channels, by a warp.
__device__ inline void pool_plane(const Average& average, wide_int box, const Channels& channels,
                                  Sums* down) {
  const Call& call = average.call;
  const AxisHead& columns = average.plan.head->columns;
  const int width = columns.window.last - columns.window.first;
  const int room = static_cast<int>(call.stage), bins = static_cast<int>(call.rows.bins);
  if (width > room || !is_dense(columns)) {
    for (wide_int row = 0; row < bins; ++row) {
      for (wide_int column = threadIdx.x; column < call.columns.bins; column += warp_size) {
        average.pool(box, row, column, channels);
      }
    }
    return;
  }
  const int rows_at_once = minimum(room / width, bins);
  for (int row = 0; row < bins; row += rows_at_once) {
    pool_window(average, box, channels, row, minimum(rows_at_once, bins - row), down);
  }
}

}  // namespace roipool

// NCHW: blocks of (32, warps). NHWC: see pool.h.
extern "C" __global__ void __launch_bounds__(256, 4)
    average_forward(const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
                    const roipool::Storage* __restrict__ features,
                    roipool::Storage* __restrict__ output, char* __restrict__ scratch,
                    const roipool::Call call) {
  using namespace roipool;
  const Average average(features, output, scratch, call);
  const auto prepare = [&](wide_int box, const Bins& bins) {
    plan_box(boxes, images, call, box, bins, average.plan);
    return !is_skipped(call, average.plan.head->image);
  };
  if (channels_last) {
    for_each_value(call, prepare, [&](wide_int box, wide_int row, wide_int column,
                                      const Channels& channels) {
      average.pool(box, row, column, channels);
    });
    return;
  }
  Sums* down = static_cast<Sums*>(shared_after_plan(call)) + threadIdx.y * call.stage;
  for_each_part(call, prepare, [&](wide_int box, wide_int part) {
    const wide_int packs = divide(call.channels + pack - 1, pack);
    const wide_int first = part * call.share, last = minimum(first + call.share, packs);
    for (wide_int number = first + threadIdx.y; number < last; number += blockDim.y) {
      pool_plane(average, box, Channels(call, number), down);
    }
  });
}
