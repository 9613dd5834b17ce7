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
struct alignas(16) MapHead {
  wide_int image;  // counted through the levels; negative: none
  AxisHead rows, columns;
};
struct alignas(16) VolumeHead {
  wide_int image;
  AxisHead rows, columns, depth;  // rows are those of a plane
};
typedef Select<of_volumes, VolumeHead, MapHead>::type PlanHead;
static_assert(sizeof(PlanHead) == (of_volumes ? 48 : 32), "bytes_of_head in launch.py");

// The axes along which a box is planned.
enum Direction { across, down, deep };
const int axes = of_volumes ? 3 : 2;

__device__ inline const AxisCall& axis_call(const Call& call, Direction direction) {
  if constexpr (of_volumes) {
    if (direction == deep) return call.volume.depth;
    return direction == down ? call.volume.rows : call.columns;
  }
  return direction == down ? call.rows : call.columns;
}

// Lines of bins in a plan before those of columns: of rows; or of volumes of depth, then of the
// rows of a plane.
__device__ inline wide_int planned_rows(const Call& call) {
  return of_volumes ? call.volume.depth.bins + call.volume.rows.bins : call.rows.bins;
}

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
        columns(rows + planned_rows(call)),
        all_entries(reinterpret_cast<Entry*>(memory + call.entries_at)) {}

  __device__ const Entry* entries(const Bin& bin) const { return all_entries + bin.begin; }
};

// The bins of an axis.
template <typename Kind>
__device__ inline const typename Kind::Bin* lines_of_axis(const Call& call,
                                                          const BoxPlan<Kind>& plan,
                                                          Direction direction) {
  if (of_volumes && direction == down) return plan.rows + call.volume.depth.bins;
  return direction == across ? plan.columns : plan.rows;
}

// The taps of a row of bins: of volumes, along depth and along the rows of a plane.
struct VolumeRow {
  TapBin depth, rows;
};
typedef Select<of_volumes, VolumeRow, TapBin>::type Row;

template <typename Kind>
__device__ inline Row row_of_plan(const Call& call, const BoxPlan<Kind>& plan, wide_int row) {
  if constexpr (of_volumes) {
    const Division plane = divide_with_rest(row, call.volume.rows.bins);
    return {plan.rows[plane.quotient], plan.rows[call.volume.depth.bins + plane.rest]};
  } else {
    return plan.rows[row];
  }
}
__device__ inline bool reads_cells(const TapBin& row) { return row.count != 0; }
__device__ inline bool reads_cells(const VolumeRow& row) {
  return row.depth.count != 0 && row.rows.count != 0;
}

// Calls visit(cell, plane, tap) for each tap of a row of bins: its cell counted through all planes,
// and its taps along depth and along the rows of a plane.
template <typename Kind, typename Visit>
__device__ inline void for_each_tap(const Call& call, const BoxPlan<Kind>& plan,
                                    const VolumeRow& row, Visit visit) {
  const auto* planes = plan.entries(row.depth);
  const auto* rows = plan.entries(row.rows);
#pragma unroll 1
  for (int z = 0; z < row.depth.count; ++z) {
    const auto plane = planes[z];
    const int top = plane.cell * static_cast<int>(call.volume.plane_rows);
#pragma unroll 1
    for (int y = 0; y < row.rows.count; ++y) visit(top + rows[y].cell, plane, rows[y]);
  }
}

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
__device__ inline Ends ends_of_box(const Boxes& boxes, const Call& call, Direction direction,
                                   wide_int box) {
  const Value* low = boxes.corners + box * call.box_stride +
                     (direction == across ? 0 : direction * call.coordinate_stride);
  return {low[0], low[axes * call.coordinate_stride]};
}

__device__ inline double scale_of_axis(const Call& call, const Level& level, Direction direction) {
  if constexpr (of_volumes) {
    if (direction == deep) return call.volume.depth_scale;
    if (direction == down) return call.volume.row_scale;
  }
  return level.scale;
}
__device__ inline wide_int cells_of_axis(const Call& call, const Level& level,
                                         Direction direction) {
  if constexpr (of_volumes) {
    if (direction == deep) return call.volume.planes;
    if (direction == down) return call.volume.plane_rows;
  }
  return direction == down ? level.rows : level.columns;
}

