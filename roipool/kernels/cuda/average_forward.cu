// The average engine: weighted sums of map cells. A bin is summed down its columns first, then
// along its rows, in both of the two paths: they are bitwise identical.
#include "forward_blocks.h"

namespace roipool {

// Per multiprocessor: with four, doubles, volumes and groups of bins would spill registers.
const bool needs_registers = sizeof(Value) > 4 || of_volumes || position_sensitive;
const int min_blocks = needs_registers ? 3 : 4;

// Rows whose cells of two columns are loaded before they are used.
const int rows_at_once = pack > 4 ? 1 : 2;

// A pack of channels.
struct alignas(sizeof(Value) * pack < 16 ? sizeof(Value) * pack : 16) Sums {
  Value item[pack];

  __device__ void add(Value weight, const Sums& values) {
    for (int c = 0; c < pack; ++c) item[c] = multiply_add(weight, values.item[c], item[c]);
  }
};

// A box's values of a pack of channels, and the cells that they come from.
struct Average {
  const Call& call;
  const BoxPlan<Taps>& plan;
  const Map<const FeatureStorage> of_box;
  const FeatureStorage* map;
  Storage* output;
  wide_int map_channel, pooled_channel;  // strides, as those that follow
  Offset map_row, map_column, pooled_row, pooled_column;

  __device__ Average(const Call& call, const BoxPlan<Taps>& plan, const FeatureStorage* features,
                     Storage* all_output, wide_int box)
      : call(call), plan(plan), of_box(call, features, plan.head->image) {
    const Strides pooled = strides_of_pooled(call);
    const Strides& maps = of_box.strides;
    map = of_box.cells;
    output = all_output + box * pooled.outer;
    map_channel = maps.channel;
    map_row = static_cast<Offset>(maps.row);
    map_column = static_cast<Offset>(maps.column);
    pooled_channel = pooled.channel;
    pooled_row = static_cast<Offset>(pooled.row);
    pooled_column = static_cast<Offset>(pooled.column);
  }

  // The average for the channels that a bin is pooled from.
  __device__ Average of_bin(int row, int column) const {
    Average average = *this;
    if (position_sensitive) average.map = of_box.cells_of_bin(call, row, column);
    return average;
  }
  // The average for a pack of channels.
  __device__ Average of(const Channels& channels) const {
    Average average = *this;
    average.map += channels.first * map_channel;
    average.output += channels.first * pooled_channel;
    return average;
  }

  __device__ Sums load(Offset at) const {
    Sums cells;
    Channels::load(map + at, map_channel, cells.item);
    return cells;
  }
  __device__ void store(int row, int column, const Sums& values) const {
    // NCHW: values lie bin by bin.
    Storage* to = output + (row * pooled_row + (channels_last ? column * pooled_column : column));
    Channels::store(values.item, to, pooled_channel);
  }
  __device__ void store_empty(int row, int column) const {
    Sums values;
    for (int c = 0; c < pack; ++c) values.item[c] = static_cast<Value>(call.empty_value);
    store(row, column, values);
  }

  // The sum down one column of cells. Two of them are loaded before the first is used.
  __device__ Sums sum_column(Offset column, const TapBin& rows) const {
    const Tap* row = plan.entries(rows);
    Sums sums = {};
    int left = rows.count;
#pragma unroll 1
    for (; left > 1; left -= 2) {
      const Tap one = row[0], other = row[1];
      row += 2;
      const Sums cells = load(one.cell * map_row + column);
      const Sums other_cells = load(other.cell * map_row + column);
      sums.add(one.weight, cells);
      sums.add(other.weight, other_cells);
    }
    if (left > 0) {
      const Tap last = row[0];
      sums.add(last.weight, load(last.cell * map_row + column));
    }
    return sums;
  }

