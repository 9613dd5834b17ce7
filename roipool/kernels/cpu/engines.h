// An engine for each instruction set.
#pragma once
#include "job.h"

namespace roipool {

// Runs one task of a job; `scratch` is the calling thread's own memory.
typedef void (*Runner)(const Job&, wide_int task, char* scratch);

struct Engine {
  const char* name;
  Runner average_forward;
  Runner average_backward;
  Runner average_backward_boxes;
  Runner maximum_forward;
  Runner maximum_backward;
  Runner position_sensitive_forward;
  Runner position_sensitive_backward;
  Runner position_sensitive_backward_boxes;
  // Rounds values to integers.
  void (*store_integers)(const float* from, wide_int count, FeatureStorage, void* to);
};

// The engines of this build that the processor can run, best first.
int usable_engines(const Engine* engines[3]);

}  // namespace roipool
