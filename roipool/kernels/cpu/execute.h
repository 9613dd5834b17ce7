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
  if (call->is_wrong) return status_long_sum;
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

// Plans and runs a call whose boxes are counted, one chunk of them at a time.
inline Status take_chunks(Call* call, Team* team) {
  Status status = status_done;
  while (status == status_done) {
    begin_chunk(call);
    status = plan_chunk(call, team);
    if (status == status_done) status = run_chunk(call, team);
    if (is_last_chunk(*call)) break;
  }
  return status;
}

inline Status take_steps(Call* call, Team* team) {
  const Status status = count_boxes(call, team);
  return status == status_done ? take_chunks(call, team) : status;
}

// ---- Calls with little work, which other threads come too late for

// The cells that an engine multiplies for the boxes of a planned level, in each channel; a pooled
// value costs as much as four.
inline wide_int cells_of_level(const Job& job) {
  wide_int cells = 4 * job.boxes * bins_of_box(job);
  for (wide_int box = 0; box < job.boxes; ++box) {
    const wide_int width = job.columns.window_last[box] - job.columns.window_first[box];
    const wide_int down = planned_entries(job.rows, box),
                   across = planned_entries(job.columns, box);
    cells += job.arrangement == crossed_bins ? down * minimum(width, across) : 4 * across;
    cells += rows_of_bins(job) * across;
  }
  return cells;
}

inline wide_int work_of(const Call& call) {
  wide_int work = 0;
  for (int i = 0; i < call.level_count; ++i) {
    work += call.levels[i].job.channels * cells_of_level(call.levels[i].job);
  }
  return call.operation == op_average ? work : 2 * work;
}

// Plans a call on this thread if that is soon done, and leaves it to this thread if the rest is,
// too. Returns the steps that are left in `steps`.
inline Status begin_alone(Call* call, Steps* steps) {
  Team alone(call, 1);
  Status status = count_boxes(call, &alone);
  *steps = take_chunks;
  if (status != status_done) return status;
  begin_chunk(call);
  if (call->chunk_entries > 4 * written_entries || !is_last_chunk(*call)) {
    call->chunk_end = 0;  // again by all threads
    return status_done;
  }
  status = plan_chunk(call, &alone);
  *steps = run_chunk;
  if (status == status_done && work_of(*call) < call->least_work) call->threads = 1;
  return status;
}

inline bool begins_alone(const Call& call) {
  if (call.threads == 1 || call.least_work == 0 || !needs_plan(call)) return false;
  wide_int boxes = 0;
  for (int i = 0; i < call.level_count; ++i) boxes += call.levels[i].job.boxes;
  return boxes <= counted_boxes;
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

inline Status execute_steps(Call* call, void (*start_threads)(Execution*, int), Steps steps) {
  const bool with_pool = call->threads > 1 && uses_pool().load(std::memory_order_relaxed);
  return with_pool ? execute_with_pool(call, steps) : execute_in_region(call, start_threads, steps);
}

// Executes a call; its memory is freed in every case.
inline Status execute_call(Call* call, void (*start_threads)(Execution*, int),
                           Steps steps = take_steps) {
  Status status = status_done;
  if (begins_alone(*call)) {
    const FloatEnvironment environment = enter_standard_floats();
    status = begin_alone(call, &steps);
    leave_standard_floats(environment);
  }
  if (status == status_done) status = execute_steps(call, start_threads, steps);
  free_memory_of(call);
  return is_interrupted(call->watch) ? status_interrupted : status;
}

}  // namespace roipool
