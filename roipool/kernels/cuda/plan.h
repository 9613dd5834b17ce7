// Plans: the taps or samples of each box, in scratch memory, computed once per call by a kernel of
// its own. One warp writes the plan of one axis of one box, a bin per lane.
//
// The size of a plan cannot be read back, so the host bounds it (`capacity`). Bins tile their box,
// and entries lie inside the map: see plan_capacity in _cuda/launch.py. A plan that did not fit
// would be truncated, never written past its end.
#pragma once
#include "../sinks.h"
#include "call.h"

namespace roipool {

const int warp_size = 32;

// For averages: a cell and its weight, merged over the bin's samples, divided by their number. Each
// of these structures is aligned so that one instruction loads it.
struct alignas(2 * sizeof(Value)) Tap {
  int cell;
  Value weight;
};
// The same for the gradient of boxes: how the weight moves with the ends of the box.
struct alignas(16) SlopedTap {
  int cell;
  Value weight;
  Value by_low;
  Value by_high;
};
struct alignas(16) TapBin {
  wide_int begin;  // of its entries, among the box's
  int count;
};
// For maxima: samples.
struct alignas(16) SampleBin {
  wide_int begin;
  wide_int first_index;  // index of its first listed sample
  wide_int total;        // samples, those outside the map included
  int count;
};

// The taps of one bin in a plan.
template <typename Entry, bool Slopes>
struct PlannedTaps {
  static const bool slopes = Slopes;
  Entry* taps;
  int entries;
  Entry* spare;  // stands for the tap that there is no room for

  __device__ Entry& at(int tap) { return tap < entries ? taps[tap] : *spare; }
  __device__ int& cell(int tap) { return at(tap).cell; }
  __device__ Value& weight(int tap) { return at(tap).weight; }
  __device__ Value& by_low(int tap) { return at(tap).by_low; }
  __device__ Value& by_high(int tap) { return at(tap).by_high; }
  __device__ int room() const { return entries; }
};

// What a kernel's plans consist of.
template <typename TapType, bool Slopes>
struct KindOfTaps {
  typedef TapBin Bin;
  typedef TapType Entry;
  typedef TapCounter<Value> Counter;
  typedef TapWriter<Value, PlannedTaps<Entry, Slopes>> Writer;

  static __device__ Writer writer(Entry* entries, int room, Entry* spare) {
    return Writer({entries, room, spare});
  }
  static __device__ Bin finish(Writer& writer, wide_int begin) {
    writer.finish();
    return {begin, writer.count};
  }
};
typedef KindOfTaps<Tap, false> Taps;
typedef KindOfTaps<SlopedTap, true> SlopedTaps;

struct Samples {
  typedef SampleBin Bin;
  typedef Sample<Value> Entry;
  typedef SampleCounter<Value> Counter;
  typedef SampleWriter<Value> Writer;

  static __device__ Writer writer(Entry* entries, int room, Entry*) {
    return Writer(entries, room);
  }
  static __device__ Bin finish(const Writer& writer, wide_int begin) {
    return {begin, writer.first_index, writer.total, writer.count};
  }
};

// The plans of all boxes along one axis.
template <typename Kind>
struct AxisPlan {
  typedef typename Kind::Bin Bin;
  typedef typename Kind::Entry Entry;
  Bin* all_bins;
  Entry* all_entries;
  Window* windows;
  wide_int bins;
  wide_int capacity;

  __device__ AxisPlan(char* scratch, const AxisCall& axis)
      : all_bins(reinterpret_cast<Bin*>(scratch + axis.bins_at)),
        all_entries(reinterpret_cast<Entry*>(scratch + axis.entries_at)),
        windows(reinterpret_cast<Window*>(scratch + axis.windows_at)),
        bins(axis.bins),
        capacity(axis.capacity) {}

