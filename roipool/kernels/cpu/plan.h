// Geometry to plan: writes what the sinks are told into the arrays of an AxisPlan.
#pragma once
#include <string.h>

#include "../definitions.h"
#include "../sinks.h"
#include "job.h"

namespace roipool {

// What an engine wants to know of each box.
enum Entries {
  padded_taps,         // sums: taps, as many in each bin of a box where they are few
  turned_taps,         // their transpose: taps, and the plan turned round
  taps_with_gradient,  // gradients of boxes: taps with their derivatives
  listed_samples       // maxima
};

// The question that one call puts to every box.
struct Request {
  Definition definition;
  bool double_precision;
  Entries entries;
  double scale;
  wide_int sampling[2];  // rows, columns
  bool aligned;
  const void* boxes;       // [boxes, 4] x1, y1, x2, y2, as float or double
  const wide_int* images;  // [boxes]; negative: the box reads nothing
};

template <typename T>
Axis<T> axis_of_box(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  const T* ends = static_cast<const T*>(request.boxes) + 4 * box + (vertical ? 1 : 0);
  const wide_int size = request.images[box] < 0 ? 0 : plan.size;
  return {ends[0],          ends[2],
          T(request.scale), size,
          plan.bins,        request.sampling[vertical ? 0 : 1],
          request.aligned,  vertical};
}

// Gives each bin of a box a sink of its own: `bins` makes it, and takes what it found.
template <typename T, typename Bins>
struct BinByBin {
  typedef typename Bins::Sink Sink;
  Bins bins;
  Sink sink;
  int bin = -1;

  explicit BinByBin(const Bins& bins) : bins(bins), sink(bins.sink_of(0)) {}

  void begin_bin(int next, wide_int total) {
    finish_bin();
    bin = next;
    sink = bins.sink_of(bin);
    sink.begin_bin(bin, total);
  }
  void add(wide_int number, const Sample<T>& sample, const PositionGradient<T>& gradient = {}) {
    sink.add(number, sample, gradient);
  }
  void tap(int cell, T weight, T by_low, T by_high) { sink.tap(cell, weight, by_low, by_high); }
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
        low_slopes(Slopes ? static_cast<T*>(plan.weight_by_low) + begin : nullptr),
        high_slopes(Slopes ? static_cast<T*>(plan.weight_by_high) + begin : nullptr),
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
    plan.first_number[first_row + bin] = samples.first_number;
    plan.total[first_row + bin] = samples.total;
    window.include(samples.window);
  }
};

// Tells the bins of a box what the definition answers; returns them.
template <typename T, typename Bins>
Bins visit_box(const Request& request, const AxisPlan& plan, bool vertical, wide_int box,
               const Bins& bins) {
  BinByBin<T, Bins> sink(bins);
  visit_bins(request.definition, axis_of_box<T>(request, plan, vertical, box), 0, plan.bins, sink);
  sink.finish_bin();
  return sink.bins;
}

// Makes room for lines that are equally long.
inline void level_entries(wide_int* entries, int bins) {
  wide_int longest = 0;
  for (int bin = 0; bin < bins; ++bin) longest = maximum(longest, entries[bin]);
  if (longest > most_padded) return;
  for (int bin = 0; bin < bins; ++bin) entries[bin] = longest;
}

template <typename T>
void count_axis(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  wide_int* entries = plan.begin + box * plan.bins + 1;
  if (request.entries == listed_samples) {
    visit_box<T>(request, plan, vertical, box, CountedBins<SampleCounter<T>>{entries});
    return;
  }
  visit_box<T>(request, plan, vertical, box, CountedBins<TapCounter<T>>{entries});
  if (request.entries == padded_taps) level_entries(entries, plan.bins);
}

inline int longest_of(const int* count, int lines) {
  int longest = 0;
  for (int line = 0; line < lines; ++line) longest = maximum(longest, count[line]);
  return longest;
}

// Lengthens a line by cutting its greatest weight into halves, which changes no sum: a weight of 0
// would make NaN of an infinite value.
template <typename T>
void pad_line(int* source, T* weight, int* count, int length) {
  if (*count == 0) return;
  int greatest = 0;
  for (int tap = 1; tap < *count; ++tap) {
    if (magnitude(weight[tap]) > magnitude(weight[greatest])) greatest = tap;
  }
  for (; *count < length; ++*count) {
    weight[greatest] *= T(0.5);
    source[*count] = source[greatest];
    weight[*count] = weight[greatest];
  }
}

template <typename T>
void pad_lines(const wide_int* begin, int* count, int lines, int length, int* source, T* weight) {
  if (length > most_padded) return;
  for (int line = 0; line < lines; ++line) {
    pad_line(source + begin[line], weight + begin[line], count + line, length);
  }
}

// Pads the bins of a box where there is room, which is not known to be so where a bin might have
// had more taps than are padded.
template <typename T>
void pad_bins(const AxisPlan& plan, wide_int box) {
  const wide_int* begin = plan.begin + box * plan.bins;
  int* longest = plan.longest + box;
  if (*longest > most_padded) *longest = uneven;
  for (int bin = 0; bin < plan.bins; ++bin) {
    if (begin[bin + 1] - begin[bin] < *longest) *longest = uneven;
  }
  pad_lines(begin, plan.count + box * plan.bins, plan.bins, *longest, plan.cell,
            static_cast<T*>(plan.weight));
}

