// Geometry to plan: writes what the sinks are told into the arrays of an AxisPlan.
#pragma once
#include <string.h>

#include "../geometry.h"
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

// The cells that a box reads along one axis, as a half-open range.
struct Window {
  int first = 0;
  int last = 0;

  void include(int cell) {
    if (cell < 0) return;
    if (first == last) {
      first = cell;
      last = cell + 1;
    }
    if (cell < first) first = cell;
    if (cell >= last) last = cell + 1;
  }
};

// An upper bound of every bin's entries.
template <typename T, bool Taps>
struct EntryCounter {
  static const bool wants_gradient = false;
  wide_int* entries;  // per bin
  int bin = 0;
  wide_int samples = 0;
  Window reach;

  explicit EntryCounter(wide_int* entries) : entries(entries) {}

  void begin_bin(int next, wide_int) {
    bin = next;
    samples = 0;
    reach = Window();
    entries[bin] = 0;
  }
  void add(wide_int, const Sample<T>& sample) {
    ++samples;
    if (!Taps) {
      entries[bin] = samples;
      return;
    }
    reach.include(sample.first);
    reach.include(sample.second);
    entries[bin] = minimum<wide_int>(2 * samples, reach.last - reach.first);
  }
  void move(PositionGradient<T>) {}
};

// Merges the samples of each bin into taps: one weight per cell, divided by the number of samples.
// Cells whose weight is 0 are left out, so that a NaN there does not spread.
template <typename T, bool Gradient>
struct TapWriter {
  static const bool wants_gradient = Gradient;
  const AxisPlan& plan;
  wide_int first_row;  // of this box in the per-bin arrays
  Window window;
  wide_int row = -1;
  wide_int begin = 0;
  wide_int total = 0;
  int taps = 0;
  Sample<T> latest = {};

  TapWriter(const AxisPlan& plan, wide_int box) : plan(plan), first_row(box * plan.bins) {}

  T* weight() { return static_cast<T*>(plan.weight) + begin; }
  T* by_low() { return static_cast<T*>(plan.weight_by_low) + begin; }
  T* by_high() { return static_cast<T*>(plan.weight_by_high) + begin; }

  void begin_bin(int bin, wide_int samples) {
    finish_bin();
    row = first_row + bin;
    begin = plan.begin[row];
    total = samples;
    taps = 0;
  }
  void add(wide_int, const Sample<T>& sample) {
    weight()[tap_of(sample.first)] += sample.first_weight;
    if (sample.second != no_cell) weight()[tap_of(sample.second)] += sample.second_weight;
    latest = sample;
  }
  void move(PositionGradient<T> gradient) {
    add_slope(latest.first, -latest.slope, gradient);
    if (latest.second != no_cell) add_slope(latest.second, latest.slope, gradient);
  }
  void add_slope(int cell, T slope, PositionGradient<T> gradient) {
    const int tap = tap_of(cell);
    by_low()[tap] += slope * gradient.by_low;
    by_high()[tap] += slope * gradient.by_high;
  }
  // Samples come in order, so a cell that is there already is among the last few taps.
  int tap_of(int cell) {
    int* cells = plan.cell + begin;
    for (int tap = taps - 1; tap >= 0 && tap >= taps - 3; --tap) {
      if (cells[tap] == cell) return tap;
    }
    cells[taps] = cell;
    weight()[taps] = T(0);
    if (Gradient) by_low()[taps] = by_high()[taps] = T(0);
    return taps++;
  }
  void finish_bin() {
    if (row < 0) return;
    int* cells = plan.cell + begin;
    int kept = 0;
    for (int tap = 0; tap < taps; ++tap) {
      const bool used =
          weight()[tap] != T(0) || (Gradient && (by_low()[tap] != T(0) || by_high()[tap] != T(0)));
      if (!used) continue;
      cells[kept] = cells[tap];
      weight()[kept] = weight()[tap] / T(total);
      if (Gradient) {
        by_low()[kept] = by_low()[tap] / T(total);
        by_high()[kept] = by_high()[tap] / T(total);
      }
      window.include(cells[kept]);
      ++kept;
    }
    plan.count[row] = kept;
  }
};

// Lists the samples of each bin.
template <typename T>
struct SampleWriter {
  static const bool wants_gradient = false;
  const AxisPlan& plan;
  wide_int first_row;
  Window window;
  wide_int row = -1;

  SampleWriter(const AxisPlan& plan, wide_int box) : plan(plan), first_row(box * plan.bins) {}

  void begin_bin(int bin, wide_int samples) {
    row = first_row + bin;
    plan.count[row] = 0;
    plan.first_number[row] = 0;
    plan.total[row] = samples;
  }
  void add(wide_int number, const Sample<T>& sample) {
    if (plan.count[row] == 0) plan.first_number[row] = number;
    static_cast<Sample<T>*>(plan.sample)[plan.begin[row] + plan.count[row]++] = sample;
    window.include(sample.first);
    window.include(sample.second);
  }
  void move(PositionGradient<T>) {}
  void finish_bin() {}
};

template <typename T, typename Sink>
void visit_box(const Request& request, const AxisPlan& plan, bool vertical, wide_int box,
               Sink& sink) {
  visit_bins(request.definition, axis_of_box<T>(request, plan, vertical, box), 0, plan.bins, sink);
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
    EntryCounter<T, false> counter(entries);
    visit_box<T>(request, plan, vertical, box, counter);
    return;
  }
  EntryCounter<T, true> counter(entries);
  visit_box<T>(request, plan, vertical, box, counter);
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

template <typename T, typename Writer>
void write_with(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  Writer writer(plan, box);
  visit_box<T>(request, plan, vertical, box, writer);
  writer.finish_bin();
  plan.window_first[box] = writer.window.first;
  plan.window_last[box] = writer.window.last;
  plan.longest[box] = longest_of(plan.count + box * plan.bins, plan.bins);
}

template <typename T>
void write_axis(const Request& request, const AxisPlan& plan, bool vertical, wide_int box) {
  switch (request.entries) {
    case padded_taps:
      write_with<T, TapWriter<T, false>>(request, plan, vertical, box);
      pad_bins<T>(plan, box);
      break;
    case turned_taps:
      write_with<T, TapWriter<T, false>>(request, plan, vertical, box);
      turn_box<T>(plan, box);
      break;
    case taps_with_gradient: write_with<T, TapWriter<T, true>>(request, plan, vertical, box); break;
    case listed_samples: write_with<T, SampleWriter<T>>(request, plan, vertical, box); break;
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

// -1 where there is no definition of that name.
inline int definition_named(const char* name) {
#define ROIPOOL_COMPARE(row) \
  if (strcmp(name, #row) == 0) return define_##row;
  ROIPOOL_DEFINITIONS(ROIPOOL_COMPARE)
#undef ROIPOOL_COMPARE
  return -1;
}

}  // namespace roipool
