// The transpose of the average engine, as a gather: each cell of a tile asks which bins read it.
#include "tiles.h"

namespace roipool {

// For each cell of a tile along one axis, which bins of a chunk read it and with what weight, 0
// where one does not. They lie in shared memory behind the staged gradients.
struct Readers {
  Value* weights;  // bin by bin, for each cell
  int* first;      // of each cell's bins, counted in the chunk
  int* last;
  int bins;  // from one cell's weights to the next cell's

  __device__ Value weight(int cell, int bin) const { return weights[cell * bins + bin]; }
};

// One warp turns the taps of some bins around: a bin per lane, then a cell per lane.
__device__ inline void find_readers(const BoxPlan<Taps>& plan, const TapBin* planned, int bins,
                                    wide_int first_cell, int cells, const Readers& readers) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int i = lane; i < cells * readers.bins; i += warp_size) readers.weights[i] = Value(0);
  __syncwarp();
  for (int bin = lane; bin < bins; bin += warp_size) {
    const TapBin taps = planned[bin];
    const Tap* tap = plan.entries(taps);
    for (int i = 0; i < taps.count; ++i) {
      const wide_int cell = tap[i].cell - first_cell;
      if (cell < 0 || cell >= cells) continue;
      readers.weights[static_cast<int>(cell) * readers.bins + bin] = tap[i].weight;
    }
  }
  __syncwarp();
  for (int cell = lane; cell < cells; cell += warp_size) {
    int first = 0, last = 0;
    for (int bin = 0; bin < bins; ++bin) {
      if (readers.weight(cell, bin) == Value(0)) continue;
      if (last == 0) first = bin;
      last = bin + 1;
    }
    readers.first[cell] = first;
    readers.last[cell] = last;
  }
}

struct ReadersOfTile {
  Readers rows, columns;

  __device__ ReadersOfTile(const Call& call, const Tile& tile) {
    const int down = static_cast<int>(call.tile_rows), across = static_cast<int>(call.tile_columns);
    rows.bins = static_cast<int>(call.stage_rows);
    columns.bins = static_cast<int>(call.stage_columns);
    Value* weights = reinterpret_cast<Value*>(tile.stage) + call.stage * tile.pitch;
    rows.weights = weights;
    columns.weights = weights + down * rows.bins;
    int* bounds = reinterpret_cast<int*>(columns.weights + across * columns.bins);
    rows.first = bounds;
    rows.last = bounds + down;
    columns.first = bounds + 2 * down;
    columns.last = bounds + 2 * down + across;
  }
};

// The rows of bins that read a row of cells of the tile: from the first to the last of them.
struct Rows {
  int first, last;
};
__device__ inline Rows rows_in_tile(const BoxPlan<Taps>& plan, int bins, const Tile& tile) {
  Rows rows = {bins, 0};
  for (int first = 0; first < bins; first += warp_size) {
    const int bin = first + static_cast<int>(threadIdx.x) % warp_size;
    bool is_read = false;
    if (bin < bins) {
      const TapBin taps = plan.rows[bin];
      const Tap* tap = plan.entries(taps);
      for (int i = 0; i < taps.count; ++i) {
        is_read = is_read || (tap[i].cell >= tile.top && tap[i].cell < tile.bottom);
      }
    }
    const unsigned votes = __ballot_sync(~0u, is_read);
    if (votes == 0) continue;
    rows.first = minimum(rows.first, first + __ffs(static_cast<int>(votes)) - 1);
    rows.last = first + warp_size - __clz(static_cast<int>(votes));
  }
  return rows;
}

// A lane's channels of a staged gradient, or of a sum.
struct alignas(sizeof(Value) * pack) Pack {
  Value item[pack];

  __device__ void add(Value along, Value down, const Value* gradients) {
    const Pack gradient = *reinterpret_cast<const Pack*>(gradients);
    for (int c = 0; c < pack; ++c) {
      item[c] = multiply_add(along, down * gradient.item[c], item[c]);
    }
  }
};

// Adds what bins have for the cells of one row, each cell's bins in their order.
// Gradients, from the first row of bins that reads them on, and sums are those of this thread's
// channels.
struct RowOfCells {
  const Readers& columns;
  int first, last;  // cells
  const Value* gradients;
  int line;  // from one row of staged bins to the next
  int pitch;
  Value* sums;

