// The CPU's plans in a browser: what the live pages compute with. scripts/playground.py compiles
// it.
//
// JavaScript gives a map, then asks for one plan after the other, and reads bins, samples, taps and
// pooled values in this module's memory. There is nothing but memory: no imports, no allocator.
#include <initializer_list>

#define ROIPOOL_PLAYGROUND
#include "../argmax.h"
#include "../cpu/definition_rows.h"
#include "../cpu/plan.h"

#define ROIPOOL_EXPORT(name) extern "C" __attribute__((export_name(#name)))

extern char __heap_base;  // the linker's

namespace roipool {
namespace {

// Where things lie in memory: the map, then what belongs to the present plan.
struct Memory {
  char* map;
  char* plan;  // behind the map
  char* used;  // the end of all

  static char* aligned(char* address) {
    return reinterpret_cast<char*>((reinterpret_cast<size_t>(address) + 63) / 64 * 64);
  }
  // Returns null where the browser has no more memory.
  char* take(wide_int bytes) {
    char* begin = aligned(used);
    const wide_int page = 65536;
    const wide_int end = static_cast<wide_int>(reinterpret_cast<size_t>(begin)) + bytes;
    const wide_int have = static_cast<wide_int>(__builtin_wasm_memory_size(0)) * page;
    if (end > 0xffff0000LL) return nullptr;
    if (end > have) {
      const wide_int more = (end - have + page - 1) / page;
      if (__builtin_wasm_memory_grow(0, static_cast<size_t>(more)) == ~size_t(0)) return nullptr;
    }
    used = begin + bytes;
    return begin;
  }
};

Memory memory;
int channels, map_rows, map_columns;
Request request;
Job job;
float numbers[numbers_of_region];  // of the box
wide_int image;                    // of the box: the only one
char* samples_at;

// Where the samples of a rotated box lie.
struct PlacedSample {
  int bin;
  float y;
  float x;
};

struct PlacedSamples {
  PlacedSample* samples;  // null: they are only counted
  int count;
  int bin;

  void begin_bin(int next, wide_int) { bin = next; }
  void add(wide_int, const Sample<float>& y, const Sample<float>& x, const PointGradient<float>&) {
    if (samples) samples[count] = {bin, y.position, x.position};
    ++count;
  }
};

// Allocates what the functions of plan.h ask for; false where there is no memory.
template <typename Prepare>
bool prepared(Prepare prepare) {
  char* const begin = memory.take(prepare(request, &job, nullptr));
  if (begin) prepare(request, &job, begin);
  return begin != nullptr;
}

// One type of sink for all definitions: compiled for each sink of the CPU's they are ten times as
// large.
struct AnySink {
  virtual void begin_bin(int bin, wide_int total) = 0;
  virtual void add(wide_int number, const Sample<float>& sample,
                   const PositionGradient<float>& gradient = {}) = 0;
  virtual void tap(int cell, float weight, float by_low, float by_high) = 0;
};

template <typename Bins>
struct SinkOf final : AnySink {
  BinByBin<Bins> bins;

