// The derivative of the average engine by the boxes: a block per box, sums in a fixed order.
#include "block_sum.h"
#include "forward_blocks.h"

namespace roipool {

// Adds weight * value only where the weight counts, so that 0 * NaN adds nothing.
__device__ inline void add_weighted(Value weight, Value value, Value* sum) {
  if (weight != Value(0)) *sum = multiply_add(weight, value, *sum);
}

// The derivatives of one bin's average by x1, y1, x2, y2.
__device__ inline void slopes_of_bin(const Storage* map, const Strides& strides,
                                     const SlopedTap* rows, int row_count, const SlopedTap* columns,
                                     int column_count, Value* slopes) {
  for (int corner = 0; corner < 4; ++corner) slopes[corner] = Value(0);
  for (int j = 0; j < row_count; ++j) {
    const SlopedTap row = rows[j];
    const Storage* line = map + row.cell * static_cast<Offset>(strides.row);
    Value value = 0, left = 0, right = 0;
    for (int i = 0; i < column_count; ++i) {
      const SlopedTap column = columns[i];
      const Value cell = compute_value(line[column.cell * static_cast<Offset>(strides.column)]);
      add_weighted(column.weight, cell, &value);
      add_weighted(column.by_low, cell, &left);
      add_weighted(column.by_high, cell, &right);
    }
    add_weighted(row.weight, left, &slopes[0]);
    add_weighted(row.by_low, value, &slopes[1]);
    add_weighted(row.weight, right, &slopes[2]);
    add_weighted(row.by_high, value, &slopes[3]);
  }
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
    Value sums[4] = {};
    for (wide_int bin = share.bins.first; bin < share.bins.last; bin += share.bins.step) {
      const wide_int row = divide(bin, call.columns.bins);
      const wide_int column = bin - row * call.columns.bins;
      const TapBin rows = plan.rows[row], columns = plan.columns[column];
      if (rows.count == 0 || columns.count == 0) continue;
      const Storage* cells = map.cells_of_bin(call, row, column);
      for (wide_int channel = share.packs.first; channel < share.packs.last;
           channel += share.packs.step) {
        const Value gradient =
            compute_value(grad_output[box * pooled.outer + channel * pooled.channel +
                                      row * pooled.row + column * pooled.column]);
        Value slopes[4];
        slopes_of_bin(cells + channel * map.strides.channel, map.strides, plan.entries(rows),
                      rows.count, plan.entries(columns), columns.count, slopes);
        for (int corner = 0; corner < 4; ++corner) {
          sums[corner] = multiply_add(gradient, slopes[corner], sums[corner]);
        }
      }
    }
    double* summands = static_cast<double*>(shared_after_plan(call));
    for (int corner = 0; corner < 4; ++corner) {
      const double sum = sum_of_block(sums[corner], summands);
      if (thread == 0) grad_boxes[4 * box + corner] = static_cast<Value>(sum);
    }
  }
}
