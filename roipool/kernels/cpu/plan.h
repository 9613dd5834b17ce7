// From geometry to plans: writes the samples of definitions into the arrays of an AxisPlan.
#pragma once
#include <string.h>

#include "regions.h"
#include "volumes.h"

namespace roipool {

inline wide_int sampling_of(const Request& request, Direction direction) {
  if (has_depth(request) && direction == deep) return request.depth.sampling;
  return request.sampling[direction == down ? 0 : 1];
}

inline double scale_of(const Request& request, Direction direction) {
  if (!has_depth(request) || direction == across) return request.scale;
  return direction == deep ? request.depth.scale : request.depth.row_scale;
}

template <typename T>
Axis<T> axis_of_box(const Request& request, const AxisPlan& plan, Direction direction,
                    wide_int box) {
  const bool vertical = direction != across;
  const T* numbers = static_cast<const T*>(request.boxes) + request.numbers * box;
  const T* ends = numbers + direction;
  const wide_int size = request.images[box] < 0 ? 0 : plan.size;
  Axis<T> axis = {ends[0],
                  ends[has_depth(request) ? 3 : 2],
                  T(scale_of(request, direction)),
                  size,
                  plan.bins,
                  sampling_of(request, direction),
                  request.aligned,
                  vertical,
                  {nullptr, 0, T(request.offset_factor), 0}};
  if (request.moves_bins) {
    axis.bins = vertical ? request.bins_down : request.bins_across;
    axis.offsets = {numbers + numbers_of_corners + (vertical ? plan.bins : 0), 1,
                    T(request.offset_factor), request.bins_across};
  }
  return axis;
}

// Bins of an axis that are evaluated between two questions to the watch.
inline int bins_between_asks(const Request& request, Direction direction) {
  const wide_int samples = clamp(sampling_of(request, direction), 1, work_between_asks);
  return static_cast<int>(work_between_asks / samples);
}

// Evaluates the definition for the bins of a box and returns them: all, unless the call is
// interrupted.
template <typename T, typename Bins>
Bins visit_box(const Request& request, const AxisPlan& plan, Direction direction, wide_int box,
               const Bins& bins) {
  BinByBin<Bins> sink(bins);
  const Axis<T> axis = axis_of_box<T>(request, plan, direction, box);
  const int at_once = bins_between_asks(request, direction);
  for (int first = 0, last; first < plan.bins; first = last) {
    last = plan.bins - first > at_once ? first + at_once : plan.bins;
    if (first > 0 && is_interrupted(request.watch)) break;
    visit_bins(request.definition, axis, first, last, sink);
  }
  sink.finish_bin();
  return sink.bins;
}

// The entries that any bin has at most, where the request alone says that they are few; else 0.
inline wide_int few_entries_of_bin(const Request& request, Direction direction) {
  const Traits traits = traits_of(request.definition);
  const wide_int per_sample = request.entries == listed_samples ? 1 : 2;
  if (traits.kind == kind_crop) return per_sample;
  const wide_int sampling = sampling_of(request, direction);
  // Moved bins share no lines: counting so many of them costs more than memory.
  const bool is_moved = traits.kind == kind_moved;
  const wide_int most = is_moved ? 2 * max_padded_taps : max_padded_taps;
  if (!(traits.kind == kind_grid || is_moved) || sampling < 1 || sampling > most) return 0;
  const wide_int entries = per_sample * traits.samples_per_ratio * sampling;
  return entries <= most ? entries : 0;
}

template <typename T>
void count_axis(const Request& request, const AxisPlan& plan, Direction direction, wide_int box) {
  wide_int* entries = plan.begin + box * plan.bins + 1;
  const wide_int few = few_entries_of_bin(request, direction);
  if (few > 0) {
    for (int bin = 0; bin < plan.bins; ++bin) entries[bin] = few;
    return;
  }
  if (request.entries == listed_samples) {
    visit_box<T>(request, plan, direction, box, CountedBins<SampleCounter<T>>{entries});
    return;
  }
  visit_box<T>(request, plan, direction, box, CountedBins<TapCounter<T>>{entries});
  if (request.entries == padded_taps) level_entries(entries, plan.bins);
}

// Pads a line by halving its largest weight, which changes no sum: a weight of 0 would make NaN of
// an infinite value.
template <typename T>
void pad_line(int* source, T* weight, int* count, int length) {
  if (*count == 0 || *count == length) return;
  int max_tap = 0;
  for (int tap = 1; tap < *count; ++tap) {
    if (magnitude(weight[tap]) > magnitude(weight[max_tap])) max_tap = tap;
  }
  for (; *count < length; ++*count) {
    weight[max_tap] *= T(0.5);
    source[*count] = source[max_tap];
    weight[*count] = weight[max_tap];
  }
}

template <typename T>
void pad_lines(const wide_int* begin, int* count, int lines, int length, int* source, T* weight) {
  if (length > max_padded_taps) return;
  for (int line = 0; line < lines; ++line) {
    pad_line(source + begin[line], weight + begin[line], count + line, length);
  }
}

// Pads the bins of a box where all have memory for it: a bin that could have had more taps than are
// padded may not.
template <typename T>
void pad_bins(const AxisPlan& plan, wide_int box) {
  const wide_int* begin = plan.begin + box * plan.bins;
  int longest = plan.longest[box];
  if (longest > max_padded_taps) longest = uneven;
  for (int bin = 0; bin < plan.bins; ++bin) {
    if (begin[bin + 1] - begin[bin] < longest) longest = uneven;
  }
  plan.longest[box] = longest;
  pad_lines(begin, plan.count + box * plan.bins, plan.bins, longest, plan.cell,
            static_cast<T*>(plan.weight));
}

// A tap to be sorted, as one integer: its bin, and its index among the box's entries.
inline wide_int pack_tap(int bin, int tap) { return static_cast<wide_int>(bin) << 32 | tap; }
inline int bin_of(wide_int packed) { return static_cast<int>(packed >> 32); }
inline int tap_of(wide_int packed) { return static_cast<int>(packed & 0x7fffffff); }

inline int digits_of(unsigned number) {
  int digits = 0;
  for (; number > 0; number >>= 1) ++digits;
  return digits;
}

// One step of a radix sort: by some binary digits of the cells' offsets in the window.
inline void sort_by_digits(const wide_int* from, int count, const int* cell, int first_cell,
                           int shift, int digits, wide_int* to) {
  int begin[257];
  const unsigned mask = (1u << digits) - 1;
  memset(begin, 0, (mask + 2) * sizeof(int));  // boxes are small: not all of it
  const auto key = [&](int i) {
    return static_cast<unsigned>(cell[tap_of(from[i])] - first_cell) >> shift & mask;
  };
  for (int i = 0; i < count; ++i) ++begin[key(i) + 1];
  for (unsigned k = 0; k < mask; ++k) begin[k + 1] += begin[k];
  for (int i = 0; i < count; ++i) to[begin[key(i)]++] = from[i];
}

// The taps of a box by cell, and for each cell by bin, at `sorted`; `spare` is as long.
inline int sort_taps(const AxisPlan& plan, wide_int box, wide_int* sorted, wide_int* spare) {
  const wide_int origin = plan.begin[box * plan.bins];
  const int first_cell = plan.window_first[box];
  const int digits = digits_of(static_cast<unsigned>(plan.window_last[box] - first_cell));
  const int steps = (digits + 7) / 8;
  wide_int* from = steps % 2 ? spare : sorted;
  wide_int* to = steps % 2 ? sorted : spare;
  int taps = 0;
  for (int bin = 0; bin < plan.bins; ++bin) {
    const wide_int row = box * plan.bins + bin;
    const int begin = static_cast<int>(plan.begin[row] - origin);
    for (int tap = begin; tap < begin + plan.count[row]; ++tap) from[taps++] = pack_tap(bin, tap);
  }
  for (int step = 0; step < steps; ++step) {
    const int shift = 8 * step;
    sort_by_digits(from, taps, plan.cell + origin, first_cell, shift, minimum(digits - shift, 8),
                   to);
    wide_int* const next = from;
    from = to;
    to = next;
  }
  return taps;
}

// Transposes the plan of a box: writes for each cell that the box reads the bins that read it.
template <typename T>
void transpose_box(const AxisPlan& plan, wide_int box) {
  const TransposedPlan& transposed = plan.transposed;
  const wide_int origin = plan.begin[box * plan.bins];
  wide_int* begin = transposed.begin + origin;
  int* cell = transposed.cell + origin;
  int* count = transposed.count + origin;
  T* weight = static_cast<T*>(transposed.weight);
  // There are no more lines than taps, so that sorted taps can be overwritten by the offsets of
  // lines.
  wide_int* sorted = begin;
  const int taps =
      sort_taps(plan, box, sorted, reinterpret_cast<wide_int*>(transposed.bin + 2 * origin));
  int lines = 0;
  for (int i = 0; i < taps; ++i) {
    const int now = plan.cell[origin + tap_of(sorted[i])];
    if (lines == 0 || cell[lines - 1] != now) {
      cell[lines] = now;
      count[lines++] = 0;
    }
    ++count[lines - 1];
  }
  const int longest = longest_of(count, lines);
  const bool padded =
      longest <= max_padded_taps && static_cast<wide_int>(lines) * longest <= 2LL * taps;
  wide_int offset = 2 * origin;
  int next = 0;
  for (int line = 0; line < lines; ++line) {
    const wide_int first = offset;
    for (int i = 0; i < count[line]; ++i) {
      const wide_int packed = sorted[next++];
      transposed.bin[first + i] = bin_of(packed);
      weight[first + i] = static_cast<const T*>(plan.weight)[origin + tap_of(packed)];
    }
    offset += padded ? longest : count[line];
    begin[line] = first;
  }
  if (padded) pad_lines(begin, count, lines, longest, transposed.bin, weight);
  transposed.lines[box] = lines;
  transposed.longest[box] = padded ? longest : uneven;
}

template <typename T, typename Bins>
void write_bins(const Request& request, const AxisPlan& plan, Direction direction, wide_int box) {
  const Window window = visit_box<T>(request, plan, direction, box, Bins(plan, box)).window;
  plan.window_first[box] = window.first;
  plan.window_last[box] = window.last;
}

template <typename T>
void write_axis(const Request& request, const AxisPlan& plan, Direction direction, wide_int box) {
  switch (request.entries) {
    case padded_taps:
    case transposed_taps: write_bins<T, TapBins<T, false>>(request, plan, direction, box); break;
    case taps_with_gradient: write_bins<T, TapBins<T, true>>(request, plan, direction, box); break;
    case listed_samples: write_bins<T, SampleBins<T>>(request, plan, direction, box); break;
  }
}

// Finishes the arrays that engines need besides the entries of bins.
template <typename T>
void finish_axis(const Request& request, const AxisPlan& plan, wide_int box) {
  plan.longest[box] = longest_of(plan.count + box * plan.bins, plan.bins);
  if (request.entries == padded_taps) pad_bins<T>(plan, box);
  if (request.entries == transposed_taps) transpose_box<T>(plan, box);
}

// Allocates arrays one after the other in one piece of memory, each at the start of a cache line.
// Without memory it only counts the bytes.
class BumpAllocator {
 public:
  explicit BumpAllocator(char* memory) : memory_(memory) {}

