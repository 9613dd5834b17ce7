// The sinks that write the taps of pointwise definitions into the arrays of an AxisPlan.
//
// A bin's samples become taps in one of two ways. Where it has more corners of samples than the
// rectangle around them has cells, as on adaptive grids, they are added up in that rectangle; else
// each corner is a tap of its own, and cells that are read twice are listed twice, which costs an
// engine less than finding them would. Neither needs more memory than the plan has.
#pragma once
#include "../region.h"
#include "plan_sinks.h"

namespace roipool {

// The rectangle in which a bin's taps are added up; width 0 means that they are listed.
struct BinWindow {
  int top;
  int left;
  int height;
  int width;

  int cells() const { return height * width; }
};

template <typename T>
struct PointCounter {
  wide_int samples = 0;
  Window rows;
  Window columns;

  void begin_bin(int, wide_int) {}
  void add(wide_int, const Sample<T>& y, const Sample<T>& x, const PointGradient<T>&) {
    ++samples;
    rows.include(y.first);
    rows.include(y.second);
    columns.include(x.first);
    columns.include(x.second);
  }
  wide_int listed() const { return 4 * samples; }
  wide_int in_window() const {
    return static_cast<wide_int>(rows.last - rows.first) * (columns.last - columns.first);
  }
};

template <typename T>
struct PointCounts {
  typedef PointCounter<T> Sink;
  wide_int* entries;  // per bin
  BinWindow* windows;

  Sink sink_of(int) const { return Sink(); }
  void finish(int bin, const Sink& counter) {
    entries[bin] = minimum(counter.listed(), counter.in_window());
    windows[bin] = {};
    if (counter.in_window() > counter.listed()) return;
    windows[bin] = {counter.rows.first, counter.columns.first,
                    counter.rows.last - counter.rows.first,
                    counter.columns.last - counter.columns.first};
  }
};

// The taps of one bin.
template <typename T, bool Slopes>
struct PointWriter {
  int* cells;
  T* weights;
  T* slopes[numbers_of_region];
  BinWindow area;
  wide_int map_columns;
  int count = 0;
  wide_int total = 0;
  Window window;

  PointWriter(const AxisPlan& plan, wide_int row, wide_int map_columns)
      : cells(plan.cell + plan.begin[row]),
        weights(static_cast<T*>(plan.weight) + plan.begin[row]),
        area(plan.bin_window[row]),
        map_columns(map_columns) {
    for (int i = 0; Slopes && i < numbers_of_region; ++i) {
      slopes[i] = static_cast<T*>(plan.slope[i]) + plan.begin[row];
    }
  }

  void begin_bin(int, wide_int samples) {
    total = samples;
    for (int y = 0; y < area.height; ++y) {
      for (int x = 0; x < area.width; ++x) begin_tap(area.top + y, area.left + x);
    }
  }
  void add(wide_int, const Sample<T>& y, const Sample<T>& x, const PointGradient<T>& gradient) {
    add_corner(y.first, x.first, y.first_weight, x.first_weight, -y.slope, -x.slope, gradient);
    add_corner(y.first, x.second, y.first_weight, x.second_weight, -y.slope, x.slope, gradient);
    add_corner(y.second, x.first, y.second_weight, x.first_weight, y.slope, -x.slope, gradient);
    add_corner(y.second, x.second, y.second_weight, x.second_weight, y.slope, x.slope, gradient);
  }
  void add_corner(int y, int x, T y_weight, T x_weight, T y_slope, T x_slope,
                  const PointGradient<T>& gradient) {
    const int tap = area.width ? (y - area.top) * area.width + (x - area.left) : begin_tap(y, x);
    weights[tap] += y_weight * x_weight;
    for (int i = 0; Slopes && i < numbers_of_region; ++i) {
      slopes[i][tap] += y_slope * gradient.y[i] * x_weight + y_weight * (x_slope * gradient.x[i]);
    }
  }
  int begin_tap(int y, int x) {
    cells[count] = static_cast<int>(y * map_columns + x);
    weights[count] = T(0);
    for (int i = 0; Slopes && i < numbers_of_region; ++i) slopes[i][count] = T(0);
    return count++;
  }
  bool matters(int tap) const {
    bool any = weights[tap] != T(0);
    for (int i = 0; Slopes && i < numbers_of_region; ++i) any = any || slopes[i][tap] != T(0);
    return any;
  }
  void finish() {
    int kept = 0;
    for (int tap = 0; tap < count; ++tap) {
      if (!matters(tap)) continue;
      cells[kept] = cells[tap];
      weights[kept] = weights[tap] / T(total);
      for (int i = 0; Slopes && i < numbers_of_region; ++i) {
        slopes[i][kept] = slopes[i][tap] / T(total);
      }
      window.include(cells[kept]);
      ++kept;
    }
    count = kept;
  }
};

template <typename T, bool Slopes>
struct PointBins {
  typedef PointWriter<T, Slopes> Sink;
  const AxisPlan& plan;
  wide_int first_row;
  wide_int map_columns;
  Window window;

  Sink sink_of(int bin) const { return Sink(plan, first_row + bin, map_columns); }
  void finish(int bin, Sink& taps) {
    taps.finish();
    plan.count[first_row + bin] = taps.count;
    window.include(taps.window);
  }
};

template <typename T>
using PlainPointBins = PointBins<T, false>;
template <typename T>
using SlopedPointBins = PointBins<T, true>;

template <typename Bins>
struct WatchedBins : BinByBin<Bins> {
  LongWork work;

  WatchedBins(const Bins& bins, Watch* watch) : BinByBin<Bins>(bins), work(watch) {}
};

template <typename Bins>
inline bool is_to_end(WatchedBins<Bins>& sink, wide_int samples) {
  return sink.work.ends_before(samples);
}

}  // namespace roipool
