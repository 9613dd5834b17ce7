// The average engine: weighted sums of map cells (forward), their transpose (backward) and their
// derivative with respect to the boxes. Built once per instruction set. The weights are final:
// instruction sets differ by the rounding of sums only, not by decisions.
#include "dispatch.h"
#include "schedule.h"

namespace roipool {
namespace ROIPOOL_ISA {

// The taps of one line: of one bin, or in a backward of one cell.
template <typename Value>
struct Taps {
  const int* source;
  const Value* weight;
  int count;
};

// One axis of one box: each target is a weighted sum of sources. Forward the targets are bins and
// the sources cells; backward it is the other way round.
template <typename Value>
struct Lines {
  int count;
  int longest;        // taps; up to `most_padded` every line has as many, or none
  const int* target;  // of each line; null: its own number
  const wide_int* begin;
  const int* taps;
  const int* source;
  const Value* weight;

  int target_of(int line) const { return target ? target[line] : line; }
  Taps<Value> taps_of(int line) const {
    return {source + begin[line], weight + begin[line], taps[line]};
  }
};

template <typename Value>
inline Lines<Value> bins_from_cells(const AxisPlan& plan, wide_int box) {
  const wide_int row = box * plan.bins;
  return {plan.bins,
          plan.longest[box],
          nullptr,
          plan.begin + row,
          plan.count + row,
          plan.cell,
          static_cast<const Value*>(plan.weight)};
}

template <typename Value>
inline Lines<Value> cells_from_bins(const AxisPlan& plan, wide_int box) {
  const TurnedPlan& turned = plan.turned;
  const wide_int line = plan.begin[box * plan.bins];
  return {turned.lines[box],
          turned.longest[box],
          turned.cell + line,
          turned.begin + line,
          turned.count + line,
          turned.bin,
          static_cast<const Value*>(turned.weight)};
}

// Columns of a source: neighbours, or those that a line reads.
struct Neighbours {
  wide_int first;
  wide_int count;
  wide_int operator[](wide_int i) const { return first + i; }
};
struct Chosen {
  const int* column;
  wide_int count;
  wide_int operator[](wide_int i) const { return column[i]; }
};

// mixed[i] = the weighted sum of up to four source rows at columns[i], or that added to it.
template <typename Vector, int Vectors, int Rows, bool Add, typename Value, typename Columns>
inline void mix_some(const View<const Value>& source, const int* row, const Value* weights,
                     const Columns& columns, Value* mixed) {
  const int lanes = Lanes<Vector>::count;
  const int vectors = Vectors ? Vectors : source.vectors;
  const Value* line[Rows];
  Vector weight[Rows];
  for (int j = 0; j < Rows; ++j) {
    line[j] = source.line(row[j]);
    weight[j] = spread<Vector>(weights[j]);
  }
  for (wide_int i = 0; i < columns.count; ++i) {
    const wide_int offset = columns[i] * source.column;
    for (int v = 0; v < vectors; ++v, mixed += lanes) {
      const wide_int at = offset + v * lanes;
      Vector sum = weight[0] * load<Vector>(line[0] + at);
      if (Add) sum = multiply_add(weight[0], load<Vector>(line[0] + at), load<Vector>(mixed));
      for (int j = 1; j < Rows; ++j) {
        sum = multiply_add(weight[j], load<Vector>(line[j] + at), sum);
      }
      store(sum, mixed);
    }
  }
}

template <typename Vector, int Vectors, bool Add, typename Value, typename Columns>
inline void mix_upto_four(const View<const Value>& source, int rows, const int* row,
                          const Value* weight, const Columns& columns, Value* mixed) {
  switch (rows) {
    case 1: mix_some<Vector, Vectors, 1, Add>(source, row, weight, columns, mixed); break;
    case 2: mix_some<Vector, Vectors, 2, Add>(source, row, weight, columns, mixed); break;
    case 3: mix_some<Vector, Vectors, 3, Add>(source, row, weight, columns, mixed); break;
    default: mix_some<Vector, Vectors, 4, Add>(source, row, weight, columns, mixed); break;
  }
}

template <typename Vector, int Vectors, typename Value, typename Columns>
inline void mix_rows(const View<const Value>& source, const Taps<Value>& rows,
                     const Columns& columns, Value* mixed) {
  mix_upto_four<Vector, Vectors, false>(source, rows.count, rows.source, rows.weight, columns, mixed);
  for (int done = 4; done < rows.count; done += 4) {
    mix_upto_four<Vector, Vectors, true>(source, rows.count - done, rows.source + done,
                                       rows.weight + done, columns, mixed);
  }
}

// The weighted sum of mixed columns, `column` values apart; column number 0 would be at `mixed`.
template <typename Vector, int Count, typename Value>
inline Vector sum_taps(const Value* mixed, wide_int column, const Taps<Value>& taps) {
  const int count = Count ? Count : taps.count;
  Vector sum = taps.weight[0] * load<Vector>(mixed + taps.source[0] * column);
  for (int i = 1; i < count; ++i) {
    const Vector value = load<Vector>(mixed + taps.source[i] * column);
    sum = multiply_add(spread<Vector>(taps.weight[i]), value, sum);
  }
  return sum;
}

// What happens to a target: it takes a value, or a value is added to it.
struct Assign {
  static const bool writes_empty = true;  // the value of a target without taps
  template <typename Vector, typename Value>
  static void put(Vector value, Value* to) {
    store(value, to);
  }
};
struct Increase {
  static const bool writes_empty = false;
  template <typename Vector, typename Value>
  static void put(Vector value, Value* to) {
    store(load<Vector>(to) + value, to);
  }
};

// One target, from columns that are mixed already; column number 0 would be at `mixed`.
template <typename Vector, int Vectors, typename Put, int Count, typename Value>
inline void put_target(const Value* mixed, const Taps<Value>& taps, Value empty, int vectors,
                       Value* to) {
  const int lanes = Lanes<Vector>::count;
  const int width = Vectors ? Vectors : vectors;
  for (int v = 0; v < width; ++v) {
    if (taps.count > 0) {
      Put::put(sum_taps<Vector, Count>(mixed + v * lanes, width * lanes, taps), to + v * lanes);
    } else if (Put::writes_empty) {
      store(spread<Vector>(empty), to + v * lanes);
    }
  }
}

// A row of targets from mixed columns, of which number `first` is at `mixed`.
template <typename Vector, int Vectors, typename Put, int Count, typename Value>
inline void put_row(const Value* mixed, wide_int first, const Lines<Value>& columns, Value empty,
                    const View<Value>& to, Value* target) {
  const int width = Vectors ? Vectors : to.vectors;
  mixed -= first * width * Lanes<Vector>::count;
  for (int line = 0; line < columns.count; ++line) {
    Value* place = target + columns.target_of(line) * to.column;
    put_target<Vector, Vectors, Put, Count>(mixed, columns.taps_of(line), empty, width, place);
  }
}

template <typename Vector, int Vectors, typename Put, typename Value>
inline void put_dense_row(const Value* mixed, wide_int first, const Lines<Value>& columns,
                          Value empty, const View<Value>& to, Value* target) {
  switch (columns.longest) {
    case 1: put_row<Vector, Vectors, Put, 1>(mixed, first, columns, empty, to, target); break;
    case 2: put_row<Vector, Vectors, Put, 2>(mixed, first, columns, empty, to, target); break;
    case 3: put_row<Vector, Vectors, Put, 3>(mixed, first, columns, empty, to, target); break;
    case 4: put_row<Vector, Vectors, Put, 4>(mixed, first, columns, empty, to, target); break;
    default: put_row<Vector, Vectors, Put, 0>(mixed, first, columns, empty, to, target); break;
  }
}

// The same where the lines read few columns of many: each mixes its own.
template <typename Vector, int Vectors, typename Put, typename Value>
inline void put_sparse_row(const View<const Value>& source, const Taps<Value>& rows,
                           const Lines<Value>& columns, Value empty, Value* mixed,
                           const View<Value>& to, Value* target) {
  static const int in_order[most_padded] = {0, 1, 2, 3, 4, 5};
  for (int line = 0; line < columns.count; ++line) {
    Taps<Value> taps = columns.taps_of(line);
    if (taps.count > 0) {
      mix_rows<Vector, Vectors>(source, rows, Chosen{taps.source, taps.count}, mixed);
      taps.source = in_order;
    }
    Value* place = target + columns.target_of(line) * to.column;
    put_target<Vector, Vectors, Put, 0>(mixed, taps, empty, to.vectors, place);
  }
}

// The heart of the engine: targets [first_line, last_line) x all columns of one box. Rows are
// summed first, into `mixed`, then columns: neighbouring bins share most of the first step.
template <typename Vector, int Vectors, typename Put, typename Value>
void resample(const View<const Value>& source, const Neighbours& read, const Lines<Value>& rows,
              int first_line, int last_line, const Lines<Value>& columns, Value empty,
              Value* mixed, const View<Value>& to) {
  const bool sparse =
      columns.longest <= most_padded && columns.count * columns.longest < read.count;
  for (int line = first_line; line < last_line; ++line) {
    const Taps<Value> taps = rows.taps_of(line);
    Value* target = to.line(rows.target_of(line));
    if (taps.count == 0) {
      for (int column = 0; column < columns.count; ++column) {
        put_target<Vector, Vectors, Put, 0>(mixed, taps, empty, to.vectors,
                                            target + columns.target_of(column) * to.column);
      }
    } else if (sparse) {
      put_sparse_row<Vector, Vectors, Put>(source, taps, columns, empty, mixed, to, target);
    } else {
      mix_rows<Vector, Vectors>(source, taps, read, mixed);
      put_dense_row<Vector, Vectors, Put>(mixed, read.first, columns, empty, to, target);
    }
  }
}

template <typename Vector, int Vectors, typename Storage, typename Value>
void pool_box(const Job& job, const Block& block, wide_int box, const View<const Value>& map,
              char* scratch) {
  const int lanes = Lanes<Vector>::count;
  const int bins = job.columns.bins;
  const Strides strides = strides_of(job, job.rows.bins, bins);
  Storage* output = static_cast<Storage*>(job.output) + box * strides.outer +
                    block.first_channel * strides.channel;
  const Lines<Value> rows = bins_from_cells<Value>(job.rows, box);
  const Lines<Value> columns = bins_from_cells<Value>(job.columns, box);
  const Rectangle window = window_of_box(job, box);
  const Value empty = static_cast<Value>(job.empty_value);
  Value* mixed = reinterpret_cast<Value*>(scratch);
  const auto pool_rows = [&](int first, int last, const View<Value>& to) {
    resample<Vector, Vectors, Assign>(map, {window.left, window.width()}, rows, first, last, columns,
                                    empty, mixed, to);
  };
  if (is_direct(job, block, lanes)) {
    pool_rows(0, job.rows.bins,
              {reinterpret_cast<Value*>(output), strides.row, strides.column, block.vectors});
    return;
  }
  Value* tile = reinterpret_cast<Value*>(tile_of(job, scratch));
  for_each_tile(job, [&](int first, int last) {
    // Their cache lines are on the way while the bins are computed.
    expect<true>(output + first * strides.row, strides, block.channels, (last - first) * bins);
    pool_rows(first, last, packed_view(tile, first, 0, bins, lanes));
    from_lanes(tile, lanes, (last - first) * bins, block.channels, output + first * strides.row,
               strides);
  });
}

struct AverageForward {
  template <typename Vector, int Vectors, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    typedef typename Lanes<Vector>::Value Value;
    visit_maps<Vector, Storage>(
        job, block, part, [&](wide_int box, const View<const Value>& map) {
          pool_box<Vector, Vectors, Storage>(job, block, box, map, part.scratch);
        });
  }
};

template <typename Storage>
inline const Storage* gradients_of(const Job& job, const Block& block, wide_int box) {
  const Strides strides = strides_of(job, job.rows.bins, job.columns.bins);
  return static_cast<const Storage*>(job.grad_output) + box * strides.outer +
         block.first_channel * strides.channel;
}

// Adds the gradients of a box to rows [owned.top, owned.bottom) of the map.
template <typename Vector, int Vectors, typename Storage, typename Value>
void scatter_box(const Job& job, const Block& block, wide_int index, const View<Value>& map,
                 const Rectangle& owned, char* scratch) {
  const int lanes = Lanes<Vector>::count;
  const int bins = job.columns.bins;
  const wide_int box = job.box_order[index];
  const wide_int next = job.box_order[index + 1 < job.boxes ? index + 1 : index];
  const Strides strides = strides_of(job, job.rows.bins, bins);
  const Storage* gradients = gradients_of<Storage>(job, block, box);
  expect<false>(gradients_of<Storage>(job, block, next), strides, block.channels,
                wide_int(job.rows.bins) * bins);
  View<const Value> source = {reinterpret_cast<const Value*>(gradients), strides.row,
                              strides.column, block.vectors};
  if (!is_direct(job, block, lanes)) {
    Value* tile = reinterpret_cast<Value*>(tile_of(job, scratch));
    to_lanes(gradients, strides, block.channels, wide_int(job.rows.bins) * bins, lanes, tile);
    source = {tile, bins * lanes, lanes};
  }
  const Lines<Value> rows = cells_from_bins<Value>(job.rows, box);
  const Lines<Value> columns = cells_from_bins<Value>(job.columns, box);
  Value* mixed = reinterpret_cast<Value*>(scratch);
  for (int line = 0; line < rows.count; ++line) {
    if (rows.target_of(line) < owned.top || rows.target_of(line) >= owned.bottom) continue;
    resample<Vector, Vectors, Increase>(source, {0, bins}, rows, line, line + 1, columns, Value(0),
                                      mixed, map);
  }
}

struct AverageBackward {
  template <typename Vector, int Vectors, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    typedef typename Lanes<Vector>::Value Value;
    own_maps<Vector, Storage>(
        job, block, part, [&](wide_int index, const View<Value>& map, const Rectangle& owned) {
          scatter_box<Vector, Vectors, Storage>(job, block, index, map, owned, part.scratch);
        });
  }
};

