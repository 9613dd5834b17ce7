// Precise ROI pooling: the integral of the bilinearly interpolated map over each bin, divided by
// the bin's area. There are no samples: a cell's weight is the mean of its hat function over the
// bin, which is 1 at the cell and falls to 0 at its neighbours. So the map fades to 0 beyond its
// border.
#pragma once
#include "sample.h"

namespace roipool {

// The part of a bin [low, high] on one side of a cell, where the cell's hat is linear. Means are
// over that part. Only differences of neighbours are taken, so that a short bin loses no digits.
template <typename T>
struct HatPiece {
  T length;
  T height;    // mean height of the hat
  T from_low;  // twice the mean distance from the bin's lower edge
  T to_high;   // twice the mean distance to its upper edge
};

// Between the cell and the foot of its hat, one cell away.
template <typename T>
ROIPOOL_HD HatPiece<T> hat_piece(T low, T high, T foot, T cell) {
  const T begin = maximum(low, minimum(foot, cell)), end = minimum(high, maximum(foot, cell));
  if (!(end > begin)) return {T(0), T(0), T(0), T(0)};
  return {end - begin, T(0.5) * (magnitude(begin - foot) + magnitude(end - foot)),
          (begin - low) + (end - low), (high - begin) + (high - end)};
}

// Adds the cells of one bin to the sink. A mean over [low, high] changes with an edge by the slope
// of the hat, averaged with the distance from the other edge, over the length. The shares
// say how far an edge moves with the end of the box rather than with its start.
template <typename T, typename Sink>
ROIPOOL_HD void add_hats(const Axis<T>& axis, T low, T high, T low_share, T high_share,
                         Sink& sink) {
  const T length = high - low;
  const wide_int first = clamp(to_wide_int(floor_of(low)), 0, axis.size);
  const wide_int last = clamp(to_wide_int(ceil_of(high)) + 1, 0, axis.size);
  for (wide_int number = first; number < last; ++number) {
    const T cell = T(number);
    if (!(length > T(0))) {  // too short for the type: its limit is a point
      sink.tap(static_cast<int>(number), maximum(T(1) - magnitude(low - cell), T(0)), T(0), T(0));
      continue;
    }
    const HatPiece<T> up = hat_piece(low, high, cell - T(1), cell);
    const HatPiece<T> down = hat_piece(low, high, cell + T(1), cell);
    const T rising = up.length / length, falling = down.length / length;
    const T half_scale = T(0.5) * axis.scale;
    const T mean = rising * up.height + falling * down.height;
    const T by_low =
        (rising * (up.to_high / length) - falling * (down.to_high / length)) * half_scale;
    const T by_high =
        (rising * (up.from_low / length) - falling * (down.from_low / length)) * half_scale;
    sink.tap(static_cast<int>(number), mean,
             by_low * (T(1) - low_share) + by_high * (T(1) - high_share),
             by_low * low_share + by_high * high_share);
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void precise_roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const T start = axis.low * axis.scale;
  const T bin_length = (axis.high * axis.scale - start) / T(axis.bins);
  const bool is_empty = !(is_finite(start) && is_finite(bin_length) && bin_length > T(0));
  for (int bin = first_bin; bin < last_bin; ++bin) {
    sink.begin_bin(bin, is_empty ? 0 : 1);
    if (is_empty) continue;
    add_hats(axis, start + T(bin) * bin_length, start + T(bin + 1) * bin_length,
             T(bin) / T(axis.bins), T(bin + 1) / T(axis.bins), sink);
  }
}

}  // namespace roipool