// Finds, or begins, the line of a cell. Bins follow one another, so that a cell is new, or among
// the latest.
struct LineFinder {
  int* cell;
  int lines = 0;
  int least = 0;
  int greatest = -1;

  int line_of(int wanted) {
    const bool is_known = wanted >= least && wanted <= greatest;
    for (int line = lines - 1; is_known && line >= 0; --line) {
      if (cell[line] == wanted) return line;
    }
    least = lines == 0 ? wanted : minimum(least, wanted);
    greatest = lines == 0 ? wanted : maximum(greatest, wanted);
    cell[lines] = wanted;
    return lines++;
  }
};

// Calls visit(bin, place of the tap in the per-entry arrays) for the taps of a box.
template <typename Visit>
void for_each_tap(const AxisPlan& plan, wide_int box, Visit visit) {
  for (int bin = 0; bin < plan.bins; ++bin) {
    const wide_int row = box * plan.bins + bin;
    const wide_int end = plan.begin[row] + plan.count[row];
    for (wide_int tap = plan.begin[row]; tap < end; ++tap) visit(bin, tap);
  }
}

// Writes for each cell that a box reads the bins that read it.
template <typename T>
void turn_box(const AxisPlan& plan, wide_int box) {
  const TurnedPlan& turned = plan.turned;
  const wide_int origin = plan.begin[box * plan.bins];
  wide_int* begin = turned.begin + origin;
  int* count = turned.count + origin;
  LineFinder finder = {turned.cell + origin};
  wide_int taps = 0;
  for_each_tap(plan, box, [&](int, wide_int tap) {
    const int known = finder.lines;
    const int line = turned.line[tap] = finder.line_of(plan.cell[tap]);
    if (line == known) count[line] = 0;
    ++count[line];
    ++taps;
  });
  const int longest = longest_of(count, finder.lines);
  const bool padded = longest <= most_padded && finder.lines * longest <= 2 * taps;
  wide_int next = 2 * origin;
  for (int line = 0; line < finder.lines; ++line) {
    begin[line] = next;
    next += padded ? longest : count[line];
    count[line] = 0;
  }
  T* weight = static_cast<T*>(turned.weight);
  for_each_tap(plan, box, [&](int bin, wide_int tap) {
    const int line = turned.line[tap];
    const wide_int place = begin[line] + count[line]++;
    turned.bin[place] = bin;
    weight[place] = static_cast<const T*>(plan.weight)[tap];
  });
  if (padded) pad_lines(begin, count, finder.lines, longest, turned.bin, weight);
  turned.lines[box] = finder.lines;
  turned.longest[box] = padded ? longest : uneven;
}

template <typename T, typename Bins>
void write_bins(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  const Window window = visit_box<T>(request, plan, vertical, box, Bins(plan, box)).window;
  plan.window_first[box] = window.first;
  plan.window_last[box] = window.last;
  plan.longest[box] = longest_of(plan.count + box * plan.bins, plan.bins);
}

template <typename T>
void write_axis(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  switch (request.entries) {
    case padded_taps:
      write_bins<T, TapBins<T, false>>(request, plan, vertical, box);
      pad_bins<T>(plan, box);
      break;
    case turned_taps:
      write_bins<T, TapBins<T, false>>(request, plan, vertical, box);
      turn_box<T>(plan, box);
      break;
    case taps_with_gradient: write_bins<T, TapBins<T, true>>(request, plan, vertical, box); break;
    case listed_samples: write_bins<T, SampleBins<T>>(request, plan, vertical, box); break;
  }
}

// Carves arrays from one piece of memory, each at a cache line of its own; from no memory, it only
// counts the bytes.
class Carver {
 public:
  explicit Carver(char* memory) : memory_(memory) {}

  template <typename T>
  void take(T** array, wide_int count) {
    *array = reinterpret_cast<T*>(memory_ ? memory_ + used_ : nullptr);
    used_ += (count * static_cast<wide_int>(sizeof(T)) + 63) / 64 * 64;
  }
  void take_bytes(void** array, wide_int count) {
    char* bytes;
    take(&bytes, count);
    *array = bytes;
  }
  wide_int used() const { return used_; }

 private:
  char* memory_;
  wide_int used_ = 0;
};

inline void carve_bins(const Request& request, wide_int boxes, Carver* memory, AxisPlan* plan) {
  const wide_int bins = boxes * plan->bins;
  memory->take(&plan->begin, bins + 1);
  memory->take(&plan->count, bins);
  memory->take(&plan->longest, boxes);
  memory->take(&plan->window_first, boxes);
  memory->take(&plan->window_last, boxes);
  if (request.entries == listed_samples) {
    memory->take(&plan->first_number, bins);
    memory->take(&plan->total, bins);
  }
  if (request.entries == turned_taps) {
    memory->take(&plan->turned.lines, boxes);
    memory->take(&plan->turned.longest, boxes);
  }
}

