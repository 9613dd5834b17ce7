// The average engine: weighted sums of map cells (forward), their transpose (backward) and their
// derivative with respect to the boxes. Built once per instruction set. The weights are final:
// instruction sets differ by the rounding of sums only, not by decisions.
#include "box_gradients.h"
#include "dispatch.h"
#include "pixels.h"
#include "row_sums.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// How many columns a line lists: a padded one lists one of them again at its end.
template <typename Value>
inline int distinct_columns(const Taps<Value>& line) {
  int count = line.count;
  for (int i = 0; i + 1 < count; ++i) {
    while (count > i + 1 && line.source[count - 1] == line.source[i]) --count;
  }
  return count;
}

// How many columns all bins of a row list, where each lists as many: more than 32 bits may count.
template <typename Value>
inline wide_int listed_columns(const Lines<Value>& bins) {
  return wide_int(bins.count) * bins.longest;
}

// The columns that all bins of a row read, as often as they list them; none if they are too many.
struct ReadColumns {
  static const int max_columns = 128;
  int column[max_columns];
  int count = 0;

  template <typename Value>
  void list(const Lines<Value>& bins) {
    if (listed_columns(bins) > max_columns) return;
    for (int bin = 0; bin < bins.count; ++bin) {
      const Taps<Value> read = bins.taps_of(bin);
      for (int i = 0; i < read.count; ++i) column[count++] = read.source[i];
    }
  }
};

// The weighted sum of source rows in the columns that bins read. Up to four rows are summed anew
// wherever a column is listed; more are accumulated, which must not happen twice.
template <typename Vector, int Vectors, typename Source, typename Value>
__attribute__((always_inline)) inline void add_rows_in_read_columns(
    const View<const Source>& map, const Taps<Value>& rows, const Lines<Value>& bins,
    const ReadColumns& all, const Line<Value>& sums, LongWork* work) {
  const bool at_once = rows.count <= 4 && all.count > 0;
  for (int bin = 0; bin < (at_once ? 1 : bins.count); ++bin) {
    const Taps<Value> read = bins.taps_of(bin);
    const ColumnList listed = at_once ? ColumnList{all.column, all.count}
                                      : ColumnList{read.source, distinct_columns(read)};
    add_all_rows<Vector, Vectors, false>(map, rows, listed, sums, work);
  }
}

// Rows [first, last) of the bins of one box. Map rows are summed first, then columns of the sums:
// neighbouring bins share most of the first step.
template <typename Vector, int Vectors, bool NonTemporal, typename Source, typename Value>
void pool_rows(const Job& job, wide_int box, const View<const Source>& map, int first, int last,
               Value* row_sums, const View<Value>& to) {
  const Lines<Value> rows = bins_from_cells<Value>(job.rows, box);
  const Lines<Value> columns = bins_from_cells<Value>(job.columns, box);
  const Rectangle window = window_of_box(job, box);
  const wide_int width = (Vectors ? Vectors : map.vectors) * Lanes<Vector>::count;
  const Line<Value> sums = {row_sums - window.left * width, width};
  // Samples far apart leave cells between them that no bin reads.
  const bool sparse = columns.longest != uneven && listed_columns(columns) < window.width();
  ReadColumns read;
  if (sparse) read.list(columns);
  const Value empty = static_cast<Value>(job.empty_value);
  LongWork work(job.watch);
  for (int row = first; row < last; ++row) {
    if (work.ends_before((window.width() + columns.count) * map.vectors)) return;
    const Taps<Value> taps = rows.taps_of(row);
    const Line<Value> target = {to.line(row), to.column};
    if (taps.count == 0) {
      for (int bin = 0; bin < columns.count; ++bin) {
        fill<Vector>(empty, map.vectors, target.base + bin * target.column);
      }
      continue;
    }
    if (rows.longest == 2 && columns.longest == 2) {
      pool_2x2<Vector, Vectors, NonTemporal>(map, taps, columns, empty, target);
      continue;
    }
    Line<const Value> from = {sums.base, width};
    if (std::is_same<Source, Value>::value && taps.count == 1 && taps.weight[0] == Value(1)) {
      // A row of the map itself.
      from = {reinterpret_cast<const Value*>(map.line(taps.source[0])), map.column};
    } else if (!sparse) {
      add_all_rows<Vector, Vectors, false>(map, taps, ColumnRange{window.left, window.width()},
                                           sums, &work);
    } else {
      add_rows_in_read_columns<Vector, Vectors>(map, taps, columns, read, sums, &work);
    }
    sum_row<Vector, Vectors, NonTemporal, Value>(from, columns, map.vectors, empty, target, &work);
  }
}

