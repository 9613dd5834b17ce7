// The crops of TensorFlow's model garden: one sample per bin, which is never outside the map.
#pragma once
#include "sample.h"

namespace roipool {

// A sample at `offsets.factor` of each bin. Ahead of the first cell the map goes on in a straight
// line through its first two cells, behind the last cell it stays as it is there: cells are held
// inside the map, but weights are not. The expression order of positions is the original's.
template <typename T, typename Sink>
ROIPOOL_HD void garden_crop(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T start = axis.low * axis.scale;
  const T length = axis.high * axis.scale - start;
  const wide_int last = axis.size - 1;
  for (int bin = first_bin; bin < last_bin; ++bin) {
    sink.begin_bin(bin, 1);
    const T bins_before = T(bin) + axis.offsets.factor;
    const T position = start + bins_before * length / T(axis.bins);
    if (!is_finite(position)) continue;
    const wide_int cell = minimum(maximum(to_wide_int(floor_of(position)), wide_int(0)), last);
    if (cell == last) {
      sink.add(0, whole_cell<T>(cell));
      continue;
    }
    const T fraction = position - T(cell);
    const T share = bins_before / T(axis.bins);
    sink.add(0,
             Sample<T>{static_cast<int>(cell), static_cast<int>(cell) + 1, T(1) - fraction,
                       fraction, T(1), position},
             PositionGradient<T>{axis.scale * (T(1) - share), axis.scale * share});
  }
}

}  // namespace roipool
