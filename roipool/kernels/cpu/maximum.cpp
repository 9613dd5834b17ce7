// The maximum engine: the maximum of a bin's samples and its argmax (forward), and the gradient of
// that sample (backward). Built once per instruction set, without contraction: a sample's value is
// rounded as in the implementations that define it, so that ties are resolved as there.
#include <limits>

#include "dispatch.h"
#include "running_maximum.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// The values of a tile and their argmax.
template <typename Vector>
struct Results {
  typename Lanes<Vector>::Value* values;
  typename Lanes<Vector>::Index* indices;

  template <Tracking Track>
  void store_at(wide_int offset, const RunningMaximum<Vector, Track>& running) const {
    typedef Registers<Vector> Parts;
    for (int i = 0; i < Parts::count; ++i) {
      store(running.value[i], values + offset + i * Parts::lanes);
      if (Track != value_only) store(running.index[i], indices + offset + i * Parts::lanes);
    }
  }
};

// The maxima of a row of bins over whole, adjacent cells. Count is the maximum number of columns of
// a bin, known at compile time: bins with fewer read their last cell again, which changes nothing.
// 0: the number of columns of each bin. The arguments are copies, because a store could change
// whatever is read through a reference.
template <typename Vector, Tracking Track, int Count, typename Value>
void pool_cells(const Job& job, wide_int box, const View<const Value> map,
                const Samples<Value> rows, const Results<Vector> to) {
  typedef Registers<Vector> Parts;
  typedef typename Parts::Values Values;
  const int lanes = Lanes<Vector>::count, bins = job.columns.bins;
  const wide_int size = job.columns.size;
  const wide_int top = rows.count > 0 ? rows.sample->first : 0, bottom = top + rows.count;
  const Value empty = static_cast<Value>(job.empty_value);
  const Value lowest = static_cast<Value>(job.lowest);
  LongWork work(job.watch);
  wide_int offset = 0;
  for (int bin = 0; bin < bins; ++bin) {
    const Samples<Value> columns = samples_of<Value>(job.columns, box, bin);
    const bool is_empty = rows.count == 0 || columns.count == 0;
    const wide_int left = is_empty ? 0 : columns.sample->first;
    const wide_int last = columns.count - 1, count = Count ? Count : columns.count;
    for (int v = 0; v < map.vectors; ++v, offset += lanes) {
      RunningMaximum<Vector, Track> running(is_empty ? empty : lowest);
      for (wide_int y = top; !is_empty && y < bottom; ++y) {
        if (Count == 0 && work.ends_before(count)) return;
        const Value* cell = map.at(y, left) + v * lanes;
        for (wide_int i = 0; i < count; ++i) {
          const wide_int at = Count && last < i ? last : i;
          const Value* values = cell + at * map.column;
          running.update([values](int i) { return load<Values>(values + i * Parts::lanes); },
                         y * size + left + at);
        }
      }
      to.store_at(offset, running);
    }
  }
}

template <typename Vector, Tracking Track, typename Value>
inline void pool_row_of_cells(const Job& job, wide_int box, const View<const Value>& map,
                              const Samples<Value>& rows, const Results<Vector>& to) {
  // The rule of one framework, of which no more is compiled than it needs.
  const int longest = Track == nan_restarts ? 0 : job.columns.longest[box];
  switch (longest) {
    case 1: pool_cells<Vector, Track, 1>(job, box, map, rows, to); break;
    case 2: pool_cells<Vector, Track, 2>(job, box, map, rows, to); break;
    case 3: pool_cells<Vector, Track, 3>(job, box, map, rows, to); break;
    case 4: pool_cells<Vector, Track, 4>(job, box, map, rows, to); break;
    default: pool_cells<Vector, Track, 0>(job, box, map, rows, to); break;
  }
}

template <typename Vector, Tracking Track, typename Value>
inline void update_with_samples(const Job& job, const View<const Value>& map,
                                const Samples<Value>& rows, const Samples<Value>& columns,
                                RunningMaximum<Vector, Track>* running) {
  for (int j = 0; j < rows.count; ++j) {
    // A single bin may have 2^32 samples.
    if (columns.count > 1024 && is_interrupted(job)) return;
    const wide_int index = (rows.first_index + j) * columns.total + columns.first_index;
    for (int i = 0; i < columns.count; ++i) {
      update_with_sample(map, rows.sample[j], columns.sample[i], index + i, running);
    }
  }
}

