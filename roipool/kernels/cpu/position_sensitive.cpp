// Position-sensitive averages: each bin of a channel is pooled from the plane of its own group of
// bins. A plane serves few bins of each box, and stays in the nearest cache: tasks take plane after
// plane, and of each all boxes, cell by cell. Built once per instruction set.
#include "box_gradients.h"
#include "group_plan.h"
#include "group_planes.h"
#include "schedule.h"
#include "taps.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// What a task works on.
struct GroupTask {
  GroupRun run;
  wide_int part;
};

inline GroupTask group_task(const Job& job, wide_int task) {
  const wide_int part = task % job.parts;
  task /= job.parts;
  const int row = static_cast<int>(task % job.group_rows);
  task /= job.group_rows;
  return {{task / job.channels, task % job.channels, row, 0, job.group_columns}, part};
}

// Where the values of one bin lie, by place in `box_order`.
template <typename Storage>
struct PooledBin {
  Storage* first;
  wide_int step;
  const wide_int* order;
  const wide_int* row;  // null: the box's number

  Storage* of(wide_int place) const {
    const wide_int box = order[place];
    return first + (row ? row[box] : box) * step;
  }
};

// Where the values of one channel of pooled values lie, from the array's start.
struct PooledPlace {
  Strides strides;
  wide_int channel;

  PooledPlace(const Job& job, wide_int channel)
      : strides(strides_of(job, job.bins_down, job.bins_across)),
        channel(channel * strides.channel) {}
  wide_int at(wide_int box_row, int row, int column) const {
    return box_row * strides.outer + channel + row * strides.row + column * strides.column;
  }
  template <typename Storage>
  PooledBin<Storage> of_bin(const Job& job, Storage* array, int row, int column) const {
    return {array + at(0, row, column), strides.outer, job.box_order, job.box_row};
  }
};

// The bins of a group: their rows and columns.
struct GroupBins {
  BinRange rows;
  BinRange columns;

  GroupBins(const Job& job, int row, int column)
      : rows(bins_of_group(job.bins_down, job.group_rows, row)),
        columns(bins_of_group(job.bins_across, job.group_columns, column)) {}

  // Calls visit(row, column) for each.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (int row = rows.first; row < rows.last; ++row) {
      for (int column = columns.first; column < columns.last; ++column) visit(row, column);
    }
  }
};

// Calls visit(first, last, shape) for runs of places in `box_order` with bins of as many taps.
template <typename Visit>
inline void for_each_shape(const Job& job, const BoxRange& range, Visit visit) {
  const TapShape* shape = job.group_plan.shape;
  for (wide_int first = range.begin, last; first < range.end; first = last) {
    last = first + 1;
    while (last < range.end && shape[last].rows == shape[first].rows &&
           shape[last].columns == shape[first].columns) {
      ++last;
    }
    visit(BoxRange{first, last}, shape[first]);
  }
}

template <int Number>
struct Constant {
  static const int value = Number;
};

template <typename Visit>
inline void with_constant(int number, Visit visit) {
  static_assert(max_few_taps == 4, "a case for each number of taps");
  switch (number) {
    case 1: visit(Constant<1>()); break;
    case 2: visit(Constant<2>()); break;
    case 3: visit(Constant<3>()); break;
    default: visit(Constant<4>()); break;
  }
}

// Calls few(rows, columns, places), whose numbers of taps are known at compile time, and
// many(place).
template <typename Few, typename Many>
inline void visit_by_shape(const Job& job, const BoxRange& range, Few few, Many many) {
  for_each_shape(job, range, [&](const BoxRange& places, TapShape shape) {
    if (shape.rows > max_few_taps) {
      for (wide_int i = places.begin; i < places.end; ++i) many(i);
      return;
    }
    with_constant(shape.rows, [&](auto rows) {
      with_constant(shape.columns, [&](auto columns) { few(rows, columns, places); });
    });
  });
}

// Values of a bin that are stored in a narrower type lie side by side for so many places at a time,
// so that engines hold the loops over taps for computed types alone.
const int converted_places = 256;

