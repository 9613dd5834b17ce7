// The memory layout of features and of pooled values. Engines include this: see ROIPOOL_ENGINE_HD.
#pragma once
#include "config.h"

namespace roipool {

// Distances between neighbours, in elements.
struct Strides {
  wide_int outer;  // images, or boxes
  wide_int channel;
  wide_int row;
  wide_int column;
};

ROIPOOL_ENGINE_HD Strides strides_of_array(bool channels_last, wide_int channels, wide_int rows,
                                           wide_int columns) {
  const wide_int outer = channels * rows * columns;
  if (channels_last) return {outer, 1, columns * channels, channels};
  return {outer, rows * columns, columns, 1};
}

}  // namespace roipool