// The end of the samples from number `begin` on that interpolate between the same cells.
template <typename Value>
int end_of_run(const Samples<Value>& samples, int begin) {
  const Sample<Value>& first = samples.sample[begin];
  int last = begin, limit = samples.count - 1;
  while (last < limit) {
    const int middle = last + (limit - last + 1) / 2;
    const Sample<Value>& sample = samples.sample[middle];
    if (sample.first == first.first && sample.second == first.second) {
      last = middle;
    } else {
      limit = middle - 1;
    }
  }
  return last + 1;
}

// A lane of a comparison's result.
inline bool lane_of(int condition, int) { return condition != 0; }  // of one channel
template <typename Mask>
inline bool lane_of(const Mask& mask, int lane) {
  return mask[lane] != 0;
}

// A bin with dozens of samples or more between neighbouring cells, where most cannot be its
// maximum. Along a row of samples between the same cells the value is linear, so that only
// roundings lift it above that of both ends. Samples are left out by that bound; those that remain
// are visited in their order, and the result is that of all of them, bit for bit. The channels are
// those of one register: GCC compares wider vectors one lane after the other.
template <typename Vector>
struct DenseBin {
  typedef typename Registers<Vector>::Values Values;
  typedef typename Registers<Vector>::Indices Indices;
  typedef typename Lanes<Vector>::Value Value;
  typedef typename Lanes<Vector>::Index Index;
  const Job& job;
  const View<const Value> map;
  const Samples<Value>& rows;
  const Samples<Value>& columns;
  Values value;  // the maximum so far, and its index
  Indices index;
  Values attained;  // the maximum of some of the samples

  Values value_at(int row, int column) const {
    return value_of_sample<Values>(map, rows.sample[row], columns.sample[column]);
  }
  static Values larger(Values a, Values b) { return a > b ? a : b; }
  static Values magnitude_of(Values a) { return larger(a, -a); }

  // Not below any sample from `begin` to `last` in a row, which lie between the same cells. A value
  // is the sum of four products of three numbers, each rounded: 32 roundings are several times what
  // can happen. NaN or infinite if a cell is.
  Values bound(int row, int begin, int last) const {
    const Sample<Value>& y = rows.sample[row];
    const Sample<Value>& x = columns.sample[begin];
    const Values top = larger(magnitude_of(load<Values>(map.at(y.first, x.first))),
                              magnitude_of(load<Values>(map.at(y.first, x.second))));
    const Values bottom = larger(magnitude_of(load<Values>(map.at(y.second, x.first))),
                                 magnitude_of(load<Values>(map.at(y.second, x.second))));
    const Values zero = {}, smallest = zero + std::numeric_limits<Value>::min();
    const Value slack = 32 * std::numeric_limits<Value>::epsilon();
    const Values size = y.first_weight * top + y.second_weight * bottom;
    // Without the last term, products that underflow might be beyond; of zeros all products are 0.
    return larger(value_at(row, begin), value_at(row, last)) + slack * size +
           (size == zero ? zero : smallest);
  }

  bool can_be_maximum(Values bound) const {
    const auto hopeless = (bound <= value) | (bound < attained);
    for (int lane = 0; lane < int(sizeof(Values) / sizeof(Value)); ++lane) {
      if (!lane_of(hopeless, lane)) return true;
    }
    return false;
  }

  // Corners of the rectangles between the same cells: without roundings one is the maximum.
  void visit_corners() {
    for (int row = 0, row_end; row < rows.count; row = row_end) {
      row_end = end_of_run(rows, row);
      for (int column = 0, end; column < columns.count; column = end) {
        end = end_of_run(columns, column);
        for (const int y : {row, row_end - 1}) {
          for (const int x : {column, end - 1}) attained = larger(value_at(y, x), attained);
        }
      }
    }
  }

  void visit_run(int row, int begin, int end) {
    const int few = 32;
    if (end - begin > few) {
      if (!can_be_maximum(bound(row, begin, end - 1))) return;
      const int middle = begin + (end - begin) / 2;
      visit_run(row, begin, middle);
      visit_run(row, middle, end);
      return;
    }
    const wide_int first = (rows.first_index + row) * columns.total + columns.first_index;
    for (int i = begin; i < end; ++i) {
      const Indices now = Indices{} + static_cast<Index>(first + i);
      update_register<value_and_argmax>(value_at(row, i), now, &value, &index);
    }
  }

