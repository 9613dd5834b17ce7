// The sinks of definitions: counters, and writers of taps and of samples. They are templates over
// how a plan stores its entries, so that the CPU and CUDA share every line that decides a weight.
// Each serves one bin.
#pragma once
#include "sample.h"

namespace roipool {

// The cells that a box reads along one axis, as a half-open range.
struct Window {
  int first = 0;
  int last = 0;

  ROIPOOL_HD void include(int cell) {
    if (cell < 0) return;
    if (first == last) {
      first = cell;
      last = cell + 1;
    }
    first = minimum(first, cell);
    last = maximum(last, cell + 1);
  }
  ROIPOOL_HD void include(const Window& other) {
    if (other.first == other.last) return;
    const bool is_empty = first == last;
    first = is_empty ? other.first : minimum(first, other.first);
    last = is_empty ? other.last : maximum(last, other.last);
  }
  ROIPOOL_HD bool meets(wide_int begin, wide_int end) const {
    return first < last && first < end && last > begin;
  }
};

// Counts an upper bound of the taps of a bin.
template <typename T>
struct TapCounter {
  wide_int taps = 0;
  Window reach;

  ROIPOOL_HD void begin_bin(int, wide_int) {}
  ROIPOOL_HD void add(wide_int, const Sample<T>& sample, const PositionGradient<T>& = {}) {
    taps += 2;
    reach.include(sample.first);
    reach.include(sample.second);
  }
  ROIPOOL_HD void tap(int cell, T, T, T) {
    ++taps;
    reach.include(cell);
  }
  ROIPOOL_HD wide_int entries() const { return minimum<wide_int>(taps, reach.last - reach.first); }
};

template <typename T>
struct SampleCounter {
  wide_int samples = 0;

  ROIPOOL_HD void begin_bin(int, wide_int) {}
  ROIPOOL_HD void add(wide_int, const Sample<T>&, const PositionGradient<T>& = {}) { ++samples; }
  ROIPOOL_HD void tap(int, T, T, T) {}
  ROIPOOL_HD wide_int entries() const { return samples; }
};

// Merges a bin's samples into taps: one weight per cell, divided by the number of samples. Cells
// whose weight is 0 are left out, so that a NaN there does not propagate. `Taps` is where they are
// stored:
//   cell(tap), weight(tap)      references
//   by_low(tap), by_high(tap)   the same, if `slopes`: derivatives are needed
//   room()                      its capacity; further taps go to tap number room(), which is
//                               discarded
template <typename T, typename Taps>
struct TapWriter {
  Taps taps;
  int count = 0;
  wide_int total = 0;
  Window window;

  ROIPOOL_HD explicit TapWriter(const Taps& taps) : taps(taps) {}

  ROIPOOL_HD void begin_bin(int, wide_int samples) { total = samples; }
  ROIPOOL_HD void add(wide_int, const Sample<T>& sample, const PositionGradient<T>& gradient = {}) {
    tap(sample.first, sample.first_weight, -sample.slope * gradient.by_low,
        -sample.slope * gradient.by_high);
    if (sample.second == no_cell) return;
    tap(sample.second, sample.second_weight, sample.slope * gradient.by_low,
        sample.slope * gradient.by_high);
  }
  ROIPOOL_HD void tap(int cell, T weight, T by_low, T by_high) {
    const int tap = tap_of(cell);
    taps.weight(tap) += weight;
    if constexpr (Taps::slopes) {
      taps.by_low(tap) += by_low;
      taps.by_high(tap) += by_high;
    }
  }
  // Cells come in order, so a cell that has a tap already has one of the last few.
  ROIPOOL_HD int tap_of(int cell) {
    for (int tap = count - 1; tap >= 0 && tap >= count - 3; --tap) {
      if (taps.cell(tap) == cell) return tap;
    }
    const int tap = count < taps.room() ? count++ : taps.room();
    taps.cell(tap) = cell;
    taps.weight(tap) = T(0);
    if constexpr (Taps::slopes) taps.by_low(tap) = taps.by_high(tap) = T(0);
    return tap;
  }
  ROIPOOL_HD bool matters(int tap) {
    if constexpr (Taps::slopes) {
      if (taps.by_low(tap) != T(0) || taps.by_high(tap) != T(0)) return true;
    }
    return taps.weight(tap) != T(0);
  }
  // To be called once, after all taps; `count` of them are kept.
  ROIPOOL_HD void finish() {
    int kept = 0;
    for (int tap = 0; tap < count; ++tap) {
      if (!matters(tap)) continue;
      taps.cell(kept) = taps.cell(tap);
      taps.weight(kept) = taps.weight(tap) / T(total);
      if constexpr (Taps::slopes) {
        taps.by_low(kept) = taps.by_low(tap) / T(total);
        taps.by_high(kept) = taps.by_high(tap) / T(total);
      }
      window.include(taps.cell(kept));
      ++kept;
    }
    count = kept;
  }
};

// The weight of a cell of a volume: that along depth times that along the rows of a plane. It is 0
// only if one of them is, however small it is: a cell that has a tap is read.
template <typename T>
ROIPOOL_HD T product_of_weights(T deep, T down) {
  const T product = deep * down;
  return product != T(0) ? product : minimum(deep, down);
}

// Lists the samples of a bin, up to its capacity.
template <typename T>
struct SampleWriter {
  Sample<T>* samples;
  int room;
  int count = 0;
  wide_int first_index = 0;
  wide_int total = 0;
  Window window;

  ROIPOOL_HD SampleWriter(Sample<T>* samples, int room) : samples(samples), room(room) {}

  ROIPOOL_HD void begin_bin(int, wide_int all) { total = all; }
  ROIPOOL_HD void add(wide_int number, const Sample<T>& sample, const PositionGradient<T>& = {}) {
    if (count >= room) return;
    if (count == 0) first_index = number;
    samples[count++] = sample;
    window.include(sample.first);
    window.include(sample.second);
  }
  // A weight without a sample has no maximum.
  ROIPOOL_HD void tap(int, T, T, T) {}
};

}  // namespace roipool
