// The maximum engine: the greatest of a bin's samples and which one it was (forward), and the
// gradient of that sample (backward). Built once per instruction set, without contraction: a
// sample's value is rounded as in the systems that define it, so that ties are theirs too.
#include "../argmax.h"
#include "dispatch.h"

namespace roipool {
namespace ROIPOOL_ISA {

template <typename Value>
using Samples = BinSamples<Value>;

template <typename Value>
inline Samples<Value> samples_of(const AxisPlan& plan, wide_int box, int bin) {
  const wide_int row = box * plan.bins + bin;
  return {static_cast<const Sample<Value>*>(plan.sample) + plan.begin[row], plan.count[row],
          plan.first_number[row], plan.total[row]};
}

// The value of a sample: up to four corners, summed in the order row by row.
template <typename Vector, typename Value>
inline Vector corner(const View<const Value>& map, int y, int x, Value weight) {
  return weight * load<Vector>(map.at(y, x));
}

template <typename Vector, typename Value>
inline Vector value_of_sample(const View<const Value>& map, const Sample<Value>& y,
                              const Sample<Value>& x) {
  Vector sum = corner<Vector>(map, y.first, x.first, y.first_weight * x.first_weight);
  if (x.second != no_cell) {
    sum += corner<Vector>(map, y.first, x.second, y.first_weight * x.second_weight);
  }
  if (y.second != no_cell) {
    sum += corner<Vector>(map, y.second, x.first, y.second_weight * x.first_weight);
    if (x.second != no_cell) {
      sum += corner<Vector>(map, y.second, x.second, y.second_weight * x.second_weight);
    }
  }
  return sum;
}

// What a maximum keeps track of, known to the compiler.
enum Tracking {
  value_only,  // no winners asked for
  value_and_label,
  nan_restarts  // both; a NaN wins, and then loses to whatever follows it
};

template <typename Vector, Tracking Track>
struct Winner {
  Vector value;
  typename Lanes<Vector>::Labels label;

  // Strictly greater: the first of equals stays, and a NaN never wins. With nan_restarts not less:
  // the last of equals stays.
  void challenge(Vector candidate, wide_int number) {
    const auto better = Track == nan_restarts ? (candidate < value) == 0 : candidate > value;
    value = better ? candidate : value;
    if (Track != value_only) label = better ? spread_label<Vector>(number) : label;
  }
  // A zero from sample `number`, which may stand before the present winner.
  void challenge_with_zero(wide_int number) {
    const Vector zero = {};
    const auto labels = spread_label<Vector>(number);
    const auto better = (zero > value) | ((zero == value) & (labels < label));
    value = better ? zero : value;
    label = better ? labels : label;
  }
};

// Where the values of a tile and their labels go.
template <typename Vector>
struct Results {
  typename Lanes<Vector>::Value* values;
  typename Lanes<Vector>::Label* labels;

