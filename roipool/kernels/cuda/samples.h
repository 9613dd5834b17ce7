// Plans for maxima, as engines read them.
#pragma once
#include "plan.h"

namespace roipool {

// The samples of one bin along one axis.
struct BinSamples {
  SampleBin bin;
  const Sample<Value>* sample;

  __device__ BinSamples(const AxisPlan<Samples>& plan, wide_int box, wide_int number)
      : bin(plan.bin(box, number)), sample(plan.entries(box, bin)) {}
  __device__ wide_int end_number() const { return bin.first_number + bin.count; }
};

}  // namespace roipool