// ---- Bins of pairs of lines, which share no sums

// target = the weighted sum of the cells where rows and columns cross. Rows is the number of rows
// if known at compile time, else 0.
template <typename Vector, int Vectors, int Rows, typename Source, typename Value>
inline void pool_crossing(const View<const Source>& map, const Taps<Value> rows,
                          const Taps<Value> columns, Value* target, LongWork* work) {
  const int lanes = Lanes<Vector>::count, count = Rows ? Rows : rows.count;
  const int width = (Vectors ? Vectors : map.vectors) * lanes;
  const Source* first = map.line(rows.source[0]);
  const Source* line[Rows ? Rows : 1];
  for (int j = 0; j < Rows; ++j) line[j] = map.line(rows.source[j]);
  for (int lane = 0; lane < width; lane += lanes) {
    Vector sum = {};
    for (int i = 0; i < columns.count; ++i) {
      if (Rows == 0 && work->ends_before(count)) return;
      const wide_int at = columns.source[i] * map.column + lane;
      Vector down = rounded(rows.weight[0] * load<Vector>(first + at));
      for (int j = 1; j < count; ++j) {
        const Source* cells = Rows ? line[j] : map.line(rows.source[j]);
        down = multiply_add(broadcast<Vector>(rows.weight[j]), load<Vector>(cells + at), down);
      }
      sum = multiply_add(broadcast<Vector>(columns.weight[i]), down, sum);
    }
    store(sum, target + lane);
  }
}

template <typename Vector, int Vectors, int Rows, typename Source, typename Value>
void pool_crossings(const Lines<Value> rows, const Lines<Value> columns,
                    const View<const Source>& map, Value empty, const View<Value> to,
                    LongWork work) {
  for (int bin = 0; bin < rows.count; ++bin) {
    const Taps<Value> down = rows.taps_of(bin), across = columns.taps_of(bin);
    if (Rows && work.ends_before(wide_int(across.count) * map.vectors)) return;
    if (down.count == 0 || across.count == 0) {
      fill<Vector>(empty, map.vectors, to.at(0, bin));
    } else {
      pool_crossing<Vector, Vectors, Rows>(map, down, across, to.at(0, bin), &work);
    }
  }
}

// All bins of one box.
template <typename Vector, int Vectors, typename Source, typename Value>
void pool_pairs(const Job& job, wide_int box, const View<const Source>& map,
                const View<Value>& to) {
  const Lines<Value> rows = bins_from_cells<Value>(job.rows, box);
  const Lines<Value> columns = bins_from_cells<Value>(job.columns, box);
  const auto pool = [&](auto count) {
    pool_crossings<Vector, Vectors, count.value>(
        rows, columns, map, static_cast<Value>(job.empty_value), to, LongWork(job.watch));
  };
  switch (rows.longest) {
    case 2: pool(std::integral_constant<int, 2>()); break;
    case 3: pool(std::integral_constant<int, 3>()); break;
    case 4: pool(std::integral_constant<int, 4>()); break;
    default: pool(std::integral_constant<int, 0>());
  }
}

// Rows [first, last) of the bins of one box; pairs, of which none reads bytes, are one row.
template <typename Vector, int Vectors, typename Source, typename Value>
void pool_bins(const Job& job, wide_int box, const View<const Source>& map, int first, int last,
               Value* row_sums, const View<Value>& to) {
  if constexpr (sizeof(Source) > 1) {
    if (job.arrangement == paired_bins) {
      pool_pairs<Vector, Vectors>(job, box, map, to);
      return;
    }
  }
  pool_rows<Vector, Vectors, false>(job, box, map, first, last, row_sums, to);
}

