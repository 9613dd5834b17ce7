// Pasting of masks. Rows of cells are widened to the columns of the box, and pixels lie between two
// widened rows: each pixel costs one interpolation. Nothing outside the box is computed.
#include <algorithm>
#include <vector>

#include "mask_job.h"
#include "storage.h"

namespace roipool {
namespace {

using namespace ROIPOOL_ENGINE;

template <typename T>
MaskAxis<T> axis_of(const MaskJob& job, wide_int mask, bool is_row) {
  const T* box = static_cast<const T*>(job.boxes) + 4 * mask;
  const int first = is_row ? 1 : 0;
  return {box[first], box[first + 2], is_row ? job.mask_rows : job.mask_columns, job.frame,
          job.rule};
}

// Pixels of the part that is written, as numbers in the picture.
PixelRange in_part(PixelRange pixels, wide_int first, wide_int count) {
  const wide_int begin = clamp(pixels.begin, first, first + count);
  return {begin, clamp(pixels.end, begin, first + count)};
}

template <typename T>
PixelRange pixels_along(const MaskJob& job, wide_int mask, bool is_row) {
  const wide_int first = is_row ? job.first_row : job.first_column;
  const wide_int count = is_row ? job.rows : job.columns;
  return in_part(pixels_of_mask(axis_of<T>(job, mask, is_row), first + count), first, count);
}

// ---- Cells, widened to the columns of a box

wide_int bytes_of_storage(MaskStorage storage) {
  switch (storage) {
    case mask_float64: return 8;
    case mask_float32: return 4;
    case mask_float16:
    case mask_bfloat16: return 2;
    default: return 1;
  }
}

template <typename Cell, typename T>
void read_cells(const void* cells, wide_int first, wide_int count, T* to) {
  const Cell* from = static_cast<const Cell*>(cells) + first;
  for (wide_int i = 0; i < count; ++i) to[i] = static_cast<T>(compute_value(from[i]));
}

// A row of cells between two zeros; a row that does not exist is 0.
template <typename T>
void read_row(const MaskJob& job, wide_int mask, wide_int row, T* to) {
  const wide_int count = job.mask_columns;
  to[0] = to[count + 1] = T(0);
  if (row < 0 || row >= job.mask_rows) {
    std::fill(to, to + count + 2, T(0));
    return;
  }
  const wide_int first = (mask * job.mask_rows + row) * count;
  switch (job.cell_storage) {
    case mask_float16: return read_cells<Float16>(job.cells, first, count, to + 1);
    case mask_bfloat16: return read_cells<Bfloat16>(job.cells, first, count, to + 1);
    case mask_float32: return read_cells<float>(job.cells, first, count, to + 1);
    case mask_float64: return read_cells<double>(job.cells, first, count, to + 1);
    default: return read_cells<uint8_t>(job.cells, first, count, to + 1);
  }
}

// The cells of pixels that a frame moves beyond the two zeros are 0, too.
template <typename T>
PixelPlace<T> place_on_row(const MaskAxis<T>& axis, wide_int pixel) {
  const PixelPlace<T> place = place_of_pixel(axis, pixel);
  if (place.cell < -1) return {-1, T(0)};
  if (place.cell >= axis.cells) return {axis.cells, T(0)};
  return place;
}

// Memory of a thread, given away from its beginning.
class Scratch {
 public:
  explicit Scratch(char* memory) : memory_(memory) {}
  template <typename T>
  T* take(wide_int count) {
    char* const taken = memory_;
    memory_ += (count * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(taken);
  }

 private:
  char* memory_;
};

// The places of some pixels of a row.
template <typename T>
struct Columns {
  int* cell;
  T* share;
  wide_int count;

  Columns(Scratch* scratch, wide_int most)
      : cell(scratch->take<int>(most)), share(scratch->take<T>(most)), count(0) {}

  void place(const MaskAxis<T>& axis, PixelRange pixels) {
    count = pixels.end - pixels.begin;
    for (wide_int i = 0; i < count; ++i) {
      const PixelPlace<T> place = place_on_row(axis, pixels.begin + i);
      cell[i] = static_cast<int>(place.cell);
      share[i] = place.share;
    }
  }

  void widen(const T* row, T* to) const {
    for (wide_int i = 0; i < count; ++i) {
      const T* const at = row + 1 + cell[i];
      to[i] = share[i] > T(0) ? value_between(at[0], at[1], share[i]) : at[0];
    }
  }

