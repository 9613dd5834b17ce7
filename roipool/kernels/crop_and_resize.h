// crop_and_resize: one sample per output cell, or one weighted mean, boxes normalised to the map's
// first and last cell centres. A sample outside the map has no value of its own (extrapolation).
//
// The first and the last output cell of a box lie exactly at its two ends, as in OpenVINO's
// bilinear ROIPooling and ONNX Runtime's CropAndResize. TensorFlow leaves the last one where
// rounding puts it, which for a box that ends at 1 can be just outside the map: its own definitions
// are below.
//
// With `axis.aligned`, a sample outside the map is that at its edge instead.
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

// False for NaN, too.
template <typename T>
ROIPOOL_HD bool is_on_map(const Axis<T>& axis, T position) {
  return position >= T(0) && position <= T(axis.size - 1);
}

// Where an output cell reads the map, which may be outside it.
template <typename T>
ROIPOOL_HD T read_position(const Axis<T>& axis, const CropGrid<T>& grid, int cell) {
  const T position = grid.position(cell);
  if (!axis.aligned || !is_finite(position)) return position;
  return minimum(maximum(position, T(0)), T(axis.size - 1));
}

// Adds the sample of an output cell inside the map to the sink.
template <typename T, typename Sink>
ROIPOOL_HD void add_bilinear_cell(const Axis<T>& axis, const CropGrid<T>& grid, int cell,
                                  Sink& sink) {
  const T position = read_position(axis, grid, cell);
  const int low = cell_at(floor_of(position), axis.size);
  const int high = cell_at(ceil_of(position), axis.size);
  const T fraction = position - floor_of(position);
  sink.add(0, Sample<T>{low, high, T(1) - fraction, fraction, T(1), position},
           crop_position_gradient(axis, grid, cell));
}

// Adds the samples of the output cells to the sink, except those outside the map.
template <typename T, typename Sink>
ROIPOOL_HD_ONCE void add_bilinear_crop(const Axis<T>& axis, const CropGrid<T>& grid, int first_bin,
                                       int last_bin, Sink& sink) {
  for (int cell = first_bin; cell < last_bin; ++cell) {
    sink.begin_bin(cell, 1);
    if (!is_on_map(axis, read_position(axis, grid, cell))) continue;
    add_bilinear_cell(axis, grid, cell, sink);
  }
}

template <typename T, typename Sink>
ROIPOOL_HD_ONCE void add_nearest_crop(const Axis<T>& axis, const CropGrid<T>& grid, int first_bin,
                                      int last_bin, Sink& sink) {
  for (int cell = first_bin; cell < last_bin; ++cell) {
    sink.begin_bin(cell, 1);
    const T position = read_position(axis, grid, cell);
    if (!is_on_map(axis, position)) continue;
    sink.add(0, whole_cell<T>(cell_at(round_half_away(position), axis.size)));
  }
}

// A sum of two numbers, and the difference that rounding it has made.
template <typename T>
struct ExactSum {
  T sum;
  T error;
};

template <typename T>
ROIPOOL_HD ExactSum<T> exact_sum(T a, T b) {
  const T sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

// The filter of a crop that makes smaller, as Pillow and torchvision resize: a triangle around the
// position of an output cell, whose feet are one step away, where the next output cells lie. Its
// height is the distance from the nearer foot, to the last digit.
template <typename T>
struct Triangle {
  T centre;
  ExactSum<T> low_foot;
  ExactSum<T> high_foot;

  // 0 or less outside the filter.
  ROIPOOL_HD T height(wide_int cell) const {
    return minimum((T(cell) - low_foot.sum) - low_foot.error,
                   (high_foot.sum - T(cell)) + high_foot.error);
  }
  // Whether a cell of the map is inside the filter: around an output cell far outside it, none is.
  ROIPOOL_HD bool reaches(const Axis<T>& axis) const {
    return height(clamp(to_wide_int(centre), 0, axis.size - 1)) > T(0);
  }
  // The derivative of the height by the centre; that by the distance of the feet is 1.
  ROIPOOL_HD T slope(wide_int cell) const {
    return T(cell) > centre ? T(1) : (T(cell) < centre ? T(-1) : T(0));
  }
};

// Heights under a wider filter are all alike, and their sum must not overflow. An output cell
// farther from the map than that reaches none of its cells.
const float greatest_width = 1.2379400392853803e27f;  // 2^90

template <typename T>
ROIPOOL_HD Triangle<T> triangle_at(T centre, T width) {
  const T held = minimum(width, T(greatest_width));
  return {centre, exact_sum(centre, -held), exact_sum(centre, held)};
}

// The distance between the positions of output cells, towards the end of the box; of a single one,
// the length of the box.
template <typename T>
ROIPOOL_HD T crop_step(const Axis<T>& axis) {
  return (axis.high - axis.low) * T(axis.size - 1) / T(maximum(axis.bins - 1, 1));
}

// Adds the mean of the map under the filter to the sink. The weights of the cells inside the map
// sum to 1. The width grows by `by_high` as the box's end goes up.
template <typename T, typename Sink>
ROIPOOL_HD void add_triangle(const Axis<T>& axis, const Triangle<T>& filter, T by_high,
                             const PositionGradient<T>& gradient, Sink& sink) {
  const wide_int first = clamp(to_wide_int(floor_of(filter.low_foot.sum)), 0, axis.size);
  const wide_int last = clamp(to_wide_int(ceil_of(filter.high_foot.sum)) + 1, 0, axis.size);
  ExactSum<T> heights = {T(0), T(0)};
  T slopes = T(0), cells = T(0);
  for (wide_int cell = first; cell < last; ++cell) {
    if (!(filter.height(cell) > T(0))) continue;
    const ExactSum<T> more = exact_sum(heights.sum, filter.height(cell));
    heights = {more.sum, heights.error + more.error};
    slopes += filter.slope(cell);
    cells += T(1);
  }
  const T total = heights.sum + heights.error;
  for (wide_int cell = first; cell < last; ++cell) {
    if (!(filter.height(cell) > T(0))) continue;
    const T weight = filter.height(cell) / total;
    const T by_centre = (filter.slope(cell) - weight * slopes) / total;
    const T by_width = (T(1) - weight * cells) / total;
    sink.tap(static_cast<int>(cell), weight, by_centre * gradient.by_low - by_width * by_high,
             by_centre * gradient.by_high + by_width * by_high);
  }
}

// On an axis that is not made smaller the filter is as wide as from one cell of the map to the
// next: it is that of bilinear crops.
template <typename T, typename Sink>
ROIPOOL_HD void crop_antialias(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const CropGrid<T> grid = crop_grid(axis);
  const T step = crop_step(axis), width = magnitude(step);
  const T cells_per_box = T(axis.size - 1) / T(maximum(axis.bins - 1, 1));
  const T by_high = step < T(0) ? -cells_per_box : cells_per_box;
  for (int cell = first_bin; cell < last_bin; ++cell) {
    sink.begin_bin(cell, 1);
    const T read = read_position(axis, grid, cell);
    if (!is_on_map(axis, read) || !is_finite(width)) continue;
    const Triangle<T> filter = triangle_at(grid.position(cell), width);
    if (width > T(1) && filter.reaches(axis)) {
      add_triangle(axis, filter, by_high, crop_position_gradient(axis, grid, cell), sink);
    } else {
      add_bilinear_cell(axis, grid, cell, sink);
    }
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