struct Counting {
  wide_int number[converted_places];

  constexpr Counting() : number() {
    for (int i = 0; i < converted_places; ++i) number[i] = i;
  }
};
constexpr Counting counting;

// Values side by side, the first of which is that of place `first`.
template <typename Value>
inline PooledBin<Value> side_by_side(Value* values, wide_int first) {
  return {values, 1, counting.number - first, nullptr};
}

// Calls visit(places) for all of them, so many at a time.
template <typename Visit>
inline void for_converted_places(const BoxRange& range, Visit visit) {
  for (wide_int first = range.begin; first < range.end; first += converted_places) {
    visit(BoxRange{first, minimum(first + converted_places, range.end)});
  }
}

template <typename Value>
inline const FewTaps<Value>* few_taps_of(const Job& job, const void* taps, int bin) {
  return static_cast<const FewTaps<Value>*>(taps) + bin * job.chunk.boxes();
}

// ---- Forward

// The weighted sum of the cells of a bin of few taps.
template <int Rows, int Columns, typename Value>
inline Value sum_few(const View<const Value> plane, const FewTaps<Value>& rows,
                     const FewTaps<Value>& columns) {
  Value sum = 0;
  for (int j = 0; j < Rows; ++j) {
    const Value* line = plane.line(rows.cell[j]);
    Value along = columns.weight[0] * line[columns.cell[0]];
    for (int i = 1; i < Columns; ++i) {
      along = multiply_add(columns.weight[i], line[columns.cell[i]], along);
    }
    sum = j == 0 ? rows.weight[0] * along : multiply_add(rows.weight[j], along, sum);
  }
  return sum;
}

template <typename Value>
inline Value sum_many(const View<const Value>& plane, const Taps<Value>& rows,
                      const Taps<Value>& columns, LongWork* work) {
  Value sum = 0;
  for (int j = 0; j < rows.count && !work->ends_before(columns.count); ++j) {
    const Value* line = plane.line(rows.source[j]);
    Value along = 0;
    for (int i = 0; i < columns.count; ++i) {
      along = multiply_add(columns.weight[i], line[columns.source[i]], along);
    }
    sum = multiply_add(rows.weight[j], along, sum);
  }
  return sum;
}

template <int Rows, int Columns, typename Value>
inline void pool_few(const View<const Value> plane, const BoxRange places,
                     const FewTaps<Value>* rows, const FewTaps<Value>* columns, Value empty,
                     const PooledBin<Value> to) {
  for (wide_int i = places.begin; i < places.end; ++i) {
    const bool is_empty = rows[i].cell[0] < 0 || columns[i].cell[0] < 0;
    *to.of(i) = is_empty ? empty : sum_few<Rows, Columns>(plane, rows[i], columns[i]);
  }
}

template <typename Value>
__attribute__((noinline)) void pool_bin(const Job& job, const BoxRange& range, BinLines lines,
                                        const View<const Value>& plane, const PooledBin<Value>& to,
                                        LongWork* work) {
  if (work->ends_before(range.end - range.begin)) return;
  const Value empty = static_cast<Value>(job.empty_value);
  const FewTaps<Value>* rows = few_taps_of<Value>(job, job.group_plan.rows, lines.row);
  const FewTaps<Value>* columns = few_taps_of<Value>(job, job.group_plan.columns, lines.column);
  visit_by_shape(
      job, range,
      [&](auto down, auto across, const BoxRange& places) {
        pool_few<down.value, across.value>(plane, places, rows, columns, empty, to);
      },
      [&](wide_int place) {
        const Taps<Value> down =
            bins_from_cells<Value>(job.rows, job.box_order[place]).taps_of(lines.row);
        const Taps<Value> across =
            bins_from_cells<Value>(job.columns, job.box_order[place]).taps_of(lines.column);
        const bool is_empty = down.count == 0 || across.count == 0;
        *to.of(place) = is_empty ? empty : sum_many(plane, down, across, work);
      });
}

