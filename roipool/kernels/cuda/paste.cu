// Masks pasted into pictures, [masks, rows, columns], and the gradients of that. Definitions of the
// text: ROIPOOL_PASTED, what is written.
#include "../mask_axis.h"
#include "block_sum.h"
#include "storage.h"

alignas(16) extern __shared__ double roipool_shared_memory[];

namespace roipool {

// The fields of `PasteCall` in roipool/_cuda/masks.py.
struct PasteCall {
  wide_int masks, mask_rows, mask_columns;
  wide_int rows, columns, first_row, first_column;
  wide_int frame, rule;
  double threshold, factor;
};

struct Bit {
  unsigned char value;
};
typedef ROIPOOL_PASTED Pasted;

__device__ inline MaskAxis<Value> axis_of(const Value* boxes, const PasteCall& call, wide_int mask,
                                          bool is_row) {
  const Value* box = boxes + 4 * mask + (is_row ? 1 : 0);
  return {box[0], box[2], is_row ? call.mask_rows : call.mask_columns, call.frame,
          static_cast<PasteRule>(call.rule)};
}

__device__ inline Value cell_of(const FeatureStorage* cells, const PasteCall& call, wide_int row,
                                wide_int column) {
  const bool exists = row >= 0 && row < call.mask_rows && column >= 0 && column < call.mask_columns;
  return exists ? static_cast<Value>(compute_value(cells[row * call.mask_columns + column]))
                : Value(0);
}

__device__ inline Value value_on_row(const FeatureStorage* cells, const PasteCall& call,
                                     wide_int row, const PixelPlace<Value>& along) {
  return value_between(cell_of(cells, call, row, along.cell),
                       cell_of(cells, call, row, along.cell + 1), along.share);
}

__device__ inline void store_pixel(const PasteCall& call, Value value, Bit* to) {
  to->value = value >= static_cast<Value>(call.threshold);
}
__device__ inline void store_pixel(const PasteCall& call, Value value, unsigned char* to) {
  value = value * static_cast<Value>(call.factor);
  value = value > Value(0) ? value : Value(0);  // of NaN, too
  value = value < Value(255) ? value : Value(255);
  *to = static_cast<unsigned char>(static_cast<int>(value));
}
template <typename Real>
__device__ inline void store_pixel(const PasteCall&, Value value, Real* to) {
  store_value(value, to);
}

__device__ inline PixelRange pixels_along(const MaskAxis<Value>& axis, wide_int low, wide_int high,
                                          wide_int extent) {
  const PixelRange all = pixels_of_mask(axis, extent);
  const wide_int begin = clamp(pixels_before(axis, Value(low), extent), all.begin, all.end);
  return {begin, clamp(pixels_before(axis, Value(high), extent), begin, all.end)};
}

// How much of a pixel's value is that of a cell.
__device__ inline double share_of_cell(const MaskAxis<Value>& axis, wide_int pixel, wide_int cell) {
  const PixelPlace<Value> place = place_of_pixel(axis, pixel);
  if (place.cell == cell) return 1 - double(place.share);
  return place.cell + 1 == cell ? double(place.share) : 0;
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    paste(const roipool::FeatureStorage* __restrict__ masks,
          const roipool::Value* __restrict__ boxes, roipool::Pasted* __restrict__ out,
          const roipool::PasteCall call) {
  using namespace roipool;
  for (wide_int line = blockIdx.x; line < call.masks * call.rows; line += gridDim.x) {
    const wide_int mask = line / call.rows, row = call.first_row + line % call.rows;
    const FeatureStorage* cells = masks + mask * call.mask_rows * call.mask_columns;
    const MaskAxis<Value> down = axis_of(boxes, call, mask, true);
    const MaskAxis<Value> across = axis_of(boxes, call, mask, false);
    const bool has_row = is_on_mask(down, row);
    const PixelPlace<Value> place = has_row ? place_of_pixel(down, row) : PixelPlace<Value>{0, 0};
    for (wide_int i = threadIdx.x; i < call.columns; i += blockDim.x) {
      const wide_int column = call.first_column + i;
      Pasted* to = out + line * call.columns + i;
      if (has_row && is_on_mask(across, column)) {
        const PixelPlace<Value> along = place_of_pixel(across, column);
        const Value first = value_on_row(cells, call, place.cell, along);
        const Value second = value_on_row(cells, call, place.cell + 1, along);
        store_pixel(call, value_between(first, second, place.share), to);
      } else {
        *to = Pasted();
      }
    }
  }
}

// Each thread adds up the pixels that lie beside a cell.
extern "C" __global__ void __launch_bounds__(256)
    paste_backward(const roipool::Storage* __restrict__ grad_output,
                   const roipool::Value* __restrict__ boxes, roipool::Storage* __restrict__ out,
                   const roipool::PasteCall call) {
  using namespace roipool;
  const wide_int cells = call.mask_rows * call.mask_columns;
  const wide_int threads = wide_int(gridDim.x) * blockDim.x;
  for (wide_int at = wide_int(blockIdx.x) * blockDim.x + threadIdx.x; at < call.masks * cells;
       at += threads) {
    const wide_int mask = at / cells, row = at % cells / call.mask_columns;
    const wide_int column = at % call.mask_columns;
    const MaskAxis<Value> down = axis_of(boxes, call, mask, true);
    const MaskAxis<Value> across = axis_of(boxes, call, mask, false);
    const wide_int frame = down.rule == paste_resized ? call.frame : 0;
    const PixelRange rows = pixels_along(down, row + frame - 1, row + frame + 1, call.rows);
    const PixelRange columns =
        pixels_along(across, column + frame - 1, column + frame + 1, call.columns);
    double sum = 0;
    for (wide_int y = rows.begin; y < rows.end; ++y) {
      double line = 0;
      for (wide_int x = columns.begin; x < columns.end; ++x) {
        const Value value = compute_value(grad_output[(mask * call.rows + y) * call.columns + x]);
        line += share_of_cell(across, x, column) * double(value);
      }
      sum += share_of_cell(down, y, row) * line;
    }
    store_value(static_cast<Value>(sum), out + at);
  }
}

// Each block adds up the pixels of masks; a position moves against both ends of its box.
extern "C" __global__ void __launch_bounds__(256)
    paste_backward_boxes(const roipool::Storage* __restrict__ grad_output,
                         const roipool::FeatureStorage* __restrict__ masks,
                         const roipool::Value* __restrict__ boxes, roipool::Value* __restrict__ out,
                         const roipool::PasteCall call) {
  using namespace roipool;
  double* const summands = roipool_shared_memory;
  for (wide_int mask = blockIdx.x; mask < call.masks; mask += gridDim.x) {
    const FeatureStorage* cells = masks + mask * call.mask_rows * call.mask_columns;
    const MaskAxis<Value> axes[2] = {axis_of(boxes, call, mask, false),
                                     axis_of(boxes, call, mask, true)};
    const PixelRange columns = pixels_of_mask(axes[0], call.columns);
    const PixelRange rows = pixels_of_mask(axes[1], call.rows);
    const wide_int width = columns.end - columns.begin;
    const wide_int pixels = width * (rows.end - rows.begin);
    double all[2] = {0, 0}, by_part[2] = {0, 0};
    for (wide_int i = threadIdx.x; i < pixels; i += blockDim.x) {
      const wide_int y = rows.begin + i / width, x = columns.begin + i % width;
      const PixelPlace<Value> down = place_of_pixel(axes[1], y), along = place_of_pixel(axes[0], x);
      const double gradient = compute_value(grad_output[(mask * call.rows + y) * call.columns + x]);
      const auto cell = [&](int row, int column) {
        return cell_of(cells, call, down.cell + row, along.cell + column);
      };
      const Value slope =
          value_between(cell(0, 1) - cell(0, 0), cell(1, 1) - cell(1, 0), down.share);
      const double first = value_between(cell(0, 0), cell(0, 1), along.share);
      const double second = value_between(cell(1, 0), cell(1, 1), along.share);
      const double change[2] = {gradient * double(slope), gradient * (second - first)};
      const wide_int pixel[2] = {x, y};
      for (int axis = 0; axis < 2; ++axis) {
        all[axis] += change[axis];
        by_part[axis] += change[axis] * double(part_of_box(axes[axis], pixel[axis]));
      }
    }
    for (int axis = 0; axis < 2; ++axis) {
      const double sum = sum_of_block(all[axis], summands);
      const double sum_by_part = sum_of_block(by_part[axis], summands);
      if (threadIdx.x > 0) continue;
      const double cells = double(axes[axis].cells);
      const double side =
          has_pixels(axes[axis]) ? double(axes[axis].high) - double(axes[axis].low) : 1;
      out[4 * mask + axis] = static_cast<Value>(cells * (sum_by_part - sum) / side);
      out[4 * mask + axis + 2] = static_cast<Value>(cells * -sum_by_part / side);
    }
  }
}