template <typename Vector, int Vectors, typename Storage, typename Source>
void pool_box(const Job& job, const Block& block, wide_int box, const View<const Source>& map,
              char* scratch) {
  typedef typename Lanes<Vector>::Value Value;
  const int lanes = Lanes<Vector>::count;
  const int bins = job.columns.bins;
  const Strides strides = strides_of(job, rows_of_bins(job), bins);
  Storage* output = static_cast<Storage*>(job.output) + row_of_box(job, box) * strides.outer +
                    block.first_channel * strides.channel;
  const int width = block.vectors * lanes;
  Value* row_sums = reinterpret_cast<Value*>(scratch);
  if constexpr (is_computed<Storage>) {
    // Pairs that are written by non-temporal stores pass through a tile.
    if (is_direct(job, block, lanes) &&
        !(Vectors == 0 && job.non_temporal && job.arrangement == paired_bins)) {
      const View<Value> to = {output, strides.row, strides.column, block.vectors};
      if (Vectors == 0 && job.non_temporal && consists_of_lines(output, strides)) {
        pool_rows<Vector, Vectors, Vectors == 0>(job, box, map, 0, rows_of_bins(job), row_sums, to);
      } else {
        pool_bins<Vector, Vectors>(job, box, map, 0, rows_of_bins(job), row_sums, to);
      }
      return;
    }
  }
  Value* tile = reinterpret_cast<Value*>(tile_of(job, scratch));
  for_each_tile(job, [&](int first, int last) {
    const wide_int count = wide_int(last - first) * bins;
    if (!job.non_temporal) {
      prefetch_for_write(output + first * strides.row, strides, block.channels, count);
    }
    pool_bins<Vector, Vectors>(job, box, map, first, last, row_sums,
                               packed_view(tile, first, 0, bins, width));
    write_lanes(job, tile, width, count, block.channels, output + first * strides.row, strides,
                scratch);
  });
}

// Features in another type than the computed one, which are converted wherever they are read.
template <typename Vector, int Vectors, typename Storage, typename Source>
void pool_in_place(const Job& job, const Block& block, const Part& part) {
  const Maps<const Source> maps = maps_of<const Source>(job, block, job.features);
  const View<const Source> map = view_in_place<const Source>(maps, block.vectors);
  const BoxRange range = boxes_of_part(job, block.image, part.number);
  for (wide_int index = range.begin; index < range.end && !is_interrupted(job); ++index) {
    pool_box<Vector, Vectors, Storage>(job, block, job.box_order[index], map, part.scratch);
  }
}

struct AverageForward {
  static constexpr bool takes_several_vectors = true;

  template <typename Vector, int Vectors, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    if constexpr (std::is_same<Vector, float>::value && std::is_same<Storage, float>::value) {
      if (is_of_pixels(job, block)) {
        switch (job.feature_storage) {
          case stored_as_pooled: return pool_boxes_of_pixels<float, float>(job, block, part);
          case stored_as_uint8: return pool_boxes_of_pixels<uint8_t, float>(job, block, part);
          case stored_as_int8: return pool_boxes_of_pixels<int8_t, float>(job, block, part);
          case stored_as_uint16: return pool_boxes_of_pixels<uint16_t, float>(job, block, part);
          case stored_as_int16: return pool_boxes_of_pixels<int16_t, float>(job, block, part);
        }
      }
    }
    if constexpr (std::is_same<Vector, float>::value && !is_computed<Storage>) {
      if (job.pixels) return pool_boxes_of_pixels<Storage, Storage>(job, block, part);
    }
    if constexpr (Vectors == 0 && !is_computed<Storage>) {
      return pool_in_place<Vector, Vectors, Storage, Storage>(job, block, part);
    }
    if constexpr ((Vectors == 0 || Lanes<Vector>::count == 1) &&
                  std::is_same<Storage, float>::value) {
      switch (job.feature_storage) {
        case stored_as_uint8:
          return pool_in_place<Vector, Vectors, Storage, uint8_t>(job, block, part);
        case stored_as_int8:
          return pool_in_place<Vector, Vectors, Storage, int8_t>(job, block, part);
        default: break;  // 16-bit integers are packed, which is compiled sooner
      }
    }
    pool_boxes<Storage>(job, block, part, Lanes<Vector>::count,
                        pool_box<Vector, Vectors, Storage, ValueOf<Storage>>);
  }
};

// Bins [first, last).
struct BinRange {
  int first;
  int last;
};

