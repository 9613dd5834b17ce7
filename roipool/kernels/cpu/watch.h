// Whether a call is to end early: long loops ask.
#pragma once
#include <atomic>

#include "../config.h"

namespace roipool {

// Whether a call is to end early; see interrupts.h. All threads of a call read it.
struct Watch {
  std::atomic<bool> is_interrupted;
  wide_int next_check;                  // in milliseconds; the main thread's
  wide_int asks;                        // how often the main thread has asked
  bool (*run_signal_handlers)(Watch*);  // returns whether one has raised an exception
};

// Whether the rest of a call's work is to be left undone: its results are dropped.
inline bool is_over(const Watch* watch) {  // does not ask
  return watch && watch->is_interrupted.load(std::memory_order_relaxed);
}
inline bool is_interrupted(Watch* watch) {
  if (!watch) return false;
  if (is_over(watch)) return true;
  if (!watch->run_signal_handlers(watch)) return false;
  watch->is_interrupted.store(true, std::memory_order_relaxed);
  return true;
}

// Samples, or cells of a vector of channels, that are computed between two questions.
const wide_int work_between_asks = 1 << 18;

// Asks the watch within the work on a box, of which there may be billions of units.
struct LongWork {
  Watch* watch;
  wide_int left = work_between_asks;

  explicit LongWork(Watch* watch) : watch(watch) {}

  // To be called before `units` of work; returns whether they are to be left undone.
  bool ends_before(wide_int units) {
    left -= units;
    if (left > 0) return false;
    left = work_between_asks;
    return is_interrupted(watch);
  }
};

}  // namespace roipool
