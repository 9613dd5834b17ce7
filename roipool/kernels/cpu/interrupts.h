// Ctrl-C during a call. Python's signal handlers run in the main thread only, and only when it asks
// for them: long loops do, some ten times a second.
#pragma once
#include <Python.h>
#ifdef _WIN32
#include <chrono>  // windows.h makes macros of common words, such as near
#else
#include <time.h>
#endif

#include "watch.h"

namespace roipool {

const wide_int milliseconds_per_check = 100;

// The thread that runs signal handlers, as threading.get_ident() names it. No other may ask for the
// interpreter here: Python ends threads that do so at its exit, in the middle of C++.
inline unsigned long& main_thread() noexcept {
  static unsigned long thread = PyThread_get_thread_ident();
  return thread;
}

inline void set_main_thread(unsigned long ident) noexcept { main_thread() = ident; }

// From some fixed moment, by the cheapest clock: some milliseconds of error do not matter.
inline wide_int milliseconds() noexcept {
#ifdef _WIN32
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
#else
  timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  return 1000LL * now.tv_sec + now.tv_nsec / 1000000;
#endif
}

// Runs the handlers of signals that have come, if it is time. They may raise: the exception then
// stays with the thread until raise_if_interrupted.
inline bool run_signal_handlers(Watch* watch) noexcept {
  if (PyThread_get_thread_ident() != main_thread()) return false;
  ++watch->asks;
  const wide_int now = milliseconds();
  if (now < watch->next_check) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  watch->next_check = milliseconds() + milliseconds_per_check;
  return raised;
}

inline void start_watch(Watch* watch) noexcept {
  watch->is_interrupted = false;
  watch->asks = 0;
  watch->next_check = milliseconds() + milliseconds_per_check;
  watch->run_signal_handlers = run_signal_handlers;
}

// To be called with the interpreter; -1 if a handler has raised.
inline int raise_if_interrupted(const Watch* watch) noexcept {
  return watch->is_interrupted ? -1 : 0;
}

}  // namespace roipool