  void visit() {
    visit_corners();
    for (int row = 0; row < rows.count && !is_interrupted(job); ++row) {
      for (int column = 0, end; column < columns.count; column = end) {
        end = end_of_run(columns, column);
        visit_run(row, column, end);
      }
    }
  }
};

// A function of its own, so that the rare case costs the common one no registers; for every
// tracking, so that it is compiled once.
template <typename Vector, typename Value>
__attribute__((noinline)) RunningMaximum<Vector, value_and_argmax> maximum_of_dense_bin(
    const Job& job, const View<const Value>& map, const Samples<Value>& rows,
    const Samples<Value>& columns) {
  typedef Registers<Vector> Parts;
  RunningMaximum<Vector, value_and_argmax> running(static_cast<Value>(job.lowest));
  for (int i = 0; i < Parts::count; ++i) {
    const View<const Value> part = {map.base + i * Parts::lanes, map.row, map.column, 1};
    DenseBin<Vector> bin = {
        job, part, rows, columns, running.value[i], running.index[i], running.value[i]};
    bin.visit();
    running.value[i] = bin.value;
    running.index[i] = bin.index;
  }
  return running;
}

// Whether many of a bin's samples interpolate between the same cells.
template <typename Value>
inline bool is_dense(const Samples<Value>& rows, const Samples<Value>& columns) {
  const int min_samples = 1024, min_samples_per_cell = 64;
  if (columns.count < min_samples || columns.sample->second == no_cell ||
      rows.sample->second == no_cell) {
    return false;
  }
  const int across = columns.sample[columns.count - 1].first - columns.sample->first;
  return columns.count / (1 + (across < 0 ? -across : across)) >= min_samples_per_cell;
}

template <typename Vector, Tracking Track, typename Value>
inline RunningMaximum<Vector, Track> pool_samples(const Job& job, const View<const Value>& map,
                                                  const Samples<Value>& rows,
                                                  const Samples<Value>& columns) {
  const wide_int outside = job.outside_is_zero ? first_outside(rows, columns) : -1;
  if (rows.count == 0 || columns.count == 0) {
    return RunningMaximum<Vector, Track>(outside >= 0 ? Value(0)
                                                      : static_cast<Value>(job.empty_value));
  }
  RunningMaximum<Vector, Track> running(static_cast<Value>(job.lowest));
  if (Track != nan_restarts && is_dense(rows, columns)) {
    running = RunningMaximum<Vector, Track>(maximum_of_dense_bin<Vector>(job, map, rows, columns));
  } else {
    update_with_samples(job, map, rows, columns, &running);
  }
  if (outside >= 0) running.update_with_zero(outside);
  return running;
}

template <typename Vector, Tracking Track, typename Value>
void pool_row_of_samples(const Job& job, wide_int box, const View<const Value>& map,
                         const Samples<Value>& rows, const Results<Vector>& to) {
  const int lanes = Lanes<Vector>::count;
  wide_int offset = 0;
  for (int bin = 0; bin < job.columns.bins; ++bin) {
    const Samples<Value> columns = samples_of<Value>(job.columns, box, bin);
    for (int v = 0; v < map.vectors; ++v, offset += lanes) {
      const View<const Value> part = {map.base + v * lanes, map.row, map.column, 1};
      to.store_at(offset, pool_samples<Vector, Track>(job, part, rows, columns));
    }
  }
}

template <typename Stored, typename Index>
void write_indices(const Job&, const Index* indices, int lanes, wide_int bins, Stored* to,
                   const Strides& strides, int channels, char*) {
  for (int lane = 0; lane < channels; ++lane) {
    for (wide_int bin = 0; bin < bins; ++bin) {
      to[lane * strides.channel + bin * strides.column] =
          static_cast<Stored>(indices[bin * lanes + lane]);
    }
  }
}

// Indices of a float vector are as wide as its values, and are copied as they are.
inline void write_indices(const Job& job, const int32_t* indices, int lanes, wide_int bins,
                          int32_t* to, const Strides& strides, int channels, char* scratch) {
  write_lanes(job, indices, lanes, bins, channels, to, strides, scratch);
}

