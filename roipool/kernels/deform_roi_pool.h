// Deformable ROI pooling: ROI align whose bins are moved, each by an offset of its own (mmcv).
#pragma once
#include "roi_align.h"

namespace roipool {

// Where one bin lies along an axis: the grid of its box, moved, and its number among the bins.
template <typename T>
struct MovedBin {
  SampleGrid<T> grid;
  int number;
  T share;  // of the box's side by which it is moved
};

// The expression order is mmcv's: it decides floor and outside.
template <typename T>
ROIPOOL_HD MovedBin<T> moved_bin(const Axis<T>& axis, const SampleGrid<T>& grid, int bin) {
  const BinOffsets<T>& offsets = axis.offsets;
  const int number = axis.vertical ? bin / offsets.bins_across : bin % offsets.bins_across;
  const T offset = offsets.first[bin * offsets.stride];
  const T length = (axis.high * axis.scale - (axis.aligned ? T(0.5) : T(0))) - grid.start;
  MovedBin<T> moved = {grid, number, offsets.factor * offset};
  moved.grid.start = grid.start + offsets.factor * length * offset;
  return moved;
}

// As position_gradient, where the bin also moves as the side gets longer.
template <typename T>
ROIPOOL_HD PositionGradient<T> moved_gradient(const MovedBin<T>& bin, const Axis<T>& axis,
                                              wide_int number) {
  PositionGradient<T> gradient = position_gradient(bin.grid, axis, bin.number, number);
  gradient.by_low -= axis.scale * bin.share;
  gradient.by_high += axis.scale * bin.share;
  return gradient;
}

// mmcv's gradient of offsets has the cells of a sample that is held at the border, with the weights
// and slopes of one that is not held.
template <typename T>
ROIPOOL_HD Sample<T> extrapolated_border(T position, wide_int size) {
  const Sample<T> held = replicate_border(position, size);
  const T fraction = position - T(held.first);
  return {held.first, held.second, T(held.second - held.first) - fraction,
          fraction,   T(1),        position};
}

template <bool extrapolates, typename T, typename Sink>
ROIPOOL_HD_ONCE void add_moved_samples(const Axis<T>& axis, const SampleGrid<T>& grid,
                                       int first_bin, int last_bin, Sink& sink) {
  for (int bin = first_bin; bin < last_bin; ++bin) {
    const MovedBin<T> moved = moved_bin(axis, grid, bin);
    sink.begin_bin(bin, grid.count);
    const NumberRange near = numbers_near_map(moved.grid, moved.number, axis.size);
    for (wide_int number = near.first; number < near.last; ++number) {
      const T position = moved.grid.position(moved.number, number);
      if (!(position >= T(-1) && position <= T(axis.size))) continue;
      sink.add(number,
               extrapolates ? extrapolated_border(position, axis.size)
                            : replicate_border(position, axis.size),
               moved_gradient(moved, axis, number));
    }
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void deform_roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_moved_samples<false>(axis, sample_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void mmcv_deform_roi_pool(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_moved_samples<false>(axis, mmcv_sample_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void mmcv_deform_roi_offsets(const Axis<T>& axis, int first_bin, int last_bin,
                                        Sink& sink) {
  add_moved_samples<true>(axis, mmcv_sample_grid(axis), first_bin, last_bin, sink);
}

}  // namespace roipool
