// The gradient of a maximum: that of the sample that won.
#include "samples.h"
#include "tiles.h"

namespace roipool {

__device__ inline wide_int load_label(const Call& call, const void* argmax, wide_int at) {
  return call.wide_argmax ? static_cast<const wide_int*>(argmax)[at]
                          : static_cast<const int*>(argmax)[at];
}

// Adds the gradient of one value to the cells of its winner, as the plan weighs them.
__device__ inline void add_to_winner(const Call& call, const BinSamples& rows,
                                     const BinSamples& columns, wide_int label, Value gradient,
                                     const Tile& tile) {
  if (rows.bin.count == 0 || columns.bin.count == 0) return;
  const wide_int across = call.winner_is_cell ? call.columns.size : columns.bin.total;
  const wide_int top = call.winner_is_cell ? rows.sample->first : rows.bin.first_number;
  const wide_int left = call.winner_is_cell ? columns.sample->first : columns.bin.first_number;
  const Division number = divide_with_rest(label, across);
  const wide_int j = number.quotient - top;
  const wide_int i = number.rest - left;
  if (j < 0 || j >= rows.bin.count || i < 0 || i >= columns.bin.count) return;  // outside the map
  const Sample<Value> y = rows.sample[j];
  const Sample<Value> x = columns.sample[i];
  for (int corner = 0; corner < 4; ++corner) {
    const bool second_row = corner >= 2, second_column = corner % 2 == 1;
    const int row = second_row ? y.second : y.first;
    const int column = second_column ? x.second : x.first;
    if (row == no_cell || column == no_cell) continue;
    if (!tile.has_row(row) || !tile.has_column(column)) continue;
    const Value weight = (second_row ? y.second_weight : y.first_weight) *
                         (second_column ? x.second_weight : x.first_weight);
    tile.at(row, column) += weight * gradient;
  }
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_samples(const roipool::Value* boxes, const void* images, char* scratch,
                 const roipool::Call call) {
  roipool::write_plans<roipool::Samples>(boxes, images, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256)
    maximum_backward(const roipool::Storage* __restrict__ grad_output,
                     const void* __restrict__ argmax, roipool::Storage* __restrict__ grad_features,
                     char* __restrict__ scratch, const roipool::Call call) {
  using namespace roipool;
  const Plans<Samples> plans(scratch, call);
  const Strides pooled = strides_of_pooled(call);
  own_tiles(
      call, grad_features,
      [&](wide_int box, const Tile& tile) {
        return plans.images[box] == tile.image &&
               plans.rows.windows[box].meets(tile.top, tile.bottom) &&
               plans.columns.windows[box].meets(tile.left, tile.right);
      },
      [&](wide_int box, const Tile& tile) {
        if (!tile.has_channel) return;
        const wide_int origin = box * pooled.outer + tile.channel * pooled.channel;
        for (wide_int row = 0; row < call.rows.bins; ++row) {
          const BinSamples rows(plans.rows, box, row);
          for (wide_int column = 0; column < call.columns.bins; ++column) {
            const wide_int at = origin + row * pooled.row + column * pooled.column;
            const wide_int label = load_label(call, argmax, at);
            if (label < 0) continue;
            add_to_winner(call, rows, BinSamples(plans.columns, box, column), label,
                          compute_value(grad_output[at]), tile);
          }
        }
      });
}

// Without a definition any cell of the map may have won, with its whole weight.
extern "C" __global__ void __launch_bounds__(256)
    maximum_backward_cells(const roipool::Storage* __restrict__ grad_output,
                           const void* __restrict__ argmax, const void* __restrict__ images,
                           roipool::Storage* __restrict__ grad_features,
                           const roipool::Call call) {
  using namespace roipool;
  const Strides pooled = strides_of_pooled(call);
  own_tiles(
      call, grad_features,
      [&](wide_int box, const Tile& tile) {
        return image_of_box(images, call, box) == tile.image;
      },
      [&](wide_int box, const Tile& tile) {
        if (!tile.has_channel) return;
        const wide_int origin = box * pooled.outer + tile.channel * pooled.channel;
        for (wide_int bin = 0; bin < call.rows.bins * call.columns.bins; ++bin) {
          const wide_int at = origin + bin * pooled.column;
          const wide_int label = load_label(call, argmax, at);
          if (label < 0) continue;
          const Division cell = divide_with_rest(label, call.columns.size);
          if (tile.has_row(cell.quotient) && tile.has_column(cell.rest)) {
            tile.at(cell.quotient, cell.rest) += compute_value(grad_output[at]);
          }
        }
      });
}
