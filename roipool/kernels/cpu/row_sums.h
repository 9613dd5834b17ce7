// Weighted sums of rows of cells, and of columns of those sums, in vectors of channels.
#pragma once
#include <type_traits>

#include "lanes.h"
#include "non_temporal.h"
#include "taps.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// Indices of columns: a range, or a list.
struct ColumnRange {
  wide_int first;
  wide_int count;
  wide_int operator[](wide_int i) const { return first + i; }
};
struct ColumnList {
  const int* column;
  wide_int count;
  wide_int operator[](wide_int i) const { return column[i]; }
};

// Cells of one row: cell x is at `base` + x * `column`. The inner loops receive such structures by
// value: a store could change whatever is read through a reference.
template <typename Value>
struct Line {
  Value* base;
  wide_int column;
};

// to[x] = the weighted sum of up to four source rows for x of `columns`; with Accumulate it is
// added to to[x].
template <typename Vector, int Vectors, int Rows, bool Accumulate, typename Source, typename Value,
          typename Columns>
inline void add_rows(const View<const Source>& source, const int* row, const Value* weights,
                     const Columns columns, const Line<Value> to) {
  const int lanes = Lanes<Vector>::count;
  const int width = (Vectors ? Vectors : source.vectors) * lanes;
  const wide_int stride = source.column;
  const Source* line[Rows];
  Vector weight[Rows];
  for (int j = 0; j < Rows; ++j) {
    line[j] = source.line(row[j]);
    weight[j] = broadcast<Vector>(weights[j]);
  }
  for (wide_int i = 0; i < columns.count; ++i) {
    const wide_int from = columns[i] * stride;
    Value* target = to.base + columns[i] * to.column;
    for (int lane = 0; lane < width; lane += lanes) {
      const Vector first = load<Vector>(line[0] + from + lane);
      Vector sum = Accumulate ? multiply_add(weight[0], first, load<Vector>(target + lane))
                              : rounded(weight[0] * first);
      for (int j = 1; j < Rows; ++j) {
        sum = multiply_add(weight[j], load<Vector>(line[j] + from + lane), sum);
      }
      store(sum, target + lane);
    }
  }
}

template <typename Vector, int Vectors, bool Accumulate, typename Source, typename Value,
          typename Columns>
inline void add_up_to_four_rows(const View<const Source>& source, int rows, const int* row,
                                const Value* weight, const Columns& columns,
                                const Line<Value>& to) {
  switch (rows) {
    case 1: add_rows<Vector, Vectors, 1, Accumulate>(source, row, weight, columns, to); break;
    case 2: add_rows<Vector, Vectors, 2, Accumulate>(source, row, weight, columns, to); break;
    case 3: add_rows<Vector, Vectors, 3, Accumulate>(source, row, weight, columns, to); break;
    default: add_rows<Vector, Vectors, 4, Accumulate>(source, row, weight, columns, to); break;
  }
}

// The same for any number of source rows.
template <typename Vector, int Vectors, bool Accumulate, typename Source, typename Value,
          typename Columns>
inline void add_all_rows(const View<const Source>& source, const Taps<Value>& rows,
                         const Columns& columns, const Line<Value>& to, LongWork* work) {
  if (!Accumulate) {
    add_up_to_four_rows<Vector, Vectors, false>(source, rows.count, rows.source, rows.weight,
                                                columns, to);
  }
  for (int done = Accumulate ? 0 : 4; done < rows.count; done += 4) {
    if (done > 0 && work->ends_before(4 * columns.count * source.vectors)) return;
    add_up_to_four_rows<Vector, Vectors, true>(source, rows.count - done, rows.source + done,
                                               rows.weight + done, columns, to);
  }
}

// The weighted sum of cells of one row. Count is the number of taps if known at compile time, else
// 0.
template <typename Vector, int Count, typename Value>
inline Vector sum_taps(const Line<const Value> from, const Taps<Value> taps, int lane) {
  const int count = Count ? Count : taps.count;
  const Value* cells = from.base + lane;
  Vector sum = rounded(taps.weight[0] * load<Vector>(cells + taps.source[0] * from.column));
  for (int i = 1; i < count; ++i) {
    const Vector cell = load<Vector>(cells + taps.source[i] * from.column);
    sum = multiply_add(broadcast<Vector>(taps.weight[i]), cell, sum);
  }
  return sum;
}

// to[target] = the weighted sum of its taps, or `empty` where it has none, for all targets.
template <typename Vector, int Vectors, bool NonTemporal, int Count, typename Value>
inline void sum_columns(const Line<const Value> from, const Lines<Value> columns, int vectors,
                        Value empty, const Line<Value> to, LongWork* work) {
  const int lanes = Lanes<Vector>::count;
  const int width = (Vectors ? Vectors : vectors) * lanes;
  for (int line = 0; line < columns.count; ++line) {
    const Taps<Value> taps = columns.taps_of(line);
    if (Count == 0 && work->ends_before(wide_int(taps.count) * vectors)) return;
    Value* target = to.base + columns.target_of(line) * to.column;
    for (int lane = 0; lane < width; lane += lanes) {
      const Vector sum =
          taps.count > 0 ? sum_taps<Vector, Count>(from, taps, lane) : broadcast<Vector>(empty);
      store_line<NonTemporal>(sum, target + lane);
    }
  }
}

template <typename Vector, int Vectors, bool NonTemporal, typename Value>
inline void sum_row(const Line<const Value>& from, const Lines<Value>& columns, int vectors,
                    Value empty, const Line<Value>& to, LongWork* work) {
  const auto sum = [&](auto count) {
    sum_columns<Vector, Vectors, NonTemporal, count.value>(from, columns, vectors, empty, to, work);
  };
  switch (columns.longest) {
    case 1: sum(std::integral_constant<int, 1>()); break;
    case 2: sum(std::integral_constant<int, 2>()); break;
    case 3: sum(std::integral_constant<int, 3>()); break;
    case 4: sum(std::integral_constant<int, 4>()); break;
    default: sum(std::integral_constant<int, 0>()); break;
  }
}

// to[bin] = the weighted sum of 2 x 2 cells, for all bins of a row; as elsewhere the rows of each
// column are summed first.
template <typename Vector, int Vectors, bool NonTemporal, typename Source, typename Value>
inline void pool_2x2(const View<const Source>& map, const Taps<Value>& rows,
                     const Lines<Value> columns, Value empty, const Line<Value> to) {
  const int lanes = Lanes<Vector>::count;
  const int width = (Vectors ? Vectors : map.vectors) * lanes;
  const Source *upper = map.line(rows.source[0]), *lower = map.line(rows.source[1]);
  const Vector above = broadcast<Vector>(rows.weight[0]), below = broadcast<Vector>(rows.weight[1]);
  for (int bin = 0; bin < columns.count; ++bin) {
    const Taps<Value> taps = columns.taps_of(bin);
    Value* target = to.base + bin * to.column;
    if (taps.count == 0) {
      fill<Vector>(empty, map.vectors, target);
      continue;
    }
    const wide_int left = taps.source[0] * map.column, right = taps.source[1] * map.column;
    for (int lane = 0; lane < width; lane += lanes) {
      const Vector first = multiply_add(below, load<Vector>(lower + left + lane),
                                        rounded(above * load<Vector>(upper + left + lane)));
      const Vector second = multiply_add(below, load<Vector>(lower + right + lane),
                                         rounded(above * load<Vector>(upper + right + lane)));
      const Vector sum =
          multiply_add(broadcast<Vector>(taps.weight[1]), second, rounded(taps.weight[0] * first));
      store_line<NonTemporal>(sum, target + lane);
    }
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