// Derivatives of the pooled value of one bin by the box's ends, dotted with the bin's gradient.
template <typename Vector>
struct BoxGradient {
  Vector by_x1 = {}, by_y1 = {}, by_x2 = {}, by_y2 = {};
};

// Adds weight * value only where the weight counts, so that 0 * NaN adds nothing.
template <typename Vector, typename Value>
inline void add_weighted(Value weight, Vector value, Vector* sum) {
  if (weight != Value(0)) *sum = multiply_add(spread<Vector>(weight), value, *sum);
}

template <typename Vector, typename Value>
void add_bin_gradient(const Job& job, wide_int box, int row, int column,
                      const View<const Value>& map, Vector gradient, BoxGradient<Vector>* sums) {
  const Taps<Value> rows = bins_from_cells<Value>(job.rows, box).taps_of(row);
  const Taps<Value> columns = bins_from_cells<Value>(job.columns, box).taps_of(column);
  const wide_int first_row = rows.weight - static_cast<const Value*>(job.rows.weight);
  const wide_int first_column = columns.weight - static_cast<const Value*>(job.columns.weight);
  const Value* by_y1 = static_cast<const Value*>(job.rows.weight_by_low) + first_row;
  const Value* by_y2 = static_cast<const Value*>(job.rows.weight_by_high) + first_row;
  const Value* by_x1 = static_cast<const Value*>(job.columns.weight_by_low) + first_column;
  const Value* by_x2 = static_cast<const Value*>(job.columns.weight_by_high) + first_column;
  BoxGradient<Vector> bin;
  for (int j = 0; j < rows.count; ++j) {
    Vector value = {}, left = {}, right = {};
    for (int i = 0; i < columns.count; ++i) {
      const Vector cell = load<Vector>(map.at(rows.source[j], columns.source[i]));
      add_weighted(columns.weight[i], cell, &value);
      add_weighted(by_x1[i], cell, &left);
      add_weighted(by_x2[i], cell, &right);
    }
    add_weighted(rows.weight[j], left, &bin.by_x1);
    add_weighted(rows.weight[j], right, &bin.by_x2);
    add_weighted(by_y1[j], value, &bin.by_y1);
    add_weighted(by_y2[j], value, &bin.by_y2);
  }
  sums->by_x1 = multiply_add(gradient, bin.by_x1, sums->by_x1);
  sums->by_y1 = multiply_add(gradient, bin.by_y1, sums->by_y1);
  sums->by_x2 = multiply_add(gradient, bin.by_x2, sums->by_x2);
  sums->by_y2 = multiply_add(gradient, bin.by_y2, sums->by_y2);
}

