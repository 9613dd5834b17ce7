// Deformable position-sensitive ROI pooling: the samples of each bin begin at its corner, bins are
// moved, and a sample outside the map does not count (Deformable-ConvNets, MXNet, OpenVINO).
#pragma once
#include "definitions.h"
#include "roi_align.h"

namespace roipool {

// A box that is rounded to whole pixels, with the last one in it; at least a tenth of a cell long.
template <typename T>
struct RoundedBox {
  T start;
  T length;
};

// The product is rounded before the difference, as in MXNet, and corners are rounded half away.
template <typename T>
ROIPOOL_HD RoundedBox<T> rounded_box(const Axis<T>& axis) {
  T start = round_half_away(axis.low) * axis.scale - T(0.5);
  const T end = (round_half_away(axis.high) + T(1)) * axis.scale - T(0.5);
  // An infinite end must not pass as a short box: it makes every position NaN.
  if (!(is_finite(start) && is_finite(end))) start = (start - start) + (end - end);
  return {start, maximum(end - start, T(0.1))};
}

// The samples of one bin, which begin at the bin's corner rather than half a step after it.
template <typename T>
struct CornerGrid : SampleGrid<T> {
  T step;

  ROIPOOL_HD T position(wide_int number) const { return this->start + T(number) * step; }
};

// The expression order is MXNet's: it decides floor and outside.
template <typename T>
ROIPOOL_HD CornerGrid<T> corner_grid(const Axis<T>& axis, const RoundedBox<T>& box, int bin) {
  const BinOffsets<T>& offsets = axis.offsets;
  const int number = axis.vertical ? bin / offsets.bins_across : bin % offsets.bins_across;
  const T bin_length = box.length / T(axis.bins);
  const T moved = offsets.first[bin * offsets.stride] * offsets.factor * box.length;
  const T start = T(number) * bin_length + box.start + moved;
  return {{start, bin_length, axis.sampling, false}, bin_length / T(axis.sampling)};
}

// The numbers of a bin's samples that lie on the map: `numbers_between` gives a few more.
template <typename T>
ROIPOOL_HD NumberRange numbers_on_map(const CornerGrid<T>& grid, wide_int size) {
  const T low = T(-0.5), high = T(size) - T(0.5);
  NumberRange range = numbers_between(grid, 0, low, high);
  while (range.first < range.last && !(grid.position(range.first) >= low)) ++range.first;
  while (range.last > range.first && !(grid.position(range.last - 1) <= high)) --range.last;
  return range;
}

// Interpolation between cell centres, held at those of the outermost cells. On a centre, where
// interpolation has a kink, the slope is 0.
template <typename T>
ROIPOOL_HD Sample<T> held_at_centres(T position, wide_int size) {
  const T held = maximum(position, T(0));
  const wide_int low = static_cast<wide_int>(held);
  if (low >= size - 1) return whole_cell<T>(size - 1);
  const T fraction = held - T(low);
  if (fraction == T(0)) return whole_cell<T>(low);
  const int cell = static_cast<int>(low);
  return {cell, cell + 1, T(1) - fraction, fraction, T(1), position};
}

// A bin's samples move by its own offset alone, since corners are rounded: `by_low` is 1 for a
// position in map cells (moved_side).
template <typename T, typename Sink>
ROIPOOL_HD void deformable_ps_roi_pool(const Axis<T>& axis, int first_bin, int last_bin,
                                       Sink& sink) {
  const RoundedBox<T> box = rounded_box(axis);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const CornerGrid<T> grid = corner_grid(axis, box, bin);
    const NumberRange inside = numbers_on_map(grid, axis.size);
    sink.begin_bin(bin, inside.last - inside.first);
    for (wide_int number = inside.first; number < inside.last; ++number) {
      sink.add(number - inside.first, held_at_centres(grid.position(number), axis.size),
               PositionGradient<T>{T(1), T(0)});
    }
  }
}

// How far an offset of 1 moves the bins of a box, where the factor is 1: in the caller's unit or,
// of rounded boxes, in map cells.
template <typename T>
ROIPOOL_HD double moved_side(Definition definition, const Axis<T>& axis) {
  if (rounds_boxes(definition)) return static_cast<double>(rounded_box(axis).length);
  return static_cast<double>(axis.high) - static_cast<double>(axis.low);
}

}  // namespace roipool
