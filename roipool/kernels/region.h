// Input (Region) and output of pointwise definitions, whose samples do not separate into rows and
// columns.
#pragma once
#include "rotation.h"
#include "sample.h"

namespace roipool {

// A box, as a pointwise definition sees it.
template <typename T>
struct Region {
  T center_x, center_y, width, height;  // in the caller's unit: image pixels
  T cosine, sine;                       // of its angle, counter-clockwise as the image is shown
  T angle_scale;                        // multiplies the caller's angle to give that, in radians
  T scale;                              // multiplies a coordinate to give map cells
  wide_int rows, columns;               // cells of the map; 0 where the box reads nothing
  int bins_down, bins_across;
  wide_int sampling_down, sampling_across;  // samples per bin; 0: as many as the bin is long
  bool aligned;  // shift by half a cell, so that cell 0 covers [-0.5, 0.5]
  // Cells [top, bottom) by [left, right). Samples that read none of them may be skipped.
  wide_int top, bottom, left, right;
};

// `common` holds the fields that all boxes of a call share; `numbers` are those of one box,
// `stride` elements apart.
template <typename T>
ROIPOOL_HD Region<T> region_of_box(const Region<T>& common, const T* numbers, wide_int stride,
                                   double angle_scale) {
  Region<T> region = common;
  region.center_x = numbers[0];
  region.center_y = numbers[stride];
  region.width = numbers[2 * stride];
  region.height = numbers[3 * stride];
  const Rotation rotation = rotation_by(static_cast<double>(numbers[4 * stride]) * angle_scale);
  region.cosine = static_cast<T>(rotation.cosine);
  region.sine = static_cast<T>(rotation.sine);
  region.angle_scale = static_cast<T>(angle_scale);
  return region;
}

// How a sample moves with the numbers of its box.
template <typename T>
struct PointGradient {
  T y[numbers_of_region];
  T x[numbers_of_region];
};

// A pointwise definition is a function template
//
//   template <typename T, typename Sink>
//   void NAME(const Region<T>& region, int first_bin, int last_bin, Sink& sink);
//
// For every bin in [first_bin, last_bin), in row-major order, it calls
//   sink.begin_bin(bin, total)            how many samples the bin has, inside the map or not,
//   is_to_end(sink, samples)              before some samples: whether to return instead,
//   sink.add(number, y, x, gradient)      each sample inside the map, in increasing `number`: its
//                                         value is the sum over the cells of y by those of x.
// Beside it stands NAME_reach(Region<T>* region), which narrows top, bottom, left and right to the
// cells that the box can read, or to a few more.
//
// It is never called for a map without cells. For NaN and infinite numbers it must produce bins
// without samples inside the map.

// A bin may have a billion samples. Sinks that can be interrupted have a function of their own.
template <typename Sink>
ROIPOOL_HD bool is_to_end(Sink&, wide_int) {
  return false;
}

}  // namespace roipool