  // The change of values from one cell to the next, of masks that are not resized.
  void widen_slopes(const T* row, T* to) const {
    for (wide_int i = 0; i < count; ++i) to[i] = row[cell[i] + 2] - row[cell[i] + 1];
  }
};

// The two widened rows between which pixels lie. Pixels come row by row, so that each is made once.
template <typename T>
class WidenedRows {
 public:
  WidenedRows(const MaskJob& job, wide_int mask, const Columns<T>& columns, Scratch* scratch,
              wide_int most, void (Columns<T>::*widen)(const T*, T*) const)
      : job_(job), mask_(mask), columns_(columns), widen_(widen) {
    for (auto& row : rows_) row = scratch->take<T>(most);
    cells_ = scratch->take<T>(job.mask_columns + 2);
  }

  const T* row(wide_int number) {
    const int slot = static_cast<int>(number & 1);
    if (made_[slot] != number) {
      read_row(job_, mask_, number, cells_);
      (columns_.*widen_)(cells_, rows_[slot]);
      made_[slot] = number;
    }
    return rows_[slot];
  }

 private:
  const MaskJob& job_;
  const wide_int mask_;
  const Columns<T>& columns_;
  void (Columns<T>::* const widen_)(const T*, T*) const;
  T* rows_[2];
  T* cells_;
  wide_int made_[2] = {-3, -3};
};

// ---- Pixels

template <typename T>
void store_pixels(const MaskJob& job, const T* values, wide_int count, char* to) {
  const T threshold = static_cast<T>(job.threshold), factor = static_cast<T>(job.factor);
  switch (job.output_storage) {
    case mask_bool:
      for (wide_int i = 0; i < count; ++i) to[i] = values[i] >= threshold;
      return;
    case mask_uint8:  // cut; NaN is 0
      for (wide_int i = 0; i < count; ++i) {
        T value = values[i] * factor;
        value = value > T(0) ? value : T(0);
        value = value < T(255) ? value : T(255);
        to[i] = static_cast<char>(static_cast<uint8_t>(static_cast<int>(value)));
      }
      return;
    case mask_float16:
      for (wide_int i = 0; i < count; ++i) {
        store_value(static_cast<float>(values[i]), reinterpret_cast<Float16*>(to) + i);
      }
      return;
    case mask_bfloat16:
      for (wide_int i = 0; i < count; ++i) {
        store_value(static_cast<float>(values[i]), reinterpret_cast<Bfloat16*>(to) + i);
      }
      return;
    default: memcpy(to, values, count * sizeof(T));
  }
}

template <typename T>
void interpolate(const T* first, const T* second, T share, wide_int count, T* to) {
  if (share > T(0)) {
    for (wide_int i = 0; i < count; ++i) to[i] = first[i] + share * (second[i] - first[i]);
  } else {
    memcpy(to, first, count * sizeof(T));
  }
}

template <typename T>
void paste_part(const MaskJob& job, wide_int mask, PixelRange part, char* memory) {
  const wide_int size = bytes_of_storage(job.output_storage), line = job.columns * size;
  char* const output = static_cast<char*>(job.output) + mask * job.rows * line;
  const PixelRange all = pixels_along<T>(job, mask, true);
  const PixelRange across = pixels_along<T>(job, mask, false);
  const PixelRange down = in_part(all, part.begin, part.end - part.begin);
  const auto line_of = [&](wide_int row) { return output + (row - job.first_row) * line; };
  const auto clear = [&](char* to, wide_int bytes) {
    if (!job.on_zeros) memset(to, 0, bytes);
  };
  if (down.begin == down.end || across.begin == across.end) {
    clear(line_of(part.begin), (part.end - part.begin) * line);
    return;
  }
  clear(line_of(part.begin), (down.begin - part.begin) * line);
  clear(line_of(down.end), (part.end - down.end) * line);
  Scratch scratch(memory);
  Columns<T> columns(&scratch, job.columns);
  columns.place(axis_of<T>(job, mask, false), across);
  WidenedRows<T> rows(job, mask, columns, &scratch, job.columns, &Columns<T>::widen);
  T* const values = scratch.take<T>(job.columns);
  const MaskAxis<T> axis = axis_of<T>(job, mask, true);
  const wide_int before = (across.begin - job.first_column) * size;
  const wide_int end = (across.end - job.first_column) * size;
  for (wide_int row = down.begin; row < down.end; ++row) {
    const PixelPlace<T> place = place_on_row(axis, row);
    const T* const first = rows.row(place.cell);
    const T* const second = place.share > T(0) ? rows.row(place.cell + 1) : first;
    interpolate(first, second, place.share, columns.count, values);
    char* const to = line_of(row);
    clear(to, before);
    store_pixels(job, values, columns.count, to + before);
    clear(to + end, line - end);
  }
}

// ---- Gradients

template <typename T>
void read_gradient(const MaskJob& job, wide_int mask, wide_int row, PixelRange across, T* to) {
  const wide_int first =
      (mask * job.rows + row - job.first_row) * job.columns + across.begin - job.first_column;
  const wide_int count = across.end - across.begin;
  switch (job.output_storage) {
    case mask_float16: return read_cells<Float16>(job.grad_output, first, count, to);
    case mask_bfloat16: return read_cells<Bfloat16>(job.grad_output, first, count, to);
    case mask_float32: return read_cells<float>(job.grad_output, first, count, to);
    default: return read_cells<double>(job.grad_output, first, count, to);
  }
}

template <typename T>
void store_gradient(const MaskJob& job, wide_int first, const double* sums) {
  const wide_int size = bytes_of_storage(job.cell_storage);
  char* const to = static_cast<char*>(job.output) + first * size;
  for (wide_int i = 0; i < job.mask_columns; ++i) {
    MaskJob one = job;
    one.output_storage = job.cell_storage;
    const T value = static_cast<T>(sums[i]);
    store_pixels(one, &value, 1, to + i * size);
  }
}

// Each pixel adds to the cells between which it lies.
template <typename T>
void add_to_cells(const MaskJob& job, wide_int mask, char* memory) {
  const PixelRange down = pixels_along<T>(job, mask, true);
  const PixelRange across = pixels_along<T>(job, mask, false);
  const wide_int width = job.mask_columns + 2;
  Scratch scratch(memory);
  double* const sums = scratch.take<double>((job.mask_rows + 2) * width);
  double* const line = scratch.take<double>(width + 1);
  Columns<T> columns(&scratch, job.columns);
  T* const gradient = scratch.take<T>(job.columns);
  std::fill(sums, sums + (job.mask_rows + 2) * width, 0.0);
  columns.place(axis_of<T>(job, mask, false), across);
  const MaskAxis<T> axis = axis_of<T>(job, mask, true);
  LongWork work(job.watch);
  for (wide_int row = down.begin; row < down.end && columns.count > 0; ++row) {
    if (work.ends_before(columns.count)) return;
    const PixelPlace<T> place = place_on_row(axis, row);
    read_gradient(job, mask, row, across, gradient);
    std::fill(line, line + width + 1, 0.0);
    for (wide_int i = 0; i < columns.count; ++i) {
      double* const at = line + 1 + columns.cell[i];
      const double share = columns.share[i], value = gradient[i];
      at[0] += (1 - share) * value;
      if (share > 0) at[1] += share * value;
    }
    double* const to = sums + (place.cell + 1) * width;
    for (wide_int i = 0; i < width; ++i) to[i] += (1 - double(place.share)) * line[i];
    if (!(place.share > T(0))) continue;
    for (wide_int i = 0; i < width; ++i) to[width + i] += double(place.share) * line[i];
  }
  for (wide_int row = 0; row < job.mask_rows; ++row) {
    const wide_int first = (mask * job.mask_rows + row) * job.mask_columns;
    store_gradient<T>(job, first, sums + (row + 1) * width + 1);
  }
}

// The sums over pixels of the gradient times how much values change per cell, along both axes: in
// all, and times the pixel's part of the box.
struct BoxSums {
  double all[2] = {0, 0};
  double by_part[2] = {0, 0};
};

template <typename T>
BoxSums sums_over_pixels(const MaskJob& job, wide_int mask, char* memory) {
  const PixelRange down = pixels_along<T>(job, mask, true);
  const PixelRange across = pixels_along<T>(job, mask, false);
  const MaskAxis<T> row_axis = axis_of<T>(job, mask, true);
  const MaskAxis<T> column_axis = axis_of<T>(job, mask, false);
  Scratch scratch(memory);
  Columns<T> columns(&scratch, job.columns);
  columns.place(column_axis, across);
  WidenedRows<T> rows(job, mask, columns, &scratch, job.columns, &Columns<T>::widen);
  WidenedRows<T> slopes(job, mask, columns, &scratch, job.columns, &Columns<T>::widen_slopes);
  T* const gradient = scratch.take<T>(job.columns);
  BoxSums sums;
  LongWork work(job.watch);
  for (wide_int row = down.begin; row < down.end; ++row) {
    if (work.ends_before(columns.count + 1)) return sums;
    const PixelPlace<T> place = place_on_row(row_axis, row);
    read_gradient(job, mask, row, across, gradient);
    const T* const first = rows.row(place.cell);
    const T* const second = rows.row(place.cell + 1);
    const T* const slope = slopes.row(place.cell);
    const T* const next_slope = slopes.row(place.cell + 1);
    double by_row = 0;
    for (wide_int i = 0; i < columns.count; ++i) {
      const double value = gradient[i];
      const double change = value * double(value_between(slope[i], next_slope[i], place.share));
      by_row += value * (double(second[i]) - double(first[i]));
      sums.all[0] += change;
      sums.by_part[0] += change * double(part_of_box(column_axis, across.begin + i));
    }
    sums.all[1] += by_row;
    sums.by_part[1] += by_row * double(part_of_box(row_axis, row));
  }
  return sums;
}

// A position is cells * part - 0.5, and moves against both ends of the box. The side divides last:
// cells of a side near 0 are more than a number holds, and times 0 no number.
template <typename T>
void add_up_box(const MaskJob& job, wide_int mask, char* memory) {
  const BoxSums sums = sums_over_pixels<T>(job, mask, memory);
  double* const to = job.grad_boxes + 4 * mask;
  for (int i = 0; i < 2; ++i) {
    const MaskAxis<T> axis = axis_of<T>(job, mask, i == 1);
    const double side = has_pixels(axis) ? double(axis.high) - double(axis.low) : 1;
    to[i] = double(axis.cells) * (sums.by_part[i] - sums.all[i]) / side;
    to[i + 2] = double(axis.cells) * -sums.by_part[i] / side;
  }
}

// ---- Run lengths

// COCO's compression: numbers of five bits with a mark for more, each run as its difference to the
// one before the last, as runs of neighbouring columns are alike.
class RunWriter {
 public:
  explicit RunWriter(std::string* text) : text_(text) {}

