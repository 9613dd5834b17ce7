// Plans for maxima, as engines read them.
#pragma once
#include "../argmax.h"
#include "plan.h"

namespace roipool {

__device__ inline BinSamples<Value> samples_of(const BoxPlan<Samples>& plan, const SampleBin& bin) {
  return {plan.entries(bin), bin.count, bin.first_index, bin.total};
}

}  // namespace roipool
