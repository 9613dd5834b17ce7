// Threads of the process that take part in calls, an option of the build. A call ends as soon as
// all of its parts are done: unlike at the end of an OpenMP region, nobody waits for a thread that
// never got a core, and threads without a call sleep.
#pragma once
#include <exception>
#include <list>
#include <memory>
#include <new>
#include <thread>

#include "float_environment.h"
#include "team.h"

namespace roipool {

class ThreadPool {
 public:
  // Lets up to `places` threads follow the lead of a team. There may be fewer, or none, where the
  // system has no memory for more.
  void invite(const std::shared_ptr<Team>& team, int places) noexcept {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      promised_ += places;
      try {
        start(places);
        invitations_.push_back({team, places});
      } catch (const std::exception&) {  // the lead works alone
      }
    }
    for (int i = 0; i < places; ++i) invited_.notify_one();
  }

  // To be called once the lead has dismissed the team.
  void withdraw(const std::shared_ptr<Team>& team, int places) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    promised_ -= places;
    invitations_.remove_if([&](const Invitation& each) { return each.team == team; });
  }

  // Those in a call of another thread stay, and serve the next ones.
  void end_idle_threads() noexcept {
    std::list<std::thread> ended;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++ending_;
      invited_.notify_all();
      left_.wait(lock, [this] { return idle_ == 0 && (promised_ > 0 || threads_.empty()); });
      --ending_;
      ended.swap(ended_);
    }
    for (std::thread& thread : ended) thread.join();
  }

 private:
  struct Invitation {
    std::shared_ptr<Team> team;
    int places;
  };
  std::mutex mutex_;  // guards what follows
  std::condition_variable invited_, left_;
  std::list<Invitation> invitations_;
  std::list<std::thread> threads_, ended_;
  int promised_ = 0;  // places in all calls
  int idle_ = 0;      // threads that wait for an invitation
  int ending_ = 0;    // forks that are about to happen

  // As many threads as all calls may have, within the processors, but enough for one call.
  void start(int places) {
    const int processors = static_cast<int>(std::thread::hardware_concurrency());
    const int enough = minimum(promised_, maximum(places, processors - 1));
    while (static_cast<int>(threads_.size()) < enough) {
      threads_.emplace_back();
      const auto self = std::prev(threads_.end());
      try {
        *self = std::thread([this, self] { serve(self); });
      } catch (const std::exception&) {
        threads_.erase(self);
        return;
      }
      ++idle_;
    }
  }

  // What each thread does, from one call to the next.
  void serve(std::list<std::thread>::iterator self) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      invited_.wait(lock, [this] { return ending_ > 0 || !invitations_.empty(); });
      --idle_;
      if (ending_ > 0) break;
      const std::shared_ptr<Team> team = accept();
      lock.unlock();
      const FloatEnvironment environment = enter_standard_floats();
      team->follow();
      leave_standard_floats(environment);
      lock.lock();
      ++idle_;
    }
    ended_.splice(ended_.end(), threads_, self);
    left_.notify_all();
  }

  std::shared_ptr<Team> accept() {
    Invitation& first = invitations_.front();
    const std::shared_ptr<Team> team = first.team;
    if (--first.places == 0) invitations_.pop_front();
    return team;
  }
};

// Never destroyed: its threads may outlive all static objects.
inline ThreadPool& thread_pool() {
  static ThreadPool* const pool = new ThreadPool;
  return *pool;
}

// A forked child has none of the threads, and nobody else who could hold the mutex.
inline void forget_threads() noexcept { new (&thread_pool()) ThreadPool; }

}  // namespace roipool