  // The same for volumes.
  __device__ Sums sum_column(Offset column, const VolumeRow& row) const {
    Sums sums = {};
    for_each_tap(call, plan, row, [&](int cell, const Tap& deep, const Tap& down) {
      sums.add(product_of_weights(deep.weight, down.weight), load(cell * map_row + column));
    });
    return sums;
  }

  // The sums down two columns of cells. Both cells of a row are loaded before the first is used.
  __device__ void sum_columns(Offset first, Offset second, const TapBin& rows, Sums* sums) const {
    const Tap* row = plan.entries(rows);
#pragma unroll(rows_at_once)
    for (int left = rows.count; left > 0; --left) {
      const Tap tap = *row++;
      const Offset line = tap.cell * map_row;
      const Sums cells = load(line + first);
      const Sums other_cells = load(line + second);
      sums[0].add(tap.weight, cells);
      sums[1].add(tap.weight, other_cells);
    }
  }

  __device__ void sum_columns(Offset first, Offset second, const VolumeRow& row, Sums* sums) const {
    for_each_tap(call, plan, row, [&](int cell, const Tap& deep, const Tap& down) {
      const Value weight = product_of_weights(deep.weight, down.weight);
      const Offset line = cell * map_row;
      const Sums cells = load(line + first);
      const Sums other_cells = load(line + second);
      sums[0].add(weight, cells);
      sums[1].add(weight, other_cells);
    });
  }

  // The sum of values(cell) along a row of cells.
  template <typename Values>
  __device__ Sums sum_row(const TapBin& columns, Values values) const {
    const Tap* column = plan.entries(columns);
    Sums sums = {};
#pragma unroll 1
    for (int left = columns.count; left > 0; --left) {
      const Tap along = *column++;
      sums.add(along.weight, values(along.cell));
    }
    return sums;
  }

  // One value from the map itself.
  __device__ void pool(int row, int column) const {
    const Row rows = row_of_plan(call, plan, row);
    const TapBin columns = plan.columns[column];
    if (!reads_cells(rows) || columns.count == 0) {
      store_empty(row, column);
      return;
    }
    const Tap* along = plan.entries(columns);
    Sums sum = {};
    int left = columns.count;
#pragma unroll 1
    for (; left > 1; left -= 2) {
      const Tap one = along[0], other = along[1];
      along += 2;
      Sums down[2] = {};
      sum_columns(one.cell * map_column, other.cell * map_column, rows, down);
      sum.add(one.weight, down[0]);
      sum.add(other.weight, down[1]);
    }
    if (left > 0) {
      const Tap last = along[0];
      sum.add(last.weight, sum_column(last.cell * map_column, rows));
    }
    store(row, column, sum);
  }
};

// ---- NCHW, but for position-sensitive calls: a warp takes one pack of channels of a box. Cells of
// a row lie side by side, so its lanes first sum down all columns of the box's window, then along
// them from shared memory.

// Whether summing down every column of the window costs little more than down those that are read.
__device__ inline bool is_dense(const AxisHead& columns) {
  const Window& window = columns.window;
  return window.first < window.last && window.last - window.first <= 2 * columns.used;
}

// The order in which a lane visits the cells of a box's window and its bins. It is computed once
// for all channels, since that takes divisions.
struct Walks {
  Window window;
  int width;
  Walk cells, bins;

