// The maximum engine: the maximum of a bin's samples and its argmax. A sample's corners are summed
// in the order of the implementations that define it, without contraction, so that ties are
// resolved as there.
#include "forward_blocks.h"
#include "maximum_plan.h"

namespace roipool {

// More #defines of this file: the type of an argmax, int or wide_int, and whether it is the index y
// * width + x of a cell rather than the index of a sample.
typedef ROIPOOL_ARGMAX_TYPE Index;
const bool argmax_is_cell = ROIPOOL_ARGMAX_IS_CELL;

// The values tracked beside the maximum, known at compile time.
enum Tracking {
  value_only,  // no argmax
  value_and_argmax,
  nan_restarts  // both; a NaN replaces the maximum, and the next sample replaces the NaN
};

// The values of a sample for a pack of channels: up to four corners, row by row.
struct SampleValues {
  const FeatureStorage* map;
  const Strides& strides;

  __device__ const FeatureStorage* at(int y, int x) const {
    return map + (y * static_cast<Offset>(strides.row) + x * static_cast<Offset>(strides.column));
  }
  __device__ void load(int y, int x, Value* cells) const {
    Channels::load(at(y, x), strides.channel, cells);
  }
  __device__ void add_corner(int y, int x, Value weight, Value* values) const {
    Value cells[pack];
    load(y, x, cells);
    for (int c = 0; c < pack; ++c) values[c] += weight * cells[c];
  }
  __device__ void interpolate(const Sample<Value>& y, const Sample<Value>& x, Value* values) const {
    const Value weight = y.first_weight * x.first_weight;
    load(y.first, x.first, values);
    for (int c = 0; c < pack; ++c) values[c] *= weight;
    if (x.second != no_cell) {
      add_corner(y.first, x.second, y.first_weight * x.second_weight, values);
    }
    if (y.second == no_cell) return;
    add_corner(y.second, x.first, y.second_weight * x.first_weight, values);
    if (x.second != no_cell) {
      add_corner(y.second, x.second, y.second_weight * x.second_weight, values);
    }
  }
};

// The maxima so far of a pack of channels.
template <Tracking Track>
struct RunningMaxima {
  Value value[pack];
  Index index[pack];

