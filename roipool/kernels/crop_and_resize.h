// crop_and_resize: one sample per output cell, boxes normalised to the map's first and last cell
// centres. A sample outside the map has no value of its own (extrapolation).
//
// The first and the last output cell of a box lie exactly at its two ends, as in OpenVINO's
// bilinear ROIPooling and ONNX Runtime's CropAndResize. TensorFlow leaves the last one where
// rounding puts it, which for a box that ends at 1 can be just outside the map: its own definitions
// are below.
#pragma once
#include "sample.h"

namespace roipool {

// Positions of the output cells along one axis; `axis.scale` plays no part.
template <typename T>
struct CropGrid {
  T start;
  T step;
  T end;
  int end_cell;  // the output cell that lies at `end`, or no_cell

  ROIPOOL_HD T position(int cell) const { return cell == end_cell ? end : start + T(cell) * step; }
};

template <typename T>
ROIPOOL_HD T cells_per_step(const Axis<T>& axis) {
  return T(axis.size - 1) / T(axis.bins - 1);
}

// A single output cell lies midway.
template <typename T>
ROIPOOL_HD CropGrid<T> tensorflow_crop_grid(const Axis<T>& axis) {
  const T last = T(axis.size - 1);
  if (axis.bins == 1) return {T(0.5) * (axis.low + axis.high) * last, T(0), T(0), no_cell};
  return {axis.low * last, (axis.high - axis.low) * last / T(axis.bins - 1), T(0), no_cell};
}

template <typename T>
ROIPOOL_HD CropGrid<T> crop_grid(const Axis<T>& axis) {
  CropGrid<T> grid = tensorflow_crop_grid(axis);
  if (axis.bins == 1) return grid;
  grid.end = axis.high * T(axis.size - 1);
  grid.end_cell = axis.bins - 1;
  return grid;
}

// TensorFlow's gradient of boxes rounds the step in another order than its forward: a sample on the
// border can fall to the other side of it.
template <typename T>
ROIPOOL_HD CropGrid<T> tensorflow_gradient_grid(const Axis<T>& axis) {
  CropGrid<T> grid = tensorflow_crop_grid(axis);
  if (axis.bins > 1) grid.step = (axis.high - axis.low) * cells_per_step(axis);
  return grid;
}

template <typename T>
ROIPOOL_HD PositionGradient<T> crop_position_gradient(const Axis<T>& axis, const CropGrid<T>& grid,
                                                      int cell) {
  const T last = T(axis.size - 1);
  if (axis.bins == 1) return {T(0.5) * last, T(0.5) * last};
  if (cell == grid.end_cell) return {T(0), last};
  const T along = T(cell) * cells_per_step(axis);
  return {last - along, along};
}

// On an axis of more than 2^24 cells, float32 rounds the last cell's number.
template <typename T>
ROIPOOL_HD int cell_at(T position, wide_int size) {
  return static_cast<int>(minimum(to_wide_int(position), size - 1));
}

// Adds the samples of the output cells to the sink, except those outside the map.
template <typename T, typename Sink>
ROIPOOL_HD void add_bilinear_crop(const Axis<T>& axis, const CropGrid<T>& grid, int first_bin,
                                  int last_bin, Sink& sink) {
  for (int cell = first_bin; cell < last_bin; ++cell) {
    sink.begin_bin(cell, 1);
    const T position = grid.position(cell);
    if (!(position >= T(0) && position <= T(axis.size - 1))) continue;
    const int low = cell_at(floor_of(position), axis.size);
    const int high = cell_at(ceil_of(position), axis.size);
    const T fraction = position - floor_of(position);
    sink.add(0, Sample<T>{low, high, T(1) - fraction, fraction, T(1), position},
             crop_position_gradient(axis, grid, cell));
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void add_nearest_crop(const Axis<T>& axis, const CropGrid<T>& grid, int first_bin,
                                 int last_bin, Sink& sink) {
  for (int cell = first_bin; cell < last_bin; ++cell) {
    sink.begin_bin(cell, 1);
    const T position = grid.position(cell);
    if (!(position >= T(0) && position <= T(axis.size - 1))) continue;
    sink.add(0, whole_cell<T>(cell_at(round_half_away(position), axis.size)));
  }
}

// The gradient of boxes reads the same samples as the forward.
template <typename T, typename Sink>
ROIPOOL_HD void crop_bilinear(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_bilinear_crop(axis, crop_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void crop_nearest(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_nearest_crop(axis, crop_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void tensorflow_crop_bilinear(const Axis<T>& axis, int first_bin, int last_bin,
                                         Sink& sink) {
  add_bilinear_crop(axis, tensorflow_crop_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void tensorflow_crop_nearest(const Axis<T>& axis, int first_bin, int last_bin,
                                        Sink& sink) {
  add_nearest_crop(axis, tensorflow_crop_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void tensorflow_crop_gradient(const Axis<T>& axis, int first_bin, int last_bin,
                                         Sink& sink) {
  add_bilinear_crop(axis, tensorflow_gradient_grid(axis), first_bin, last_bin, sink);
}

}  // namespace roipool