template <typename Storage, typename Value>
inline void pool_stored_bin(const Job& job, const BoxRange& range, BinLines lines,
                            const View<const Value>& plane, const PooledBin<Storage>& to,
                            LongWork* work) {
  if constexpr (std::is_same<Storage, Value>::value) {
    pool_bin(job, range, lines, plane, to, work);
  } else {
    for_converted_places(range, [&](const BoxRange& places) {
      Value values[converted_places];
      pool_bin(job, places, lines, plane, side_by_side(values, places.begin), work);
      if (is_over(job.watch)) return;  // some values were not computed
      for (wide_int i = places.begin; i < places.end; ++i) {
        store_value(values[i - places.begin], to.of(i));
      }
    });
  }
}

struct PositionSensitiveForward {
  template <typename Value, typename Storage>
  static void run(const Job& job, wide_int number, char* scratch) {
    const GroupTask task = group_task(job, number);
    const BoxRange range = boxes_of_part(job, task.run.image, task.part);
    const PooledPlace place(job, task.run.channel);
    const Rectangle window = reach_of(job, range).window;
    Storage* output = static_cast<Storage*>(job.output);
    LongWork work(job.watch);
    visit_planes<Value, Storage>(
        job, task.run, window, scratch, [&](int group, const View<const Value>& plane) {
          if (is_interrupted(job)) return;
          GroupBins(job, task.run.row, group).for_each([&](int row, int column) {
            pool_stored_bin(job, range, lines_of_bin(job, row, column), plane,
                            place.of_bin(job, output, row, column), &work);
          });
        });
  }
};

// ---- Backward

// The rows of planes that a task adds to.
struct OwnedRows {
  wide_int first;
  wide_int last;

  bool has(wide_int row) const { return row >= first && row < last; }
};
struct AllRows {
  static bool has(wide_int) { return true; }
};

// Adds a share of a bin's gradient to cells of one row.
template <typename Value>
inline void add_along(Value share, int count, const int* cells, const Value* weights, Value* row) {
  for (int i = 0; i < count; ++i) {
    row[cells[i]] = multiply_add(weights[i], share, row[cells[i]]);
  }
}

// Adds the gradients of a bin of all boxes to its plane.
template <typename Value, typename Rows>
__attribute__((noinline)) void scatter_bin(const Job& job, const BoxRange& range, BinLines lines,
                                           const Rows owned, const View<Value> plane,
                                           const PooledBin<const Value> from, LongWork* work) {
  if (work->ends_before(range.end - range.begin)) return;
  const FewTaps<Value>* rows = few_taps_of<Value>(job, job.group_plan.rows, lines.row);
  const FewTaps<Value>* columns = few_taps_of<Value>(job, job.group_plan.columns, lines.column);
  visit_by_shape(
      job, range,
      [=](auto down, auto across, const BoxRange places) {
        for (wide_int i = places.begin; i < places.end; ++i) {
          if (rows[i].cell[0] < 0 || columns[i].cell[0] < 0) continue;
          const Value gradient = *from.of(i);
          for (int j = 0; j < down.value; ++j) {
            if (!owned.has(rows[i].cell[j])) continue;
            add_along(rows[i].weight[j] * gradient, across.value, columns[i].cell,
                      columns[i].weight, plane.line(rows[i].cell[j]));
          }
        }
      },
      [&](wide_int place) {
        const wide_int box = job.box_order[place];
        const Taps<Value> down = bins_from_cells<Value>(job.rows, box).taps_of(lines.row);
        const Taps<Value> across = bins_from_cells<Value>(job.columns, box).taps_of(lines.column);
        const Value gradient = *from.of(place);
        for (int j = 0; j < down.count && !work->ends_before(across.count); ++j) {
          if (!owned.has(down.source[j])) continue;
          add_along(down.weight[j] * gradient, across.count, across.source, across.weight,
                    plane.line(down.source[j]));
        }
      });
}