// The bins that read cells [first, last).
template <typename Value>
inline BinRange bins_of_cells(const Lines<Value>& cells, wide_int first, wide_int last) {
  BinRange bins = {uneven, 0};
  for (int line = 0; line < cells.count; ++line) {
    const int cell = cells.target_of(line);
    if (cell < first || cell >= last) continue;
    const Taps<Value> taps = cells.taps_of(line);
    for (int i = 0; i < taps.count; ++i) {
      bins.first = minimum(bins.first, taps.source[i]);
      bins.last = maximum(bins.last, taps.source[i] + 1);
    }
  }
  return bins;
}

// Whether most bins of a box read 2 x 2 cells that no other bin reads.
inline bool reads_mostly_2x2(const Job& job, wide_int box) {
  const wide_int cells =
      wide_int(job.rows.transposed.lines[box]) * job.columns.transposed.lines[box];
  return job.rows.longest[box] <= 2 && job.columns.longest[box] <= 2 &&
         cells > 2 * job.rows.bins * job.columns.bins;
}

// Adds a bin's gradient to one or two cells of a row.
template <typename Vector, int Vectors, typename Value>
inline void add_to_cells(Value row_weight, const Taps<Value> columns, const Value* gradient,
                         const View<Value>& map, Value* line) {
  const int lanes = Lanes<Vector>::count;
  const int width = (Vectors ? Vectors : map.vectors) * lanes;
  const Vector weight = broadcast<Vector>(row_weight);
  for (int i = 0; i < columns.count; ++i) {
    Value* target = line + columns.source[i] * map.column;
    const Vector share = broadcast<Vector>(columns.weight[i]);
    for (int lane = 0; lane < width; lane += lanes) {
      const Vector part = share * load<Vector>(gradient + lane);
      store(multiply_add(weight, part, load<Vector>(target + lane)), target + lane);
    }
  }
}

// Adds the gradients of a box, bin by bin, to rows [owned.top, owned.bottom) of the map.
template <typename Vector, int Vectors, typename Value>
void scatter_2x2(const Job& job, wide_int box, const View<const Value>& gradients,
                 const Rectangle& owned, const View<Value>& map) {
  const Lines<Value> rows = bins_from_cells<Value>(job.rows, box);
  const Lines<Value> columns = bins_from_cells<Value>(job.columns, box);
  LongWork work(job.watch);
  for (int row = 0; row < rows.count; ++row) {
    const Taps<Value> taps = rows.taps_of(row);
    if (work.ends_before(wide_int(columns.count) * map.vectors)) return;
    for (int j = 0; j < taps.count; ++j) {
      const int y = taps.source[j];
      if (y < owned.top || y >= owned.bottom) continue;
      for (int bin = 0; bin < columns.count; ++bin) {
        add_to_cells<Vector, Vectors>(taps.weight[j], columns.taps_of(bin), gradients.at(row, bin),
                                      map, map.line(y));
      }
    }
  }
}

// The same for bins of pairs of lines.
template <typename Vector, int Vectors, typename Value>
void scatter_pairs(const Job& job, wide_int box, const View<const Value>& gradients,
                   const Rectangle& owned, const View<Value>& map) {
  const Lines<Value> rows = bins_from_cells<Value>(job.rows, box);
  const Lines<Value> columns = bins_from_cells<Value>(job.columns, box);
  LongWork work(job.watch);
  for (int bin = 0; bin < columns.count; ++bin) {
    const Taps<Value> taps = rows.taps_of(bin);
    for (int j = 0; j < taps.count; ++j) {
      const int y = taps.source[j];
      if (work.ends_before(wide_int(columns.taps_of(bin).count) * map.vectors)) return;
      if (y < owned.top || y >= owned.bottom) continue;
      add_to_cells<Vector, Vectors>(taps.weight[j], columns.taps_of(bin), gradients.at(0, bin), map,
                                    map.line(y));
    }
  }
}

