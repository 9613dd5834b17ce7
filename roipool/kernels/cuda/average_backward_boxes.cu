// The derivative of the average engine by the boxes: a block per box, sums in a fixed order.
#include "block_sum.h"
#include "forward_blocks.h"

namespace roipool {

// Adds weight * value only where the weight counts, so that 0 * NaN adds nothing.
__device__ inline void add_weighted(Value weight, Value value, Value* sum) {
  if (weight != Value(0)) *sum = multiply_add(weight, value, *sum);
}

// The average of a row of cells, and its derivatives by x1 and x2.
struct RowSlopes {
  Value value, left, right;
};
__device__ inline RowSlopes slopes_of_row(const Storage* line, const Strides& strides,
                                          const SlopedTap* columns, int column_count) {
  RowSlopes slopes = {};
  for (int i = 0; i < column_count; ++i) {
    const SlopedTap column = columns[i];
    const Value cell = compute_value(line[column.cell * static_cast<Offset>(strides.column)]);
    add_weighted(column.weight, cell, &slopes.value);
    add_weighted(column.by_low, cell, &slopes.left);
    add_weighted(column.by_high, cell, &slopes.right);
  }
  return slopes;
}

const int numbers_of_box = of_volumes ? numbers_of_volume : numbers_of_corners;

// The derivatives of one bin's average by x1, y1, x2, y2.
__device__ inline void slopes_of_bin(const Call&, const BoxPlan<SlopedTaps>& plan,
                                     const Storage* map, const Strides& strides, const TapBin& bin,
                                     const TapBin& columns, Value* slopes) {
  const SlopedTap* rows = plan.entries(bin);
  for (int j = 0; j < bin.count; ++j) {
    const SlopedTap row = rows[j];
    const RowSlopes of_row = slopes_of_row(map + row.cell * static_cast<Offset>(strides.row),
                                           strides, plan.entries(columns), columns.count);
    add_weighted(row.weight, of_row.left, &slopes[0]);
    add_weighted(row.by_low, of_row.value, &slopes[1]);
    add_weighted(row.weight, of_row.right, &slopes[2]);
    add_weighted(row.by_high, of_row.value, &slopes[3]);
  }
}

// The same of a volume by x1, y1, z1, x2, y2, z2.
__device__ inline void slopes_of_bin(const Call& call, const BoxPlan<SlopedTaps>& plan,
                                     const Storage* map, const Strides& strides,
                                     const VolumeRow& row, const TapBin& columns, Value* slopes) {
  for_each_tap(call, plan, row, [&](int cell, const SlopedTap& deep, const SlopedTap& down) {
    const RowSlopes of_row = slopes_of_row(map + cell * static_cast<Offset>(strides.row), strides,
                                           plan.entries(columns), columns.count);
    const Value weight = product_of_weights(deep.weight, down.weight);
    add_weighted(weight, of_row.left, &slopes[0]);
    add_weighted(deep.weight * down.by_low, of_row.value, &slopes[1]);
    add_weighted(deep.by_low * down.weight, of_row.value, &slopes[2]);
    add_weighted(weight, of_row.right, &slopes[3]);
    add_weighted(deep.weight * down.by_high, of_row.value, &slopes[4]);
    add_weighted(deep.by_high * down.weight, of_row.value, &slopes[5]);
  });
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256, 3) average_backward_boxes(
    const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
    const roipool::wide_int* __restrict__ levels, const roipool::Storage* __restrict__ grad_output,
    const roipool::Storage* __restrict__ features, roipool::Value* __restrict__ grad_boxes,
    char* __restrict__ scratch, const roipool::Call call) {
  using namespace roipool;
  const BoxPlan<SlopedTaps> plan = plan_of_block<SlopedTaps>(scratch, call);
  const Strides pooled = strides_of_pooled(call);
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * blockDim.x);
  for (wide_int box = blockIdx.x; box < call.boxes; box += gridDim.x) {
    plan_box({boxes, images, levels}, call, box, all_bins(call), plan);
    const Map<const Storage> map(call, features, plan.head->image);
    const Share share = share_of_thread(call, 0);
    Value sums[numbers_of_box] = {};
    for (Offset bin = share.bins.first; bin < share.bins.last; bin += share.bins.step) {
      const wide_int row = divide(bin, call.columns.bins);
      const wide_int column = bin - row * call.columns.bins;
      const Row rows = row_of_plan(call, plan, row);
      const TapBin columns = plan.columns[column];
      if (!reads_cells(rows) || columns.count == 0) continue;
      const Storage* cells = map.cells_of_bin(call, row, column);
      for (Offset channel = share.packs.first; channel < share.packs.last;
           channel += share.packs.step) {
        const Value gradient =
            compute_value(grad_output[box * pooled.outer + channel * pooled.channel +
                                      row * pooled.row + column * pooled.column]);
        Value slopes[numbers_of_box] = {};
        slopes_of_bin(call, plan, cells + channel * map.strides.channel, map.strides, rows, columns,
                      slopes);
        for (int number = 0; number < numbers_of_box; ++number) {
          sums[number] = multiply_add(gradient, slopes[number], sums[number]);
        }
      }
    }
    double* summands = static_cast<double*>(shared_after_plan(call));
    for (int number = 0; number < numbers_of_box; ++number) {
      const double sum = sum_of_block(sums[number], summands);
      if (thread == 0) grad_boxes[numbers_of_box * box + number] = static_cast<Value>(sum);
    }
  }
}
