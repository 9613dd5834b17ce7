// The derivative of an average with respect to its box: sums over the taps of each bin.
#pragma once
#include "lanes.h"
#include "taps.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// Derivatives of the pooled values with respect to the parameters of their box, times the bins'
// gradients, summed.
template <typename Vector>
struct BoxGradient {
  Vector by[numbers_of_volume] = {};  // in their order; other boxes have fewer

  void add(const BoxGradient& other) {
    for (int number = 0; number < numbers_of_corners; ++number) by[number] += other.by[number];
  }
};

// Adds weight * value unless the weight is 0, so that 0 * NaN adds nothing.
template <typename Vector, typename Value>
inline void add_weighted(Value weight, Vector value, Vector* sum) {
  if (weight != Value(0)) *sum = multiply_add(broadcast<Vector>(weight), value, *sum);
}

// The derivatives of some taps by a number of their box.
template <typename Value>
inline const Value* slopes_of_taps(const AxisPlan& plan, const Taps<Value>& taps, int number) {
  return static_cast<const Value*>(plan.slope[number]) +
         (taps.weight - static_cast<const Value*>(plan.weight));
}

template <typename Vector, typename Value>
void add_bin_gradient(const Job& job, wide_int box, int row, int column,
                      const View<const Value>& map, Vector gradient, BoxGradient<Vector>* sums,
                      LongWork* work) {
  const Taps<Value> rows = bins_from_cells<Value>(job.rows, box).taps_of(row);
  const Taps<Value> columns = bins_from_cells<Value>(job.columns, box).taps_of(column);
  const Value* by_y1 = slopes_of_taps(job.rows, rows, 0);
  const Value* by_y2 = slopes_of_taps(job.rows, rows, 1);
  const Value* by_x1 = slopes_of_taps(job.columns, columns, 0);
  const Value* by_x2 = slopes_of_taps(job.columns, columns, 1);
  Vector bin_by_x1 = {}, bin_by_y1 = {}, bin_by_x2 = {}, bin_by_y2 = {};  // registers, not an array
  for (int j = 0; j < rows.count; ++j) {
    if (work->ends_before(columns.count)) return;
    Vector value = {}, left = {}, right = {};
    for (int i = 0; i < columns.count; ++i) {
      const Vector cell = load<Vector>(map.at(rows.source[j], columns.source[i]));
      add_weighted(columns.weight[i], cell, &value);
      add_weighted(by_x1[i], cell, &left);
      add_weighted(by_x2[i], cell, &right);
    }
    add_weighted(rows.weight[j], left, &bin_by_x1);
    add_weighted(by_y1[j], value, &bin_by_y1);
    add_weighted(rows.weight[j], right, &bin_by_x2);
    add_weighted(by_y2[j], value, &bin_by_y2);
  }
  sums->by[0] = multiply_add(gradient, bin_by_x1, sums->by[0]);
  sums->by[1] = multiply_add(gradient, bin_by_y1, sums->by[1]);
  sums->by[2] = multiply_add(gradient, bin_by_x2, sums->by[2]);
  sums->by[3] = multiply_add(gradient, bin_by_y2, sums->by[3]);
}