  explicit SinkOf(const Bins& bins) : bins(bins) {}
  void begin_bin(int bin, wide_int total) override { bins.begin_bin(bin, total); }
  void add(wide_int number, const Sample<float>& sample,
           const PositionGradient<float>& gradient) override {
    bins.add(number, sample, gradient);
  }
  void tap(int cell, float weight, float by_low, float by_high) override {
    bins.tap(cell, weight, by_low, by_high);
  }
};

// As `visit_box` of plan.h.
template <typename Bins>
void visit_axis(Direction direction, const Bins& bins) {
  const AxisPlan& plan = direction == down ? job.rows : job.columns;
  SinkOf<Bins> sink(bins);
  const Axis<float> axis = axis_of_box<float>(request, plan, direction, 0);
  visit_bins(request.definition, axis, 0, plan.bins, static_cast<AnySink&>(sink));
  sink.bins.finish_bin();
}

// As `count_axis`.
void count_entries_of_axis(Direction direction) {
  const AxisPlan& plan = direction == down ? job.rows : job.columns;
  wide_int* const entries = plan.begin + 1;
  const wide_int few = few_entries_of_bin(request, direction);
  if (few > 0) {
    for (int bin = 0; bin < plan.bins; ++bin) entries[bin] = few;
  } else if (request.entries == listed_samples) {
    visit_axis(direction, CountedBins<SampleCounter<float>>{entries});
  } else {
    visit_axis(direction, CountedBins<TapCounter<float>>{entries});
    level_entries(entries, plan.bins);
  }
}

void count_plan() {
  if (job.arrangement == flat_bins) {
    job.rows.begin[1] = 1;
    count_points<float>(request, job.columns, 0);
    return;
  }
  count_entries_of_axis(down);
  count_entries_of_axis(across);
}

// As `write_axis`.
void write_entries_of_axis(Direction direction) {
  const AxisPlan& plan = direction == down ? job.rows : job.columns;
  if (request.entries == listed_samples) {
    visit_axis(direction, SampleBins<float>(plan, 0));
  } else {
    visit_axis(direction, TapBins<float, false>(plan, 0));
  }
}

void write_plan() {
  if (job.arrangement == flat_bins) {
    write_identity<float>(job.rows, 0);
    write_points_with<float, false>(request, job.columns, 0);
  } else {
    write_entries_of_axis(down);
    write_entries_of_axis(across);
  }
  if (request.entries == listed_samples) return;
  for (const AxisPlan* plan : {&job.rows, &job.columns}) {
    plan->longest[0] = longest_of(plan->count, plan->bins);
    pad_bins<float>(*plan, 0);
  }
}

// What the forward of an average makes of one bin and one channel.
float average_of(const float* map, int row, int column) {
  const AxisPlan &rows = job.rows, &columns = job.columns;
  const float* by_row = static_cast<const float*>(rows.weight) + rows.begin[row];
  const float* by_column = static_cast<const float*>(columns.weight) + columns.begin[column];
  const int* row_cells = rows.cell + rows.begin[row];
  const int* column_cells = columns.cell + columns.begin[column];
  float sum = 0;
  for (int i = 0; i < rows.count[row]; ++i) {
    const float* cells = map + static_cast<wide_int>(row_cells[i]) * columns.size;
    float along = 0;
    for (int j = 0; j < columns.count[column]; ++j) along += by_column[j] * cells[column_cells[j]];
    sum += by_row[i] * along;
  }
  return sum;
}

BinSamples<float> samples_of(const AxisPlan& plan, int bin) {
  return {static_cast<const Sample<float>*>(plan.sample) + plan.begin[bin], plan.count[bin],
          plan.first_index[bin], plan.total[bin]};
}

// The corners are added in the maximum engine's order.
float value_of_sample(const float* map, const Sample<float>& y, const Sample<float>& x) {
  const float* first = map + static_cast<wide_int>(y.first) * map_columns;
  float sum = y.first_weight * x.first_weight * first[x.first];
  if (x.second != no_cell) sum += y.first_weight * x.second_weight * first[x.second];
  if (y.second == no_cell) return sum;
  const float* second = map + static_cast<wide_int>(y.second) * map_columns;
  sum += y.second_weight * x.first_weight * second[x.first];
  if (x.second != no_cell) sum += y.second_weight * x.second_weight * second[x.second];
  return sum;
}

float maximum_of(const float* map, int row, int column) {
  const BinSamples<float> rows = samples_of(job.rows, row);
  const BinSamples<float> columns = samples_of(job.columns, column);
  const wide_int outside = job.outside_is_zero ? first_outside(rows, columns) : -1;
  if (rows.count == 0 || columns.count == 0) {
    return outside >= 0 ? 0.0f : static_cast<float>(job.empty_value);
  }
  float most = static_cast<float>(job.lowest);
  for (int i = 0; i < rows.count; ++i) {
    for (int j = 0; j < columns.count; ++j) {
      const float value = value_of_sample(map, rows.sample[i], columns.sample[j]);
      const bool better = job.nan_restarts ? !(value < most) : value > most;
      most = better ? value : most;
    }
  }
  return outside >= 0 && 0.0f > most ? 0.0f : most;
}

bool is_empty(int row, int column) {
  return job.rows.count[row] == 0 || job.columns.count[column] == 0;
}

}  // namespace
}  // namespace roipool

using namespace roipool;

// The number of a definition, by its place in the lists of definitions.h; its name is read at the
// address.
ROIPOOL_EXPORT(definition_name) const char* definition_name(int definition) {
  return definition < definition_count ? definition_rows[definition].name : nullptr;
}

