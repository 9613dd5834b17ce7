// Pooling over whole cells: each bin is a run of cells, each cell a sample of its own.
#pragma once
#include "sample.h"

namespace roipool {

// Adds the cells [first, last) of one bin to the sink, clipped to the map.
template <typename T, typename Sink>
ROIPOOL_HD void add_cells(int bin, wide_int first, wide_int last, wide_int size, Sink& sink) {
  first = clamp(first, 0, size);
  last = clamp(last, 0, size);
  sink.begin_bin(bin, last > first ? last - first : 0);
  for (wide_int cell = first; cell < last; ++cell) sink.add(cell - first, whole_cell<T>(cell));
}

template <typename T, typename Sink>
ROIPOOL_HD_ONCE void add_no_cells(int first_bin, int last_bin, Sink& sink) {
  for (int bin = first_bin; bin < last_bin; ++bin) sink.begin_bin(bin, 0);
}

// A box of `length` whole cells from `start`, cut into bins whose edges are computed in type `Edge`
// and rounded outwards.
template <typename Edge, typename T, typename Sink>
ROIPOOL_HD_ONCE void add_whole_cell_bins(wide_int start, wide_int length, const Axis<T>& axis,
                                         int first_bin, int last_bin, Sink& sink) {
  const Edge bin_length = Edge(length) / Edge(axis.bins);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const wide_int first = start + to_wide_int(floor_of(Edge(bin) * bin_length));
    const wide_int last = start + to_wide_int(ceil_of(Edge(bin + 1) * bin_length));
    add_cells<T>(bin, first, last, axis.size, sink);
  }
}

// Caffe's ROIPooling, which torchvision, MXNet, ONNX Runtime and Paddle share: both ends rounded,
// both included, at least one cell long.
template <typename T, typename Sink>
ROIPOOL_HD void roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T low = round_half_away(axis.low * axis.scale);
  const T high = round_half_away(axis.high * axis.scale);
  if (!(is_finite(low) && is_finite(high))) {
    add_no_cells<T>(first_bin, last_bin, sink);
    return;
  }
  const wide_int start = to_wide_int(low);
  const wide_int length = maximum<wide_int>(to_wide_int(high) - start + 1, 1);
  add_whole_cell_bins<T>(start, length, axis, first_bin, last_bin, sink);
}

// OpenVINO's: the same box, cut into bins whose edges are computed in whole numbers: floor and ceil
// of bin * length / bins are exact.
template <typename T, typename Sink>
ROIPOOL_HD void openvino_roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T low = round_half_away(axis.low * axis.scale);
  const T high = round_half_away(axis.high * axis.scale);
  if (!(is_finite(low) && is_finite(high))) {
    add_no_cells<T>(first_bin, last_bin, sink);
    return;
  }
  const wide_int start = to_wide_int(low);
  const wide_int length = maximum<wide_int>(to_wide_int(high) - start + 1, 1);
  // Apart, so that products stay below 2^62.
  const wide_int whole = length / axis.bins, rest = length % axis.bins;
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const wide_int next = wide_int(bin) + 1;
    const wide_int first = start + bin * whole + bin * rest / axis.bins;
    const wide_int last = start + next * whole + (next * rest + axis.bins - 1) / axis.bins;
    add_cells<T>(bin, first, last, axis.size, sink);
  }
}

// Average pooling: both ends rounded, the last not included, at least one cell long.
template <typename Edge, typename T, typename Sink>
ROIPOOL_HD void add_average_bins(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T low = round_half_away(axis.low * axis.scale);
  const T high = round_half_away(axis.high * axis.scale);
  if (!(is_finite(low) && is_finite(high))) {
    add_no_cells<T>(first_bin, last_bin, sink);
    return;
  }
  const wide_int start = to_wide_int(low);
  const wide_int length = maximum<wide_int>(to_wide_int(high) - start, 1);
  add_whole_cell_bins<Edge>(start, length, axis, first_bin, last_bin, sink);
}

// Chainer's GPU kernel computes the bins' edges in the maps' type.
template <typename T, typename Sink>
ROIPOOL_HD void roi_average_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_average_bins<T>(axis, first_bin, last_bin, sink);
}

// Its CPU code computes them with Python's floats: float64 for any maps.
template <typename T, typename Sink>
ROIPOOL_HD void chainer_roi_average_pool(const Axis<T>& axis, int first_bin, int last_bin,
                                         Sink& sink) {
  add_average_bins<double>(axis, first_bin, last_bin, sink);
}