// The same for a box of a volume, whose rows have the derivatives of both their axes.
template <typename Vector, typename Value>
void add_volume_gradient(const Job& job, wide_int box, int row, int column,
                         const View<const Value>& map, Vector gradient, BoxGradient<Vector>* sums,
                         LongWork* work) {
  const Taps<Value> rows = bins_from_cells<Value>(job.rows, box).taps_of(row);
  const Taps<Value> columns = bins_from_cells<Value>(job.columns, box).taps_of(column);
  const Value* by_rows[4];
  for (int i = 0; i < 4; ++i) by_rows[i] = slopes_of_taps(job.rows, rows, i);
  const Value* by_x1 = slopes_of_taps(job.columns, columns, 0);
  const Value* by_x2 = slopes_of_taps(job.columns, columns, 1);
  Vector bin_by_x1 = {}, bin_by_x2 = {}, bin_by_rows[4] = {};
  for (int j = 0; j < rows.count; ++j) {
    if (work->ends_before(columns.count)) return;
    Vector value = {}, left = {}, right = {};
    for (int i = 0; i < columns.count; ++i) {
      const Vector cell = load<Vector>(map.at(rows.source[j], columns.source[i]));
      add_weighted(columns.weight[i], cell, &value);
      add_weighted(by_x1[i], cell, &left);
      add_weighted(by_x2[i], cell, &right);
    }
    add_weighted(rows.weight[j], left, &bin_by_x1);
    add_weighted(rows.weight[j], right, &bin_by_x2);
    for (int i = 0; i < 4; ++i) add_weighted(by_rows[i][j], value, &bin_by_rows[i]);
  }
  // In the order x1, y1, z1, x2, y2, z2; those of depth come first in the plan of the rows.
  const Vector by[numbers_of_volume] = {bin_by_x1, bin_by_rows[2], bin_by_rows[0],
                                        bin_by_x2, bin_by_rows[3], bin_by_rows[1]};
  for (int number = 0; number < numbers_of_volume; ++number) {
    sums->by[number] = multiply_add(gradient, by[number], sums->by[number]);
  }
}

// The gradient of a bin whose box is rounded, so that it moves with its offsets alone: along each
// axis as the low end of a box would move it. `cell(y, x)` is its value in a map.
template <typename Value, typename Vector, typename Cell>
BoxGradient<Vector> moved_bin_gradient(const Job& job, wide_int box, int bin, Cell cell,
                                       Vector gradient, LongWork* work) {
  const Taps<Value> rows = bins_from_cells<Value>(job.rows, box).taps_of(bin);
  const Taps<Value> columns = bins_from_cells<Value>(job.columns, box).taps_of(bin);
  const Value* by_y = slopes_of_taps(job.rows, rows, 0);
  const Value* by_x = slopes_of_taps(job.columns, columns, 0);
  Vector bin_by_x = {}, bin_by_y = {};
  for (int j = 0; j < rows.count; ++j) {
    if (work->ends_before(columns.count)) break;
    Vector value = {}, slope = {};
    for (int i = 0; i < columns.count; ++i) {
      const Vector one = cell(rows.source[j], columns.source[i]);
      add_weighted(columns.weight[i], one, &value);
      add_weighted(by_x[i], one, &slope);
    }
    add_weighted(rows.weight[j], slope, &bin_by_x);
    add_weighted(by_y[j], value, &bin_by_y);
  }
  BoxGradient<Vector> by;
  by.by[0] = gradient * bin_by_x;
  by.by[1] = gradient * bin_by_y;
  return by;
}

// The same where both axes are one.
template <typename Vector, typename Value>
void add_point_gradient(const Job& job, wide_int box, int bin, const View<const Value>& map,
                        Vector gradient, BoxGradient<Vector>* sums, LongWork* work) {
  const Taps<Value> taps = bins_from_cells<Value>(job.columns, box).taps_of(bin);
  for (int number = 0; number < numbers_of_region; ++number) {
    const Value* slope = slopes_of_taps(job.columns, taps, number);
    Vector sum = {};
    if (work->ends_before(taps.count)) return;
    for (int i = 0; i < taps.count; ++i) {
      add_weighted(slope[i], load<Vector>(map.at(0, taps.source[i])), &sum);
    }
    sums->by[number] = multiply_add(gradient, sum, sums->by[number]);
  }
}

template <typename Vector>
double sum_of_lanes(Vector vector, int channels) {
  typename Lanes<Vector>::Value values[Lanes<Vector>::count];
  store(vector, values);
  double sum = 0;
  for (int lane = 0; lane < channels; ++lane) sum += values[lane];
  return sum;
}

// Adds the gradient of one of `bins` bins with respect to its own position along x and y, which
// moves as both ends of the box do. Those by y follow the ones by x.
template <typename Vector>
void add_offset_gradients(const BoxGradient<Vector>& bin, int channels, wide_int bins,
                          double* offsets) {
  offsets[0] += sum_of_lanes(bin.by[0] + bin.by[2], channels);
  offsets[bins] += sum_of_lanes(bin.by[1] + bin.by[3], channels);
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
