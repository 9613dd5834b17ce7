// Plans for maxima, as engines read them.
#pragma once
#include "../argmax.h"
#include "plan.h"

namespace roipool {

__device__ inline BinSamples<Value> samples_of(const AxisPlan<Samples>& plan, wide_int box,
                                               wide_int number) {
  const SampleBin& bin = plan.bin(box, number);
  return {plan.entries(box, bin), bin.count, bin.first_index, bin.total};
}

}  // namespace roipool
