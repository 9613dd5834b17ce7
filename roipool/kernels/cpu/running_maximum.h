// The maxima of samples so far: their values, and which samples they are.
#pragma once
#include "../argmax.h"
#include "lanes.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

template <typename Value>
using Samples = BinSamples<Value>;

template <typename Value>
inline Samples<Value> samples_of(const AxisPlan& plan, wide_int box, int bin) {
  const wide_int row = box * plan.bins + bin;
  return {static_cast<const Sample<Value>*>(plan.sample) + plan.begin[row], plan.count[row],
          plan.first_index[row], plan.total[row]};
}

// The value of a sample: up to four corners, summed in the order row by row.
template <typename Vector, typename Value>
inline Vector corner(const View<const Value>& map, int y, int x, Value weight) {
  return weight * load<Vector>(map.at(y, x));
}

template <typename Vector, typename Value>
inline Vector value_of_sample(const View<const Value>& map, const Sample<Value>& y,
                              const Sample<Value>& x) {
  Vector sum = corner<Vector>(map, y.first, x.first, y.first_weight * x.first_weight);
  if (x.second != no_cell) {
    sum += corner<Vector>(map, y.first, x.second, y.first_weight * x.second_weight);
  }
  if (y.second != no_cell) {
    sum += corner<Vector>(map, y.second, x.first, y.second_weight * x.first_weight);
    if (x.second != no_cell) {
      sum += corner<Vector>(map, y.second, x.second, y.second_weight * x.second_weight);
    }
  }
  return sum;
}

// What is tracked beside the maximum, known at compile time.
enum Tracking {
  value_only,  // no argmax
  value_and_argmax,
  nan_restarts  // both; a NaN replaces the maximum, and the next sample replaces the NaN
};

// Takes another sample into the maxima of a register. Strictly greater: of equals the first is the
// argmax, and a NaN never is. With nan_restarts, not less: of equals the last is.
template <Tracking Track, typename Values, typename Indices>
inline void update_register(Values now, Indices indices, Values* value, Indices* index) {
  const auto better = Track == nan_restarts ? (now < *value) == 0 : now > *value;
  *value = better ? now : *value;
  if (Track != value_only) *index = better ? indices : *index;
}

// The maxima of a vector's channels so far.
template <typename Vector, Tracking Track>
struct RunningMaximum {
  typedef Registers<Vector> Parts;
  typedef typename Parts::Values Values;
  typedef typename Parts::Indices Indices;
  Values value[Parts::count];
  Indices index[Parts::count];

  // The maximum of no samples.
  explicit RunningMaximum(typename Lanes<Vector>::Value start) {
    for (int i = 0; i < Parts::count; ++i) {
      value[i] = Values{} + start;
      index[i] = Indices{} - 1;
    }
  }

  template <Tracking Other>
  explicit RunningMaximum(const RunningMaximum<Vector, Other>& other) {
    memcpy(value, other.value, sizeof(value));
    memcpy(index, other.index, sizeof(index));
  }

  // `candidate` gives the values of a sample, of each register's channels.
  template <typename Candidate>
  void update(Candidate candidate, wide_int candidate_index) {
    const Indices indices = Indices{} + static_cast<typename Lanes<Vector>::Index>(candidate_index);
    for (int i = 0; i < Parts::count; ++i) {
      update_register<Track>(candidate(i), indices, &value[i], &index[i]);
    }
  }
  // A zero from the sample `candidate`, which may come before the present argmax.
  void update_with_zero(wide_int candidate) {
    const Values zero = {};
    const Indices indices = Indices{} + static_cast<typename Lanes<Vector>::Index>(candidate);
    for (int i = 0; i < Parts::count; ++i) {
      const auto better = (zero > value[i]) | ((zero == value[i]) & (indices < index[i]));
      value[i] = better ? zero : value[i];
      index[i] = better ? indices : index[i];
    }
  }
};

// A sample for `update`.
template <typename Vector, Tracking Track, typename Value>
inline void update_with_sample(const View<const Value>& map, const Sample<Value>& y,
                               const Sample<Value>& x, wide_int index,
                               RunningMaximum<Vector, Track>* running) {
  typedef Registers<Vector> Parts;
  const auto value = [&](int i) {
    const View<const Value> part = {map.base + i * Parts::lanes, map.row, map.column, 1};
    return value_of_sample<typename Parts::Values>(part, y, x);
  };
  running->update(value, index);
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