  // By up to two rows and, cell by cell, up to two columns of bins: none of their weights is 0.
  template <int rows>
  __device__ void add_few(const Value* down) const {
    Value row_weights[rows];
    for (int row = 0; row < rows; ++row) row_weights[row] = down[row];
#pragma unroll 1
    for (int x = first; x < last; ++x) {
      const int begin = columns.first[x], count = columns.last[x] - begin;
      if (count == 0) continue;
      if (count > 2) {
        add_any(x, down, rows);
        continue;
      }
      Pack* sum = reinterpret_cast<Pack*>(sums + x * pitch);
      Pack total = *sum;
      const Value* gradient = gradients + begin * pitch;
      const Value along = columns.weight(x, begin), next = columns.weight(x, begin + count - 1);
      for (int row = 0; row < rows; ++row) {
        total.add(along, row_weights[row], gradient + row * line);
        if (count == 2) total.add(next, row_weights[row], gradient + row * line + pitch);
      }
      *sum = total;
    }
  }

  __device__ void add_any(int x, const Value* down, int rows) const {
    Pack* sum = reinterpret_cast<Pack*>(sums + x * pitch);
    Pack total = *sum;
    for (int row = 0; row < rows; ++row) {
      if (down[row] == Value(0)) continue;
#pragma unroll 1
      for (int column = columns.first[x]; column < columns.last[x]; ++column) {
        const Value along = columns.weight(x, column);
        if (along == Value(0)) continue;
        total.add(along, down[row], gradients + row * line + column * pitch);
      }
    }
    *sum = total;
  }
};

// Adds what a chunk's bins have for the cells of this thread's rows.
__device__ inline void gather_chunk(const ReadersOfTile& readers, const Chunk& chunk, Window across,
                                    const Value* gradients, const Tile& tile) {
  const int left = static_cast<int>(tile.left), right = static_cast<int>(tile.right);
  const int line = chunk.columns() * tile.pitch;
  for (int y = tile.owner; y < static_cast<int>(tile.bottom - tile.top); y += tile.owners) {
    const int first = readers.rows.first[y], count = readers.rows.last[y] - first;
    const Value* down = readers.rows.weights + y * readers.rows.bins + first;
    const RowOfCells cells = {readers.columns,
                              maximum(across.first, left) - left,
                              minimum(across.last, right) - left,
                              gradients + first * line,
                              line,
                              tile.pitch,
                              &tile.at(tile.top + y, tile.left)};
    if (count == 1) {
      cells.add_few<1>(down);
    } else if (count == 2) {
      cells.add_few<2>(down);
    } else if (count > 2) {
      for (int x = cells.first; x < cells.last; ++x) cells.add_any(x, down, count);
    }
  }
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256)
    plan_taps(const roipool::Value* boxes, const void* images, const roipool::wide_int* levels,
              char* scratch, const roipool::Call call) {
  roipool::plan_boxes<roipool::Taps>({boxes, images, levels}, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    average_backward(const roipool::Storage* __restrict__ grad_output,
                     roipool::Storage* __restrict__ grad_features, char* __restrict__ scratch,
                     const roipool::Call call) {
  using namespace roipool;
  own_tiles(
      call, grad_features,
      [&](wide_int box, const Tile& tile) {
        return reaches(*plan_in_scratch<Taps>(scratch, call, box).head, tile);
      },
      [&](wide_int box, const Tile& tile) {
        Value* gradients = reinterpret_cast<Value*>(tile.stage);
        const ReadersOfTile readers(call, tile);
        const BoxPlan<Taps> plan = plan_in_scratch<Taps>(scratch, call, box);
        const Rows rows = rows_in_tile(plan, static_cast<int>(call.rows.bins), tile);
        const Window across = plan.head->columns.window;
        const int warp = static_cast<int>(threadIdx.x) / warp_size;
        for_each_chunk(
            call, box, tile, rows.first, rows.last,
            [&](const Chunk& chunk) {
              if (warp == 0) {
                find_readers(plan, plan.rows + chunk.first_row, chunk.rows(), tile.top,
                             static_cast<int>(tile.bottom - tile.top), readers.rows);
              }
              if (warp == warps_of_block() - 1) {
                find_readers(plan, plan.columns + chunk.first_column, chunk.columns(), tile.left,
                             static_cast<int>(tile.right - tile.left), readers.columns);
              }
            },
            [&](wide_int at, const Chunk&, int, int offset) {
              gradients[offset] = compute_value(grad_output[at]);
            },
            [&](const Chunk& chunk) {
              gather_chunk(readers, chunk, across, gradients + tile.lane * pack, tile);
            });
      });
}