template <typename Index>
void write_argmax(const Job& job, const Index* indices, int lanes, wide_int bins, wide_int at,
                  const Strides& strides, int channels, char* scratch) {
  if (!job.argmax) return;
  if (job.wide_argmax) {
    int64_t* to = static_cast<int64_t*>(job.argmax) + at;
    write_indices(job, indices, lanes, bins, to, strides, channels, scratch);
  } else {
    int32_t* to = static_cast<int32_t*>(job.argmax) + at;
    write_indices(job, indices, lanes, bins, to, strides, channels, scratch);
  }
}

// Rows [first, last) of the bins of one box. Whatever type results are stored in, it is this
// function that computes them.
template <typename Vector, Tracking Track, typename Value>
__attribute__((noinline)) void pool_rows(const Job& job, wide_int box, const View<const Value>& map,
                                         int first, int last, const Results<Vector>& to) {
  const wide_int values_of_row = wide_int(job.columns.bins) * map.vectors * Lanes<Vector>::count;
  for (int row = first; row < last; ++row) {
    const Samples<Value> rows = samples_of<Value>(job.rows, box, row);
    const wide_int offset = (row - first) * values_of_row;
    const Results<Vector> at = {to.values + offset, to.indices + offset};
    if (job.argmax_is_cell) {
      pool_row_of_cells<Vector, Track>(job, box, map, rows, at);
    } else {
      pool_row_of_samples<Vector, Track>(job, box, map, rows, at);
    }
  }
}

template <typename Vector, typename Value>
inline void pool_tracked_rows(const Job& job, wide_int box, const View<const Value>& map, int first,
                              int last, const Results<Vector>& to) {
  if (job.nan_restarts) {
    pool_rows<Vector, nan_restarts>(job, box, map, first, last, to);
  } else if (job.argmax) {
    pool_rows<Vector, value_and_argmax>(job, box, map, first, last, to);
  } else {
    pool_rows<Vector, value_only>(job, box, map, first, last, to);
  }
}

template <typename Vector, typename Storage>
void pool_box(const Job& job, const Block& block, wide_int box,
              const View<const ValueOf<Storage>>& map, char* scratch) {
  typedef ValueOf<Storage> Value;
  typedef typename Lanes<Vector>::Index Index;
  const int lanes = Lanes<Vector>::count;
  const int width = map.vectors * lanes;
  const int bins = job.columns.bins;
  const Strides strides = strides_of(job, job.rows.bins, bins);
  const wide_int origin =
      row_of_box(job, box) * strides.outer + block.first_channel * strides.channel;
  Value* tile = reinterpret_cast<Value*>(tile_of(job, scratch));
  Index* indices = reinterpret_cast<Index*>(tile_of(job, scratch, 1));
  for_each_tile(job, [&](int first, int last) {
    const wide_int at = origin + first * strides.row;
    const wide_int count = wide_int(last - first) * bins;
    Storage* output = static_cast<Storage*>(job.output) + at;
    if (!job.non_temporal) prefetch_for_write(output, strides, block.channels, count);
    if (!job.non_temporal && job.argmax && !job.wide_argmax) {
      prefetch_for_write(static_cast<int32_t*>(job.argmax) + at, strides, block.channels, count);
    }
    if (is_interrupted(job)) return;
    pool_tracked_rows<Vector>(job, box, map, first, last, {tile, indices});
    write_lanes(job, tile, width, count, block.channels, output, strides, scratch);
    write_argmax(job, indices, width, count, at, strides, block.channels, scratch);
  });
}

// For any number of vectors, so that it is compiled once.
struct MaximumForward {
  static constexpr bool takes_several_vectors = true;

  template <typename Vector, int, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    pool_boxes<Storage>(job, block, part, Lanes<Vector>::count, pool_box<Vector, Storage>);
  }
};

template <typename Value>
inline void add_to_sample(const View<Value>& map, int lane, const Sample<Value>& y,
                          const Sample<Value>& x, Value gradient) {
  map.at(y.first, x.first)[lane] += y.first_weight * x.first_weight * gradient;
  if (x.second != no_cell) {
    map.at(y.first, x.second)[lane] += y.first_weight * x.second_weight * gradient;
  }
  if (y.second == no_cell) return;
  map.at(y.second, x.first)[lane] += y.second_weight * x.first_weight * gradient;
  if (x.second != no_cell) {
    map.at(y.second, x.second)[lane] += y.second_weight * x.second_weight * gradient;
  }
}