// Adds the gradients of a box, of the rows of bins in `bins`, to rows [owned.top, owned.bottom) of
// the map: columns are summed first, then rows of the sums, so that cells are added to once, side
// by side.
template <typename Vector, int Vectors, typename Value>
void scatter_rows(const Job& job, wide_int box, const View<const Value>& gradients, BinRange bins,
                  Value* row_sums, const Rectangle& owned, const View<Value>& map) {
  const Lines<Value> rows = cells_from_bins<Value>(job.rows, box);
  const Lines<Value> columns = cells_from_bins<Value>(job.columns, box);
  const View<Value> sums =
      packed_view(row_sums, 0, owned.left, owned.width(), Lanes<Vector>::count, map.vectors);
  LongWork work(job.watch);
  for (int bin = bins.first; bin < bins.last; ++bin) {
    if (work.ends_before(wide_int(columns.count) * map.vectors)) return;
    sum_row<Vector, Vectors, false, Value>({gradients.line(bin), gradients.column}, columns,
                                           map.vectors, Value(0), {sums.line(bin), sums.column},
                                           &work);
  }
  const View<const Value> source = {sums.base, sums.row, sums.column, sums.vectors};
  for (int line = 0; line < rows.count; ++line) {
    const int y = rows.target_of(line);
    if (y < owned.top || y >= owned.bottom) continue;
    if (work.ends_before(wide_int(columns.count) * map.vectors)) return;
    const Taps<Value> taps = rows.taps_of(line);
    const Line<Value> target = {map.line(y), map.column};
    if (columns.count == owned.width()) {
      const ColumnRange all = {owned.left, owned.width()};
      add_all_rows<Vector, Vectors, true>(source, taps, all, target, &work);
    } else {
      const ColumnList some = {columns.target, columns.count};
      add_all_rows<Vector, Vectors, true>(source, taps, some, target, &work);
    }
  }
}

template <typename Storage>
inline const Storage* gradients_of(const Job& job, const Block& block, wide_int box) {
  const Strides strides = strides_of(job, rows_of_bins(job), job.columns.bins);
  return static_cast<const Storage*>(job.grad_output) + row_of_box(job, box) * strides.outer +
         block.first_channel * strides.channel;
}

// The gradients of rows of bins, copied to lanes side by side. A function of its own, which all
// widths of vectors share.
template <typename Storage, typename Value>
__attribute__((noinline)) View<const Value> pack_gradients(const Job& job, const Block& block,
                                                           const Storage* gradients, BinRange bins,
                                                           int lanes, Value* tile) {
  const int across = job.columns.bins;
  const Strides strides = strides_of(job, rows_of_bins(job), across);
  to_lanes(gradients + bins.first * strides.row, strides, block.channels,
           wide_int(bins.last - bins.first) * across, lanes * block.vectors, tile);
  return packed_view<const Value>(tile, bins.first, 0, across, lanes, block.vectors);
}

// How the gradients of a box are added, and of which rows of bins: those that no owned row reads
// take part in another task.
struct Scattering {
  bool is_paired, by_bin;
  BinRange bins;
};

template <typename Value>
__attribute__((noinline)) Scattering scattering_of(const Job& job, wide_int box, bool in_place,
                                                   const Rectangle& owned) {
  const bool is_paired = job.arrangement == paired_bins;
  const bool by_bin = is_paired || reads_mostly_2x2(job, box);
  if (is_paired || (in_place && by_bin)) return {is_paired, by_bin, {0, rows_of_bins(job)}};
  return {is_paired, by_bin,
          bins_of_cells(cells_from_bins<Value>(job.rows, box), owned.top, owned.bottom)};
}

template <typename Vector, int Vectors, typename Value>
__attribute__((noinline)) void scatter(const Job& job, wide_int box, const Scattering& how,
                                       const View<const Value>& gradients, const Rectangle& owned,
                                       const View<Value>& map, char* scratch) {
  if (how.is_paired) {
    scatter_pairs<Vector, Vectors>(job, box, gradients, owned, map);
  } else if (how.by_bin) {
    scatter_2x2<Vector, Vectors>(job, box, gradients, owned, map);
  } else {
    scatter_rows<Vector, Vectors>(job, box, gradients, how.bins, reinterpret_cast<Value*>(scratch),
                                  owned, map);
  }
}

