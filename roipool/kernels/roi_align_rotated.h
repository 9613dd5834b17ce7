// ROI align of boxes rotated around their centre (mmcv, detectron2, OpenVINO).
#pragma once
#include "region.h"
#include "roi_align.h"

namespace roipool {

// The samples of a box: a grid around the origin, rotated, then moved to the centre of the box.
template <typename T>
struct RotatedGrid {
  SampleGrid<T> down;
  SampleGrid<T> across;
  T center_y;
  T center_x;
  T slack;  // bound on the rounding error of a sample's position near the map
};

template <typename T>
ROIPOOL_HD SampleGrid<T> centered_grid(T length, int bins, wide_int sampling, bool aligned) {
  const bool fixed_length = !aligned && length < T(1);
  if (fixed_length) length = T(1);
  const wide_int count = sampling > 0 ? sampling : adaptive_grid(length / T(bins));
  return {-length / T(2), length / T(bins), count, fixed_length};
}

// The expression order is mmcv's: it decides floor and outside.
template <typename T>
ROIPOOL_HD RotatedGrid<T> rotated_grid(const Region<T>& region) {
  const T offset = region.aligned ? T(0.5) : T(0);
  RotatedGrid<T> grid;
  grid.down = centered_grid(region.height * region.scale, region.bins_down, region.sampling_down,
                            region.aligned);
  grid.across = centered_grid(region.width * region.scale, region.bins_across,
                              region.sampling_across, region.aligned);
  grid.center_y = region.center_y * region.scale - offset;
  grid.center_x = region.center_x * region.scale - offset;
  grid.slack =
      (magnitude(grid.center_y) + magnitude(grid.center_x) + T(region.rows + region.columns)) *
      T(sizeof(T) == 4 ? 1e-6 : 1e-14);
  return grid;
}

// Beyond this float32 places a centre to the nearest 64 cells only: such a box lies outside, as one
// with NaN or infinite numbers does.
template <typename T>
ROIPOOL_HD bool is_placed(const RotatedGrid<T>& grid, const Region<T>& region) {
  const T farthest = T(1073741824.0);
  return magnitude(grid.center_y) <= farthest && magnitude(grid.center_x) <= farthest &&
         is_finite(grid.down.start) && is_finite(grid.across.start) && is_finite(region.cosine);
}

template <typename T>
struct Interval {
  T low;
  T high;

