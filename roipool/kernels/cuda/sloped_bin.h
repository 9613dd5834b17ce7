// How a value of a bin moves with the numbers of its box.
#pragma once
#include "points.h"

namespace roipool {

// Adds up how one value of a bin moves with each number of its box.
struct SlopedBin {
  const Storage* map;
  Strides strides;
  Value slopes[numbers_of_region] = {};
  Value part = 0;

  __device__ SlopedBin(const Storage* map, const Strides& strides) : map(map), strides(strides) {}

  __device__ void begin_bin(int, wide_int total) { part = Value(1) / Value(total); }
  __device__ void add(wide_int, const Sample<Value>& y, const Sample<Value>& x,
                      const PointGradient<Value>& gradient) {
    // The corners of one sample first: of many samples, sums are rounded less often so.
    Value sums[numbers_of_region] = {};
    add_corner(y.first, x.first, y.first_weight, x.first_weight, -y.slope, -x.slope, gradient,
               sums);
    add_corner(y.first, x.second, y.first_weight, x.second_weight, -y.slope, x.slope, gradient,
               sums);
    add_corner(y.second, x.first, y.second_weight, x.first_weight, y.slope, -x.slope, gradient,
               sums);
    add_corner(y.second, x.second, y.second_weight, x.second_weight, y.slope, x.slope, gradient,
               sums);
    for (int i = 0; i < numbers_of_region; ++i) slopes[i] += sums[i];
  }
  __device__ void add_corner(int row, int column, Value y_weight, Value x_weight, Value y_slope,
                             Value x_slope, const PointGradient<Value>& gradient,
                             Value* sums) const {
    // Rotated boxes have no sample of one cell only.
    if (ROIPOOL_MOVED_BINS && (row == no_cell || column == no_cell)) return;
    const Value cell = compute_value(map[row * strides.row + column * strides.column]);
    for (int i = 0; i < numbers_of_region; ++i) {
      const Value slope = y_slope * gradient.y[i] * x_weight + y_weight * (x_slope * gradient.x[i]);
      // So that 0 * NaN adds nothing.
      if (slope != Value(0)) sums[i] = multiply_add(slope * part, cell, sums[i]);
    }
  }
};

}  // namespace roipool