  __device__ Walks(const Call& call, const PlanHead& head)
      : window(head.columns.window),
        width(window.last - window.first),
        cells(threadIdx.x, maximum(width, 1), warp_size),
        bins(threadIdx.x, static_cast<int>(call.columns.bins), warp_size) {}
};

__device__ inline void pool_window(const Average& average, const Walks& walks, int first_row,
                                   int rows, Sums* down) {
  const BoxPlan<Taps>& plan = average.plan;
  __syncwarp();  // all have read what was there
  for (Walk cell = walks.cells; cell.row < rows; cell.step()) {
    down[cell.row * walks.width + cell.column] = average.sum_column(
        walks.window.first + cell.column, row_of_plan(average.call, plan, first_row + cell.row));
  }
  __syncwarp();
  for (Walk bin = walks.bins; bin.row < rows; bin.step()) {
    const int row = first_row + bin.row;
    const TapBin columns = plan.columns[bin.column];
    if (columns.count == 0 || !reads_cells(row_of_plan(average.call, plan, row))) {
      average.store_empty(row, bin.column);
      continue;
    }
    const Sums* line = down + bin.row * walks.width - walks.window.first;
    average.store(row, bin.column, average.sum_row(columns, [&](int cell) { return line[cell]; }));
  }
}

// Rows of bins, by a warp: window after window, as many rows at once as there is room for.
__device__ inline void pool_windows(const Average& average, const Walks& walks, int first_row,
                                    int end_row, Sums* down) {
  const int rows_at_once = static_cast<int>(average.call.stage) / walks.width;
  for (int row = first_row; row < end_row; row += rows_at_once) {
    pool_window(average, walks, row, minimum(rows_at_once, end_row - row), down);
  }
}

// The same bin by bin, where few of the window's columns are read, or they are too many.
__device__ inline void pool_bins(const Average& average, int first_row, int end_row) {
  for (int row = first_row; row < end_row; ++row) {
    for (int column = threadIdx.x; column < average.call.columns.bins; column += warp_size) {
      average.pool(row, column);
    }
  }
}

}  // namespace roipool

// NCHW: blocks of (32, warps). NHWC and position-sensitive: see forward_blocks.h.
extern "C" __global__ void __launch_bounds__(256, roipool::min_blocks)
    average_forward(const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
                    const roipool::wide_int* __restrict__ levels,
                    const roipool::FeatureStorage* __restrict__ features,
                    roipool::Storage* __restrict__ output, char* __restrict__ scratch,
                    const roipool::Call call) {
  using namespace roipool;
  const BoxPlan<Taps> plan = plan_of_block<Taps>(scratch, call);
  const auto prepare = [&](wide_int box, const Bins& bins) {
    plan_box({boxes, images, levels}, call, box, bins, plan);
  };
  if (channels_last || position_sensitive) {
    for_each_part(call, prepare, [&](wide_int box, const Part& part) {
      const Average average(call, plan, features, output, box);
      for_each_bin(call, part, [&](int row, int column, const Range& packs) {
        const Average of_bin = average.of_bin(row, column);
        for (Offset p = packs.first; p < packs.last; p += packs.step) {
          of_bin.of(Channels(call, p)).pool(row, column);
        }
      });
    });
    return;
  }
  Sums* down = static_cast<Sums*>(shared_after_plan(call)) + threadIdx.y * call.stage;
  for_each_part(call, prepare, [&](wide_int box, const Part& part) {
    const Offset packs = static_cast<Offset>(divide(call.channels + pack - 1, pack));
    const Offset first = static_cast<Offset>(part.number * call.share);
    const Offset last = minimum(first + static_cast<Offset>(call.share), packs);
    const int row = static_cast<int>(part.bins.first_row),
              end = row + static_cast<int>(part.bins.rows);
    const Average average(call, plan, features, output, box);
    const AxisHead& columns = plan.head->columns;
    // Two loops, so that neither keeps in registers what only the other needs: none are spilled.
    if (columns.window.last - columns.window.first > call.stage || !is_dense(columns)) {
#pragma unroll 1
      for (Offset number = first + static_cast<Offset>(threadIdx.y); number < last;
           number += static_cast<Offset>(blockDim.y)) {
        pool_bins(average.of(Channels(call, number)), row, end);
      }
      return;
    }
    const Walks walks(call, *plan.head);
#pragma unroll 1
    for (Offset number = first + static_cast<Offset>(threadIdx.y); number < last;
         number += static_cast<Offset>(blockDim.y)) {
      pool_windows(average.of(Channels(call, number)), walks, row, end, down);
    }
  });
}
