// The weights of a plan, as engines of averages read them.
#pragma once
#include "axis_plan.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// The taps of one line: of one bin, or in a backward of one cell.
template <typename Value>
struct Taps {
  const int* source;
  const Value* weight;
  int count;
};

// One axis of one box: each target is a weighted sum of sources. Forward the targets are bins and
// the sources cells; backward it is the other way round.
template <typename Value>
struct Lines {
  int count;
  int longest;        // every line has as many taps, or none, unless this is `uneven`
  const int* target;  // of each line; null: its own number
  const wide_int* begin;
  const int* taps;
  const int* source;
  const Value* weight;

  int target_of(int line) const { return target ? target[line] : line; }
  Taps<Value> taps_of(int line) const {
    return {source + begin[line], weight + begin[line], taps[line]};
  }
};

template <typename Value>
inline Lines<Value> bins_from_cells(const AxisPlan& plan, wide_int box) {
  const wide_int row = box * plan.bins;
  return {plan.bins,
          plan.longest[box],
          nullptr,
          plan.begin + row,
          plan.count + row,
          plan.cell,
          static_cast<const Value*>(plan.weight)};
}

template <typename Value>
inline Lines<Value> cells_from_bins(const AxisPlan& plan, wide_int box) {
  const TransposedPlan& transposed = plan.transposed;
  const wide_int line = plan.begin[box * plan.bins];
  return {transposed.lines[box],
          transposed.longest[box],
          transposed.cell + line,
          transposed.begin + line,
          transposed.count + line,
          transposed.bin,
          static_cast<const Value*>(transposed.weight)};
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
