// An argmax as positions, the form in which mmcv, Caffe and MXNet return it, and back.
#pragma once
#include "argmax.h"
#include "definitions.h"
#include "roi_align.h"

namespace roipool {

// The grid of a definition of that kind. Of one that rounds positions in an order of its own it is
// that of roi_align: a position may be another by a rounding.
template <typename T>
ROIPOOL_HD SampleGrid<T> sample_grid_of(Definition definition, const Axis<T>& axis) {
  if (definition == define_mmcv_roi_align) return mmcv_sample_grid(axis);
  return definition == define_chainercv_ps_roi_align ? chainercv_sample_grid(axis)
                                                     : sample_grid(axis);
}

#define ROIPOOL_COUNT_GRID(name, kind, samples_per_ratio, max_per_cell) \
  +(kind_##kind == kind_grid ? 1 : 0)
static_assert(0 ROIPOOL_DEFINITIONS(ROIPOOL_COUNT_GRID) == 7,
              "a new definition on a grid: say in sample_grid_of which one, and count it here");
#undef ROIPOOL_COUNT_GRID

// One axis of a box and one of its bins.
template <typename T>
struct AxisBin {
  Definition definition;
  Axis<T> axis;
  int bin;
  BinSamples<T> samples;
};

// The position of sample `index` of a bin, inside the map or not: only a grid has samples that are
// not listed.
template <typename T>
ROIPOOL_HD T position_of(const AxisBin<T>& axis_bin, wide_int index) {
  const wide_int entry = index - axis_bin.samples.first_index;
  if (entry >= 0 && entry < axis_bin.samples.count) return axis_bin.samples.sample[entry].position;
  return sample_grid_of(axis_bin.definition, axis_bin.axis).position(axis_bin.bin, index);
}

// The distance between neighbouring samples along one axis of one box.
template <typename T>
ROIPOOL_HD T spacing_of(Definition definition, const Axis<T>& axis) {
  if (traits_of(definition).kind != kind_grid) return T(1);
  const SampleGrid<T> grid = sample_grid_of(definition, axis);
  return magnitude(grid.bin_length / T(grid.count));
}

// The index of the listed sample nearest to a position, the first of two equally near ones; -1
// where none is within half the spacing, because the position is that of a sample outside the map.
template <typename T>
ROIPOOL_HD wide_int nearest_sample(const AxisBin<T>& axis_bin, T position) {
  const BinSamples<T>& samples = axis_bin.samples;
  wide_int nearest = -1;
  T distance = spacing_of(axis_bin.definition, axis_bin.axis) / T(2);
  for (int entry = 0; entry < samples.count; ++entry) {
    const T away = magnitude(samples.sample[entry].position - position);
    if (away < distance || (nearest < 0 && away == distance)) {
      distance = away;
      nearest = samples.first_index + entry;
    }
  }
  return nearest;
}

template <typename T>
struct Point {
  T y;
  T x;
};

// A sample's row and column in its bin's grid.
struct GridIndex {
  wide_int row;
  wide_int column;
};

// The position of a sample; -1, -1 where the bin has no samples at all.
template <typename T>
ROIPOOL_HD Point<T> point_of(const AxisBin<T>& rows, const AxisBin<T>& columns, GridIndex sample) {
  if (columns.samples.total <= 0 || rows.samples.total <= 0) return {T(-1), T(-1)};
  return {position_of(rows, sample.row), position_of(columns, sample.column)};
}

// The index of the sample at a point; -1 where there is none inside the map.
template <typename T>
ROIPOOL_HD wide_int sample_index_at(const AxisBin<T>& rows, const AxisBin<T>& columns,
                                    Point<T> point) {
  const wide_int row = nearest_sample(rows, point.y), column = nearest_sample(columns, point.x);
  return row >= 0 && column >= 0 ? row * columns.samples.total + column : -1;
}

}  // namespace roipool