// Adds the gradient of one pooled value to the cells of its argmax, with the weights of the plan.
template <typename Value>
inline void add_to_argmax(const Job& job, wide_int box, int row, int column, wide_int index,
                          const View<Value>& map, int lane, Value gradient) {
  const Samples<Value> rows = samples_of<Value>(job.rows, box, row);
  const Samples<Value> columns = samples_of<Value>(job.columns, box, column);
  if (rows.count == 0 || columns.count == 0) return;
  const wide_int across = job.argmax_is_cell ? job.columns.size : columns.total;
  const wide_int top = job.argmax_is_cell ? rows.sample->first : rows.first_index;
  const wide_int left = job.argmax_is_cell ? columns.sample->first : columns.first_index;
  const wide_int j = index / across - top;
  const wide_int i = index % across - left;
  if (j < 0 || j >= rows.count || i < 0 || i >= columns.count) return;  // outside the map
  add_to_sample(map, lane, rows.sample[j], columns.sample[i], gradient);
}

template <typename Index, typename Storage, typename Value>
void scatter_box(const Job& job, const Block& block, wide_int box, const View<Value>& map) {
  const Strides strides = strides_of(job, job.rows.bins, job.columns.bins);
  const wide_int origin =
      row_of_box(job, box) * strides.outer + block.first_channel * strides.channel;
  const Storage* gradients = static_cast<const Storage*>(job.grad_output) + origin;
  const Index* indices = static_cast<const Index*>(job.argmax) + origin;
  LongWork work(job.watch);
  for (int row = 0; row < job.rows.bins; ++row) {
    if (work.ends_before(wide_int(job.columns.bins) * block.channels)) return;
    for (int column = 0; column < job.columns.bins; ++column) {
      const wide_int bin = row * strides.row + column * strides.column;
      for (int lane = 0; lane < block.channels; ++lane) {
        const wide_int at = bin + lane * strides.channel;
        const wide_int index = read_once(indices + at);
        if (index < 0) continue;
        add_to_argmax(job, box, row, column, index, map, lane, Value(compute_value(gradients[at])));
      }
    }
  }
}

// Adds a gradient to the cell that its argmax names; cells are `step` apart.
template <typename Index, typename Storage, typename Value>
inline void add_to_cell(const Storage* gradient, const Index* argmax, uint64_t cells, Value* map,
                        wide_int step) {
  const wide_int index = read_once(argmax);
  if (static_cast<uint64_t>(index) >= cells) return;  // -1, too
  map[index * step] += Value(compute_value(*gradient));
}

// How far the values of a channel, and its cells, lie from those of the one before it.
struct ChannelSteps {
  wide_int values;
  wide_int cells;
};

// Adds the gradients of the bins of some channels. Neighbouring bins often have one argmax, and
// each sum waits for the one before it: those of several channels wait at the same time.
template <int Channels, typename Index, typename Storage, typename Value>
inline void scatter_channels(const Storage* gradients, const Index* indices, wide_int bins,
                             uint64_t cells, Value* map, wide_int step, const ChannelSteps next) {
  for (wide_int at = 0; at < bins; ++at) {
    for (int channel = 0; channel < Channels; ++channel) {
      const wide_int from = at + channel * next.values;
      add_to_cell(gradients + from, indices + from, cells, map + channel * next.cells, step);
    }
  }
}

// Without a plan any cell of the map may be an argmax, with weight 1. The whole map is there then,
// and the offset of a cell is its index times the column stride.
template <typename Index, typename Storage, typename Value>
void scatter_cells(const Job& job, const Block& block, wide_int box, const View<Value>& map,
                   wide_int next_plane) {
  const Strides strides = strides_of(job, job.rows.bins, job.columns.bins);
  const wide_int origin =
      row_of_box(job, box) * strides.outer + block.first_channel * strides.channel;
  const Storage* gradients = static_cast<const Storage*>(job.grad_output) + origin;
  const Index* indices = static_cast<const Index*>(job.argmax) + origin;
  const wide_int bins = static_cast<wide_int>(job.rows.bins) * job.columns.bins;
  const uint64_t cells = static_cast<uint64_t>(job.rows.size * job.columns.size);
  if (job.channels_last) {
    for (wide_int at = 0; at < bins * strides.column; at += strides.column) {
      for (int lane = 0; lane < block.channels; ++lane) {
        add_to_cell(gradients + at + lane, indices + at + lane, cells, map.base + lane, map.column);
      }
    }
    return;
  }
  const ChannelSteps next = {strides.channel, next_plane};
  int lane = 0;
  for (; lane + 4 <= block.channels; lane += 4) {
    const wide_int at = lane * strides.channel;
    scatter_channels<4>(gradients + at, indices + at, bins, cells, map.base + lane * next_plane,
                        map.column, next);
  }
  for (; lane < block.channels; ++lane) {
    const wide_int at = lane * strides.channel;
    scatter_channels<1>(gradients + at, indices + at, bins, cells, map.base + lane * next_plane,
                        map.column, next);
  }
}

