// The sinks that write bins, taps and samples into the arrays of an AxisPlan.
#pragma once
#include <string.h>

#include "../definitions.h"
#include "../sinks.h"
#include "axis_plan.h"
#include "request.h"

namespace roipool {

#ifdef __wasm__  // the page's module is to be small
#define ROIPOOL_INLINED
#else
#define ROIPOOL_INLINED __attribute__((always_inline))
#endif

// Uses a new sink for each bin of a box: `bins` makes it, and stores its result.
template <typename Bins>
struct BinByBin {
  typedef typename Bins::Sink Sink;
  Bins bins;
  Sink sink;
  int bin = -1;

  explicit BinByBin(const Bins& bins) : bins(bins), sink(bins.sink_of(0)) {}

  // Too many callers to be inlined by itself: a call costs two dozen instructions a bin.
  ROIPOOL_INLINED void begin_bin(int next, wide_int total) {
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
  ROIPOOL_INLINED void finish(int bin, Sink& taps) {
    taps.finish();
    plan.count[first_row + bin] = taps.count;
    window.include(taps.window);
  }
};

template <typename T>
using PlainTapBins = TapBins<T, false>;
template <typename T>
using SlopedTapBins = TapBins<T, true>;

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