  __device__ explicit RunningMaxima(Value start) {
    for (int c = 0; c < pack; ++c) {
      value[c] = start;
      index[c] = -1;
    }
  }
  // Strictly greater: of equals the first is the argmax, and a NaN never is. With nan_restarts, not
  // less: of equals the last is.
  __device__ void update(const Value* candidates, Index candidate_index) {
    for (int c = 0; c < pack; ++c) {
      const bool better =
          Track == nan_restarts ? !(candidates[c] < value[c]) : candidates[c] > value[c];
      value[c] = better ? candidates[c] : value[c];
      if (Track != value_only) index[c] = better ? candidate_index : index[c];
    }
  }
  // A zero from sample `candidate`, which may come before the present argmax.
  __device__ void update_with_zero(Index candidate) {
    for (int c = 0; c < pack; ++c) {
      const bool better = Value(0) > value[c] || (Value(0) == value[c] && candidate < index[c]);
      value[c] = better ? Value(0) : value[c];
      index[c] = better ? candidate : index[c];
    }
  }
};

// The layout of plans of maxima.
template <bool whole_cells>
struct KindOfMaxima {
  typedef Samples type;
};
template <>
struct KindOfMaxima<true> {
  typedef Cells type;
};
typedef BoxPlan<KindOfMaxima<argmax_is_cell>::type> Plan;

// The maxima of a bin's cells, row by row; two cells are loaded before the first is used.
template <Tracking Track>
__device__ inline void pool_cells(const Call& call, const SampleValues& values,
                                  const SampleBin& rows, const SampleBin& columns,
                                  RunningMaxima<Track>& running) {
  const Offset down = static_cast<Offset>(values.strides.row),
               across = static_cast<Offset>(values.strides.column);
  const Index width = static_cast<Index>(call.levels[0].columns);
  const FeatureStorage* line = values.at(rows.begin, columns.begin);
  Value candidates[pack], other[pack];
  Index first = Index(rows.begin) * width + columns.begin;
  for (int rows_left = rows.count; rows_left > 0; --rows_left, line += down, first += width) {
    const FeatureStorage* cell = line;
    Index number = first;
#pragma unroll 1
    for (int left = columns.count; left > 0; left -= 2) {
      // The last cell of an odd number is read twice: lanes of a warp differ by at most one cell.
      const int step = left > 1 ? 1 : 0;
      Channels::load(cell, values.strides.channel, candidates);
      Channels::load(cell + step * across, values.strides.channel, other);
      running.update(candidates, number);
      running.update(other, number + step);
      cell += 2 * across;
      number += 2;
    }
  }
}

template <Tracking Track>
__device__ inline RunningMaxima<Track> pool_bin(const Call& call, const SampleValues& values,
                                                const Plan& plan, const SampleBin& row_bin,
                                                const SampleBin& column_bin) {
  const BinSamples<Value> rows = samples_of(plan, row_bin), columns = samples_of(plan, column_bin);
  const wide_int outside = call.outside_is_zero ? first_outside(rows, columns) : -1;
  if (rows.count == 0 || columns.count == 0) {
    return RunningMaxima<Track>(outside >= 0 ? Value(0) : static_cast<Value>(call.empty_value));
  }
  RunningMaxima<Track> running(static_cast<Value>(call.lowest));
  if (argmax_is_cell) {
    pool_cells(call, values, row_bin, column_bin, running);
  } else {
    Value candidates[pack];
    for (int j = 0; j < rows.count; ++j) {
      const Sample<Value> y = rows.sample[j];
      const Index index =
          static_cast<Index>((rows.first_index + j) * columns.total + columns.first_index);
      for (int i = 0; i < columns.count; ++i) {
        values.interpolate(y, columns.sample[i], candidates);
        running.update(candidates, index + i);
      }
    }
  }
  if (outside >= 0) running.update_with_zero(static_cast<Index>(outside));
  return running;
}

template <Tracking Track>
__device__ inline void pool_boxes(const Boxes& boxes, const FeatureStorage* __restrict__ features,
                                  Storage* __restrict__ output, Index* __restrict__ argmax,
                                  char* __restrict__ scratch, const Call& call) {
  const Plan plan = plan_of_block<KindOfMaxima<argmax_is_cell>::type>(scratch, call);
  const Strides pooled = strides_of_pooled(call);
  const auto prepare = [&](wide_int box, const Bins& bins) {
    plan_box(boxes, call, box, bins, plan);
  };
  for_each_part(call, prepare, [&](wide_int box, const Part& part) {
    const Map<const FeatureStorage> map(call, features, plan.head->image);
    for_each_bin(call, part, [&](wide_int row, wide_int column, const Range& packs) {
      const SampleBin rows = plan.rows[row], columns = plan.columns[column];
      const wide_int bin = box * pooled.outer + row * pooled.row + column * pooled.column;
      for (Offset p = packs.first; p < packs.last; p += packs.step) {
        const Channels channels(call, p);
        const SampleValues values = {
            map.cells + channels.first * static_cast<Offset>(map.strides.channel), map.strides};
        const RunningMaxima<Track> running = pool_bin<Track>(call, values, plan, rows, columns);
        const wide_int at = bin + channels.first * pooled.channel;
        Channels::store(running.value, output + at, pooled.channel);
        if (Track == value_only || argmax == nullptr) continue;
        for (int c = 0; c < pack; ++c) argmax[at + c * pooled.channel] = running.index[c];
      }
    });
  });
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(256, 2)
    maximum_forward(const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
                    const roipool::wide_int* __restrict__ levels,
                    const roipool::FeatureStorage* __restrict__ features,
                    roipool::Storage* __restrict__ output, char* __restrict__ scratch,
                    const roipool::Call call) {
  using namespace roipool;
  pool_boxes<value_only>({boxes, images, levels}, features, output, nullptr, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 2) maximum_forward_argmax(
    const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
    const roipool::wide_int* __restrict__ levels,
    const roipool::FeatureStorage* __restrict__ features, roipool::Storage* __restrict__ output,
    roipool::Index* __restrict__ argmax, char* __restrict__ scratch, const roipool::Call call) {
  using namespace roipool;
  pool_boxes<value_and_argmax>({boxes, images, levels}, features, output, argmax, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 2) maximum_forward_nan_restarts(
    const roipool::Value* __restrict__ boxes, const void* __restrict__ images,
    const roipool::wide_int* __restrict__ levels,
    const roipool::FeatureStorage* __restrict__ features, roipool::Storage* __restrict__ output,
    roipool::Index* __restrict__ argmax, char* __restrict__ scratch, const roipool::Call call) {
  using namespace roipool;
  pool_boxes<nan_restarts>({boxes, images, levels}, features, output, argmax, scratch, call);
}