  void add(bool is_set, wide_int count) {
    if (count == 0) return;
    if (is_set != is_set_) {
      write(length_);
      length_ = 0;
      is_set_ = is_set;
    }
    length_ += count;
    if (is_set) area_ += count;
  }

  wide_int finish() {
    write(length_);
    return area_;
  }

 private:
  std::string* const text_;
  bool is_set_ = false;
  wide_int length_ = 0, area_ = 0, runs_ = 0;
  wide_int latest_[2] = {0, 0};

  void write(wide_int length) {
    wide_int rest = runs_ > 2 ? length - latest_[runs_ & 1] : length;
    latest_[runs_ & 1] = length;
    ++runs_;
    bool has_more = true;
    while (has_more) {
      const int bits = static_cast<int>(rest & 31);
      rest >>= 5;  // the sign is kept
      has_more = rest != ((bits & 16) ? -1 : 0);
      text_->push_back(static_cast<char>(48 + bits + (has_more ? 32 : 0)));
    }
  }
};

// Pixels [begin, end) of a column that lie between the same two cells.
struct Stretch {
  wide_int begin, end, cell;
};

// A mask's rows of pixels; those between the same cells are a stretch, in which values only rise or
// only fall along a column.
template <typename T>
struct MaskRows {
  std::vector<T> share;
  std::vector<Stretch> stretches;

