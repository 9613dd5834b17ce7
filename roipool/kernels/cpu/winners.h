// Winners of a maximum as coordinates, the form in which mmcv, Caffe and MXNet keep them.
#pragma once
#include "plan.h"

namespace roipool {

// The position along one axis of sample `number` of a bin, inside the map or not.
template <typename T>
T position_of(const Request& request, const AxisPlan& plan, bool vertical, wide_int box, int bin,
              wide_int number) {
  const wide_int row = box * plan.bins + bin;
  const wide_int entry = number - plan.first_number[row];
  if (entry >= 0 && entry < plan.count[row]) {
    return static_cast<const Sample<T>*>(plan.sample)[plan.begin[row] + entry].position;
  }
  const Axis<T> axis = axis_of_box<T>(request, plan, vertical, box);
  return sample_grid_of(request.definition, axis).position(bin, number);
}

// The distance between neighbouring samples along one axis of one box.
template <typename T>
T spacing_of(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  if (!has_sample_grid(request.definition)) return T(1);
  const SampleGrid<T> grid =
      sample_grid_of(request.definition, axis_of_box<T>(request, plan, vertical, box));
  return magnitude(grid.bin_length / T(grid.count));
}

// The listed sample of a bin nearest to a position, by number, the first of two as near; -1 where
// none is within half the spacing: then a sample outside the map was meant.
template <typename T>
wide_int number_near(const AxisPlan& plan, wide_int row, T position, T spacing) {
  const Sample<T>* samples = static_cast<const Sample<T>*>(plan.sample) + plan.begin[row];
  wide_int nearest = -1;
  T distance = spacing / T(2);
  for (int entry = 0; entry < plan.count[row]; ++entry) {
    const T away = magnitude(samples[entry].position - position);
    if (away < distance || (nearest < 0 && away == distance)) {
      distance = away;
      nearest = plan.first_number[row] + entry;
    }
  }
  return nearest;
}

// Sample numbers to coordinates, for all values [channels, rows, columns] of one box. Where no
// sample lies inside the map (-1) they are those of the bin's first sample, and -1, -1 where it
// has none at all.
template <typename T>
void locate_box(const Request& request, const Job& job, wide_int box, const wide_int* argmax, T* y,
                T* x) {
  const wide_int values = static_cast<wide_int>(job.rows.bins) * job.columns.bins;
  for (wide_int value = 0; value < job.channels * values; ++value) {
    const int row = static_cast<int>(value % values / job.columns.bins);
    const int column = static_cast<int>(value % job.columns.bins);
    const wide_int across = job.columns.total[box * job.columns.bins + column];
    const wide_int down = job.rows.total[box * job.rows.bins + row];
    if (across <= 0 || down <= 0) {
      y[value] = x[value] = T(-1);
      continue;
    }
    const wide_int number = argmax[value] < 0 ? 0 : argmax[value];
    y[value] = position_of<T>(request, job.rows, true, box, row, number / across);
    x[value] = position_of<T>(request, job.columns, false, box, column, number % across);
  }
}

// Coordinates back to sample numbers; -1 where they name no sample inside the map.
template <typename T>
void identify_box(const Request& request, const Job& job, wide_int box, const T* y, const T* x,
                  wide_int* argmax) {
  const T down_spacing = spacing_of<T>(request, job.rows, true, box);
  const T across_spacing = spacing_of<T>(request, job.columns, false, box);
  const wide_int values = static_cast<wide_int>(job.rows.bins) * job.columns.bins;
  for (wide_int value = 0; value < job.channels * values; ++value) {
    const wide_int row = box * job.rows.bins + value % values / job.columns.bins;
    const wide_int column = box * job.columns.bins + value % job.columns.bins;
    const wide_int down = number_near(job.rows, row, y[value], down_spacing);
    const wide_int across = number_near(job.columns, column, x[value], across_spacing);
    const bool known = down >= 0 && across >= 0;
    argmax[value] = known ? down * job.columns.total[column] + across : -1;
  }
}

// Both for box number `box` of whole arrays [boxes, channels, rows, columns].
inline wide_int values_per_box(const Job& job) {
  return job.channels * job.rows.bins * job.columns.bins;
}

inline void locate_winners(const Request& request, const Job& job, wide_int box,
                           const wide_int* argmax, void* y, void* x) {
  const wide_int first = box * values_per_box(job);
  if (request.double_precision) {
    locate_box(request, job, box, argmax + first, static_cast<double*>(y) + first,
               static_cast<double*>(x) + first);
  } else {
    locate_box(request, job, box, argmax + first, static_cast<float*>(y) + first,
               static_cast<float*>(x) + first);
  }
}

inline void identify_winners(const Request& request, const Job& job, wide_int box, const void* y,
                             const void* x, wide_int* argmax) {
  const wide_int first = box * values_per_box(job);
  if (request.double_precision) {
    identify_box(request, job, box, static_cast<const double*>(y) + first,
                 static_cast<const double*>(x) + first, argmax + first);
  } else {
    identify_box(request, job, box, static_cast<const float*>(y) + first,
                 static_cast<const float*>(x) + first, argmax + first);
  }
}

}  // namespace roipool