// Returns where the map's float32 numbers go: channels, rows, columns.
ROIPOOL_EXPORT(new_map) void* new_map(int number, int rows, int columns) {
  channels = number;
  map_rows = rows;
  map_columns = columns;
  memory.used = &__heap_base;
  memory.map = memory.take(4LL * number * rows * columns);
  memory.plan = memory.used;
  return memory.map;
}

// Where the five numbers of the box go: x1, y1, x2, y2, or centre, sides and angle.
ROIPOOL_EXPORT(box_numbers) void* box_numbers() { return numbers; }

// Plans a box as the CPU does, for a maximum its samples, for an average its taps. Returns 0 where
// there is no memory.
ROIPOOL_EXPORT(make_plan)
int make_plan(int definition, int is_maximum, int bins_down, int bins_across, double scale,
              int sampling_down, int sampling_across, int aligned, double angle_scale) {
  memory.used = memory.plan;
  request = {};
  request.definition = static_cast<Definition>(definition);
  request.entries = is_maximum ? listed_samples : padded_taps;
  request.scale = scale;
  request.sampling[0] = sampling_down;
  request.sampling[1] = sampling_across;
  request.aligned = aligned != 0;
  request.angle_scale = angle_scale;
  request.boxes = numbers;
  request.images = &image;
  memset(static_cast<void*>(&job), 0, sizeof job);
  job.images = job.boxes = 1;
  job.channels = channels;
  job.rows.bins = bins_down;
  job.columns.bins = bins_across;
  job.rows.size = map_rows;
  job.columns.size = map_columns;
  job.chunk = {0, 1, true, true};
  arrange_bins(&request, &job);
  if (!prepared(prepare_bins)) return 0;
  count_plan();
  sum_entries(job);
  if (!prepared(prepare_entries)) return 0;
  write_plan();
  return 1;
}

// Where the arrays of the plan lie, for rows (0) and columns (1): `begin` of each bin (64 bits),
// `count`, then of taps cell and weight, or of samples the sample, the first index and the total
// (64 bits both).
ROIPOOL_EXPORT(plan_array) void* plan_array(int axis, int which) {
  const AxisPlan& plan = axis ? job.columns : job.rows;
  void* const arrays[] = {plan.begin,  plan.count,       plan.cell, plan.weight,
                          plan.sample, plan.first_index, plan.total};
  return arrays[which];
}

// Pools the map by the plan; returns where the values are: channels, rows and columns of bins.
ROIPOOL_EXPORT(pool)
void* pool(int is_maximum, double empty_value, double lowest, int outside_is_zero,
           int nan_restarts) {
  job.empty_value = empty_value;
  job.lowest = lowest;
  job.outside_is_zero = outside_is_zero != 0;
  job.nan_restarts = nan_restarts != 0;
  const int down = job.rows.bins, across = job.columns.bins;
  float* const values = reinterpret_cast<float*>(memory.take(4LL * channels * down * across));
  if (!values) return nullptr;
  float* value = values;
  for (int channel = 0; channel < channels; ++channel) {
    const float* map = reinterpret_cast<const float*>(memory.map) +
                       static_cast<wide_int>(channel) * map_rows * map_columns;
    for (int row = 0; row < down; ++row) {
      for (int column = 0; column < across; ++column) {
        if (is_maximum) {
          *value++ = maximum_of(map, row, column);
        } else {
          *value++ = is_empty(row, column) ? static_cast<float>(empty_value)
                                           : average_of(map, row, column);
        }
      }
    }
  }
  return values;
}

// The samples of a rotated box: returns how many, and puts where they are into `placed_samples_at`.
ROIPOOL_EXPORT(place_samples) int place_samples() {
  PlacedSamples counted = {nullptr, 0, 0};
  visit_region(request.definition, region_of<float>(request, 0), counted);
  char* const begin = memory.take(static_cast<wide_int>(sizeof(PlacedSample)) * counted.count);
  if (!begin) return 0;
  PlacedSamples placed = {reinterpret_cast<PlacedSample*>(begin), 0, 0};
  visit_region(request.definition, region_of<float>(request, 0), placed);
  samples_at = begin;
  return placed.count;
}
ROIPOOL_EXPORT(placed_samples_at) void* placed_samples_at() { return samples_at; }
