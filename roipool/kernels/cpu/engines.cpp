// The engines of this build. setup.py names the instruction sets that it has compiled.
#include "engines.h"

#include "processor.h"

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
  void store_integers(const float* from, wide_int count, FeatureStorage, void* to); \
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
                               isa::store_integers};

#ifdef ROIPOOL_BUILT_BASELINE
ROIPOOL_DECLARE_ENGINE(baseline)
#endif
#ifdef ROIPOOL_BUILT_AVX2
ROIPOOL_DECLARE_ENGINE(avx2)
#endif
#ifdef ROIPOOL_BUILT_AVX512
ROIPOOL_DECLARE_ENGINE(avx512)
#endif

int usable_engines(const Engine* engines[3]) {
  int count = 0;
#ifdef ROIPOOL_BUILT_AVX512
  if (runs_avx512()) engines[count++] = &avx512_engine;
#endif
#ifdef ROIPOOL_BUILT_AVX2
  if (runs_avx2()) engines[count++] = &avx2_engine;
#endif
#ifdef ROIPOOL_BUILT_BASELINE
  engines[count++] = &baseline_engine;
#endif
  return count;
}

}  // namespace roipool
