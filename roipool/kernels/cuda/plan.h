// Plans: the taps or samples of each box. A block that works on one box plans it itself
// (forward_blocks.h); before a backward, whose blocks own tiles that many boxes reach, a kernel
// plans all boxes into scratch memory.
//
// The size of a plan cannot be read back, so the host bounds it (`capacity`). Bins tile their box,
// and entries lie inside the map: see plan_capacity in _cuda/launch.py. A plan that did not fit
// would be truncated, never written past its end.
#pragma once
#include "../sinks.h"
#include "call.h"

namespace roipool {

const int warp_size = 32;
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / warp_size; }
__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % warp_size; }
const int after_all_cells = 2147483647;

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
struct alignas(8) TapBin {
  int begin;  // of its entries, among the box's
  int count;
};
// For maxima: samples.
struct SampleBin {
  wide_int first_index;  // index of its first listed sample
  wide_int total;        // samples, those outside the map included
  int begin;
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

// The layout of a kernel's plans.
template <typename TapType, bool Slopes>
struct KindOfTaps {
  typedef TapBin Bin;
  typedef TapType Entry;
  typedef TapCounter<Value> Counter;
  typedef TapWriter<Value, PlannedTaps<Entry, Slopes>> Writer;
  static const int entries_of_sample = 2;

  static __device__ Writer writer(Entry* entries, int room, Entry* spare) {
    return Writer({entries, room, spare});
  }
  static __device__ Bin finish(Writer& writer, int begin) {
    writer.finish();
    return {begin, writer.count};
  }
};
typedef KindOfTaps<Tap, false> Taps;
typedef KindOfTaps<SlopedTap, true> SlopedTaps;

// Taps whose bins also say which cells they read, so that threads can look for those of a tile.
struct BinTaps : Taps {
  struct alignas(16) Bin : TapBin {
    Window window;
  };
  static __device__ Bin finish(Writer& writer, int begin) {
    const TapBin bin = Taps::finish(writer, begin);
    return {bin, writer.window};
  }
};

struct Samples {
  typedef SampleBin Bin;
  typedef Sample<Value> Entry;
  typedef SampleCounter<Value> Counter;
  typedef SampleWriter<Value> Writer;
  static const int entries_of_sample = 1;

  static __device__ Writer writer(Entry* entries, int room, Entry*) {
    return Writer(entries, room);
  }
  static __device__ Bin finish(const Writer& writer, int begin) {
    return {writer.first_index, writer.total, begin, writer.count};
  }
};

// The part of a plan that concerns a whole axis.
struct AxisHead {
  Window window;  // where it is empty, `first` lies after `last`
  int used;       // entries that its bins have reserved
};
struct alignas(16) PlanHead {
  wide_int image;  // counted through the levels; negative: none
  AxisHead rows, columns;
};
static_assert(sizeof(PlanHead) == 32, "BYTES_OF_HEAD in launch.py");

// The plan of one box: its bins and, after them, their entries.
template <typename Kind>
struct BoxPlan {
  typedef typename Kind::Bin Bin;
  typedef typename Kind::Entry Entry;
  PlanHead* head;
  Bin* rows;
  Bin* columns;
  Entry* all_entries;

  __device__ BoxPlan(PlanHead* head, char* memory, const Call& call)
      : head(head),
        rows(reinterpret_cast<Bin*>(memory)),
        columns(rows + call.rows.bins),
        all_entries(reinterpret_cast<Entry*>(memory + call.entries_at)) {}

