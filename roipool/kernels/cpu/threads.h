// OpenMP, where the build has it, and what a fork needs.
#pragma once
#ifdef _OPENMP
#include <omp.h>
#endif
#ifndef _WIN32
#include <pthread.h>
#endif

#include "interrupts.h"
#include "memory.h"

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

inline void before_fork() noexcept {
  end_idle_threads();
  block_cache().lock();
}

inline void after_fork() noexcept { block_cache().unlock(); }
inline void after_fork_in_child() noexcept {
  after_fork();
  main_thread() = PyThread_get_thread_ident();
}

// Makes forks safe, also those that Python knows nothing of; to be called once. Returns whether
// that was possible. Windows has no forks.
inline bool prepare_for_forks() noexcept {
#ifdef _WIN32
  return true;
#else
  return pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0;
#endif
}

}  // namespace roipool
