// OpenMP, where the build has it.
#pragma once
#include <atomic>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace roipool {

#ifdef _OPENMP
const int built_with_openmp = 1;
inline int openmp_threads() noexcept { return omp_get_max_threads(); }
// Threads of the parallel region that calls it.
inline int threads_of_region() noexcept { return omp_get_num_threads(); }
#else
const int built_with_openmp = 0;
inline int openmp_threads() noexcept { return 1; }
inline int threads_of_region() noexcept { return 1; }
#endif

// Whether the build asked for threads of roipool's own, see pool.h.
#ifdef ROIPOOL_POOL
const int built_with_pool = 1;
#else
const int built_with_pool = 0;
#endif

// Whether calls have the pool's threads instead of a parallel region's.
inline std::atomic<bool>& uses_pool() noexcept {
  static std::atomic<bool> value{built_with_pool != 0};
  return value;
}

// Tells the processor that a thread waits in a loop.
inline void relax_processor() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Whether the build asked for a single thread.
#ifdef ROIPOOL_ONE_THREAD
const int one_thread_chosen = 1;
#else
const int one_thread_chosen = 0;
#endif

// The most threads that calls of the current thread may use, whatever the setting; 0 means no
// limit.
inline thread_local int thread_limit = 0;
inline int swap_thread_limit(int number) noexcept {
  const int before = thread_limit;
  thread_limit = number;
  return before;
}
inline int limited_threads(int number) noexcept {
  return thread_limit > 0 && thread_limit < number ? thread_limit : number;
}

// GNU's OpenMP keeps the threads that a thread has used, whoever used them (PyTorch and others
// share the library), and in a forked child waits forever for those that the child lacks. If they
// end before the fork, parent and child start new ones when they need them. Other implementations
// of OpenMP take care of forks themselves.
inline void end_idle_threads() noexcept {
#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__)
  omp_pause_resource_all(omp_pause_hard);
#endif
}

}  // namespace roipool
