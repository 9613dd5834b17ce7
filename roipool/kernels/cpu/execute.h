// The steps of a call, by its threads: `_cpu.pyx` has the loop that starts them.
#pragma once
#include "float_environment.h"
#include "pool.h"

namespace roipool {

// Portions of boxes that are worth waking another thread for: some 50 us.
const wide_int counted_boxes = 256;
const wide_int written_entries = 4096;

// What the lead does of a call, with a team.
typedef Status (*Steps)(Call*, Team*);

struct Execution {
  Call* call;
  Steps steps;
  Team* team;
  Status status;
};

// Bounds the entries of each box's bins.
inline Status count_boxes(Call* call, Team* team) {
  const Status status = begin_plan(call);
  if (status != status_done || !needs_plan(*call)) return status;
  team->run(count_entries_of, 0, call->boxes, counted_boxes);
  if (is_interrupted(call->watch)) return status_interrupted;  // some boxes were not counted
  choose_max_taps(call);
  return status_done;
}

// Writes the entries of a chunk.
inline Status plan_chunk(Call* call, Team* team) {
  if (!needs_plan(*call)) return status_done;
  const Status status = begin_entries(call);
  if (status != status_done) return status;
  const wide_int boxes = call->chunk_end - call->chunk_begin;
  const wide_int entries = maximum(call->chunk_entries, wide_int(1));
  const wide_int at_least = clamp(boxes * written_entries / entries, 1, boxes);
  team->run(write_entries_of, call->chunk_begin, call->chunk_end, at_least);
  if (checks_argmax(*call)) team->run(check_argmax_of, 0, call->boxes, at_least);
  if (is_interrupted(call->watch)) return status_interrupted;
  if (call->is_wrong) return status_wrong_argmax;
  return check_argmax_width(*call);
}

inline Status run_chunk(Call* call, Team* team) {
  const Status status = begin_tasks(call);
  if (status == status_done) team->run(run_task_of, 0, call->tasks, 1);
  return status;
}

// Plans and runs a call, one chunk of its boxes at a time.
inline Status take_steps(Call* call, Team* team) {
  Status status = count_boxes(call, team);
  while (status == status_done) {
    begin_chunk(call);
    status = plan_chunk(call, team);
    if (status == status_done) status = run_chunk(call, team);
    if (is_last_chunk(*call)) break;
  }
  return status;
}

// What each thread of a call does; the lead is number 0, on the thread that made the call.
inline void take_part(Execution* execution, int member) {
  const FloatEnvironment environment = enter_standard_floats();  // each thread has its own
  if (member == 0) {
    execution->status = execution->steps(execution->call, execution->team);
    if (execution->call->threads > 1) execution->team->dismiss(threads_of_region() - 1);
  } else {
    execution->team->follow();
  }
  leave_standard_floats(environment);
}

// Executes a call in a parallel region: `start_threads(execution, threads)` calls `take_part` for
// each of its threads.
inline Status execute_in_region(Call* call, void (*start_threads)(Execution*, int), Steps steps) {
  Team team(call, call->threads);
  Execution execution = {call, steps, &team, status_done};
  if (call->threads == 1) {  // a region of one thread would take longer than a small call
    take_part(&execution, 0);
  } else {
    start_threads(&execution, call->threads);
  }
  return execution.status;
}

inline std::shared_ptr<Team> new_team(Call* call) noexcept {
  try {
    return std::make_shared<Team>(call, call->threads);
  } catch (const std::bad_alloc&) {
    call->bytes = sizeof(Team);
    return nullptr;
  }
}

// Executes a call by the calling thread, and those of the pool that come in time.
inline Status execute_with_pool(Call* call, Steps steps) {
  const std::shared_ptr<Team> team = new_team(call);
  if (!team) return status_no_memory;
  const int others = call->threads - 1;
  const FloatEnvironment environment = enter_standard_floats();
  thread_pool().invite(team, others);
  const Status status = steps(call, team.get());
  team->dismiss(0);
  thread_pool().withdraw(team, others);
  leave_standard_floats(environment);
  return status;
}

// Executes a call; its memory is freed in every case.
inline Status execute_call(Call* call, void (*start_threads)(Execution*, int),
                           Steps steps = take_steps) {
  const bool with_pool = call->threads > 1 && uses_pool().load(std::memory_order_relaxed);
  const Status status =
      with_pool ? execute_with_pool(call, steps) : execute_in_region(call, start_threads, steps);
  free_memory_of(call);
  return is_interrupted(call->watch) ? status_interrupted : status;
}

}  // namespace roipool
