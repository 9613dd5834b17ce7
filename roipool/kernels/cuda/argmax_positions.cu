// An argmax as positions, the form in which mmcv, Caffe and MXNet return it. Arrays are [boxes,
// channels, rows, columns].
#include "../positions.h"
#include "samples.h"

namespace roipool {

__device__ inline AxisBin<Value> axis_bin(const Value* boxes, const Call& call,
                                          const Plans<Samples>& plans, bool vertical, wide_int box,
                                          wide_int bin) {
  return {definition, axis_of_box(boxes, call, vertical, box, plans.images[box]),
          static_cast<int>(bin), samples_of(vertical ? plans.rows : plans.columns, box, bin)};
}

// Calls visit(value, rows, columns) for every pooled value, with the samples of its bin.
template <typename Visit>
__device__ inline void for_each_value(const Value* boxes, char* scratch, const Call& call,
                                      Visit visit) {
  const Plans<Samples> plans(scratch, call);
  const wide_int step = static_cast<wide_int>(gridDim.x) * blockDim.x;
  for (wide_int value = static_cast<wide_int>(blockIdx.x) * blockDim.x + threadIdx.x;
       value < call.tasks; value += step) {
    const Division by_column = divide_with_rest(value, call.columns.bins);
    const Division by_row = divide_with_rest(by_column.quotient, call.rows.bins);
    const wide_int box = divide(by_row.quotient, call.channels);
    visit(value, axis_bin(boxes, call, plans, true, box, by_row.rest),
          axis_bin(boxes, call, plans, false, box, by_column.rest));
  }
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_samples(const roipool::Value* boxes, const void* images, char* scratch,
                 const roipool::Call call) {
  roipool::write_plans<roipool::Samples>(boxes, images, scratch, call);
}

// Sample indices to positions. Where no sample lies inside the map (-1), it is the position of the
// bin's first sample.
extern "C" __global__ void __launch_bounds__(256)
    locate_argmax(const roipool::Value* boxes, const roipool::wide_int* argmax, roipool::Value* y,
                  roipool::Value* x, char* scratch, const roipool::Call call) {
  using namespace roipool;
  for_each_value(
      boxes, scratch, call,
      [&](wide_int value, const AxisBin<Value>& rows, const AxisBin<Value>& columns) {
        const Division of_grid = divide_with_rest(maximum<wide_int>(argmax[value], 0),
                                                  maximum<wide_int>(columns.samples.total, 1));
        const Point<Value> point = point_of(rows, columns, {of_grid.quotient, of_grid.rest});
        y[value] = point.y;
        x[value] = point.x;
      });
}

// Positions back to sample indices; -1 where there is no sample inside the map.
extern "C" __global__ void __launch_bounds__(256)
    identify_argmax(const roipool::Value* boxes, const roipool::Value* y, const roipool::Value* x,
                    roipool::wide_int* argmax, char* scratch, const roipool::Call call) {
  using namespace roipool;
  for_each_value(boxes, scratch, call,
                 [&](wide_int value, const AxisBin<Value>& rows, const AxisBin<Value>& columns) {
                   argmax[value] = sample_index_at(rows, columns, {y[value], x[value]});
                 });
}
