// ROI align: bilinear samples on a regular grid in each bin (the Caffe2 family: torchvision, mmcv,
// maskrcnn-benchmark, MXNet contrib, Paddle, ONNX Runtime, detectron2).
#pragma once
#include "sample.h"

namespace roipool {

// An adaptive grid is never finer along one axis, so that a box of any size costs no more than the
// map. float32 could not tell more samples of one bin apart.
const wide_int max_adaptive_grid = 1LL << 22;

// Where the samples of a box lie along one axis.
template <typename T>
struct SampleGrid {
  T start;  // of the box, in map cells
  T bin_length;
  wide_int count;     // samples per bin
  bool fixed_length;  // the length was held at the shortest and does not follow the box

  // The expression order is the reference's: it decides floor, ceil and outside.
  ROIPOOL_HD T position(int bin, wide_int number) const {
    return start + T(bin) * bin_length + (T(number) + T(0.5)) * bin_length / T(count);
  }
};

// The length of the bin, rounded up, so that neighbouring samples are at most one cell apart.
template <typename T>
ROIPOOL_HD wide_int adaptive_grid(T bin_length) {
  const T samples = ceil_of(bin_length);
  if (!(samples > T(0))) return 0;
  return samples < T(max_adaptive_grid) ? static_cast<wide_int>(samples) : max_adaptive_grid;
}

// The grid of a box that is at least `shortest` cells long, unless it is aligned.
template <typename T>
ROIPOOL_HD SampleGrid<T> sample_grid(const Axis<T>& axis, T shortest = T(1)) {
  const T offset = axis.aligned ? T(0.5) : T(0);
  T start = axis.low * axis.scale - offset;
  const T end = axis.high * axis.scale - offset;
  // An infinite end must not pass as a short box, or an endless one: it makes every position NaN.
  if (!(is_finite(start) && is_finite(end))) start = (start - start) + (end - end);
  T length = end - start;
  const bool fixed_length = !axis.aligned && length < shortest;
  if (fixed_length) length = shortest;
  const T bin_length = length / T(axis.bins);
  const wide_int count = axis.sampling > 0 ? axis.sampling : adaptive_grid(bin_length);
  return {start, bin_length, count, fixed_length};
}

// ChainerCV's position-sensitive boxes may be as short as a tenth of a cell.
template <typename T>
ROIPOOL_HD SampleGrid<T> chainercv_sample_grid(const Axis<T>& axis) {
  return sample_grid(axis, T(0.1));
}

// mmcv rounds a bin's length to float32 before it rounds it up, in every type: a float64 bin that
// is slightly longer than a whole number of cells has one sample less.
template <typename T>
ROIPOOL_HD SampleGrid<T> mmcv_sample_grid(const Axis<T>& axis) {
  SampleGrid<T> grid = sample_grid(axis);
  if (axis.sampling > 0) return grid;
  // Held first: a double beyond float32 cannot be converted.
  const T held = minimum(maximum(grid.bin_length, T(0)), T(max_adaptive_grid));
  grid.count = adaptive_grid(static_cast<float>(held));
  return grid;
}

// The same grid, with positions rounded in the order of Paddle's forward.
template <typename T>
struct PaddleGrid : SampleGrid<T> {
  ROIPOOL_HD T position(int bin, wide_int number) const {
    const T along = T(bin) + (T(number) + T(0.5)) / T(this->count);
    return this->start + this->bin_length * along;
  }
};

// The same, in OpenVINO's order.
template <typename T>
struct OpenVinoGrid : SampleGrid<T> {
  ROIPOOL_HD T position(int bin, wide_int number) const {
    const T step = this->bin_length / T(this->count);
    return this->start + T(bin) * this->bin_length + step * (T(number) + T(0.5));
  }
};

// MegEngine's: a reversed side has no length, no count is adaptive, and an order of its own.
template <typename T>
struct MegEngineGrid : SampleGrid<T> {
  ROIPOOL_HD T position(int bin, wide_int number) const {
    const T along = T(bin) + T(1) / T(this->count) * (T(number) + T(0.5));
    return this->start + this->bin_length * along;
  }
};

template <typename T>
ROIPOOL_HD MegEngineGrid<T> megengine_grid(const Axis<T>& axis) {
  MegEngineGrid<T> grid = {sample_grid(axis, T(0))};
  grid.bin_length = maximum(grid.bin_length, T(0));
  grid.count = axis.sampling;
  return grid;
}

struct NumberRange {
  wide_int first;
  wide_int last;
};

// The numbers [first, last) of a bin's samples that can lie in [low, high]: every one that does,
// and a few more. Keeps a grid that is mostly outside from being walked.
template <typename T>
ROIPOOL_HD NumberRange numbers_between(const SampleGrid<T>& grid, int bin, T low, T high) {
  const wide_int short_grid = 16;
  const T begin = grid.start + T(bin) * grid.bin_length;
  const T step = grid.bin_length / T(grid.count);
  if (grid.count <= short_grid || !(step > T(0))) return {0, grid.count};
  if (!(is_finite(begin) && is_finite(step))) return {0, 0};
  // A position is off by a few roundings of `begin`; epsilon here is generous for float32.
  const T slack = T(4) + magnitude(begin / step) * T(1e-6);
  const wide_int first = to_wide_int(floor_of((low - begin) / step - slack));
  const wide_int last = to_wide_int(ceil_of((high - begin) / step + slack));
  return {clamp(first, 0, grid.count), clamp(last, 0, grid.count)};
}

// The range of samples that can lie inside the map.
template <typename T>
ROIPOOL_HD NumberRange numbers_near_map(const SampleGrid<T>& grid, int bin, wide_int size) {
  return numbers_between(grid, bin, T(-1), T(size));
}

// Interpolation between cell centres; the outermost cells reach on for one cell (`position` in
// [-1, size]) without fading.
template <typename T>
ROIPOOL_HD Sample<T> replicate_border(T position, wide_int size) {
  const T held = maximum(position, T(0));
  const wide_int low = static_cast<wide_int>(held);
  if (low >= size - 1) {
    const int last = static_cast<int>(size - 1);
    return {last, last, T(1), T(0), T(0), position};
  }
  const int cell = static_cast<int>(low);
  const T fraction = held - T(cell);
  const T slope = position < T(0) ? T(0) : T(1);
  return {cell, cell + 1, T(1) - fraction, fraction, slope, position};
}

template <typename T>
ROIPOOL_HD PositionGradient<T> position_gradient(const SampleGrid<T>& grid, const Axis<T>& axis,
                                                 int bin, wide_int number) {
  if (grid.fixed_length) return {axis.scale, T(0)};
  const T along = (T(bin) + (T(number) + T(0.5)) / T(grid.count)) / T(axis.bins);
  return {axis.scale * (T(1) - along), axis.scale * along};
}

// Adds the bilinear samples of a grid to the sink.
template <typename T, typename Grid, typename Sink>
ROIPOOL_HD_ONCE void add_grid_samples(const Axis<T>& axis, const Grid& grid, int first_bin,
                                      int last_bin, Sink& sink) {
  for (int bin = first_bin; bin < last_bin; ++bin) {
    sink.begin_bin(bin, grid.count);
    const NumberRange near = numbers_near_map(grid, bin, axis.size);
    for (wide_int number = near.first; number < near.last; ++number) {
      const T position = grid.position(bin, number);
      if (!(position >= T(-1) && position <= T(axis.size))) continue;
      sink.add(number, replicate_border(position, axis.size),
               position_gradient(grid, axis, bin, number));
    }
  }
}

template <typename T, typename Sink>
ROIPOOL_HD void roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_grid_samples(axis, sample_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void mmcv_roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_grid_samples(axis, mmcv_sample_grid(axis), first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void paddle_roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_grid_samples(axis, PaddleGrid<T>{sample_grid(axis)}, first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void openvino_roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  add_grid_samples(axis, OpenVinoGrid<T>{sample_grid(axis)}, first_bin, last_bin, sink);
}

template <typename T, typename Sink>
ROIPOOL_HD void chainercv_ps_roi_align(const Axis<T>& axis, int first_bin, int last_bin,
                                       Sink& sink) {
  add_grid_samples(axis, chainercv_sample_grid(axis), first_bin, last_bin, sink);
}

// Interpolation between cell centres that reads 0 outside the map: the outermost cells fade over
// one cell. At least one of both cells is inside.
template <typename T>
ROIPOOL_HD Sample<T> fading_border(T position, wide_int size) {
  const T low = floor_of(position), fraction = position - low;
  const int cell = static_cast<int>(low);
  if (cell < 0) return {0, no_cell, fraction, T(0), T(0), position};
  if (cell >= size - 1) return {cell, no_cell, T(1) - fraction, T(0), T(0), position};
  return {cell, cell + 1, T(1) - fraction, fraction, T(1), position};
}

template <typename T, typename Sink>
ROIPOOL_HD void megengine_roi_align(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const MegEngineGrid<T> grid = megengine_grid(axis);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    sink.begin_bin(bin, grid.count);
    const NumberRange near = numbers_near_map(grid, bin, axis.size);
    for (wide_int number = near.first; number < near.last; ++number) {
      const T position = grid.position(bin, number);
      // At -1 a maximum reads the first cell with weight 0: a NaN there is no sample outside.
      if (!(position >= T(-1) && position < T(axis.size))) continue;
      sink.add(number, fading_border(position, axis.size));
    }
  }
}

// ONNX's mode "max" compares the four weighted corners, not their sum: each sample is two samples
// of one cell along each axis, and an outside sample counts as zeros.
template <typename T, typename Sink>
ROIPOOL_HD void onnx_roi_align_max(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) {
  const SampleGrid<T> grid = sample_grid(axis);
  for (int bin = first_bin; bin < last_bin; ++bin) {
    sink.begin_bin(bin, 2 * grid.count);
    const NumberRange near = numbers_near_map(grid, bin, axis.size);
    for (wide_int number = near.first; number < near.last; ++number) {
      const T position = grid.position(bin, number);
      if (!(position >= T(-1) && position <= T(axis.size))) continue;
      const Sample<T> sample = replicate_border(position, axis.size);
      sink.add(2 * number, whole_cell<T>(sample.first, sample.first_weight));
      sink.add(2 * number + 1, whole_cell<T>(sample.second, sample.second_weight));
    }
  }
}

}  // namespace roipool