inline void carve_entries(const Request& request, wide_int boxes, Carver* memory, AxisPlan* plan) {
  const wide_int entries = plan->begin[boxes * plan->bins];
  const wide_int real = request.double_precision ? sizeof(double) : sizeof(float);
  if (request.entries == listed_samples) {
    memory->take_bytes(&plan->sample, entries * (request.double_precision ? sizeof(Sample<double>)
                                                                          : sizeof(Sample<float>)));
    return;
  }
  memory->take(&plan->cell, entries);
  memory->take_bytes(&plan->weight, entries * real);
  if (request.entries == taps_with_gradient) {
    memory->take_bytes(&plan->weight_by_low, entries * real);
    memory->take_bytes(&plan->weight_by_high, entries * real);
  }
  if (request.entries == turned_taps) {
    TurnedPlan& turned = plan->turned;
    memory->take(&turned.line, entries);
    memory->take(&turned.cell, entries);
    memory->take(&turned.begin, entries);
    memory->take(&turned.count, entries);
    memory->take(&turned.bin, 2 * entries);
    memory->take_bytes(&turned.weight, 2 * entries * real);
  }
}

// Making a plan takes four steps, so that the caller has the memory and the threads. First, arrays
// whose size is known; returns their bytes, and carves them if there is memory.
inline wide_int prepare_bins(const Request& request, Job* job, char* memory) {
  Carver carver(memory);
  carver.take(&job->box_order, job->boxes);
  carver.take(&job->image_begin, job->images + 3);
  carve_bins(request, job->boxes, &carver, &job->rows);
  carve_bins(request, job->boxes, &carver, &job->columns);
  return carver.used();
}

// Second: bounds the entries of one box's bins, each in the place after its own in `begin`.
inline void count_entries(const Request& request, const Job& job, wide_int box) {
  if (request.double_precision) {
    count_axis<double>(request, job.rows, true, box);
    count_axis<double>(request, job.columns, false, box);
  } else {
    count_axis<float>(request, job.rows, true, box);
    count_axis<float>(request, job.columns, false, box);
  }
}

inline void sum_entries(const AxisPlan& plan, wide_int boxes) {
  plan.begin[0] = 0;
  for (wide_int row = 0; row < boxes * plan.bins; ++row) plan.begin[row + 1] += plan.begin[row];
}

// Third: the arrays that hold the entries, like the first.
inline wide_int prepare_entries(const Request& request, Job* job, char* memory) {
  if (!memory) {
    sum_entries(job->rows, job->boxes);
    sum_entries(job->columns, job->boxes);
  }
  Carver carver(memory);
  carve_entries(request, job->boxes, &carver, &job->rows);
  carve_entries(request, job->boxes, &carver, &job->columns);
  return carver.used();
}

// Fourth: writes the entries of one box.
inline void write_entries(const Request& request, const Job& job, wide_int box) {
  if (request.double_precision) {
    write_axis<double>(request, job.rows, true, box);
    write_axis<double>(request, job.columns, false, box);
  } else {
    write_axis<float>(request, job.rows, true, box);
    write_axis<float>(request, job.columns, false, box);
  }
}

// Without a plan any cell may be written: the window of each box is the whole map. To be called in
// place of the second step and those after it.
inline void open_windows(const AxisPlan& plan, wide_int boxes) {
  for (wide_int box = 0; box < boxes; ++box) {
    plan.window_first[box] = 0;
    plan.window_last[box] = static_cast<int>(plan.size);
  }
}

// Groups the boxes by image in their given order; those of no image go with the first.
inline void group_by_image(Job* job) {
  // Counted two places ahead: summed and then filled, places 0 to `images` hold the beginnings.
  wide_int* begin = job->image_begin;
  for (wide_int image = 0; image < job->images + 3; ++image) begin[image] = 0;
  for (wide_int box = 0; box < job->boxes; ++box) ++begin[maximum(job->box_image[box], 0LL) + 2];
  for (wide_int image = 2; image < job->images + 2; ++image) begin[image] += begin[image - 1];
  for (wide_int box = 0; box < job->boxes; ++box) {
    job->box_order[begin[maximum(job->box_image[box], 0LL) + 1]++] = box;
  }
}

// The rows of definitions.h as text, for Python.
struct DefinitionRow {
  const char* name;
  const char* kind;
  int samples_per_ratio;
  int max_per_cell;
};

#define ROIPOOL_ROW(name, kind, samples_per_ratio, max_per_cell) \
  {#name, #kind, samples_per_ratio, max_per_cell},
const DefinitionRow definition_rows[] = {ROIPOOL_DEFINITIONS(ROIPOOL_ROW)};
#undef ROIPOOL_ROW

// -1 where there is no definition of that name.
inline int definition_named(const char* name) {
  for (int row = 0; row < definition_count; ++row) {
    if (strcmp(name, definition_rows[row].name) == 0) return row;
  }
  return -1;
}

}  // namespace roipool
