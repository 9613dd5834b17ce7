// The steps of a call, by its threads: `_cpu.pyx` has the loop that starts them.
#pragma once
#include "float_environment.h"
#include "team.h"

namespace roipool {

// Portions of boxes that are worth waking another thread for: some 50 us.
const wide_int counted_boxes = 256;
const wide_int written_entries = 4096;

// What the lead does of a call, with a team.
typedef Status (*Steps)(Call*, Team*);

struct Execution {
  Call* call;
  Steps steps;
  Team team;
  Status status = status_done;
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
    execution->status = execution->steps(execution->call, &execution->team);
    execution->team.dismiss();
  } else {
    execution->team.follow();
  }
  leave_standard_floats(environment);
}

// Executes a call; its memory is freed in every case. `start_threads(execution, threads)` calls
// `take_part` for each of several threads.
inline Status execute_call(Call* call, void (*start_threads)(Execution*, int),
                           Steps steps = take_steps) {
  Execution execution = {call, steps, {call, call->threads}};
  if (call->threads == 1) {  // a region of one thread would take longer than a small call
    take_part(&execution, 0);
  } else {
    start_threads(&execution, call->threads);
  }
  free_memory_of(call);
  return is_interrupted(call->watch) ? status_interrupted : execution.status;
}

}  // namespace roipool