template <typename Storage, typename Value, typename Rows>
inline void scatter_stored_bin(const Job& job, const BoxRange& range, BinLines lines,
                               const Rows& owned, const View<Value>& plane,
                               const PooledBin<const Storage>& from, LongWork* work) {
  if constexpr (std::is_same<Storage, Value>::value) {
    scatter_bin(job, range, lines, owned, plane, from, work);
  } else {
    for_converted_places(range, [&](const BoxRange& places) {
      Value gradients[converted_places];
      for (wide_int i = places.begin; i < places.end; ++i) {
        gradients[i - places.begin] = compute_value(*from.of(i));
      }
      const PooledBin<const Value> converted = side_by_side<const Value>(gradients, places.begin);
      scatter_bin(job, places, lines, owned, plane, converted, work);
    });
  }
}

// The rows of its planes that a part of a backward owns, all columns.
inline Rectangle owned_cells(const Job& job, wide_int part) {
  const RowRange rows = owned_rows(job, part);
  return {rows.first, rows.last, 0, job.columns.size};
}

// Begins the sums of a run of planes: zero, or what the chunks before this one left.
template <typename Value>
void begin_planes(const Job& job, const GroupRun& run, const Rectangle& owned, char* scratch) {
  const bool in_place = uses_planes_in_place(job);
  if (!job.chunk.is_first) {
    if (!in_place) {
      pack_planes<Value>(job, run, owned, static_cast<const Value*>(job.sums), scratch);
    }
    return;
  }
  Value* sums = static_cast<Value*>(job.output);
  for (int column = run.first_column; column < run.last_column; ++column) {
    Value* plane = in_place ? plane_in_array(job, run, column, sums) + owned.top * owned.width()
                            : plane_in_scratch<Value>(run, column, owned, scratch);
    memset(plane, 0, owned.cells() * sizeof(Value));
  }
}

// Writes them to the gradient, or before the last chunk to the sums.
template <typename Value, typename Storage>
void finish_planes(const Job& job, const GroupRun& run, const Rectangle& owned, char* scratch) {
  if (uses_planes_in_place(job)) return;
  if (job.chunk.is_last) {
    unpack_planes<Value>(job, run, owned, static_cast<Storage*>(job.output), scratch);
  } else {
    unpack_planes<Value>(job, run, owned, static_cast<Value*>(job.sums), scratch);
  }
}

struct PositionSensitiveBackward {
  template <typename Value, typename Storage>
  static void run(const Job& job, wide_int number, char* scratch) {
    const GroupTask task = group_task(job, number);
    const BoxRange range = boxes_of_image(job, task.run.image);
    if (range.begin == range.end && keeps_sums(job)) return;
    const PooledPlace place(job, task.run.channel);
    const Rectangle owned = owned_cells(job, task.part);
    const Storage* gradients = static_cast<const Storage*>(job.grad_output);
    LongWork work(job.watch);
    GroupRun run = task.run;
    for (; run.first_column < task.run.last_column; run.first_column += job.planes) {
      run.last_column = minimum(run.first_column + job.planes, task.run.last_column);
      begin_planes<Value>(job, run, owned, scratch);
      for (int column = run.first_column; column < run.last_column; ++column) {
        if (is_interrupted(job)) return;
        const View<Value> plane =
            view_of_plane(job, run, column, owned, static_cast<Value*>(job.output), scratch);
        GroupBins(job, run.row, column).for_each([&](int down, int across) {
          const PooledBin<const Storage> from = place.of_bin(job, gradients, down, across);
          const BinLines lines = lines_of_bin(job, down, across);
          if (job.parts == 1) {
            scatter_stored_bin(job, range, lines, AllRows(), plane, from, &work);
          } else {
            scatter_stored_bin(job, range, lines, OwnedRows{owned.top, owned.bottom}, plane, from,
                               &work);
          }
        });
      }
      finish_planes<Value, Storage>(job, run, owned, scratch);
    }
  }
};

// ---- Gradient of boxes