template <typename Index, typename Storage, typename Value>
void scatter(const Job& job, const Block& block, wide_int box, const View<Value>& map,
             wide_int next_plane) {
  if (job.rows.sample) {
    scatter_box<Index, Storage>(job, block, box, map);
  } else {
    scatter_cells<Index, Storage>(job, block, box, map, next_plane);
  }
}

template <typename Storage, typename Value>
void scatter_argmax(const Job& job, const Block& block, wide_int box, const View<Value>& map,
                    wide_int next_plane) {
  if (job.box_image[box] < 0) return;  // of no image, whatever its argmax names
  if (job.wide_argmax) {
    scatter<int64_t, Storage>(job, block, box, map, next_plane);
  } else {
    scatter<int32_t, Storage>(job, block, box, map, next_plane);
  }
}

// Planes used in place: an argmax differs from channel to channel, so that vectors gain nothing,
// but a box's gradients are read in about the order of memory.
template <typename Value>
void own_some_planes(const Job& job, const Block& block) {
  const Strides strides = strides_of(job, job.rows.size, job.columns.size);
  Value* planes = static_cast<Value*>(job.output) + block.image * strides.outer +
                  block.first_channel * strides.channel;
  memset(static_cast<void*>(planes), 0, block.channels * strides.channel * sizeof(Value));
  const BoxRange range = boxes_of_image(job, block.image);
  for (wide_int index = range.begin; index < range.end && !is_interrupted(job); ++index) {
    // Samples are looked up for one channel after the other: a plan's stay in the nearest cache.
    const int at_once = job.rows.sample ? 1 : block.channels;
    for (int lane = 0; lane < block.channels; lane += at_once) {
      const Block some = {block.image, block.first_channel + lane, at_once, 1, true};
      const View<Value> first = {planes + lane * strides.channel, strides.row, strides.column, 1};
      scatter_argmax<Value>(job, some, job.box_order[index], first, strides.channel);
    }
  }
}

// As many planes at a time as stay in a core's own cache.
template <typename Value>
void own_planes(const Job& job, const Block& block) {
  const wide_int plane = job.rows.size * job.columns.size * static_cast<wide_int>(sizeof(Value));
  const int max_channels = static_cast<int>(clamp(job.part_bytes / plane, 1, block.channels));
  for (int lane = 0; lane < block.channels; lane += max_channels) {
    const int channels = minimum(max_channels, block.channels - lane);
    own_some_planes<Value>(job, {block.image, block.first_channel + lane, channels, 1, true});
  }
}

template <typename Storage>
void add_gradients(const Job& job, const Block& block, wide_int box, wide_int,
                   const View<ValueOf<Storage>>& map, const Rectangle&, char*) {
  scatter_argmax<Storage>(job, block, box, map, 1);
}

struct MaximumBackward {
  static constexpr bool takes_several_vectors = true;

  template <typename Vector, int, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    if (owns_planes(job)) {
      own_planes<ValueOf<Storage>>(job, block);
    } else {
      own_maps<Storage>(job, block, part, Lanes<Vector>::count, add_gradients<Storage>);
    }
  }
};

void maximum_forward(const Job& job, wide_int task, char* scratch) {
  run_task<MaximumForward>(job, task, scratch);
}

void maximum_backward(const Job& job, wide_int task, char* scratch) {
  run_task<MaximumBackward>(job, task, scratch);
}

// Here, because no copy may depend on how an engine rounds.
ROIPOOL_ALL_SHARED(template)

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