  __device__ const Entry* entries(const Bin& bin) const { return all_entries + bin.begin; }
};

// The layout that a planning kernel leaves in scratch memory: the heads of all boxes, then the
// rest.
__device__ inline PlanHead* head_in_scratch(char* scratch, wide_int box) {
  return reinterpret_cast<PlanHead*>(scratch) + box;
}
template <typename Kind>
__device__ inline BoxPlan<Kind> plan_in_scratch(char* scratch, const Call& call, wide_int box) {
  char* plans = reinterpret_cast<char*>(head_in_scratch(scratch, call.boxes));
  return {head_in_scratch(scratch, box), plans + box * call.plan_bytes, call};
}

// Where a box begins and ends along an axis.
struct Ends {
  Value low, high;
};
__device__ inline Ends ends_of_box(const Boxes& boxes, const Call& call, bool vertical,
                                   wide_int box) {
  const Value* low =
      boxes.corners + box * call.box_stride + (vertical ? call.coordinate_stride : 0);
  return {low[0], low[2 * call.coordinate_stride]};
}

__device__ inline Axis<Value> axis_of_box(const Ends& ends, const Call& call, bool vertical,
                                          wide_int image) {
  const AxisCall& axis = vertical ? call.rows : call.columns;
  const Level& level = call.levels[level_of_image(call, image)];
  return {ends.low,
          ends.high,
          Value(level.scale),
          image < 0 ? 0 : (vertical ? level.rows : level.columns),
          static_cast<int>(axis.bins),
          axis.sampling,
          call.aligned != 0,
          vertical,
          {nullptr, 0, Value(call.offset_factor), 0}};
}

template <typename Sink>
__device__ inline void visit_bin(const Axis<Value>& axis, int bin, Sink& sink) {
  if (axis.size == 0) {
    sink.begin_bin(bin, 0);
  } else {
    ROIPOOL_DEFINITION(axis, bin, bin + 1, sink);
  }
}

// Some of a box's bins: rows from the first on, and columns, which go on with column 0 after the
// last.
struct Bins {
  wide_int first_row, rows;
  wide_int first_column, columns;
};
__device__ inline Bins all_bins(const Call& call) {
  return {0, call.rows.bins, 0, call.columns.bins};
}

// The entries that a bin has at most, where it has as many samples whatever the box; 0 where they
// have to be counted, also since a plan has no room for so many: see plan_capacity in launch.py.
template <typename Kind>
__device__ inline wide_int most_entries(const AxisCall& axis) {
  const Traits traits = traits_of(definition);
  wide_int samples = traits.kind == kind_crop ? 1 : 0;
  if (traits.kind == kind_grid) samples = axis.sampling * traits.samples_per_ratio;
  const wide_int entries = samples * Kind::entries_of_sample;
  return entries * axis.bins < axis.capacity ? entries : 0;
}

template <typename Kind>
__device__ inline wide_int count_entries(const Axis<Value>& axis, int bin) {
  typename Kind::Counter counter;
  visit_bin(axis, bin, counter);
  return counter.entries();
}

// Reserves entries for a bin, of those [first, last), writes them, and returns the bin.
template <typename Kind>
__device__ inline typename Kind::Bin plan_bin(const Axis<Value>& axis, int bin,
                                              typename Kind::Entry* entries, int first, int last,
                                              wide_int most, AxisHead& head) {
  if (most == 0) most = count_entries<Kind>(axis, bin);
  const int spare = last - 1;
  const int wanted = static_cast<int>(minimum<wide_int>(most, spare - first));
  const int begin = minimum(first + atomicAdd(&head.used, wanted), spare);
  typename Kind::Writer writer =
      Kind::writer(entries + begin, minimum(wanted, spare - begin), entries + spare);
  visit_bin(axis, bin, writer);
  const typename Kind::Bin planned = Kind::finish(writer, begin);
  if (writer.window.first < writer.window.last) {
    atomicMin(&head.window.first, writer.window.first);
    atomicMax(&head.window.last, writer.window.last);
  }
  return planned;
}

// All threads of a block plan the rows and columns of some of a box's bins, one of them each. All
// have used the plan before when it begins, and can use this one when it ends.
template <typename Kind>
__device__ inline void plan_box(const Boxes& boxes, const Call& call, wide_int box,
                                const Bins& bins, const BoxPlan<Kind>& plan) {
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * blockDim.x);
  const wide_int all = bins.rows + bins.columns;
  Ends ends = {};  // of its first bin; loaded while the image is
  wide_int image = -1;
  if (thread < all) {
    ends = ends_of_box(boxes, call, thread < bins.rows, box);
    image = image_of_box(boxes, call, box);
  }
  __syncthreads();
  if (thread == 0) {
    const AxisHead empty = {{after_all_cells, 0}, 0};
    *plan.head = {image, empty, empty};
  }
  __syncthreads();
  const int row_entries = static_cast<int>(call.rows.capacity);
  const int column_entries = static_cast<int>(call.columns.capacity);
  for (wide_int item = thread; item < all; item += blockDim.x * blockDim.y) {
    const bool vertical = item < bins.rows;
    wide_int bin = vertical ? bins.first_row + item : bins.first_column + item - bins.rows;
    if (!vertical && bin >= call.columns.bins) bin -= call.columns.bins;
    if (item != thread) ends = ends_of_box(boxes, call, vertical, box);
    (vertical ? plan.rows : plan.columns)[bin] = plan_bin<Kind>(
        axis_of_box(ends, call, vertical, image), static_cast<int>(bin), plan.all_entries,
        vertical ? 0 : row_entries, row_entries + (vertical ? 0 : column_entries),
        most_entries<Kind>(vertical ? call.rows : call.columns),
        vertical ? plan.head->rows : plan.head->columns);
  }
  __syncthreads();
}

template <typename T>
__device__ inline void copy(const T* from, int number, T* to) {
  for (int i = threadIdx.x; i < number; i += blockDim.x) to[i] = from[i];
}

// Body of a planning kernel: plans all boxes, one block per box, into scratch memory; in shared
// memory first where there is room. Then all threads call `see(box, plan)`.
template <typename Kind, typename See>
__device__ inline void plan_boxes(const Boxes& boxes, char* scratch, const Call& call, See see) {
  PlanHead* head = reinterpret_cast<PlanHead*>(roipool_shared_memory);
  for (wide_int box = blockIdx.x; box < call.boxes; box += gridDim.x) {
    const BoxPlan<Kind> kept = plan_in_scratch<Kind>(scratch, call, box);
    char* memory =
        reinterpret_cast<char*>(plan_is_shared ? static_cast<void*>(head + 1) : kept.rows);
    const BoxPlan<Kind> plan(head, memory, call);
    plan_box(boxes, call, box, all_bins(call), plan);
    if (threadIdx.x == 0) *kept.head = *head;
    see(box, plan);
    if (!plan_is_shared) continue;
    copy(plan.rows, static_cast<int>(call.rows.bins + call.columns.bins), kept.rows);
    const int room = static_cast<int>(call.rows.capacity);
    const int column_room = static_cast<int>(call.columns.capacity);
    copy(plan.all_entries, minimum(head->rows.used, room), kept.all_entries);
    copy(plan.all_entries + room, minimum(head->columns.used, column_room),
         kept.all_entries + room);
  }
}

}  // namespace roipool