  __device__ Bin& bin(wide_int box, wide_int number) const { return all_bins[box * bins + number]; }
  __device__ Entry* entries(wide_int box) const { return all_entries + box * capacity; }
  __device__ const Entry* entries(wide_int box, const Bin& bin) const {
    return entries(box) + bin.begin;
  }
};

template <typename Kind>
struct Plans {
  wide_int* images;  // of each box; negative: none
  AxisPlan<Kind> rows;
  AxisPlan<Kind> columns;

  __device__ Plans(char* scratch, const Call& call)
      : images(reinterpret_cast<wide_int*>(scratch + call.images_at)),
        rows(scratch, call.rows),
        columns(scratch, call.columns) {}
};

__device__ inline Axis<Value> axis_of_box(const Value* boxes, const Call& call, bool vertical,
                                          wide_int box, wide_int image) {
  const AxisCall& axis = vertical ? call.rows : call.columns;
  const Value* low = boxes + box * call.box_stride + (vertical ? call.coordinate_stride : 0);
  return {low[0],
          low[2 * call.coordinate_stride],
          Value(call.scale),
          image < 0 ? 0 : axis.size,
          static_cast<int>(axis.bins),
          axis.sampling,
          call.aligned != 0,
          vertical};
}

template <typename Sink>
__device__ inline void visit_bin(const Axis<Value>& axis, int bin, Sink& sink) {
  if (axis.size == 0) {
    sink.begin_bin(bin, 0);
  } else {
    ROIPOOL_DEFINITION(axis, bin, bin + 1, sink);
  }
}

// Every lane has a bin: it sums the counts of the lanes before it, which is where its entries
// begin, and writes them.
template <typename Kind>
__device__ inline void write_axis(const Axis<Value>& axis, const AxisPlan<Kind>& plan,
                                  wide_int box) {
  wide_int* counts = reinterpret_cast<wide_int*>(roipool_shared_memory);
  Window* windows = reinterpret_cast<Window*>(counts + warp_size);
  const int lane = threadIdx.x;
  Window window;
  wide_int begin = 0;
  for (wide_int first = 0; first < plan.bins; first += warp_size) {
    const wide_int bin = first + lane;
    typename Kind::Counter counter;
    if (bin < plan.bins) visit_bin(axis, static_cast<int>(bin), counter);
    counts[lane] = counter.entries();
    __syncwarp();
    wide_int mine = begin;
    for (int other = 0; other < warp_size; ++other) {
      if (other == lane) mine = begin;
      begin += counts[other];
    }
    __syncwarp();
    if (bin >= plan.bins) continue;
    typename Kind::Entry* entries = plan.entries(box);
    const wide_int last = plan.capacity - 1;
    mine = minimum(mine, last);
    const wide_int room = minimum(counter.entries(), last - mine);
    typename Kind::Writer writer =
        Kind::writer(entries + mine, static_cast<int>(room), entries + last);
    visit_bin(axis, static_cast<int>(bin), writer);
    plan.bin(box, bin) = Kind::finish(writer, mine);
    window.include(writer.window);
  }
  windows[lane] = window;
  __syncwarp();
  if (lane == 0) {
    for (int other = 1; other < warp_size; ++other) window.include(windows[other]);
    plan.windows[box] = window;
  }
  __syncwarp();
}

template <typename Kind>
__device__ inline void write_plans(const Value* boxes, const void* images, char* scratch,
                                   const Call& call) {
  const Plans<Kind> plans(scratch, call);
  for (wide_int task = blockIdx.x; task < 2 * call.boxes; task += gridDim.x) {
    const wide_int box = task >> 1;
    const bool vertical = (task & 1) == 0;
    const wide_int image = image_of_box(images, call, box);
    const Axis<Value> axis = axis_of_box(boxes, call, vertical, box, image);
    write_axis(axis, vertical ? plans.rows : plans.columns, box);
    if (vertical && threadIdx.x == 0) plans.images[box] = image;
  }
}

}  // namespace roipool