__device__ inline Axis<Value> axis_of_box(const Ends& ends, const Call& call, Direction direction,
                                          wide_int image) {
  const AxisCall& axis = axis_call(call, direction);
  const Level& level = call.levels[level_of_image(call, image)];
  return {ends.low,
          ends.high,
          Value(scale_of_axis(call, level, direction)),
          image < 0 ? 0 : cells_of_axis(call, level, direction),
          static_cast<int>(axis.bins),
          axis.sampling,
          call.aligned != 0,
          direction == down,
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

// The lines of a plan of some bins. For volumes they are all lines but columns: there are few.
__device__ inline Bins planned_bins(const Call& call, const Bins& bins) {
  if constexpr (of_volumes) return {0, planned_rows(call), bins.first_column, bins.columns};
  return bins;
}

// The direction of a line, of `rows` before those of columns.
__device__ inline Direction direction_of_line(const Call& call, wide_int line, wide_int rows) {
  if constexpr (of_volumes) {
    if (line < call.volume.depth.bins) return deep;
  }
  return line < rows ? down : across;
}

template <typename Head>
__device__ inline auto& head_of_axis(Head& head, Direction direction) {
  if constexpr (of_volumes) {
    if (direction == deep) return head.depth;
  }
  return direction == down ? head.rows : head.columns;
}

// Where the entries of an axis begin and end, in the order of lines.
struct EntryRange {
  int first, last;
};
__device__ inline EntryRange entries_of_axis(const Call& call, Direction direction) {
  int before = 0;
  if constexpr (of_volumes) {
    const int deep_entries = static_cast<int>(call.volume.depth.capacity);
    if (direction == deep) return {0, deep_entries};
    before = deep_entries;
  }
  const int row_entries = before + static_cast<int>(axis_call(call, down).capacity);
  const int column_entries = static_cast<int>(call.columns.capacity);
  const bool vertical = direction == down;
  return {vertical ? before : row_entries, row_entries + (vertical ? 0 : column_entries)};
}

template <typename Head>
__device__ inline void clear_head(wide_int image, Head& head) {
  const AxisHead empty = {{after_all_cells, 0}, 0};
  if constexpr (of_volumes) {
    head = {image, empty, empty, empty};
  } else {
    head = {image, empty, empty};
  }
}

// All threads of a block plan the rows and columns of some of a box's bins, one of them each. All
// have used the plan before when it begins, and can use this one when it ends.
template <typename Kind>
__device__ inline void plan_box(const Boxes& boxes, const Call& call, wide_int box,
                                const Bins& some, const BoxPlan<Kind>& plan) {
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * blockDim.x);
  const Bins bins = planned_bins(call, some);
  const wide_int all = bins.rows + bins.columns;
  Ends ends = {};  // of its first bin; loaded while the image is
  wide_int image = -1;
  if (thread < all) {
    ends = ends_of_box(boxes, call, direction_of_line(call, thread, bins.rows), box);
    image = image_of_box(boxes, call, box);
  }
  __syncthreads();
  if (thread == 0) clear_head(image, *plan.head);
  __syncthreads();
  for (wide_int item = thread; item < all; item += blockDim.x * blockDim.y) {
    const Direction direction = direction_of_line(call, item, bins.rows);
    const bool vertical = direction != across;
    wide_int line = vertical ? bins.first_row + item : bins.first_column + item - bins.rows;
    if (!vertical && line >= call.columns.bins) line -= call.columns.bins;
    const wide_int bin = of_volumes && direction == down ? line - call.volume.depth.bins : line;
    if (item != thread) ends = ends_of_box(boxes, call, direction, box);
    const EntryRange range = entries_of_axis(call, direction);
    (vertical ? plan.rows : plan.columns)[line] = plan_bin<Kind>(
        axis_of_box(ends, call, direction, image), static_cast<int>(bin), plan.all_entries,
        range.first, range.last, most_entries<Kind>(axis_call(call, direction)),
        head_of_axis(*plan.head, direction));
  }
  __syncthreads();
}

template <typename T>
__device__ inline void copy(const T* from, int number, T* to) {
  for (int i = threadIdx.x; i < number; i += blockDim.x) to[i] = from[i];
}

template <typename Kind>
__device__ inline void copy_entries(const Call& call, Direction direction,
                                    const BoxPlan<Kind>& plan, const BoxPlan<Kind>& kept) {
  const EntryRange range = entries_of_axis(call, direction);
  copy(plan.all_entries + range.first,
       minimum(head_of_axis(*plan.head, direction).used, range.last - range.first),
       kept.all_entries + range.first);
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
    copy(plan.rows, static_cast<int>(planned_rows(call) + call.columns.bins), kept.rows);
    if (of_volumes) copy_entries(call, deep, plan, kept);
    copy_entries(call, down, plan, kept);
    copy_entries(call, across, plan, kept);
  }
}

}  // namespace roipool
