// The request of a call, and the sinks that write bins, taps and samples into the arrays of an
// AxisPlan.
#pragma once
#include <string.h>

#include "../definitions.h"
#include "../sinks.h"
#include "job.h"

namespace roipool {

// The entries that an engine needs for each box.
enum Entries {
  padded_taps,         // sums: taps, as many in each bin of a box where they are few
  transposed_taps,     // their transpose: taps, and the transposed plan
  taps_with_gradient,  // gradients of boxes: taps with their derivatives
  listed_samples       // maxima
};

// Along which axis of the maps; it numbers the coordinates of a corner.
enum Direction { across, down, deep };

// The third axis of volumes: their planes follow each other as rows of one map.
struct Depth {
  int bins;           // 0: maps are no volumes
  wide_int planes;    // of a map
  wide_int sampling;  // as `Request::sampling`
  double scale;       // as `Request::scale`
  double row_scale;   // instead of `Request::scale` for rows
};

// The definition of one call with its options, for every box.
struct Request {
  Definition definition;
  bool double_precision;
  Entries entries;
  double scale;
  wide_int sampling[2];  // rows, columns
  bool aligned;
  double angle_scale;      // multiplies a box's angle to give radians, counter-clockwise
  double offset_factor;    // multiplies offsets of bins to give shares of the box's sides
  const void* boxes;       // as float or double, `numbers` of each: x1, y1, x2, y2, and where bins
                           // are moved the offsets by x of all bins, then those by y; or of volumes
                           // x1, y1, z1, x2, y2, z2; or for a pointwise definition centre x,
                           // centre y, width, height, angle
  const wide_int* images;  // [boxes]; negative: the box reads nothing
  Watch* watch;            // null: the call cannot be interrupted
  Depth depth;
  // Set by `arrange_bins`.
  wide_int numbers;
  bool moves_bins;
  int bins_down, bins_across;
  wide_int map_rows, map_columns;
};

// Whether its maps are volumes.
inline bool has_depth(const Request& request) { return knows_volumes && request.depth.bins > 0; }

// Uses a new sink for each bin of a box: `bins` makes it, and stores its result.
template <typename Bins>
struct BinByBin {
  typedef typename Bins::Sink Sink;
  Bins bins;
  Sink sink;
  int bin = -1;

  explicit BinByBin(const Bins& bins) : bins(bins), sink(bins.sink_of(0)) {}

  // Of so many definitions that compilers would rather call it: two dozen instructions a bin.
#ifndef __wasm__  // the page's module is to be small
  __attribute__((always_inline))
#endif
  void begin_bin(int next, wide_int total) {
    finish_bin();
    bin = next;
    sink = bins.sink_of(bin);
    sink.begin_bin(bin, total);
  }
  template <typename... What>
  void add(wide_int number, const What&... what) {
    sink.add(number, what...);
  }
  template <typename T>
  void tap(int cell, T weight, T by_low, T by_high) {
    sink.tap(cell, weight, by_low, by_high);
  }
  void finish_bin() {
    if (bin >= 0) bins.finish(bin, sink);
  }
};

template <typename Counter>
struct CountedBins {
  typedef Counter Sink;
  wide_int* entries;  // per bin

  Counter sink_of(int) const { return Counter(); }
  void finish(int bin, const Counter& counter) { entries[bin] = counter.entries(); }
};

// The taps of one bin in the arrays of a plan.
template <typename T, bool Slopes>
struct PlannedTaps {
  static const bool slopes = Slopes;
  int* cells;
  T* weights;
  T* low_slopes;
  T* high_slopes;
  int entries;

  PlannedTaps(const AxisPlan& plan, wide_int begin, wide_int end)
      : cells(plan.cell + begin),
        weights(static_cast<T*>(plan.weight) + begin),
        low_slopes(Slopes ? static_cast<T*>(plan.slope[0]) + begin : nullptr),
        high_slopes(Slopes ? static_cast<T*>(plan.slope[1]) + begin : nullptr),
        entries(static_cast<int>(end - begin)) {}

  int& cell(int tap) { return cells[tap]; }
  T& weight(int tap) { return weights[tap]; }
  T& by_low(int tap) { return low_slopes[tap]; }
  T& by_high(int tap) { return high_slopes[tap]; }
  int room() const { return entries; }
};

template <typename T, bool Slopes>
struct TapBins {
  typedef TapWriter<T, PlannedTaps<T, Slopes>> Sink;
  const AxisPlan& plan;
  wide_int first_row;  // of the box in the per-bin arrays
  Window window;

  TapBins(const AxisPlan& plan, wide_int box) : plan(plan), first_row(box * plan.bins) {}

  Sink sink_of(int bin) const {
    return Sink({plan, plan.begin[first_row + bin], plan.begin[first_row + bin + 1]});
  }
  void finish(int bin, Sink& taps) {
    taps.finish();
    plan.count[first_row + bin] = taps.count;
    window.include(taps.window);
  }
};

template <typename T>
struct SampleBins {
  typedef SampleWriter<T> Sink;
  const AxisPlan& plan;
  wide_int first_row;
  Window window;

  SampleBins(const AxisPlan& plan, wide_int box) : plan(plan), first_row(box * plan.bins) {}

  Sink sink_of(int bin) const {
    const wide_int begin = plan.begin[first_row + bin], end = plan.begin[first_row + bin + 1];
    return Sink(static_cast<Sample<T>*>(plan.sample) + begin, static_cast<int>(end - begin));
  }
  void finish(int bin, const Sink& samples) {
    plan.count[first_row + bin] = samples.count;
    plan.first_index[first_row + bin] = samples.first_index;
    plan.total[first_row + bin] = samples.total;
    window.include(samples.window);
  }
};

// Makes the lines of a box equally long where they are short.
inline void level_entries(wide_int* entries, int bins) {
  wide_int longest = 0;
  for (int bin = 0; bin < bins; ++bin) longest = maximum(longest, entries[bin]);
  if (longest > max_padded_taps) return;
  for (int bin = 0; bin < bins; ++bin) entries[bin] = longest;
}

inline int longest_of(const int* count, int lines) {
  int longest = 0;
  for (int line = 0; line < lines; ++line) longest = maximum(longest, count[line]);
  return longest;
}

}  // namespace roipool