  template <typename T>
  void allocate(T** array, wide_int count) {
    *array = reinterpret_cast<T*>(memory_ ? memory_ + used_ : nullptr);
    used_ += (count * static_cast<wide_int>(sizeof(T)) + 63) / 64 * 64;
  }
  void allocate_bytes(void** array, wide_int count) {
    char* bytes;
    allocate(&bytes, count);
    *array = bytes;
  }
  wide_int used() const { return used_; }

 private:
  char* memory_;
  wide_int used_ = 0;
};

// The derivatives that a tap may have.
inline int slopes_of(const AxisPlan& plan) {
  if (plan.is_pointwise) return numbers_of_region;
  return plan.is_product ? slopes_of_product : 2;
}

inline void allocate_bins(const Request& request, wide_int boxes, BumpAllocator* memory,
                          AxisPlan* plan) {
  const wide_int bins = boxes * plan->bins;
  memory->allocate(&plan->begin, bins + 1);
  memory->allocate(&plan->count, bins);
  memory->allocate(&plan->longest, boxes);
  memory->allocate(&plan->window_first, boxes);
  memory->allocate(&plan->window_last, boxes);
  if (request.entries == listed_samples) {
    memory->allocate(&plan->first_index, bins);
    memory->allocate(&plan->total, bins);
  }
  if (plan->is_pointwise) memory->allocate(&plan->bin_window, bins);
  if (request.entries == transposed_taps) {
    memory->allocate(&plan->transposed.lines, boxes);
    memory->allocate(&plan->transposed.longest, boxes);
  }
}

inline void allocate_entries(const Request& request, const Chunk& chunk, BumpAllocator* memory,
                             AxisPlan* plan) {
  const wide_int entries = plan->begin[chunk.end * plan->bins];
  const wide_int real = request.double_precision ? sizeof(double) : sizeof(float);
  if (request.entries == listed_samples) {
    memory->allocate_bytes(
        &plan->sample,
        entries * (request.double_precision ? sizeof(Sample<double>) : sizeof(Sample<float>)));
    return;
  }
  memory->allocate(&plan->cell, entries);
  memory->allocate_bytes(&plan->weight, entries * real);
  if (request.entries == taps_with_gradient) {
    for (int i = 0; i < slopes_of(*plan); ++i)
      memory->allocate_bytes(&plan->slope[i], entries * real);
  }
  if (request.entries == transposed_taps) {
    TransposedPlan& transposed = plan->transposed;
    memory->allocate(&transposed.cell, entries);
    memory->allocate(&transposed.begin, entries);
    memory->allocate(&transposed.count, entries);
    memory->allocate(&transposed.bin, 2 * entries);
    memory->allocate_bytes(&transposed.weight, 2 * entries * real);
  }
}

// Makes one row of the cells of a map and one of the bins of a box, for a pointwise definition.
inline void flatten(Job* job) {
  job->arrangement = flat_bins;
  job->columns.is_pointwise = true;
  job->columns.size *= job->rows.size;
  job->columns.bins *= job->rows.bins;
  job->rows.size = job->rows.bins = 1;
}

// Gives both axes as many lines as the box has bins, which are moved each by itself.
inline void pair_bins(Job* job) {
  const int bins = job->rows.bins * job->columns.bins;
  job->arrangement = paired_bins;
  job->rows.bins = job->columns.bins = bins;
}

// How the definition arranges rows and columns of bins; to be called once both are described.
inline void arrange_bins(Request* request, Job* job) {
  request->map_rows = job->rows.size;
  request->map_columns = job->columns.size;
  request->bins_down = job->rows.bins;
  request->bins_across = job->columns.bins;
  job->bins_down = job->rows.bins;
  job->bins_across = job->columns.bins;
  switch (traits_of(request->definition).kind) {
    case kind_points: flatten(job); break;
    case kind_moved: pair_bins(job); break;
    default: job->arrangement = crossed_bins;
  }
  request->moves_bins = job->arrangement == paired_bins;
  job->rows.is_product = has_depth(*request);
  request->numbers = numbers_of_box(*job);
}

// Making a plan takes five steps, so that the caller has the memory and the threads; the last three
// are taken anew for each chunk. First, arrays whose size is known; returns their bytes, and
// allocates them if there is memory.
inline wide_int prepare_bins(const Request& request, Job* job, char* memory) {
  BumpAllocator allocator(memory);
  allocator.allocate(&job->box_order, job->boxes);
  allocator.allocate(&job->image_begin, job->images + 3);
  allocate_bins(request, job->boxes, &allocator, &job->rows);
  allocate_bins(request, job->boxes, &allocator, &job->columns);
  if (is_volume(*job)) {
    VolumePlan plan = begin_volume(request, *job);
    allocator.allocate(&job->volume, 1);
    allocate_bins(of_factors(request), job->boxes, &allocator, &plan.depth);
    allocate_bins(of_factors(request), job->boxes, &allocator, &plan.rows);
    if (memory) *job->volume = plan;
  }
  return allocator.used();
}

// Second: bounds the entries of one box's bins, each in the element after its own in `begin`.
template <typename T>
void count_box(const Request& request, const Job& job, wide_int box) {
  if (job.arrangement == flat_bins) {
    job.rows.begin[box + 1] = 1;
    count_points<T>(request, job.columns, box);
    return;
  }
  if (is_volume(job)) {
    count_axis<T>(of_factors(request), job.volume->depth, deep, box);
    count_axis<T>(of_factors(request), job.volume->rows, down, box);
    count_product(request, *job.volume, job.rows, box);
  } else {
    count_axis<T>(request, job.rows, down, box);
  }
  count_axis<T>(request, job.columns, across, box);
}

inline void count_entries(const Request& request, const Job& job, wide_int box) {
  if (request.double_precision) {
    count_box<double>(request, job, box);
  } else {
    count_box<float>(request, job, box);
  }
}

// The sum of these bounds for a box, before the third step.
inline wide_int entries_of_box(const AxisPlan& plan, wide_int box) {
  const wide_int first = box * plan.bins + 1;
  wide_int sum = 0;
  for (int bin = 0; bin < plan.bins; ++bin) sum += plan.begin[first + bin];
  return sum;
}

// The largest of these bounds.
inline wide_int most_entries(const AxisPlan& plan, wide_int box) {
  const wide_int first = box * plan.bins + 1;
  wide_int most = 0;
  for (int bin = 0; bin < plan.bins; ++bin) most = maximum(most, plan.begin[first + bin]);
  return most;
}

inline void sum_axis(const AxisPlan& plan, const Chunk& chunk) {
  const wide_int first = chunk.begin * plan.bins, last = chunk.end * plan.bins;
  plan.begin[first] = 0;
  for (wide_int row = first; row < last; ++row) plan.begin[row + 1] += plan.begin[row];
}

// Third: adds up these bounds over the chunk, so that each bin has the number of its first entry.
inline void sum_entries(const Job& job) {
  sum_axis(job.rows, job.chunk);
  sum_axis(job.columns, job.chunk);
  if (!is_volume(job)) return;
  sum_axis(job.volume->depth, job.chunk);
  sum_axis(job.volume->rows, job.chunk);
}

// These bounds for a box, after it.
inline wide_int planned_entries(const AxisPlan& plan, wide_int box) {
  return plan.begin[(box + 1) * plan.bins] - plan.begin[box * plan.bins];
}

// Fourth: the arrays that hold the entries of a chunk, like the first.
inline wide_int prepare_entries(const Request& request, Job* job, char* memory) {
  BumpAllocator allocator(memory);
  allocate_entries(request, job->chunk, &allocator, &job->rows);
  allocate_entries(request, job->chunk, &allocator, &job->columns);
  if (is_volume(*job)) {
    allocate_entries(of_factors(request), job->chunk, &allocator, &job->volume->depth);
    allocate_entries(of_factors(request), job->chunk, &allocator, &job->volume->rows);
  }
  return allocator.used();
}

// Fifth: writes the entries of one box.
template <typename T>
void write_box(const Request& request, const Job& job, wide_int box) {
  if (job.arrangement == flat_bins) {
    write_identity<T>(job.rows, box);
    write_points<T>(request, job.columns, box);
  } else {
    if (is_volume(job)) {
      write_axis<T>(of_factors(request), job.volume->depth, deep, box);
      write_axis<T>(of_factors(request), job.volume->rows, down, box);
      if (is_over(request.watch)) return;
      write_product<T>(*job.volume, job.rows, box);
    } else {
      write_axis<T>(request, job.rows, down, box);
    }
    write_axis<T>(request, job.columns, across, box);
  }
  if (is_over(request.watch)) return;  // some bins were not written
  finish_axis<T>(request, job.rows, box);
  finish_axis<T>(request, job.columns, box);
}

inline void write_entries(const Request& request, const Job& job, wide_int box) {
  if (request.double_precision) {
    write_box<double>(request, job, box);
  } else {
    write_box<float>(request, job, box);
  }
}

// Without a plan any cell may be written: the window of each box is the whole map. To be called
// instead of the second and later steps.
inline void set_whole_map_windows(const AxisPlan& plan, wide_int boxes) {
  for (wide_int box = 0; box < boxes; ++box) {
    plan.window_first[box] = 0;
    plan.window_last[box] = static_cast<int>(plan.size);
  }
}

// Groups the boxes of the chunk by image in their given order; those of no image go with the first.
inline void group_by_image(Job* job) {
  // Counted two places ahead: summed and then filled, places 0 to `images` hold the beginnings.
  wide_int* begin = job->image_begin;
  for (wide_int image = 0; image < job->images + 3; ++image) begin[image] = 0;
  const Chunk& chunk = job->chunk;
  for (wide_int box = chunk.begin; box < chunk.end; ++box) {
    ++begin[maximum(job->box_image[box], 0LL) + 2];
  }
  for (wide_int image = 2; image < job->images + 2; ++image) begin[image] += begin[image - 1];
  for (wide_int box = chunk.begin; box < chunk.end; ++box) {
    job->box_order[begin[maximum(job->box_image[box], 0LL) + 1]++] = box;
  }
}

}  // namespace roipool
