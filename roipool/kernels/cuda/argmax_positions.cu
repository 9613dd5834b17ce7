// An argmax as positions, the form in which mmcv, Caffe and MXNet return it. Arrays are [boxes,
// channels, rows, columns].
#include "../positions.h"
#include "forward_blocks.h"
#include "maximum_plan.h"

namespace roipool {

// Calls visit(value, rows, columns) for every pooled value, with the samples of its bin.
template <typename Visit>
__device__ inline void visit_values(const Boxes& boxes, char* scratch, const Call& call,
                                    Visit visit) {
  const BoxPlan<Samples> plan = plan_of_block<Samples>(scratch, call);
  const Strides strides = strides_of_pooled(call);
  const auto prepare = [&](wide_int box, const Bins& bins) {
    plan_box(boxes, call, box, bins, plan);
  };
  for_each_value(
      call, prepare, [&](wide_int box, wide_int row, wide_int column, const Channels& channels) {
        const wide_int image = plan.head->image;
        const auto along_axis = [&](Direction direction) {
          return axis_of_box(ends_of_box(boxes, call, direction, box), call, direction, image);
        };
        const Axis<Value> down = along_axis(Direction::down);
        const Axis<Value> along = along_axis(across);
        const AxisBin<Value> rows = {definition, down, static_cast<int>(row),
                                     samples_of(plan, plan.rows[row])};
        const AxisBin<Value> columns = {definition, along, static_cast<int>(column),
                                        samples_of(plan, plan.columns[column])};
        visit(box * strides.outer + channels.first * strides.channel + row * strides.row +
                  column * strides.column,
              rows, columns);
      });
}

}  // namespace roipool

// Sample indices to positions. Where no sample lies inside the map (-1), it is the position of the
// bin's first sample.
extern "C" __global__ void __launch_bounds__(256)
    locate_argmax(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                  const roipool::wide_int* argmax, roipool::Value* y, roipool::Value* x,
                  char* scratch, const roipool::Call call) {
  using namespace roipool;
  visit_values(
      {boxes, images, levels}, scratch, call,
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
    identify_argmax(const roipool::Value* boxes, const void* images,
                    const roipool::wide_int* levels, const roipool::Value* y,
                    const roipool::Value* x, roipool::wide_int* argmax, char* scratch,
                    const roipool::Call call) {
  using namespace roipool;
  visit_values({boxes, images, levels}, scratch, call,
               [&](wide_int value, const AxisBin<Value>& rows, const AxisBin<Value>& columns) {
                 argmax[value] = sample_index_at(rows, columns, {y[value], x[value]});
               });
}
