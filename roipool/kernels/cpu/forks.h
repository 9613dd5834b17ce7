// What a fork needs: threads do not survive it.
#pragma once
#ifndef _WIN32
#include <pthread.h>
#endif

#include "interrupts.h"
#include "memory.h"
#include "pool.h"

namespace roipool {

inline void before_fork() noexcept {
  end_idle_threads();
  thread_pool().end_idle_threads();
  block_cache().lock();
}

inline void after_fork() noexcept { block_cache().unlock(); }
inline void after_fork_in_child() noexcept {
  after_fork();
  forget_threads();
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