  // Keeps the numbers for which low <= base + factor * number <= high; a tiny factor excludes none.
  ROIPOOL_HD void restrict_to(T low_end, T high_end, T base, T factor) {
    if (magnitude(factor) < T(0.25)) return;
    const T first = (low_end - base) / factor, second = (high_end - base) / factor;
    low = maximum(low, minimum(first, second));
    high = minimum(high, maximum(first, second));
  }
};

// The range of positions whose samples can read cells [first, last).
template <typename T>
ROIPOOL_HD Interval<T> reach_of_cells(wide_int first, wide_int last, T slack) {
  return {T(first) - T(1) - slack, T(last) + slack};
}

// The rows of the unrotated grid that can reach the region's cells.
template <typename T>
ROIPOOL_HD Interval<T> rows_near_cells(const RotatedGrid<T>& grid, const Region<T>& region) {
  const Interval<T> y = reach_of_cells(region.top, region.bottom, grid.slack);
  const Interval<T> x = reach_of_cells(region.left, region.right, grid.slack);
  const T ys[2] = {(y.low - grid.center_y) * region.cosine,
                   (y.high - grid.center_y) * region.cosine};
  const T xs[2] = {(x.low - grid.center_x) * region.sine, (x.high - grid.center_x) * region.sine};
  return {minimum(ys[0], ys[1]) + minimum(xs[0], xs[1]) - T(2) * grid.slack,
          maximum(ys[0], ys[1]) + maximum(xs[0], xs[1]) + T(2) * grid.slack};
}

// The columns of one of these rows that can reach the region's cells.
template <typename T>
ROIPOOL_HD Interval<T> columns_near_cells(const RotatedGrid<T>& grid, const Region<T>& region,
                                          T row) {
  const Interval<T> y = reach_of_cells(region.top, region.bottom, grid.slack);
  const Interval<T> x = reach_of_cells(region.left, region.right, grid.slack);
  const T half = grid.across.start;
  Interval<T> near = {minimum(half, -half), maximum(half, -half)};
  near.restrict_to(y.low, y.high, row * region.cosine + grid.center_y, -region.sine);
  near.restrict_to(x.low, x.high, row * region.sine + grid.center_x, region.cosine);
  return near;
}

// How far a sample moves along its axis as the box's length grows by one.
template <typename T>
ROIPOOL_HD T share_of_length(const SampleGrid<T>& grid, int bins, int bin, wide_int number) {
  if (grid.fixed_length) return T(0);
  return (T(bin) + (T(number) + T(0.5)) / T(grid.count)) / T(bins) - T(0.5);
}

// Narrows the region's cells to those that the box can read.
template <typename T>
ROIPOOL_HD void roi_align_rotated_reach(Region<T>* region) {
  const RotatedGrid<T> grid = rotated_grid(*region);
  if (!is_placed(grid, *region)) {
    region->bottom = region->top;
    return;
  }
  const T down = magnitude(grid.down.start), across = magnitude(grid.across.start);
  const T cosine = magnitude(region->cosine), sine = magnitude(region->sine);
  // A cell around the samples, one for a sample that is held at the border, and the roundings.
  const T rest = T(2) + grid.slack + (down + across) * T(sizeof(T) == 4 ? 1e-6 : 1e-14);
  const T half_height = down * cosine + across * sine + rest;
  const T half_width = down * sine + across * cosine + rest;
  region->top = clamp(to_wide_int(grid.center_y - half_height), 0, region->rows);
  region->bottom = clamp(to_wide_int(grid.center_y + half_height) + 1, 0, region->rows);
  region->left = clamp(to_wide_int(grid.center_x - half_width), 0, region->columns);
  region->right = clamp(to_wide_int(grid.center_x + half_width) + 1, 0, region->columns);
}

// y and x move with centre x, centre y, width, height, angle.
template <typename T>
ROIPOOL_HD PointGradient<T> rotated_gradient(const Region<T>& region, T down, T across,
                                             T down_share, T across_share) {
  const T by_height = region.scale * down_share, by_width = region.scale * across_share;
  const T turned_y = -down * region.sine - across * region.cosine;
  const T turned_x = down * region.cosine - across * region.sine;
  return {{T(0), region.scale, -region.sine * by_width, region.cosine * by_height,
           region.angle_scale * turned_y},
          {region.scale, T(0), region.cosine * by_width, region.sine * by_height,
           region.angle_scale * turned_x}};
}

template <typename T, typename Sink>
ROIPOOL_HD void add_rotated_bin(const RotatedGrid<T>& grid, const Region<T>& region, int bin_down,
                                int bin_across, NumberRange rows, Sink& sink) {
  for (wide_int i = rows.first; i < rows.last; ++i) {
    const T down = grid.down.position(bin_down, i);
    const Interval<T> near = columns_near_cells(grid, region, down);
    const NumberRange columns = numbers_between(grid.across, bin_across, near.low, near.high);
    if (is_to_end(sink, columns.last - columns.first + 1)) return;
    for (wide_int j = columns.first; j < columns.last; ++j) {
      const T across = grid.across.position(bin_across, j);
      const T y = down * region.cosine - across * region.sine + grid.center_y;
      const T x = down * region.sine + across * region.cosine + grid.center_x;
      if (!(y >= T(-1) && y <= T(region.rows) && x >= T(-1) && x <= T(region.columns))) continue;
      sink.add(i * grid.across.count + j, replicate_border(y, region.rows),
               replicate_border(x, region.columns),
               rotated_gradient(region, down, across,
                                share_of_length(grid.down, region.bins_down, bin_down, i),
                                share_of_length(grid.across, region.bins_across, bin_across, j)));
    }
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void roi_align_rotated(const Region<T>& region, int first_bin, int last_bin,
                                  Sink& sink) {
  const RotatedGrid<T> grid = rotated_grid(region);
  const bool placed = is_placed(grid, region);
  const Interval<T> near = rows_near_cells(grid, region);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const int bin_down = bin / region.bins_across, bin_across = bin % region.bins_across;
    sink.begin_bin(bin, placed ? grid.down.count * grid.across.count : 0);
    if (!placed) continue;
    if (is_to_end(sink, 1)) return;
    add_rotated_bin(grid, region, bin_down, bin_across,
                    numbers_between(grid.down, bin_down, near.low, near.high), sink);
  }
}

}  // namespace roipool
