// The threads of a call. The lead, which made the call, goes from step to step; the others take
// parts of whatever step is open. Nobody waits for a thread that has nothing
// to do: on busy cores one may come late, or not before the call is done. Threads that wait sleep,
// so that they leave their cores to those that work.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "call.h"
#include "interrupts.h"
#include "threads.h"

namespace roipool {

// A part of a step: the call, the number of the part, that of the thread's scratch memory.
typedef void (*CallPart)(Call*, wide_int, int);

// Parts that one thread takes at a time.
struct Portion {
  wide_int begin;
  wide_int end;
};

class Team {
 public:
  Team(Call* call, int threads) : call_(call), threads_(threads) {}

  // Lead: does the parts [begin, end) of a step with whoever comes; returns when all are done.
  // Portions shrink with what is left, to `at_least` parts.
  void run(CallPart part, wide_int begin, wide_int end, wide_int at_least) {
    if (threads_ == 1 || end - begin <= at_least) {
      for (wide_int number = begin; number < end; ++number) {
        if (is_interrupted(call_->watch)) return;
        part(call_, number, 0);
      }
      return;
    }
    open(part, begin, end, at_least);
    work_on_step([](Watch* watch) { return is_interrupted(watch); });
    wait_until([this] { return working_ == 0; });
  }

  // The others: take parts until the lead dismisses them.
  void follow() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!dismissed_) {
      if (has_parts()) {
        lock.unlock();
        work_on_step([](Watch* watch) { return is_over(watch); });
        lock.lock();
        continue;
      }
      const int seen = changes_.load(std::memory_order_relaxed);
      lock.unlock();
      spin_while([&] { return changes_.load(std::memory_order_acquire) == seen; });
      lock.lock();
      changed_.wait(lock, [&] { return dismissed_ || has_parts(); });
    }
    ++left_;
    lock.unlock();
    tell();
  }

  // Lead, at the end: waits asleep until `others` have left. The end of a parallel region waits
  // for all of its threads, awake.
  void dismiss(int others) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      dismissed_ = true;
    }
    tell();
    wait_until([this, others] { return left_ >= others; });
  }

 private:
  Call* const call_;
  const int threads_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::atomic<int> changes_{0};  // read without the mutex, too
  CallPart part_ = nullptr;
  wide_int next_ = 0, end_ = 0, at_least_ = 1;
  int working_ = 0;  // threads that hold a portion
  int slots_ = 0;    // of scratch memory that are taken
  int left_ = 0;
  bool dismissed_ = false;

  bool has_parts() const { return next_ < end_; }

  // To be called without the mutex, for which those who wake would wait again.
  void tell() {
    changes_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
  }

  void open(CallPart part, wide_int begin, wide_int end, wide_int at_least) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      part_ = part;
      next_ = begin;
      end_ = end;
      at_least_ = at_least;
      slots_ = 0;
    }
    tell();
  }

  Portion take() {
    const wide_int share = at_least_ > 1 ? (end_ - next_) / (4 * threads_) : 1;
    const Portion portion = {next_, minimum(end_, next_ + maximum(at_least_, share))};
    next_ = portion.end;
    return portion;
  }

  // Asks `stops` before each part. A thread has a slot of scratch memory once it has a part, so
  // that there are no more slots than parts.
  template <typename Stops>
  void work_on_step(Stops stops) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!has_parts()) return;
    const int slot = slots_++;
    const CallPart part = part_;
    ++working_;
    while (has_parts()) {
      const Portion portion = take();
      lock.unlock();
      bool stopped = false;
      for (wide_int number = portion.begin; number < portion.end && !stopped; ++number) {
        stopped = stops(call_->watch);
        if (!stopped) part(call_, number, slot);
      }
      lock.lock();
      if (stopped) next_ = end_;
    }
    const bool is_last = --working_ == 0;
    lock.unlock();
    if (is_last) tell();
  }

  // Some microseconds, in which most waits end.
  template <typename Waits>
  static void spin_while(Waits waits) {
    for (int i = 0; i < 1000 && waits(); ++i) relax_processor();
  }

  // For the lead, which runs signal handlers meanwhile.
  template <typename Condition>
  void wait_until(Condition is_met) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_met()) {
      const int seen = changes_.load(std::memory_order_relaxed);
      lock.unlock();
      spin_while([&] { return changes_.load(std::memory_order_acquire) == seen; });
      is_interrupted(call_->watch);
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(milliseconds_per_check), is_met);
    }
  }
};

}  // namespace roipool