template <typename Storage, typename Value>
inline void add_gradients_of_group(const Job& job, wide_int box, const GroupBins& bins,
                                   const View<const Value>& plane, const PooledPlace& place,
                                   BoxGradient<Value>* sums, LongWork* work) {
  const Storage* gradients = static_cast<const Storage*>(job.grad_output);
  bins.for_each([&](int row, int column) {
    const wide_int at = place.at(row_of_box(job, box), row, column);
    add_bin_gradient<Value, Value>(job, box, row, column, plane, compute_value(gradients[at]), sums,
                                   work);
  });
}

template <typename Value, typename Storage>
void add_corner_gradients(const Job& job, wide_int box, double* gradient, char* scratch) {
  const wide_int image = job.box_image[box];
  const Rectangle window = window_of_box(job, box);
  LongWork work(job.watch);
  for (wide_int channel = 0; channel < job.channels && !is_interrupted(job); ++channel) {
    const PooledPlace place(job, channel);
    BoxGradient<Value> sums;
    for (int row = 0; row < job.group_rows; ++row) {
      visit_planes<Value, Storage>(job, {image, channel, row, 0, job.group_columns}, window,
                                   scratch, [&](int column, const View<const Value>& plane) {
                                     const GroupBins bins(job, row, column);
                                     add_gradients_of_group<Storage>(job, box, bins, plane, place,
                                                                     &sums, &work);
                                   });
    }
    for (int i = 0; i < numbers_of_corners; ++i) gradient[i] += sums.by[i];
  }
}

// Channels whose cells are summed before they are weighted.
const int summed_channels = 32;

// Some channels of a bin: a cell of the first of them, how far apart they lie, their gradients.
template <typename Value, typename Storage>
struct BinChannels {
  const Storage* corner;
  Strides strides;
  wide_int step;
  int count;
  Value gradient[summed_channels];

  const Storage* at(wide_int y, wide_int x) const {
    return corner + y * strides.row + x * strides.column;
  }
  // The gradients times the values of a cell, summed.
  Value sum(wide_int y, wide_int x) const {
    Value sum = 0;
    for (int i = 0; i < count; ++i) {
      sum = multiply_add(gradient[i], Value(compute_value(at(y, x)[i * step])), sum);
    }
    return sum;
  }
};

// The sums of the cells of a small bin: those of a row, which lie side by side, are summed
// together.
template <typename Value>
struct SummedCells {
  typedef typename VectorOf<Value>::type Vector;
  static const int max_rows = 8;

  int top, left;
  Value cells[max_rows][Lanes<Vector>::count];

  // False if the bin is too large, or a load would end behind the features.
  template <typename Storage>
  bool sum(const BinChannels<Value, Storage>&, const Taps<Value>&, const Taps<Value>&,
           const Storage*) {
    return false;  // cells that must be converted
  }
  bool sum(const BinChannels<Value, Value>& channels, const Taps<Value>& rows,
           const Taps<Value>& columns, const Value* end) {
    if (channels.strides.column != 1 || rows.count == 0 || columns.count == 0) return false;
    top = rows.source[0];
    left = columns.source[0];
    const int height = rows.source[rows.count - 1] - top + 1;
    const int width = columns.source[columns.count - 1] - left + 1;
    const Value* last = channels.at(top + height - 1, left) + (channels.count - 1) * channels.step;
    if (height > max_rows || width > Lanes<Vector>::count || end - last < Lanes<Vector>::count) {
      return false;
    }
    for (int y = 0; y < height; ++y) {
      const Value* row = channels.at(top + y, left);
      Vector sums = {};
      for (int i = 0; i < channels.count; ++i) {
        sums = multiply_add(broadcast<Vector>(channels.gradient[i]),
                            load<Vector>(row + i * channels.step), sums);
      }
      store(sums, cells[y]);
    }
    return true;
  }
};

