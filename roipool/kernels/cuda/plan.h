// Plans: what the definition answered for each box, in scratch memory, computed once per call by a
// kernel of its own. One warp writes the plan of one axis of one box, a bin per lane.
//
// The size of a plan cannot be read back, so the host bounds it (`capacity`). Bins tile their box,
// and entries lie inside the map: see plan_capacity in _cuda_work.py. A plan that did not fit would
// be cut short, never written past its end.
#pragma once
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
  wide_int first_number;  // number of its first listed sample
  wide_int total;         // samples, those outside the map included
  int count;
};

// The cells that a box reads along one axis, as a half-open range.
struct Window {
  int first;
  int last;

  __device__ void include(int cell) {
    if (cell < 0) return;
    if (first == last) {
      first = cell;
      last = cell + 1;
    }
    first = minimum(first, cell);
    last = maximum(last, cell + 1);
  }
  __device__ void include(const Window& other) {
    if (other.first == other.last) return;
    include(other.first);
    include(other.last - 1);
  }
  __device__ bool meets(wide_int begin, wide_int end) const {
    return first < last && first < end && last > begin;
  }
};

// An upper bound of a bin's taps.
struct TapCounter {
  static const bool wants_gradient = false;
  wide_int samples = 0;
  Window reach = {0, 0};

  __device__ void begin_bin(int, wide_int) {}
  __device__ void add(wide_int, const Sample<Value>& sample) {
    ++samples;
    reach.include(sample.first);
    reach.include(sample.second);
  }
  __device__ void move(PositionGradient<Value>) {}
  __device__ wide_int entries() const {
    return minimum<wide_int>(2 * samples, reach.last - reach.first);
  }
};

struct SampleCounter {
  static const bool wants_gradient = false;
  wide_int samples = 0;

  __device__ void begin_bin(int, wide_int) {}
  __device__ void add(wide_int, const Sample<Value>&) { ++samples; }
  __device__ void move(PositionGradient<Value>) {}
  __device__ wide_int entries() const { return samples; }
};

__device__ inline void clear(Tap& tap) { tap.weight = Value(0); }
__device__ inline void clear(SlopedTap& tap) { tap.weight = tap.by_low = tap.by_high = Value(0); }
__device__ inline bool counts(const Tap& tap) { return tap.weight != Value(0); }
__device__ inline bool counts(const SlopedTap& tap) {
  return tap.weight != Value(0) || tap.by_low != Value(0) || tap.by_high != Value(0);
}
__device__ inline void divide_by(Tap& tap, Value total) { tap.weight /= total; }
__device__ inline void divide_by(SlopedTap& tap, Value total) {
  tap.weight /= total;
  tap.by_low /= total;
  tap.by_high /= total;
}
__device__ inline void add_slope(Tap&, Value, PositionGradient<Value>) {}
__device__ inline void add_slope(SlopedTap& tap, Value slope, PositionGradient<Value> gradient) {
  tap.by_low += slope * gradient.by_low;
  tap.by_high += slope * gradient.by_high;
}

// Merges the samples of a bin into taps. Cells whose weight is 0 are left out, so that a NaN there
// does not spread.
template <typename Entry, bool Gradient>
struct TapWriter {
  static const bool wants_gradient = Gradient;
  Entry* taps;
  int room;
  Entry* spare;  // takes what there is no room for
  int count = 0;
  wide_int total = 0;
  Sample<Value> latest = {};
  Window window = {0, 0};

  __device__ TapWriter(Entry* taps, int room, Entry* spare)
      : taps(taps), room(room), spare(spare) {}

  __device__ void begin_bin(int, wide_int samples) { total = samples; }
  __device__ void add(wide_int, const Sample<Value>& sample) {
    tap_of(sample.first).weight += sample.first_weight;
    if (sample.second != no_cell) tap_of(sample.second).weight += sample.second_weight;
    latest = sample;
  }
  __device__ void move(PositionGradient<Value> gradient) {
    add_slope(tap_of(latest.first), -latest.slope, gradient);
    if (latest.second != no_cell) add_slope(tap_of(latest.second), latest.slope, gradient);
  }
  // Samples come in order, so a cell that is there already is among the last few taps.
  __device__ Entry& tap_of(int cell) {
    for (int tap = count - 1; tap >= 0 && tap >= count - 3; --tap) {
      if (taps[tap].cell == cell) return taps[tap];
    }
    Entry& tap = count < room ? taps[count++] : *spare;
    tap.cell = cell;
    clear(tap);
    return tap;
  }
  __device__ TapBin finish(wide_int begin) {
    int kept = 0;
    for (int tap = 0; tap < count; ++tap) {
      if (!counts(taps[tap])) continue;
      taps[kept] = taps[tap];
      divide_by(taps[kept], Value(total));
      window.include(taps[kept].cell);
      ++kept;
    }
    return {begin, kept};
  }
};

struct SampleWriter {
  static const bool wants_gradient = false;
  Sample<Value>* samples;
  int room;
  int count = 0;
  wide_int first_number = 0;
  wide_int total = 0;
  Window window = {0, 0};

  __device__ SampleWriter(Sample<Value>* samples, int room, Sample<Value>*)
      : samples(samples), room(room) {}

  __device__ void begin_bin(int, wide_int all) { total = all; }
  __device__ void add(wide_int number, const Sample<Value>& sample) {
    if (count >= room) return;
    if (count == 0) first_number = number;
    samples[count++] = sample;
    window.include(sample.first);
    window.include(sample.second);
  }
  __device__ void move(PositionGradient<Value>) {}
  __device__ SampleBin finish(wide_int begin) const { return {begin, first_number, total, count}; }
};

// What a kernel's plans consist of.
struct Taps {
  typedef TapBin Bin;
  typedef Tap Entry;
  typedef TapCounter Counter;
  typedef TapWriter<Tap, false> Writer;
};
struct SlopedTaps {
  typedef TapBin Bin;
  typedef SlopedTap Entry;
  typedef TapCounter Counter;
  typedef TapWriter<SlopedTap, true> Writer;
};
struct Samples {
  typedef SampleBin Bin;
  typedef Sample<Value> Entry;
  typedef SampleCounter Counter;
  typedef SampleWriter Writer;
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

// Every lane takes a bin, learns where its entries begin from the counts of the lanes before it,
// and writes them.
template <typename Kind>
__device__ inline void write_axis(const Axis<Value>& axis, const AxisPlan<Kind>& plan,
                                  wide_int box) {
  wide_int* counts = reinterpret_cast<wide_int*>(roipool_shared_memory);
  Window* windows = reinterpret_cast<Window*>(counts + warp_size);
  const int lane = threadIdx.x;
  Window window = {0, 0};
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
    typename Kind::Writer writer(entries + mine, static_cast<int>(room), entries + last);
    visit_bin(axis, static_cast<int>(bin), writer);
    plan.bin(box, bin) = writer.finish(mine);
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
