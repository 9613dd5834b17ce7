// The maximum engine: the greatest of a bin's samples and which one it was. A sample's corners are
// summed in the order of the systems that define it, without contraction, so that ties are theirs
// too.
#include "pool.h"
#include "samples.h"

namespace roipool {

// This file's own #defines: the type of winners' numbers, int or wide_int, and whether they are the
// places y * width + x of whole cells rather than the numbers of samples.
typedef ROIPOOL_LABEL Label;
const bool winner_is_cell = ROIPOOL_CELLS;

// What a maximum keeps track of, known to the compiler.
enum Tracking {
  value_only,  // no winners asked for
  value_and_label,
  nan_restarts  // both; a NaN wins, and then loses to whatever follows it
};

// The values of a sample for a pack of channels: up to four corners, row by row.
struct SampleValues {
  const Storage* map;
  const Strides& strides;

  __device__ void load(int y, int x, Value* cells) const {
    Channels::load(map + y * strides.row + x * strides.column, strides.channel, cells);
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

// The greatest so far of a pack of channels.
template <Tracking Track>
struct Winners {
  Value value[pack];
  Label label[pack];

  __device__ explicit Winners(Value start) {
    for (int c = 0; c < pack; ++c) {
      value[c] = start;
      label[c] = -1;
    }
  }
  // Strictly greater: the first of equals stays, and a NaN never wins. With nan_restarts not less:
  // the last of equals stays.
  __device__ void challenge(const Value* candidates, Label number) {
    for (int c = 0; c < pack; ++c) {
      const bool better =
          Track == nan_restarts ? !(candidates[c] < value[c]) : candidates[c] > value[c];
      value[c] = better ? candidates[c] : value[c];
      if (Track != value_only) label[c] = better ? number : label[c];
    }
  }
  // A zero from sample `number`, which may stand before the present winner.
  __device__ void challenge_with_zero(Label number) {
    for (int c = 0; c < pack; ++c) {
      const bool better = Value(0) > value[c] || (Value(0) == value[c] && number < label[c]);
      value[c] = better ? Value(0) : value[c];
      label[c] = better ? number : label[c];
    }
  }
};

template <Tracking Track>
__device__ inline Winners<Track> pool_bin(const Call& call, const SampleValues& values,
                                          const BinSamples<Value>& rows,
                                          const BinSamples<Value>& columns) {
  const wide_int outside = call.outside_is_zero ? first_outside(rows, columns) : -1;
  if (rows.count == 0 || columns.count == 0) {
    return Winners<Track>(outside >= 0 ? Value(0) : static_cast<Value>(call.empty_value));
  }
  Winners<Track> winners(static_cast<Value>(call.lowest));
  Value candidates[pack];
  if (winner_is_cell) {  // whole cells, which lie side by side
    const int top = rows.sample->first, left = columns.sample->first;
    for (int y = top; y < top + rows.count; ++y) {
      for (int x = left; x < left + columns.count; ++x) {
        values.load(y, x, candidates);
        winners.challenge(candidates, Label(y) * Label(call.columns.size) + x);
      }
    }
  } else {
    for (int j = 0; j < rows.count; ++j) {
      const Sample<Value> y = rows.sample[j];
      const Label label =
          static_cast<Label>((rows.first_index + j) * columns.total + columns.first_index);
      for (int i = 0; i < columns.count; ++i) {
        values.interpolate(y, columns.sample[i], candidates);
        winners.challenge(candidates, label + i);
      }
    }
  }
  if (outside >= 0) winners.challenge_with_zero(static_cast<Label>(outside));
  return winners;
}

template <Tracking Track>
__device__ inline void pool_boxes(const Storage* __restrict__ features,
                                  Storage* __restrict__ output, void* __restrict__ argmax,
                                  char* __restrict__ scratch, const Call& call) {
  const Plans<Samples> plans(scratch, call);
  const Strides maps = strides_of_maps(call);
  const Strides pooled = strides_of_pooled(call);
  for_each_value(call, [&](wide_int box, wide_int row, wide_int column, const Channels& channels) {
    const wide_int image = maximum<wide_int>(plans.images[box], 0);
    const SampleValues values = {features + image * maps.outer + channels.first * maps.channel,
                                 maps};
    const Winners<Track> winners = pool_bin<Track>(call, values, samples_of(plans.rows, box, row),
                                                   samples_of(plans.columns, box, column));
    const wide_int at = box * pooled.outer + channels.first * pooled.channel + row * pooled.row +
                        column * pooled.column;
    Channels::store(winners.value, output + at, pooled.channel);
    if (Track == value_only || argmax == nullptr) return;
    for (int c = 0; c < pack; ++c) {
      static_cast<Label*>(argmax)[at + c * pooled.channel] = winners.label[c];
    }
  });
}

}  // namespace roipool

extern "C" __global__ void __launch_bounds__(32)
    plan_samples(const roipool::Value* boxes, const void* images, char* scratch,
                 const roipool::Call call) {
  roipool::write_plans<roipool::Samples>(boxes, images, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    maximum_forward(const roipool::Storage* features, roipool::Storage* output, char* scratch,
                    const roipool::Call call) {
  roipool::pool_boxes<roipool::value_only>(features, output, nullptr, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    maximum_forward_winners(const roipool::Storage* features, roipool::Storage* output,
                            void* argmax, char* scratch, const roipool::Call call) {
  roipool::pool_boxes<roipool::value_and_label>(features, output, argmax, scratch, call);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    maximum_forward_nan_restarts(const roipool::Storage* features, roipool::Storage* output,
                                 void* argmax, char* scratch, const roipool::Call call) {
  roipool::pool_boxes<roipool::nan_restarts>(features, output, argmax, scratch, call);
}
