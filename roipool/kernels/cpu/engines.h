// The engines that this build holds, one per instruction set, and the choice among them.
#pragma once
#include <string.h>

#include "job.h"

namespace roipool {

#define ROIPOOL_DECLARE_ENGINE(isa)                                                 \
  namespace isa {                                                                   \
  void average_forward(const Job&, wide_int task, char* scratch);                   \
  void average_backward(const Job&, wide_int task, char* scratch);                  \
  void average_backward_boxes(const Job&, wide_int task, char* scratch);            \
  void maximum_forward(const Job&, wide_int task, char* scratch);                   \
  void maximum_backward(const Job&, wide_int task, char* scratch);                  \
  void position_sensitive_forward(const Job&, wide_int task, char* scratch);        \
  void position_sensitive_backward(const Job&, wide_int task, char* scratch);       \
  void position_sensitive_backward_boxes(const Job&, wide_int task, char* scratch); \
  void store_bytes(const float* from, wide_int count, bool is_signed, void* to);    \
  }                                                                                 \
  const Engine isa##_engine = {#isa,                                                \
                               isa::average_forward,                                \
                               isa::average_backward,                               \
                               isa::average_backward_boxes,                         \
                               isa::maximum_forward,                                \
                               isa::maximum_backward,                               \
                               isa::position_sensitive_forward,                     \
                               isa::position_sensitive_backward,                    \
                               isa::position_sensitive_backward_boxes,              \
                               isa::store_bytes};

ROIPOOL_DECLARE_ENGINE(baseline)
#ifdef ROIPOOL_X86_ENGINES
ROIPOOL_DECLARE_ENGINE(avx2)
ROIPOOL_DECLARE_ENGINE(avx512)
#endif

// The engines that this processor can run, best first; the last is always the baseline.
inline int usable_engines(const Engine* engines[3]) {
  int count = 0;
#ifdef ROIPOOL_X86_ENGINES
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    engines[count++] = &avx512_engine;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    engines[count++] = &avx2_engine;
  }
#endif
  engines[count++] = &baseline_engine;
  return count;
}

}  // namespace roipool