// The gradient of a bin that moves by itself: of all channels of its group.
template <typename Value, typename Storage>
void add_offset_gradient(const Job& job, wide_int box, int row, int column, double* offsets) {
  const int bin = row * job.bins_across + column;
  const wide_int group = group_of_bin(job.bins_down, job.group_rows, row) * job.group_columns +
                         group_of_bin(job.bins_across, job.group_columns, column);
  const Strides strides = strides_of_features(job);
  const Storage* features = static_cast<const Storage*>(job.features);
  const Storage* gradients = static_cast<const Storage*>(job.grad_output);
  const Taps<Value> rows = bins_from_cells<Value>(job.rows, box).taps_of(bin);
  const Taps<Value> columns = bins_from_cells<Value>(job.columns, box).taps_of(bin);
  BinChannels<Value, Storage> some = {nullptr, strides, groups_of(job) * strides.channel, 0, {}};
  SummedCells<Value> summed;
  LongWork work(job.watch);
  for (wide_int first = 0; first < job.channels; first += summed_channels) {
    const PooledPlace place(job, first);
    const Storage* gradient = gradients + place.at(row_of_box(job, box), row, column);
    some.corner =
        features + job.box_image[box] * strides.outer + first * some.step + group * strides.channel;
    some.count = static_cast<int>(minimum<wide_int>(summed_channels, job.channels - first));
    for (int i = 0; i < some.count; ++i) {
      some.gradient[i] = compute_value(gradient[i * place.strides.channel]);
    }
    const auto by =
        summed.sum(some, rows, columns, features + job.images * strides.outer)
            ? moved_bin_gradient<Value>(
                  job, box, bin,
                  [&](int y, int x) { return summed.cells[y - summed.top][x - summed.left]; },
                  Value(1), &work)
            : moved_bin_gradient<Value>(
                  job, box, bin, [&](int y, int x) { return some.sum(y, x); }, Value(1), &work);
    add_offset_gradients(by, 1, bins_of_box(job), offsets + bin);
  }
}

struct PositionSensitiveBackwardBoxes {
  template <typename Value, typename Storage>
  static void run(const Job& job, wide_int number, char* scratch) {
    const BoxRange boxes = boxes_of_gradient(job, number);
    if (job.arrangement != paired_bins) {
      for_each_box(job, boxes, [&](wide_int box, double* gradient) {
        add_corner_gradients<Value, Storage>(job, box, gradient, scratch);
      });
      return;
    }
    for (int bin = 0; bin < bins_of_box(job) && !is_interrupted(job); ++bin) {
      const int row = bin / job.bins_across, column = bin % job.bins_across;
      for_each_box(job, boxes, [&](wide_int box, double* gradient) {
        add_offset_gradient<Value, Storage>(job, box, row, column, gradient + numbers_of_corners);
      });
    }
  }

 private:
  template <typename Visit>
  static void for_each_box(const Job& job, const BoxRange& boxes, Visit visit) {
    for (wide_int box = boxes.begin; box < boxes.end; ++box) {
      if (job.box_image[box] < 0) continue;
      visit(box, job.grad_boxes + numbers_of_box(job) * row_of_box(job, box));
    }
  }
};

template <typename Operation>
void run_task(const Job& job, wide_int task, char* scratch) {
  switch (job.storage) {
    case float16_storage: Operation::template run<float, Float16>(job, task, scratch); break;
    case bfloat16_storage: Operation::template run<float, Bfloat16>(job, task, scratch); break;
    case float32_storage: Operation::template run<float, float>(job, task, scratch); break;
    case float64_storage: Operation::template run<double, double>(job, task, scratch); break;
  }
}

void position_sensitive_forward(const Job& job, wide_int task, char* scratch) {
  run_task<PositionSensitiveForward>(job, task, scratch);
}

void position_sensitive_backward(const Job& job, wide_int task, char* scratch) {
  run_task<PositionSensitiveBackward>(job, task, scratch);
}

void position_sensitive_backward_boxes(const Job& job, wide_int task, char* scratch) {
  run_task<PositionSensitiveBackwardBoxes>(job, task, scratch);
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
