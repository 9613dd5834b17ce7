// The samples of a bin as an argmax counts them: row by row over the bin's whole grid, those
// outside the map included. Engines include this: see ROIPOOL_ENGINE_HD.
#pragma once
#include "sample.h"

namespace roipool {

// The listed samples of one bin along one axis: all that lie inside the map.
template <typename T>
struct BinSamples {
  const Sample<T>* sample;
  int count;
  wide_int first_index;
  wide_int total;  // samples, those outside the map included

  ROIPOOL_ENGINE_HD wide_int end_index() const { return first_index + count; }
};

// The index of the first sample, in row-major order, that lies outside the map; -1 if none does.
template <typename T>
ROIPOOL_ENGINE_HD wide_int first_outside(const BinSamples<T>& rows, const BinSamples<T>& columns) {
  if (rows.total <= 0 || columns.total <= 0) return -1;
  if (rows.count == 0 || columns.count == 0) return 0;
  if (rows.first_index > 0 || columns.first_index > 0) return 0;
  if (columns.end_index() < columns.total) return columns.end_index();
  if (rows.end_index() < rows.total) return rows.end_index() * columns.total;
  return -1;
}

}  // namespace roipool
