// The older ROI align layers (Caffe, MXNet): the maximum over samples one cell apart, the first of
// them at the bin's own start. Each system has its own weights, and drops a corner beyond the map
// instead of holding it at the border.
#pragma once
#include "roi_pool.h"

namespace roipool {

// One bin: samples at first, first + 1, ... below last, already cut at the map's border.
template <typename T>
struct StepBin {
  T first;
  T last;
};

// Box and bins in map cells; nothing is rounded, and a reversed box has empty bins.
template <typename T>
ROIPOOL_HD StepBin<T> step_bin(const Axis<T>& axis, int bin) {
  const T start = axis.low * axis.scale;
  const T length = (axis.high * axis.scale - start) + T(1);
  if (!(is_finite(start) && is_finite(length))) return {T(0), T(0)};
  const T bin_length = length / T(axis.bins);
  const T size = T(axis.size);
  const T first = T(bin) * bin_length + start;
  const T last = T(bin + 1) * bin_length + start;
  return {minimum(maximum(first, T(0)), size), minimum(maximum(last, T(0)), size)};
}

// The order of a sum is the original's: the lower row first, the left column first.
template <typename T>
ROIPOOL_HD Sample<T> ordered_corners(const Axis<T>& axis, T position, wide_int low, T low_weight,
                                     wide_int high, T high_weight) {
  const int low_cell = static_cast<int>(low);
  if (high >= axis.size) return {low_cell, no_cell, low_weight, T(0), T(1), position};
  const int high_cell = static_cast<int>(high);
  if (axis.vertical) return {high_cell, low_cell, high_weight, low_weight, T(-1), position};
  return {low_cell, high_cell, low_weight, high_weight, T(1), position};
}

// Adds the samples of a bin to the sink; `weigh(low, high, position)` gives the system's corners.
template <typename T, typename Sink, typename Weigh>
ROIPOOL_HD void add_step_bins(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink,
                              Weigh weigh) {
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const StepBin<T> range = step_bin(axis, bin);
    const wide_int total =
        range.last > range.first ? to_wide_int(ceil_of(range.last - range.first)) + 1 : 0;
    sink.begin_bin(bin, total);
    wide_int number = 0;
    // The position is carried along and rounded at every step, as the original's loop does.
    for (T position = range.first; position < range.last && number < total; position += T(1)) {
      const wide_int low = minimum(to_wide_int(floor_of(position)), axis.size - 1);
      sink.add(number, weigh(low, to_wide_int(ceil_of(position)), position));
      ++number;
    }
  }
}

// Caffe's weights are both 1 where the position is a whole number: such a sample counts its cell
// twice along that axis.
template <typename T, typename Sink>
ROIPOOL_HD void caffe_roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_step_bins(axis, first_bin, last_bin, sink, [&axis](wide_int low, wide_int high, T position) {
    return ordered_corners(axis, position, low, (T(1) - position) + T(low), high,
                           T(1 - high) + position);
  });
}

// MXNet's older operator: the same samples, weights that sum to 1 inside the map.
template <typename T, typename Sink>
ROIPOOL_HD void mxnet_roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_step_bins(axis, first_bin, last_bin, sink, [&axis](wide_int low, wide_int high, T position) {
    return ordered_corners(axis, position, low, (T(1) - position) + T(low), high,
                           position - T(low));
  });
}

// The samples as MXNet's older backward weighs them. It visits bins by cell, as Caffe's does, and
// rounds the box outwards first: its bins are not the forward's, and it never finds some argmax.
template <typename T, typename Sink>
ROIPOOL_HD void mxnet_roi_align_gather(const Axis<T>& axis, int first_bin, int last_bin,
                                       Sink& sink) {
  const wide_int start = to_wide_int(floor_of(axis.low * axis.scale));
  const wide_int end = to_wide_int(ceil_of(axis.high * axis.scale));
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const auto weigh = [&axis, start, end, bin](wide_int low, wide_int high, T position) {
      const bool low_found = caffe_gathers<T>(start, end, axis.bins, bin, low);
      const bool high_found = caffe_gathers<T>(start, end, axis.bins, bin, high);
      const T low_weight = (T(1) - position) + T(low);
      const T high_weight = axis.vertical ? (T(1) + position) - T(high) : position - T(low);
      const bool whole = low == high;
      // Where both corners are one cell, the original's first branch takes it, with its weight.
      const T first_weight = whole && axis.vertical ? high_weight : low_weight;
      return ordered_corners(axis, position, low, low_found ? first_weight : T(0),
                             whole ? axis.size : high, high_found ? high_weight : T(0));
    };
    add_step_bins(axis, bin, bin + 1, sink, weigh);
  }
}

}  // namespace roipool
