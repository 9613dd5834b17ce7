// The floating-point environment of a call's work: round to nearest, subnormal numbers kept, no
// traps. The caller's may differ: XLA's threads flush subnormals, as does torch after
// set_flush_denormal(True), and libraries built with -ffast-math set their process to it.
#pragma once
#include <stdint.h>
#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace roipool {

typedef uint64_t FloatEnvironment;

#if defined(__SSE2__) || defined(_M_X64)
// Control bits and flags of MXCSR; the flags are left as they are.
const unsigned mxcsr_flags = 0x3fu;
const unsigned standard_mxcsr = 0x1f80u;

inline FloatEnvironment enter_standard_floats() noexcept {
  const unsigned before = _mm_getcsr();
  if ((before & ~mxcsr_flags) != standard_mxcsr) _mm_setcsr(standard_mxcsr);
  return before;
}
inline void leave_standard_floats(FloatEnvironment before) noexcept {
  const unsigned mxcsr = static_cast<unsigned>(before);
  if ((mxcsr & ~mxcsr_flags) != standard_mxcsr) _mm_setcsr(mxcsr);
}
#elif defined(__aarch64__)
inline FloatEnvironment enter_standard_floats() noexcept {
  FloatEnvironment before;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(before));
  if (before) __asm__ __volatile__("msr fpcr, %0" : : "r"(FloatEnvironment{0}));
  return before;
}
inline void leave_standard_floats(FloatEnvironment before) noexcept {
  if (before) __asm__ __volatile__("msr fpcr, %0" : : "r"(before));
}
#else  // no processor that is known to flush subnormals
inline FloatEnvironment enter_standard_floats() noexcept { return 0; }
inline void leave_standard_floats(FloatEnvironment) noexcept {}
#endif

}  // namespace roipool