// Caffe's backward visits, for every cell, the bins that can hold it, and looks only into boxes
// whose rounded ends enclose the cell: a reversed box, pooled as one cell, gets no gradient.
template <typename T>
ROIPOOL_HD bool caffe_gathers(wide_int start, wide_int end, int bins, int bin, wide_int cell) {
  if (!(cell >= start && cell <= end)) return false;
  const T bin_length = T(end - start + 1) / T(bins);
  const wide_int first = to_wide_int(floor_of(T(cell - start) / bin_length));
  const wide_int last = to_wide_int(ceil_of(T(cell - start + 1) / bin_length));
  return bin >= first && bin < last;
}

// Passes on the samples of whole-cell bins, with weight 0 where the gradient does not reach.
template <typename T, typename Sink>
struct CaffeGatherSink {
  Sink& sink;
  wide_int start;
  wide_int end;
  int bins;
  int bin;

  ROIPOOL_HD void begin_bin(int next, wide_int total) {
    bin = next;
    sink.begin_bin(next, total);
  }
  ROIPOOL_HD void add(wide_int number, const Sample<T>& sample) {
    const bool reached = caffe_gathers<T>(start, end, bins, bin, sample.first);
    sink.add(number, whole_cell<T>(sample.first, reached ? T(1) : T(0)));
  }
};

template <typename T, typename Sink>
ROIPOOL_HD void caffe_roi_pool_gather(const Axis<T>& axis, int first_bin, int last_bin,
                                      Sink& sink) {
  const wide_int start = to_wide_int(round_half_away(axis.low * axis.scale));
  const wide_int end = to_wide_int(round_half_away(axis.high * axis.scale));
  CaffeGatherSink<T, Sink> gather = {sink, start, end, axis.bins, first_bin};
  roi_pool(axis, first_bin, last_bin, gather);
}

// mmcv's RoIPool rounds only the bins' edges, and skips an empty box.
template <typename T, typename Sink>
ROIPOOL_HD void mmcv_roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T start = axis.low * axis.scale;
  const T end = (axis.high + T(1)) * axis.scale;
  const T length = end - start;
  if (!(is_finite(start) && is_finite(end) && length > T(0))) {
    add_no_cells<T>(first_bin, last_bin, sink);
    return;
  }
  const T bin_length = length / T(axis.bins);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const wide_int first = to_wide_int(floor_of(T(bin) * bin_length + start));
    const wide_int last = to_wide_int(ceil_of(T(bin + 1) * bin_length + start));
    add_cells<T>(bin, first, last, axis.size, sink);
  }
}

// Adjacent bins along a box whose ends are not rounded, at least a tenth of a cell long: each bin
// is the cells that it touches.
template <typename T, typename Sink>
ROIPOOL_HD_ONCE void add_touched_cell_bins(T start, T end, const Axis<T>& axis, int first_bin,
                                           int last_bin, Sink& sink) {
  if (!(is_finite(start) && is_finite(end))) {
    add_no_cells<T>(first_bin, last_bin, sink);
    return;
  }
  const T bin_length = maximum(end - start, T(0.1)) / T(axis.bins);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const wide_int first = to_wide_int(floor_of(T(bin) * bin_length + start));
    const wide_int last = to_wide_int(ceil_of(T(bin + 1) * bin_length + start));
    add_cells<T>(bin, first, last, axis.size, sink);
  }
}

// R-FCN's position-sensitive pooling, which MXNet and Paddle share: image pixels are rounded, both
// ends included, before they are scaled.
template <typename T, typename Sink>
ROIPOOL_HD void ps_roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T start = round_half_away(axis.low) * axis.scale;
  const T end = (round_half_away(axis.high) + T(1)) * axis.scale;
  add_touched_cell_bins(start, end, axis, first_bin, last_bin, sink);
}

// ChainerCV's rounds nothing.
template <typename T, typename Sink>
ROIPOOL_HD void chainercv_ps_roi_pool(const Axis<T>& axis, int first_bin, int last_bin,
                                      Sink& sink) {
  const T start = axis.low * axis.scale, end = axis.high * axis.scale;
  add_touched_cell_bins(start, end, axis, first_bin, last_bin, sink);
}

// torchvision's rounds map cells, leaves the last one out, and never reads a map's last row and
// column. Its backward reads them: it is that of `roi_average_pool`.
template <typename T, typename Sink>
ROIPOOL_HD void torchvision_ps_roi_pool(const Axis<T>& axis, int first_bin, int last_bin,
                                        Sink& sink) {
  Axis<T> inner = axis;
  --inner.size;
  add_average_bins<T>(inner, first_bin, last_bin, sink);
}

}  // namespace roipool