  MaskRows(const MaskAxis<T>& axis, PixelRange down, LongWork* work) {
    share.reserve(down.end - down.begin);
    for (wide_int row = down.begin; row < down.end; ++row) {
      if (work->ends_before(1)) return;
      const PixelPlace<T> place = place_on_row(axis, row);
      const wide_int number = row - down.begin;
      share.push_back(place.share);
      if (stretches.empty() || stretches.back().cell != place.cell) {
        stretches.push_back({number, number, place.cell});
      }
      stretches.back().end = number + 1;
    }
  }
};

template <typename T>
void add_stretch(const MaskRows<T>& rows, const Stretch& stretch, T first, T second, T threshold,
                 RunWriter* runs) {
  const auto is_set = [&](wide_int row) {
    return value_between(first, second, rows.share[row]) >= threshold;
  };
  const bool at_first = is_set(stretch.begin);
  const wide_int count = stretch.end - stretch.begin;
  if (at_first == is_set(stretch.end - 1)) return runs->add(at_first, count);
  wide_int low = stretch.begin, high = stretch.end - 1;  // like the first; not like it
  while (high - low > 1) {
    const wide_int middle = low + (high - low) / 2;
    (is_set(middle) == at_first ? low : high) = middle;
  }
  runs->add(at_first, high - stretch.begin);
  runs->add(!at_first, stretch.end - high);
}

const wide_int columns_at_once = 64;

template <typename T>
void encode(const MaskJob& job, wide_int mask, char* memory) {
  const PixelRange down = pixels_along<T>(job, mask, true);
  const PixelRange across = pixels_along<T>(job, mask, false);
  const bool is_empty = down.begin == down.end || across.begin == across.end;
  LongWork work(job.watch);
  const MaskRows<T> rows(axis_of<T>(job, mask, true), is_empty ? PixelRange{0, 0} : down, &work);
  const MaskAxis<T> axis = axis_of<T>(job, mask, false);
  RunLengths* const result = job.run_lengths + mask;
  RunWriter runs(&result->text);
  if (is_over(job.watch)) return;  // some rows have no place
  const wide_int begin = is_empty ? 0 : across.begin, end = is_empty ? 0 : across.end;
  runs.add(false, begin * job.rows);
  for (wide_int column = begin; column < end; column += columns_at_once) {
    if (work.ends_before((job.mask_rows + 2) * columns_at_once)) return;
    Scratch scratch(memory);
    Columns<T> columns(&scratch, columns_at_once);
    columns.place(axis, {column, minimum(column + columns_at_once, end)});
    T* const cells = scratch.take<T>(job.mask_columns + 2);
    T* const wide = scratch.take<T>((job.mask_rows + 2) * columns_at_once);
    for (wide_int row = -1; row <= job.mask_rows; ++row) {
      read_row(job, mask, row, cells);
      columns.widen(cells, wide + (row + 1) * columns_at_once);
    }
    for (wide_int i = 0; i < columns.count; ++i) {
      runs.add(false, down.begin);
      for (const Stretch& stretch : rows.stretches) {
        const T* const at = wide + (stretch.cell + 1) * columns_at_once + i;
        const T second = stretch.cell < job.mask_rows ? at[columns_at_once] : T(0);
        add_stretch(rows, stretch, at[0], second, static_cast<T>(job.threshold), &runs);
      }
      runs.add(false, job.rows - down.end);
    }
  }
  runs.add(false, (job.columns - end) * job.rows);
  result->area = runs.finish();
  result->text.shrink_to_fit();
}

}  // namespace

// ---- Tasks

wide_int scratch_bytes_of(const MaskJob& job) {
  const wide_int size = job.double_precision ? 8 : 4;
  const wide_int columns = job.run_lengths ? columns_at_once : job.columns;
  const wide_int cells = (job.mask_rows + 2) * (job.mask_columns + 3);
  wide_int bytes = columns * (4 + 7 * size) + (2 * job.mask_columns + 8) * 8 + 256;
  if (job.run_lengths) bytes += (job.mask_rows + 2) * columns_at_once * size;
  if (job.grad_output && !job.grad_boxes) bytes += cells * 8;
  return bytes;
}

wide_int paste_tasks(MaskJob* job) {
  const wide_int pixels = 1 << 17;  // some 20 us
  job->rows_of_task = clamp(pixels / maximum(job->columns, wide_int(1)), 1, job->rows);
  return job->masks * ((job->rows + job->rows_of_task - 1) / job->rows_of_task);
}

void paste_rows(const MaskJob& job, wide_int task, char* scratch) {
  const wide_int parts = (job.rows + job.rows_of_task - 1) / job.rows_of_task;
  const wide_int begin = task % parts * job.rows_of_task;
  const wide_int end = minimum(begin + job.rows_of_task, job.rows);
  const PixelRange part = {job.first_row + begin, job.first_row + end};
  if (job.double_precision) {
    paste_part<double>(job, task / parts, part, scratch);
  } else {
    paste_part<float>(job, task / parts, part, scratch);
  }
}

void paste_backward(const MaskJob& job, wide_int mask, char* scratch) {
  job.double_precision ? add_to_cells<double>(job, mask, scratch)
                       : add_to_cells<float>(job, mask, scratch);
}

void paste_backward_boxes(const MaskJob& job, wide_int mask, char* scratch) {
  job.double_precision ? add_up_box<double>(job, mask, scratch)
                       : add_up_box<float>(job, mask, scratch);
}

void encode_mask(const MaskJob& job, wide_int mask, char* scratch) {
  job.double_precision ? encode<double>(job, mask, scratch) : encode<float>(job, mask, scratch);
}

void window_of_mask(const MaskJob& job, wide_int mask, PixelRange window[2]) {
  for (int i = 0; i < 2; ++i) {
    window[i] = job.double_precision ? pixels_along<double>(job, mask, i == 0)
                                     : pixels_along<float>(job, mask, i == 0);
  }
}

}  // namespace roipool
