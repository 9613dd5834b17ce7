// TensorFlow's crop_and_resize: one sample per output cell, boxes normalised to the map's first
// and last cell centres. A sample outside the map has no value of its own (extrapolation).
#pragma once
#include "sample.h"

namespace roipool {

// Positions of the output cells along one axis; `axis.scale` plays no part.
template <typename T>
struct CropGrid {
  T start;
  T step;

  ROIPOOL_HD T position(int cell) const { return start + T(cell) * step; }
};

template <typename T>
ROIPOOL_HD T cells_per_step(const Axis<T>& axis) {
  return T(axis.size - 1) / T(axis.bins - 1);
}

template <typename T>
ROIPOOL_HD CropGrid<T> crop_grid(const Axis<T>& axis) {
  const T last = T(axis.size - 1);
  if (axis.bins == 1) return {T(0.5) * (axis.low + axis.high) * last, T(0)};
  return {axis.low * last, (axis.high - axis.low) * last / T(axis.bins - 1)};
}

// The gradient of boxes rounds the step in another order, as TensorFlow's does: a sample on the
// border can fall to the other side of it than in the forward.
template <typename T>
ROIPOOL_HD CropGrid<T> crop_grid_of_gradient(const Axis<T>& axis) {
  const CropGrid<T> grid = crop_grid(axis);
  if (axis.bins == 1) return grid;
  return {grid.start, (axis.high - axis.low) * cells_per_step(axis)};
}

template <typename T>
ROIPOOL_HD PositionGradient<T> crop_position_gradient(const Axis<T>& axis, int cell) {
  const T last = T(axis.size - 1);
  if (axis.bins == 1) return {T(0.5) * last, T(0.5) * last};
  const T along = T(cell) * cells_per_step(axis);
  return {last - along, along};
}

// float32 holds the last cell's number only roughly on an axis of more than 2^24 cells.
template <typename T>
ROIPOOL_HD int cell_at(T position, wide_int size) {
  return static_cast<int>(minimum(to_wide_int(position), size - 1));
}

// The sample of one output cell, or nothing where it lies outside the map.
template <typename T, typename Sink>
ROIPOOL_HD void add_crop_sample(const Axis<T>& axis, int cell, T position, Sink& sink) {
  sink.begin_bin(cell, 1);
  if (!(position >= T(0) && position <= T(axis.size - 1))) return;
  const int low = cell_at(floor_of(position), axis.size);
  const int high = cell_at(ceil_of(position), axis.size);
  const T fraction = position - floor_of(position);
  sink.add(0, Sample<T>{low, high, T(1) - fraction, fraction, T(1), position},
           crop_position_gradient(axis, cell));
}

template <typename T, typename Sink>
ROIPOOL_HD void crop_bilinear(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const CropGrid<T> grid = crop_grid(axis);
  for (int cell = first_bin; cell < last_bin; ++cell) {
    add_crop_sample(axis, cell, grid.position(cell), sink);
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void crop_box_gradient(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const CropGrid<T> grid = crop_grid_of_gradient(axis);
  for (int cell = first_bin; cell < last_bin; ++cell) {
    add_crop_sample(axis, cell, grid.position(cell), sink);
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void crop_nearest(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const CropGrid<T> grid = crop_grid(axis);
  for (int cell = first_bin; cell < last_bin; ++cell) {
    sink.begin_bin(cell, 1);
    const T position = grid.position(cell);
    if (!(position >= T(0) && position <= T(axis.size - 1))) continue;
    sink.add(0, whole_cell<T>(cell_at(round_half_away(position), axis.size)));
  }
}

}  // namespace roipool