  template <Tracking Track>
  void put(wide_int place, const Winner<Vector, Track>& winner) const {
    store(winner.value, values + place);
    if (Track != value_only) store(winner.label, labels + place);
  }
};

// The greatest whole cells, which lie side by side, of a row of bins. Count is a number of columns
// that each bin has at most, for a loop that the compiler knows: the last cell is taken again for
// those that are missing, which changes nothing. 0: the bin's own number. What the loops need is
// at hand in variables: a store could change whatever is read through a reference.
template <typename Vector, Tracking Track, int Count, typename Value>
void pool_cells(const Job& job, wide_int box, const View<const Value> map,
                const Samples<Value> rows, const Results<Vector> to) {
  const int lanes = Lanes<Vector>::count, bins = job.columns.bins;
  const wide_int size = job.columns.size;
  const wide_int top = rows.count > 0 ? rows.sample->first : 0, bottom = top + rows.count;
  const auto none = spread_label<Vector>(-1);
  const Winner<Vector, Track> empty = {spread<Vector>(static_cast<Value>(job.empty_value)), none};
  const Winner<Vector, Track> start = {spread<Vector>(static_cast<Value>(job.lowest)), none};
  wide_int place = 0;
  for (int bin = 0; bin < bins; ++bin) {
    const Samples<Value> columns = samples_of<Value>(job.columns, box, bin);
    const bool is_empty = rows.count == 0 || columns.count == 0;
    const wide_int left = is_empty ? 0 : columns.sample->first;
    const wide_int last = columns.count - 1, count = Count ? Count : columns.count;
    for (int v = 0; v < map.vectors; ++v, place += lanes) {
      Winner<Vector, Track> winner = is_empty ? empty : start;
      for (wide_int y = top; !is_empty && y < bottom; ++y) {
        const Value* cell = map.at(y, left) + v * lanes;
        for (wide_int i = 0; i < count; ++i) {
          const wide_int at = Count && last < i ? last : i;
          winner.challenge(load<Vector>(cell + at * map.column), y * size + left + at);
        }
      }
      to.put(place, winner);
    }
  }
}

template <typename Vector, Tracking Track, typename Value>
inline void pool_row_of_cells(const Job& job, wide_int box, const View<const Value>& map,
                              const Samples<Value>& rows, const Results<Vector>& to) {
  switch (job.columns.longest[box]) {
    case 1: pool_cells<Vector, Track, 1>(job, box, map, rows, to); break;
    case 2: pool_cells<Vector, Track, 2>(job, box, map, rows, to); break;
    case 3: pool_cells<Vector, Track, 3>(job, box, map, rows, to); break;
    case 4: pool_cells<Vector, Track, 4>(job, box, map, rows, to); break;
    default: pool_cells<Vector, Track, 0>(job, box, map, rows, to); break;
  }
}

template <typename Vector, Tracking Track, typename Value>
inline void challenge_samples(const View<const Value>& map, const Samples<Value>& rows,
                              const Samples<Value>& columns, Winner<Vector, Track>* winner) {
  for (int j = 0; j < rows.count; ++j) {
    const wide_int label = (rows.first_number + j) * columns.total + columns.first_number;
    for (int i = 0; i < columns.count; ++i) {
      winner->challenge(value_of_sample<Vector>(map, rows.sample[j], columns.sample[i]), label + i);
    }
  }
}

template <typename Vector, Tracking Track, typename Value>
Winner<Vector, Track> pool_samples(const Job& job, const View<const Value>& map,
                                   const Samples<Value>& rows, const Samples<Value>& columns) {
  const wide_int outside = job.outside_is_zero ? first_outside(rows, columns) : -1;
  if (rows.count == 0 || columns.count == 0) {
    const Value value = outside >= 0 ? Value(0) : static_cast<Value>(job.empty_value);
    return {spread<Vector>(value), spread_label<Vector>(-1)};
  }
  Winner<Vector, Track> winner = {spread<Vector>(static_cast<Value>(job.lowest)),
                                  spread_label<Vector>(-1)};
  challenge_samples(map, rows, columns, &winner);
  if (outside >= 0) winner.challenge_with_zero(outside);
  return winner;
}

template <typename Vector, Tracking Track, typename Value>
void pool_row_of_samples(const Job& job, wide_int box, const View<const Value>& map,
                         const Samples<Value>& rows, const Results<Vector>& to) {
  const int lanes = Lanes<Vector>::count;
  wide_int place = 0;
  for (int bin = 0; bin < job.columns.bins; ++bin) {
    const Samples<Value> columns = samples_of<Value>(job.columns, box, bin);
    for (int v = 0; v < map.vectors; ++v, place += lanes) {
      const View<const Value> part = {map.base + v * lanes, map.row, map.column, 1};
      to.put(place, pool_samples<Vector, Track>(job, part, rows, columns));
    }
  }
}

template <typename Stored, typename Label>
void write_labels(const Job&, const Label* labels, int lanes, wide_int bins, Stored* to,
                  const Strides& strides, int channels, char*) {
  for (int lane = 0; lane < channels; ++lane) {
    for (wide_int bin = 0; bin < bins; ++bin) {
      to[lane * strides.channel + bin * strides.column] =
          static_cast<Stored>(labels[bin * lanes + lane]);
    }
  }
}

// Labels of a float vector are as wide as its values, and move as they do.
inline void write_labels(const Job& job, const int32_t* labels, int lanes, wide_int bins,
                         int32_t* to, const Strides& strides, int channels, char* scratch) {
  write_lanes(job, labels, lanes, bins, channels, to, strides, scratch);
}

template <typename Label>
void write_argmax(const Job& job, const Label* labels, int lanes, wide_int bins, wide_int at,
                  const Strides& strides, int channels, char* scratch) {
  if (!job.argmax) return;
  if (job.wide_argmax) {
    int64_t* to = static_cast<int64_t*>(job.argmax) + at;
    write_labels(job, labels, lanes, bins, to, strides, channels, scratch);
  } else {
    int32_t* to = static_cast<int32_t*>(job.argmax) + at;
    write_labels(job, labels, lanes, bins, to, strides, channels, scratch);
  }
}

template <typename Vector, Tracking Track, typename Storage, typename Value>
void pool_box(const Job& job, const Block& block, wide_int box, const View<const Value>& map,
              char* scratch) {
  typedef typename Lanes<Vector>::Label Label;
  const int lanes = Lanes<Vector>::count;
  const int width = map.vectors * lanes;
  const int bins = job.columns.bins;
  const Strides strides = strides_of(job, job.rows.bins, bins);
  const wide_int origin = box * strides.outer + block.first_channel * strides.channel;
  Value* tile = reinterpret_cast<Value*>(tile_of(job, scratch));
  Label* labels = reinterpret_cast<Label*>(tile_of(job, scratch, 1));
  for_each_tile(job, [&](int first, int last) {
    const wide_int at = origin + first * strides.row;
    const wide_int count = wide_int(last - first) * bins;
    Storage* output = static_cast<Storage*>(job.output) + at;
    if (!job.streams) expect<true>(output, strides, block.channels, count);
    if (!job.streams && job.argmax && !job.wide_argmax) {
      expect<true>(static_cast<int32_t*>(job.argmax) + at, strides, block.channels, count);
    }
    for (int row = first; row < last; ++row) {
      const Samples<Value> rows = samples_of<Value>(job.rows, box, row);
      const wide_int place = wide_int(row - first) * bins * width;
      const Results<Vector> to = {tile + place, labels + place};
      if (job.winner_is_cell) {
        pool_row_of_cells<Vector, Track>(job, box, map, rows, to);
      } else {
        pool_row_of_samples<Vector, Track>(job, box, map, rows, to);
      }
    }
    write_lanes(job, tile, width, count, block.channels, output, strides, scratch);
    write_argmax(job, labels, width, count, at, strides, block.channels, scratch);
  });
}

template <typename Vector, Tracking Track, typename Storage>
void forward(const Job& job, const Block& block, const Part& part) {
  typedef typename Lanes<Vector>::Value Value;
  visit_maps<Vector, Storage>(job, block, part, [&](wide_int box, const View<const Value>& map) {
    pool_box<Vector, Track, Storage>(job, block, box, map, part.scratch);
  });
}

struct MaximumForward {
  template <typename Vector, int, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    if (job.nan_restarts) {
      forward<Vector, nan_restarts, Storage>(job, block, part);
    } else if (job.argmax) {
      forward<Vector, value_and_label, Storage>(job, block, part);
    } else {
      forward<Vector, value_only, Storage>(job, block, part);
    }
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

// Adds the gradient of one pooled value to the cells of its winner, as the plan weighs them.
template <typename Value>
inline void add_to_winner(const Job& job, wide_int box, int row, int column, wide_int label,
                          const View<Value>& map, int lane, Value gradient) {
  const Samples<Value> rows = samples_of<Value>(job.rows, box, row);
  const Samples<Value> columns = samples_of<Value>(job.columns, box, column);
  if (rows.count == 0 || columns.count == 0) return;
  const wide_int across = job.winner_is_cell ? job.columns.size : columns.total;
  const wide_int top = job.winner_is_cell ? rows.sample->first : rows.first_number;
  const wide_int left = job.winner_is_cell ? columns.sample->first : columns.first_number;
  const wide_int j = label / across - top;
  const wide_int i = label % across - left;
  if (j < 0 || j >= rows.count || i < 0 || i >= columns.count) return;  // outside the map
  add_to_sample(map, lane, rows.sample[j], columns.sample[i], gradient);
}

template <typename Label, typename Storage, typename Value>
void scatter_box(const Job& job, const Block& block, wide_int box, const View<Value>& map) {
  const Strides strides = strides_of(job, job.rows.bins, job.columns.bins);
  const wide_int origin = box * strides.outer + block.first_channel * strides.channel;
  const Storage* gradients = static_cast<const Storage*>(job.grad_output) + origin;
  const Label* labels = static_cast<const Label*>(job.argmax) + origin;
  for (int row = 0; row < job.rows.bins; ++row) {
    for (int column = 0; column < job.columns.bins; ++column) {
      const wide_int bin = row * strides.row + column * strides.column;
      for (int lane = 0; lane < block.channels; ++lane) {
        const wide_int at = bin + lane * strides.channel;
        const wide_int label = read_once(labels + at);
        if (label < 0) continue;
        add_to_winner(job, box, row, column, label, map, lane, Value(compute_value(gradients[at])));
      }
    }
  }
}

// Without a plan every cell of the map may win, with its whole weight. The maps are whole then,
// and a label times the distance of neighbours is its place.
template <typename Label, typename Storage, typename Value>
void scatter_cells(const Job& job, const Block& block, wide_int box, const View<Value>& map) {
  const Strides strides = strides_of(job, job.rows.bins, job.columns.bins);
  const wide_int origin = box * strides.outer + block.first_channel * strides.channel;
  const Storage* gradients = static_cast<const Storage*>(job.grad_output) + origin;
  const Label* labels = static_cast<const Label*>(job.argmax) + origin;
  const wide_int bins = static_cast<wide_int>(job.rows.bins) * job.columns.bins;
  const wide_int cells = job.rows.size * job.columns.size;
  for (wide_int bin = 0; bin < bins; ++bin) {
    for (int lane = 0; lane < block.channels; ++lane) {
      const wide_int at = bin * strides.column + lane * strides.channel;
      const wide_int label = read_once(labels + at);
      if (label < 0 || label >= cells) continue;
      map.base[label * map.column + lane] += Value(compute_value(gradients[at]));
    }
  }
}

template <typename Label, typename Storage, typename Value>
void scatter(const Job& job, const Block& block, wide_int box, const View<Value>& map) {
  if (job.rows.sample) {
    scatter_box<Label, Storage>(job, block, box, map);
  } else {
    scatter_cells<Label, Storage>(job, block, box, map);
  }
}

template <typename Storage, typename Value>
void scatter_winners(const Job& job, const Block& block, wide_int box, const View<Value>& map) {
  if (job.wide_argmax) {
    scatter<int64_t, Storage>(job, block, box, map);
  } else {
    scatter<int32_t, Storage>(job, block, box, map);
  }
}

// Planes used in place, one channel of a box after the other: winners differ from channel to
// channel, so that vectors gain nothing, but a box's gradients are read as they lie.
template <typename Value>
void own_some_planes(const Job& job, const Block& block) {
  const Strides strides = strides_of(job, job.rows.size, job.columns.size);
  Value* planes = static_cast<Value*>(job.output) + block.image * strides.outer +
                  block.first_channel * strides.channel;
  memset(static_cast<void*>(planes), 0, block.channels * strides.channel * sizeof(Value));
  const BoxRange range = boxes_of_image(job, block.image);
  for (wide_int index = range.begin; index < range.end; ++index) {
    for (int lane = 0; lane < block.channels; ++lane) {
      const Block channel = {block.image, block.first_channel + lane, 1, 1, true};
      const View<Value> plane = {planes + lane * strides.channel, strides.row, strides.column, 1};
      scatter_winners<Value>(job, channel, job.box_order[index], plane);
    }
  }
}

// As many planes at a time as stay in a core's own cache.
template <typename Value>
void own_planes(const Job& job, const Block& block) {
  const wide_int plane = job.rows.size * job.columns.size * static_cast<wide_int>(sizeof(Value));
  const int most = static_cast<int>(clamp(largest_part_bytes / plane, 1, block.channels));
  for (int lane = 0; lane < block.channels; lane += most) {
    const int channels = minimum(most, block.channels - lane);
    own_some_planes<Value>(job, {block.image, block.first_channel + lane, channels, 1, true});
  }
}

struct MaximumBackward {
  template <typename Vector, int, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    typedef typename Lanes<Vector>::Value Value;
    if (owns_planes(job)) {
      own_planes<Value>(job, block);
      return;
    }
    own_maps<Vector, Storage>(job, block, part,
                              [&](wide_int index, const View<Value>& map, const Rectangle&) {
                                scatter_winners<Storage>(job, block, job.box_order[index], map);
                              });
  }
};

void maximum_forward(const Job& job, wide_int task, char* scratch) {
  run_task<MaximumForward>(job, task, scratch);
}

void maximum_backward(const Job& job, wide_int task, char* scratch) {
  run_task<MaximumBackward>(job, task, scratch);
}

}  // namespace ROIPOOL_ISA
}  // namespace roipool
