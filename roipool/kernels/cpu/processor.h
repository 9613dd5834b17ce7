// The instruction sets that a processor runs, besides the one that every processor of its kind has.
// setup.py asks the same when it builds for the machine that it runs on.
#pragma once

namespace roipool {

#if defined(__x86_64__) || defined(_M_X64)
inline bool runs_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
inline bool runs_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}
#else
inline bool runs_avx512() { return false; }
inline bool runs_avx2() { return false; }
#endif

}  // namespace roipool
