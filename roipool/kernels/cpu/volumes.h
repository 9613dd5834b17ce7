// Plans of volumes. The rows of all planes follow each other, as those of one map, so that engines
// execute a volume as they do a map; and a line of these rows is the product of a line of depth and
// a line of the rows of a plane.
#pragma once
#include "plan_sinks.h"

namespace roipool {

const int slopes_of_product = 4;  // by the low and high end of depth, then by those of rows

// The request for depth and for the rows of a plane, whose transposes nothing needs.
inline Request of_factors(Request request) {
  if (request.entries == transposed_taps) request.entries = padded_taps;
  return request;
}

inline VolumePlan begin_volume(const Request& request, const Job& job) {
  const wide_int planes = request.depth.planes;
  VolumePlan plan = {};
  plan.depth.bins = request.depth.bins;
  plan.depth.size = planes;
  plan.rows.bins = job.rows.bins / request.depth.bins;
  plan.rows.size = planes > 0 ? job.rows.size / planes : 0;
  return plan;
}

// Calls visit(bin, bin of depth, bin of rows): numbers in the per-bin arrays of each plan.
template <typename Visit>
inline void for_each_product(const VolumePlan& factors, const AxisPlan& product, wide_int box,
                             Visit visit) {
  const wide_int depth = box * factors.depth.bins, rows = box * factors.rows.bins;
  wide_int bin = box * product.bins;
  for (int z = 0; z < factors.depth.bins; ++z) {
    for (int y = 0; y < factors.rows.bins; ++y) visit(bin++, depth + z, rows + y);
  }
}

// Bounds the entries of the bins of a box, as those of both factors are.
inline void count_product(const Request& request, const VolumePlan& factors,
                          const AxisPlan& product, wide_int box) {
  for_each_product(factors, product, box, [&](wide_int bin, wide_int depth, wide_int row) {
    product.begin[bin + 1] = factors.depth.begin[depth + 1] * factors.rows.begin[row + 1];
  });
  if (request.entries == padded_taps) {
    level_entries(product.begin + box * product.bins + 1, product.bins);
  }
}

// The derivatives of a product of two weights: a tap's of depth, and one's of rows.
template <typename T>
inline void write_slopes(const VolumePlan& factors, wide_int depth, wide_int row,
                         const AxisPlan& product, wide_int tap) {
  const T deep_weight = static_cast<const T*>(factors.depth.weight)[depth];
  const T row_weight = static_cast<const T*>(factors.rows.weight)[row];
  for (int end = 0; end < 2; ++end) {
    static_cast<T*>(product.slope[end])[tap] =
        static_cast<const T*>(factors.depth.slope[end])[depth] * row_weight;
    static_cast<T*>(product.slope[2 + end])[tap] =
        deep_weight * static_cast<const T*>(factors.rows.slope[end])[row];
  }
}

// The taps of one bin.
template <typename T>
inline void multiply_lines(const VolumePlan& factors, wide_int depth, wide_int row,
                           const AxisPlan& product, wide_int bin) {
  const bool has_slopes = product.slope[0] != nullptr;
  const wide_int first = factors.depth.begin[depth], last = first + factors.depth.count[depth];
  const wide_int top = factors.rows.begin[row], bottom = top + factors.rows.count[row];
  wide_int tap = product.begin[bin];
  for (wide_int z = first; z < last; ++z) {
    const T deep_weight = static_cast<const T*>(factors.depth.weight)[z];
    const wide_int plane = factors.depth.cell[z] * factors.rows.size;
    for (wide_int y = top; y < bottom; ++y) {
      product.cell[tap] = static_cast<int>(plane + factors.rows.cell[y]);
      static_cast<T*>(product.weight)[tap] =
          product_of_weights(deep_weight, static_cast<const T*>(factors.rows.weight)[y]);
      if (has_slopes) write_slopes<T>(factors, z, y, product, tap);
      ++tap;
    }
  }
  product.count[bin] = static_cast<int>(tap - product.begin[bin]);
}

template <typename T>
void write_product(const VolumePlan& factors, const AxisPlan& product, wide_int box) {
  for_each_product(factors, product, box, [&](wide_int bin, wide_int depth, wide_int row) {
    multiply_lines<T>(factors, depth, row, product, bin);
  });
  const int first = factors.depth.window_first[box], last = factors.depth.window_last[box];
  const int top = factors.rows.window_first[box], bottom = factors.rows.window_last[box];
  const int rows = static_cast<int>(factors.rows.size);
  const bool reads = first < last && top < bottom;
  product.window_first[box] = reads ? first * rows + top : 0;
  product.window_last[box] = reads ? (last - 1) * rows + bottom : 0;
}

}  // namespace roipool