template <typename Vector>
double sum_of_lanes(Vector vector, int channels) {
  typename Lanes<Vector>::Value values[Lanes<Vector>::count];
  store(vector, values);
  double sum = 0;
  for (int lane = 0; lane < channels; ++lane) sum += values[lane];
  return sum;
}

struct AverageBackwardBoxes {
  template <typename Vector, int Vectors, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    typedef typename Lanes<Vector>::Value Value;
    const int lanes = Lanes<Vector>::count;
    const Strides strides = strides_of(job, job.rows.bins, job.columns.bins);
    const Storage* gradients = gradients_of<Storage>(job, block, part.box);
    const View<const Value> map = map_of_box<Vector, Storage>(job, block, part.box, part.scratch);
    Value* tile = reinterpret_cast<Value*>(tile_of(job, part.scratch));
    BoxGradient<Vector> sums;
    for_each_tile(job, [&](int first, int last) {
      const int bins = job.columns.bins;
      to_lanes(gradients + first * strides.row, strides, block.channels, (last - first) * bins,
               lanes, tile);
      for (int row = first; row < last; ++row) {
        for (int column = 0; column < bins; ++column) {
          const Value* bin = tile + ((row - first) * bins + column) * lanes;
          add_bin_gradient(job, part.box, row, column, map, load<Vector>(bin), &sums);
        }
      }
    });
    double* result = job.grad_boxes + 4 * part.box;
    result[0] += sum_of_lanes(sums.by_x1, block.channels);
    result[1] += sum_of_lanes(sums.by_y1, block.channels);
    result[2] += sum_of_lanes(sums.by_x2, block.channels);
    result[3] += sum_of_lanes(sums.by_y2, block.channels);
  }
};

void average_forward(const Job& job, wide_int task, char* scratch) {
  run_task<AverageForward>(job, task, scratch);
}

void average_backward(const Job& job, wide_int task, char* scratch) {
  run_task<AverageBackward>(job, task, scratch);
}

void average_backward_boxes(const Job& job, wide_int box, char* scratch) {
  const wide_int blocks = blocks_of_image(job, lanes_of(job)).count();
  const wide_int image = job.box_image[box];
  if (image < 0) return;
  for (wide_int block = 0; block < blocks; ++block) {
    run_block<AverageBackwardBoxes>(job, image * blocks + block, {0, box, scratch});
  }
}

}  // namespace ROIPOOL_ISA
}  // namespace roipool
