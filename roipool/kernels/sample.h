// Input (Axis) and output (Sample) of separable definitions.
#pragma once
#include "box_columns.h"
#include "config.h"

namespace roipool {

// How far a definition of kind `moved` moves the bins of a box along one axis, as shares of its
// side: `factor` times an offset for each bin of the grid, row by row. Of `garden_crop`, `factor`
// is the share of a bin at which its sample lies.
template <typename T>
struct BinOffsets {
  const T* first;
  wide_int stride;
  T factor;
  int bins_across;
};

// One axis of one box, as a definition sees it. Rows and columns are treated alike.
template <typename T>
struct Axis {
  T low;              // the box's first and last coordinate on this axis, in the caller's unit:
  T high;             //   image pixels, or fractions of the map for crop_and_resize
  T scale;            // multiplies a coordinate to give map cells
  wide_int size;      // cells of the map along this axis
  int bins;           // bins of the output along this axis
  wide_int sampling;  // samples per bin; 0 or less: as many as the bin is long, rounded up
  bool aligned;       // shift by half a cell, so that cell 0 covers [-0.5, 0.5]; of crops: hold
                      //   samples outside the map at its edge
  bool vertical;      // rows rather than columns
  BinOffsets<T> offsets;
};

// One sample of a bin along one axis: a value is the weighted sum of one or two map cells.
template <typename T>
struct Sample {
  int first;   // map cell
  int second;  // map cell; `no_cell` where the sample reads one cell only
  T first_weight;
  T second_weight;
  T slope;     // d(second_weight) / d(position) = -d(first_weight) / d(position)
  T position;  // in map cells
};

const int no_cell = -1;

// How a sample's position moves with the two ends of its box.
template <typename T>
struct PositionGradient {
  T by_low;
  T by_high;
};

// A definition is a function template
//
//   template <typename T, typename Sink>
//   void NAME(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink);
//
// For every bin in [first_bin, last_bin), in order, it calls
//   sink.begin_bin(bin, total)   the number of samples of the bin on this axis, inside the map or
//                                not, by which an average divides,
// and then either
//   sink.add(number, sample)     each sample that lies inside the map, in increasing `number`,
//                                which counts the bin's samples from 0, the outside ones included;
//   sink.add(number, sample, gradient)
//                                the same with a PositionGradient, if boxes have a gradient: its
//                                computation costs nothing where the sink does not use it;
// or, for averages whose weights come from no samples (integrals, say),
//   sink.tap(cell, weight, by_low, by_high)
//                                a weight and its derivatives by the ends of the box, cells in
//                                increasing order, at most two out of place. A sample is one or
//                                two taps.
//
// It is never called for an axis without cells (size 0). For NaN and infinite coordinates it must
// produce bins without samples inside the map.

template <typename T>
ROIPOOL_HD Sample<T> whole_cell(wide_int cell, T weight = T(1)) {
  return {static_cast<int>(cell), no_cell, weight, T(0), T(0), T(cell)};
}

}  // namespace roipool
