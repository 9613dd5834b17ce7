// An argmax as coordinates, the form in which mmcv, Caffe and MXNet keep it, and back.
#pragma once
#include "argmax.h"
#include "definitions.h"

namespace roipool {

// The grid of a definition of that kind.
template <typename T>
ROIPOOL_HD SampleGrid<T> sample_grid_of(Definition definition, const Axis<T>& axis) {
  return definition == define_mmcv_roi_align ? mmcv_sample_grid(axis) : sample_grid(axis);
}

// One axis of a box, and one of its bins there.
template <typename T>
struct AxisBin {
  Definition definition;
  Axis<T> axis;
  int bin;
  BinSamples<T> samples;
};

// The position of sample `number` of a bin, inside the map or not: only a grid has samples that are
// not listed.
template <typename T>
ROIPOOL_HD T position_of(const AxisBin<T>& place, wide_int number) {
  const wide_int entry = number - place.samples.first_number;
  if (entry >= 0 && entry < place.samples.count) return place.samples.sample[entry].position;
  return sample_grid_of(place.definition, place.axis).position(place.bin, number);
}

// The distance between neighbouring samples along one axis of one box.
template <typename T>
ROIPOOL_HD T spacing_of(Definition definition, const Axis<T>& axis) {
  if (traits_of(definition).kind != kind_grid) return T(1);
  const SampleGrid<T> grid = sample_grid_of(definition, axis);
  return magnitude(grid.bin_length / T(grid.count));
}

// The listed sample nearest to a position, by number, the first of two as near; -1 where none is
// within half the spacing: then a sample outside the map was meant.
template <typename T>
ROIPOOL_HD wide_int number_near(const AxisBin<T>& place, T position) {
  const BinSamples<T>& samples = place.samples;
  wide_int nearest = -1;
  T distance = spacing_of(place.definition, place.axis) / T(2);
  for (int entry = 0; entry < samples.count; ++entry) {
    const T away = magnitude(samples.sample[entry].position - position);
    if (away < distance || (nearest < 0 && away == distance)) {
      distance = away;
      nearest = samples.first_number + entry;
    }
  }
  return nearest;
}

template <typename T>
struct Point {
  T y;
  T x;
};

// A sample's place in its bin's grid.
struct GridPlace {
  wide_int row;
  wide_int column;
};

// Where the sample at `place` lies; -1, -1 where the bin has no samples at all.
template <typename T>
ROIPOOL_HD Point<T> point_of(const AxisBin<T>& rows, const AxisBin<T>& columns, GridPlace place) {
  if (columns.samples.total <= 0 || rows.samples.total <= 0) return {T(-1), T(-1)};
  return {position_of(rows, place.row), position_of(columns, place.column)};
}

// The number of the sample at a point; -1 where it names no sample inside the map.
template <typename T>
ROIPOOL_HD wide_int number_at(const AxisBin<T>& rows, const AxisBin<T>& columns, Point<T> point) {
  const wide_int row = number_near(rows, point.y), column = number_near(columns, point.x);
  return row >= 0 && column >= 0 ? row * columns.samples.total + column : -1;
}

}  // namespace roipool