// Adds the gradients of a box to rows [owned.top, owned.bottom) of the map.
template <typename Vector, int Vectors, typename Storage>
void scatter_box(const Job& job, const Block& block, wide_int box, wide_int next,
                 const View<ValueOf<Storage>>& map, const Rectangle& owned, char* scratch) {
  typedef ValueOf<Storage> Value;
  const int lanes = Lanes<Vector>::count;
  const Strides strides = strides_of(job, rows_of_bins(job), job.columns.bins);
  const Storage* gradients = gradients_of<Storage>(job, block, box);
  prefetch_for_read(gradients_of<Storage>(job, block, next), strides, block.channels,
                    bins_of_box(job));
  const bool in_place = is_direct(job, block, lanes);
  const Scattering how = scattering_of<Value>(job, box, in_place, owned);
  if (how.bins.first >= how.bins.last) return;
  View<const Value> source = {reinterpret_cast<const Value*>(gradients), strides.row,
                              strides.column, block.vectors};
  if (!in_place) {
    source = pack_gradients(job, block, gradients, how.bins, lanes,
                            reinterpret_cast<Value*>(tile_of(job, scratch)));
  }
  scatter<Vector, Vectors>(job, box, how, source, owned, map, scratch);
}

struct AverageBackward {
  static constexpr bool takes_several_vectors = true;

  template <typename Vector, int Vectors, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    own_maps<Storage>(job, block, part, Lanes<Vector>::count,
                      scatter_box<Vector, Vectors, Storage>);
  }
};

// What rows [first, last) of bins add to the gradient of their box, and to those of offsets. `tile`
// has the bins' own gradients.
template <typename Vector, typename Value>
__attribute__((noinline)) void add_gradients_of_rows(const Job& job, wide_int box, int first,
                                                     int last, const View<const Value>& map,
                                                     const Value* tile, int channels,
                                                     double* offsets, BoxGradient<Vector>* sums,
                                                     LongWork* work) {
  const int bins = job.columns.bins;
  for (int row = first; row < last; ++row) {
    for (int column = 0; column < bins; ++column, tile += Lanes<Vector>::count) {
      const Vector bin = load<Vector>(tile);
      switch (job.arrangement) {
        case crossed_bins:
          if (is_volume(job)) {
            add_volume_gradient(job, box, row, column, map, bin, sums, work);
          } else {
            add_bin_gradient(job, box, row, column, map, bin, sums, work);
          }
          break;
        case flat_bins: add_point_gradient(job, box, column, map, bin, sums, work); break;
        case paired_bins: {
          BoxGradient<Vector> own;
          add_bin_gradient(job, box, column, column, map, bin, &own, work);
          sums->add(own);
          add_offset_gradients(own, channels, bins, offsets + column);
        }
      }
    }
  }
}

struct AverageBackwardBoxes {
  static constexpr bool takes_several_vectors = false;

  template <typename Vector, int Vectors, typename Storage>
  static void run(const Job& job, const Block& block, const Part& part) {
    typedef typename Lanes<Vector>::Value Value;
    const int lanes = Lanes<Vector>::count;
    const Storage* gradients = gradients_of<Storage>(job, block, part.box);
    const View<const Value> map =
        map_of_window<Storage>(job, block, lanes, window_of_box(job, part.box), part.scratch);
    Value* tile = reinterpret_cast<Value*>(tile_of(job, part.scratch));
    double* gradient = job.grad_boxes + numbers_of_box(job) * row_of_box(job, part.box);
    BoxGradient<Vector> sums;
    LongWork work(job.watch);
    for_each_tile(job, [&](int first, int last) {
      pack_gradients(job, block, gradients, {first, last}, lanes, tile);
      add_gradients_of_rows(job, part.box, first, last, map, tile, block.channels,
                            gradient + numbers_of_corners, &sums, &work);
    });
    const wide_int numbers =
        job.arrangement == paired_bins ? numbers_of_corners : numbers_of_box(job);
    for (int number = 0; number < numbers; ++number) {
      gradient[number] += sum_of_lanes(sums.by[number], block.channels);
    }
  }
};

void average_forward(const Job& job, wide_int task, char* scratch) {
  run_task<AverageForward>(job, task, scratch);
}

void average_backward(const Job& job, wide_int task, char* scratch) {
  run_task<AverageBackward>(job, task, scratch);
}

void average_backward_boxes(const Job& job, wide_int task, char* scratch) {
  const wide_int box = job.chunk.begin + task;
  const wide_int blocks = blocks_of_image(job, lanes_of(job)).count();
  const wide_int image = job.box_image[box];
  if (image < 0) return;
  for (wide_int block = 0; block < blocks && !is_interrupted(job); ++block) {
    run_block<AverageBackwardBoxes>(job, image * blocks + block, {0, box, scratch});
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
