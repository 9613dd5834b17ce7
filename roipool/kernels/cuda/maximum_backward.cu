// The gradient of a maximum: it goes to the argmax.
#include "backward_tiles.h"
#include "maximum_plan.h"

namespace roipool {

__device__ inline wide_int load_index(const Call& call, const void* argmax, wide_int at) {
  return call.wide_argmax ? static_cast<const wide_int*>(argmax)[at]
                          : static_cast<const int*>(argmax)[at];
}

// A value's argmax, as a row and a column among the samples that the plan lists for its bin;
// negative where there is none.
struct ListedSample {
  int row;
  int column;
};

// Where a chunk's values are staged.
struct Staged {
  ListedSample* samples;
  Value* gradients;

  __device__ Staged(const Call& call, const Tile& tile)
      : samples(reinterpret_cast<ListedSample*>(tile.stage)),
        gradients(reinterpret_cast<Value*>(samples + call.stage * tile.pitch)) {}
};

// The listed sample with an index, where the lists begin at `top` and `left`.
__device__ inline ListedSample listed_sample_of_index(wide_int index, wide_int across, wide_int top,
                                                      wide_int left, wide_int rows,
                                                      wide_int columns) {
  if (index < 0 || across <= 0) return {-1, -1};
  const Division number = divide_with_rest(index, across);
  const wide_int row = number.quotient - top;
  const wide_int column = number.rest - left;
  if (row < 0 || row >= rows || column < 0 || column >= columns) return {-1, -1};
  return {static_cast<int>(row), static_cast<int>(column)};
}

// The listed sample with an index, in either meaning of an argmax.
__device__ inline ListedSample listed_sample(const Call& call, const BinSamples<Value>& rows,
                                             const BinSamples<Value>& columns, wide_int index) {
  if (rows.count == 0 || columns.count == 0) return {-1, -1};
  if (call.argmax_is_cell) {
    return listed_sample_of_index(index, call.levels[0].columns, rows.sample->first,
                                  columns.sample->first, rows.count, columns.count);
  }
  return listed_sample_of_index(index, columns.total, rows.first_index, columns.first_index,
                                rows.count, columns.count);
}

// Adds the gradient of one value to the cells of its argmax, with the weights of the plan.
__device__ inline void add_to_argmax(const Sample<Value>& y, const Sample<Value>& x, Value gradient,
                                     const Tile& tile) {
#pragma unroll
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

extern "C" __global__ void __launch_bounds__(256)
    plan_samples(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
                 char* scratch, const roipool::Call call) {
  roipool::plan_boxes<roipool::Samples>(
      {boxes, images, levels}, scratch, call,
      [](roipool::wide_int, const roipool::BoxPlan<roipool::Samples>&) {});
}

extern "C" __global__ void __launch_bounds__(256, 5)
    maximum_backward(const roipool::Storage* __restrict__ grad_output,
                     const void* __restrict__ argmax, roipool::Storage* __restrict__ grad_features,
                     char* __restrict__ scratch, const roipool::Call call) {
  using namespace roipool;
  own_tiles(
      call, grad_features,
      [&](wide_int box, const Tile& tile) { return reaches(*head_in_scratch(scratch, box), tile); },
      [&](wide_int box, const Tile& tile, const Chunk& bins) {
        const Staged staged(call, tile);
        const BoxPlan<Samples> plan = plan_in_scratch<Samples>(scratch, call, box);
        for_each_chunk(
            call, box, tile, bins,
            [&](wide_int at, const Chunk& chunk, int bin, int offset) {
              const Division row = divide_with_rest(bin, chunk.columns());
              staged.samples[offset] =
                  listed_sample(call, samples_of(plan, plan.rows[chunk.first_row + row.quotient]),
                                samples_of(plan, plan.columns[chunk.first_column + row.rest]),
                                load_index(call, argmax, at));
              staged.gradients[offset] = compute_value(grad_output[at]);
            },
            [&](const Chunk& chunk) {
              int offset = tile.lane;
              for (int row = chunk.first_row; row < chunk.last_row; ++row) {
                const Sample<Value>* rows = plan.entries(plan.rows[row]);
                for (int column = chunk.first_column; column < chunk.last_column; ++column) {
                  const ListedSample sample = staged.samples[offset];
                  const Value gradient = staged.gradients[offset];
                  offset += tile.pitch;
                  if (sample.row < 0) continue;
                  const Sample<Value>* columns = plan.entries(plan.columns[column]);
                  add_to_argmax(rows[sample.row], columns[sample.column], gradient, tile);
                }
              }
            });
      });
}
