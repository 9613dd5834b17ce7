// Winners of a maximum as coordinates, the form in which mmcv, Caffe and MXNet keep them. Values
// are [boxes, channels, rows, columns].
#include "plan.h"

namespace roipool {

// The position along one axis of sample `number` of a bin, inside the map or not.
__device__ inline Value position_of(const Axis<Value>& axis, const AxisPlan<Samples>& plan,
                                    wide_int box, wide_int bin, wide_int number) {
  const SampleBin samples = plan.bin(box, bin);
  const wide_int entry = number - samples.first_number;
  if (entry >= 0 && entry < samples.count) return plan.entries(box, samples)[entry].position;
  return sample_grid_of(definition, axis).position(static_cast<int>(bin), number);
}

// The distance between neighbouring samples along one axis of one box.
__device__ inline Value spacing_of(const Axis<Value>& axis) {
  if (!has_sample_grid(definition)) return Value(1);
  const SampleGrid<Value> grid = sample_grid_of(definition, axis);
  return magnitude(grid.bin_length / Value(grid.count));
}

// The listed sample of a bin nearest to a position, by number, the first of two as near; -1 where
// none is within half the spacing: then a sample outside the map was meant.
__device__ inline wide_int number_near(const AxisPlan<Samples>& plan, wide_int box, wide_int bin,
                                       Value position, Value spacing) {
  const SampleBin samples = plan.bin(box, bin);
  const Sample<Value>* sample = plan.entries(box, samples);
  wide_int nearest = -1;
  Value distance = spacing / Value(2);
  for (wide_int entry = 0; entry < samples.count; ++entry) {
    const Value away = magnitude(sample[entry].position - position);
    if (away < distance || (nearest < 0 && away == distance)) {
      distance = away;
      nearest = samples.first_number + entry;
    }
  }
  return nearest;
}

// One value: which box, channel and bin it is.
struct Place {
  wide_int box;
  wide_int row;
  wide_int column;
};

__device__ inline Place place_of_value(const Call& call, wide_int value) {
  const Division by_column = divide_with_rest(value, call.columns.bins);
  const Division by_row = divide_with_rest(by_column.quotient, call.rows.bins);
  return {divide(by_row.quotient, call.channels), by_row.rest, by_column.rest};
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_samples(const roipool::Value* boxes, const void* images, char* scratch,
                 const roipool::Call call) {
  roipool::write_plans<roipool::Samples>(boxes, images, scratch, call);
}

// Sample numbers to coordinates. Where no sample lies inside the map (-1) they are those of the
// bin's first sample, and -1, -1 where it has none at all.
extern "C" __global__ void __launch_bounds__(256)
    locate_winners(const roipool::Value* boxes, const roipool::wide_int* argmax, roipool::Value* y,
                   roipool::Value* x, char* scratch, const roipool::Call call) {
  using namespace roipool;
  const Plans<Samples> plans(scratch, call);
  const wide_int step = static_cast<wide_int>(gridDim.x) * blockDim.x;
  for (wide_int value = static_cast<wide_int>(blockIdx.x) * blockDim.x + threadIdx.x;
       value < call.tasks; value += step) {
    const Place place = place_of_value(call, value);
    const wide_int across = plans.columns.bin(place.box, place.column).total;
    const wide_int down = plans.rows.bin(place.box, place.row).total;
    if (across <= 0 || down <= 0) {
      y[value] = x[value] = Value(-1);
      continue;
    }
    const Division of_grid = divide_with_rest(maximum<wide_int>(argmax[value], 0), across);
    const wide_int image = plans.images[place.box];
    y[value] = position_of(axis_of_box(boxes, call, true, place.box, image), plans.rows, place.box,
                           place.row, of_grid.quotient);
    x[value] = position_of(axis_of_box(boxes, call, false, place.box, image), plans.columns,
                           place.box, place.column, of_grid.rest);
  }
}

// Coordinates back to sample numbers; -1 where they name no sample inside the map.
extern "C" __global__ void __launch_bounds__(256)
    identify_winners(const roipool::Value* boxes, const roipool::Value* y, const roipool::Value* x,
                     roipool::wide_int* argmax, char* scratch, const roipool::Call call) {
  using namespace roipool;
  const Plans<Samples> plans(scratch, call);
  const wide_int step = static_cast<wide_int>(gridDim.x) * blockDim.x;
  for (wide_int value = static_cast<wide_int>(blockIdx.x) * blockDim.x + threadIdx.x;
       value < call.tasks; value += step) {
    const Place place = place_of_value(call, value);
    const wide_int image = plans.images[place.box];
    const Axis<Value> rows = axis_of_box(boxes, call, true, place.box, image);
    const Axis<Value> columns = axis_of_box(boxes, call, false, place.box, image);
    const wide_int down = number_near(plans.rows, place.box, place.row, y[value], spacing_of(rows));
    const wide_int across =
        number_near(plans.columns, place.box, place.column, x[value], spacing_of(columns));
    const wide_int total = plans.columns.bin(place.box, place.column).total;
    argmax[value] = down >= 0 && across >= 0 ? down * total + across : -1;
  }
}
