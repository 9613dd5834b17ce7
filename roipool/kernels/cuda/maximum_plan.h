// Plans for maxima, as engines read them.
#pragma once
#include "../argmax.h"
#include "plan.h"

namespace roipool {

// For maxima of whole cells, which lie side by side: where the first is and how many there are is
// all that a plan says of a bin.
struct Cells {
  typedef SampleBin Bin;  // `begin` is the first cell
  typedef Sample<Value> Entry;
  static const int entries_of_sample = 0;

  struct Counter {
    __device__ void begin_bin(int, wide_int) {}
    __device__ void add(wide_int, const Sample<Value>&, const PositionGradient<Value>& = {}) {}
    __device__ void tap(int, Value, Value, Value) {}
    __device__ wide_int entries() const { return 0; }
  };
  struct Writer {
    SampleBin bin = {};
    Window window;

    __device__ void begin_bin(int, wide_int all) { bin.total = all; }
    __device__ void add(wide_int number, const Sample<Value>& sample,
                        const PositionGradient<Value>& = {}) {
      if (bin.count++ == 0) {
        bin.first_index = number;
        bin.begin = sample.first;
      }
    }
    __device__ void tap(int, Value, Value, Value) {}
  };
  static __device__ Writer writer(Entry*, int, Entry*) { return {}; }
  static __device__ Bin finish(const Writer& writer, int) { return writer.bin; }
};

__device__ inline BinSamples<Value> samples_of(const BoxPlan<Samples>& plan, const SampleBin& bin) {
  return {plan.entries(bin), bin.count, bin.first_index, bin.total};
}
__device__ inline BinSamples<Value> samples_of(const BoxPlan<Cells>&, const SampleBin& bin) {
  return {nullptr, bin.count, bin.first_index, bin.total};
}

}  // namespace roipool
