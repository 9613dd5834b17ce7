// A whole call in plain C++: several levels are planned and executed together, without Python.
// `_cpu.pyx` has the callers and the loops over threads.
#pragma once
#include <stdint.h>

#include "core_cache.h"
#include "group_plan.h"
#include "interface.h"
#include "memory.h"
#include "placing.h"
#include "plan.h"
#include "schedule.h"

namespace roipool {

inline Entries entries_of(Operation operation, const Job& job) {
  switch (operation) {
    case op_average:
    case op_average_windows: return padded_taps;
    case op_average_backward:
      return is_position_sensitive(job) || job.arrangement == paired_bins ? padded_taps
                                                                          : transposed_taps;
    case op_unpool: return transposed_taps;
    case op_average_backward_boxes: return taps_with_gradient;
    default: return listed_samples;
  }
}

inline bool needs_plan(const Call& call) { return call.operation != op_unpool; }

inline void* allocate_for(Call* call, wide_int bytes) {
  call->bytes = bytes;
  return allocate(static_cast<size_t>(bytes));
}

// Calls visit(level, number in it) for a number that counts through the levels.
template <typename Visit>
inline void visit_numbered(const Call& call, wide_int number, wide_int Level::* first,
                           Visit visit) {
  int level = call.level_count - 1;
  while (number < call.levels[level].*first) --level;
  visit(call.levels[level], number - call.levels[level].*first);
}

// Plans number cells in 32 bits.
inline bool can_be_planned(const Job& job) {
  return maximum(job.rows.size, job.columns.size) <= INT32_MAX;
}

// First step: allocates the arrays that counting the entries of bins needs.
inline Status begin_plan(Call* call) {
  call->boxes = call->chunk_end = 0;
  for (int i = 0; i < call->level_count; ++i) {
    Level& level = call->levels[i];
    if (needs_plan(*call) && !can_be_planned(level.job)) return status_long_axis;
    level.request.entries = entries_of(call->operation, level.job);
    level.job.watch = level.request.watch = call->watch;
    level.first_box = call->boxes;
    call->boxes += level.job.boxes;
    level.bin_memory = allocate_for(call, prepare_bins(level.request, &level.job, nullptr));
    if (!level.bin_memory) return status_no_memory;
    prepare_bins(level.request, &level.job, static_cast<char*>(level.bin_memory));
    if (!needs_plan(*call)) {
      set_whole_map_windows(level.job.rows, level.job.boxes);
      set_whole_map_windows(level.job.columns, level.job.boxes);
    }
  }
  return status_done;
}

// The most cells along an axis that a bin adds up in float32, whose sums have 24 binary digits.
const wide_int max_float_terms = 1LL << 22;

// For each box.
inline void count_entries_of(Call* call, wide_int number, int) {
  visit_numbered(*call, number, &Level::first_box, [call](const Level& level, wide_int box) {
    const Request& request = level.request;
    count_entries(request, level.job, box);
    if (request.double_precision || request.entries == listed_samples) return;
    const wide_int longest =
        maximum(most_entries(level.job.rows, box), most_entries(level.job.columns, box));
    if (longest > max_float_terms) call->is_wrong.store(true, std::memory_order_relaxed);
  });
}

// ---- Chunks: what follows is done for some boxes, then for the next. The taps of rotated boxes
// are as many as the cells that they cover, far more than the values that are pooled from them.

// The most taps that are planned together, unless one box has more: 40 MB in a backward of float32.
const wide_int max_taps_of_chunk = 1000000;
const wide_int bytes_of_backward_tap = 40;  // for float32
const size_t step_of_chunk_bytes = size_t(1) << 23;

// The end of the chunk of boxes that begins at `begin`.
inline wide_int end_of_chunk(const Call& call, wide_int begin, wide_int max_taps,
                             wide_int* entries) {
  *entries = 0;
  for (wide_int number = begin; number < call.boxes; ++number) {
    visit_numbered(call, number, &Level::first_box, [&](const Level& level, wide_int box) {
      *entries += entries_of_box(level.job.rows, box) + entries_of_box(level.job.columns, box);
    });
    if (*entries > max_taps && number > begin) return number;
  }
  return call.boxes;
}

// The memory that the sums of a backward need between chunks: the gradient itself holds sums of its
// own type.
inline wide_int bytes_of_sums(const Job& job) {
  if (job.storage == float32_storage || job.storage == float64_storage) return 0;
  return job.images * job.channels * groups_of(job) * job.rows.size * job.columns.size *
         wide_int(sizeof(float));
}

// Second step: the size of chunks. Maxima have a single chunk: they list few samples, and check the
// argmax before they write anything.
inline void choose_max_taps(Call* call) {
  const bool lists_samples = call->levels[0].request.entries == listed_samples;
  call->max_taps = lists_samples ? INT64_MAX : max_taps_of_chunk;
  if (call->operation != op_average_backward) return;
  wide_int sums = 0, entries;
  for (int i = 0; i < call->level_count; ++i) sums += bytes_of_sums(call->levels[i].job);
  if (sums == 0) return;
  // The sums must not need more memory than chunks save.
  const wide_int limit = max_taps_of_chunk + sums / bytes_of_backward_tap;
  if (end_of_chunk(*call, 0, limit, &entries) == call->boxes) call->max_taps = INT64_MAX;
}

inline bool is_last_chunk(const Call& call) { return call.chunk_end == call.boxes; }

// Third step: chooses the boxes of the next chunk.
inline void begin_chunk(Call* call) {
  const bool is_first = call->chunk_end == 0;
  call->chunk_begin = call->chunk_end;
  call->chunk_end = call->boxes;
  if (needs_plan(*call)) {
    call->chunk_end = end_of_chunk(*call, call->chunk_begin, call->max_taps, &call->chunk_entries);
  }
  for (int i = 0; i < call->level_count; ++i) {
    Level& level = call->levels[i];
    level.job.chunk = {clamp(call->chunk_begin - level.first_box, 0, level.job.boxes),
                       clamp(call->chunk_end - level.first_box, 0, level.job.boxes), is_first,
                       is_last_chunk(*call)};
    group_by_image(&level.job);
  }
}

// Fourth step: allocates the entries. All chunks ask for blocks of the same size, so that each
// finds the previous one's memory in the cache.
inline Status begin_entries(Call* call) {
  for (int i = 0; i < call->level_count; ++i) {
    Level& level = call->levels[i];
    sum_entries(level.job);
    const size_t bytes = static_cast<size_t>(prepare_entries(level.request, &level.job, nullptr));
    const size_t step = level.job.chunk.is_whole_call() ? 1 : step_of_chunk_bytes;
    deallocate(level.entry_memory);
    level.entry_memory = allocate_for(call, static_cast<wide_int>(round_up(bytes, step)));
    if (!level.entry_memory) return status_no_memory;
    prepare_entries(level.request, &level.job, static_cast<char*>(level.entry_memory));
  }
  return status_done;
}

// For each box of the chunk.
inline void write_entries_of(Call* call, wide_int number, int) {
  visit_numbered(*call, number, &Level::first_box, [](const Level& level, wide_int box) {
    write_entries(level.request, level.job, box);
  });
}

// ---- The argmax of a maximum

inline wide_int max_samples(const AxisPlan& plan, wide_int box) {
  wide_int most = 0;
  for (int bin = 0; bin < plan.bins; ++bin) most = maximum(most, plan.total[box * plan.bins + bin]);
  return most;
}

// Whether a bin of some box may have more samples than 32-bit indices can count.
inline bool needs_wide_argmax(const Job& job) {
  for (wide_int box = 0; box < job.boxes; ++box) {
    const wide_int down = max_samples(job.rows, box), across = max_samples(job.columns, box);
    if (down > 0 && across > INT32_MAX / down) return true;
  }
  return false;
}

// To be called once the plan exists.
inline Status check_argmax_width(const Call& call) {
  if (call.operation != op_maximum) return status_done;
  for (int i = 0; i < call.level_count; ++i) {
    const Job& job = call.levels[i].job;
    if (!job.argmax || job.wide_argmax || job.argmax_is_cell) continue;
    if (needs_wide_argmax(job)) return status_wide_argmax;
  }
  return status_done;
}

inline bool checks_argmax(const Call& call) {
  return call.operation == op_maximum_backward && !call.levels[0].job.argmax_is_cell;
}

// Whether the indices of a box are below their bins' numbers of samples.
template <typename Index>
bool has_right_argmax(const Job& job, wide_int box) {
  const wide_int bins = static_cast<wide_int>(job.rows.bins) * job.columns.bins;
  const Index* argmax =
      static_cast<const Index*>(job.argmax) + row_of_box(job, box) * job.channels * bins;
  LongWork work(job.watch);
  for (wide_int bin = 0; bin < bins && !work.ends_before(job.channels); ++bin) {
    const wide_int samples = job.rows.total[box * job.rows.bins + bin / job.columns.bins] *
                             job.columns.total[box * job.columns.bins + bin % job.columns.bins];
    for (wide_int channel = 0; channel < job.channels; ++channel) {
      const wide_int at = job.channels_last ? bin * job.channels + channel : channel * bins + bin;
      if (read_once(argmax + at) >= samples) return false;
    }
  }
  return true;
}

// For each box.
inline void check_argmax_of(Call* call, wide_int number, int) {
  visit_numbered(*call, number, &Level::first_box, [call](const Level& level, wide_int box) {
    const bool right = level.job.wide_argmax ? has_right_argmax<int64_t>(level.job, box)
                                             : has_right_argmax<int32_t>(level.job, box);
    if (!right) call->is_wrong.store(true, std::memory_order_relaxed);
  });
}

// ---- Tasks

inline void schedule(const Call& call, Job* job) {
  job->part_bytes = core_cache_bytes() / 2;
  if (is_position_sensitive(*job)) {
    ROIPOOL_ENGINE::schedule_groups(*job, call.threads, call.operation == op_average,
                                    call.operation == op_average_backward_boxes);
    return;
  }
  switch (call.operation) {
    case op_average: ROIPOOL_ENGINE::schedule_forward(*job, call.threads, false); break;
    case op_maximum: ROIPOOL_ENGINE::schedule_forward(*job, call.threads, true); break;
    case op_average_backward: ROIPOOL_ENGINE::schedule_backward(*job, call.threads, false); break;
    case op_maximum_backward:
    case op_unpool: ROIPOOL_ENGINE::schedule_backward(*job, call.threads, true); break;
    case op_average_backward_boxes: ROIPOOL_ENGINE::schedule_boxes(*job); break;
    case op_argmax_positions:
    case op_argmax_at:
    case op_average_windows:
    case op_maximum_windows: job->tasks = job->boxes; break;
  }
}

// Where a backward keeps its sums between chunks.
inline bool prepare_sums(Call* call, Level* level) {
  Job& job = level->job;
  if (call->operation != op_average_backward || job.chunk.is_whole_call()) return true;
  if (!job.chunk.is_first) return true;
  const wide_int bytes = bytes_of_sums(job);
  job.sums = bytes ? level->sum_memory = allocate_for(call, bytes) : job.output;
  return job.sums != nullptr;
}

// The plan of a position-sensitive average; gradients of boxes need none.
inline bool prepare_groups(Call* call, Level* level) {
  if (!is_position_sensitive(level->job)) return true;
  if (call->operation == op_average_backward_boxes) return true;
  deallocate(level->group_memory);
  level->group_memory = allocate_for(call, bytes_of_group_plan(level->job));
  if (level->group_memory) plan_groups(&level->job, level->group_memory);
  return level->group_memory != nullptr;
}

// Fifth step: cuts the work on the chunk into tasks.
inline Status begin_tasks(Call* call) {
  call->tasks = call->scratch_bytes = 0;
  for (int i = 0; i < call->level_count; ++i) {
    Level& level = call->levels[i];
    if (!prepare_sums(call, &level)) return status_no_memory;
    if (!prepare_groups(call, &level)) return status_no_memory;
    schedule(*call, &level.job);
    level.first_task = call->tasks;
    call->tasks += level.job.tasks;
    call->scratch_bytes = maximum(call->scratch_bytes, level.job.scratch_bytes);
  }
  call->running_threads =
      static_cast<int>(maximum(minimum<wide_int>(call->threads, call->tasks), 1LL));
  deallocate(call->scratch);
  call->scratch = allocate_for(call, call->scratch_bytes * call->running_threads);
  return call->scratch ? status_done : status_no_memory;
}

inline Runner runner_of(const Call& call, const Job& job) {
  if (is_position_sensitive(job)) {
    switch (call.operation) {
      case op_average: return call.engine->position_sensitive_forward;
      case op_average_backward: return call.engine->position_sensitive_backward;
      default: return call.engine->position_sensitive_backward_boxes;
    }
  }
  switch (call.operation) {
    case op_average: return call.engine->average_forward;
    case op_average_backward: return call.engine->average_backward;
    case op_average_backward_boxes: return call.engine->average_backward_boxes;
    case op_maximum: return call.engine->maximum_forward;
    default: return call.engine->maximum_backward;
  }
}

// Writes the cells that a box reads: first and last row, first and last column, the last ones
// excluded.
inline void write_window(const Job& job, wide_int box, wide_int* to) {
  const ROIPOOL_ENGINE::Rectangle window = ROIPOOL_ENGINE::window_of_box(job, box);
  to[0] = window.top, to[1] = window.bottom, to[2] = window.left, to[3] = window.right;
}

// Sixth step: runs one task, on any of the threads.
inline void run_task_of(Call* call, wide_int number, int thread) {
  char* scratch = static_cast<char*>(call->scratch) + thread * call->scratch_bytes;
  visit_numbered(*call, number, &Level::first_task, [&](const Level& level, wide_int task) {
    const Job& job = level.job;
    switch (call->operation) {
      case op_argmax_positions:
        locate_argmax(level.request, job, task, static_cast<const wide_int*>(job.argmax),
                      job.positions[0], job.positions[1]);
        break;
      case op_argmax_at:
        identify_argmax(level.request, job, task, job.positions[0], job.positions[1],
                        static_cast<wide_int*>(job.argmax));
        break;
      case op_average_windows:
      case op_maximum_windows:
        write_window(job, task, static_cast<wide_int*>(job.positions[0]) + 4 * task);
        break;
      case op_average_backward_boxes: {
        runner_of(*call, job)(job, task, scratch);
        const ROIPOOL_ENGINE::BoxRange boxes = ROIPOOL_ENGINE::boxes_of_gradient(job, task);
        for (wide_int box = boxes.begin; box < boxes.end; ++box) {
          finish_box_gradient(level.request, job, box);
        }
        break;
      }
      default: runner_of(*call, job)(job, task, scratch);
    }
  });
}

inline void free_memory_of(Call* call) {
  for (int i = 0; i < call->level_count; ++i) {
    deallocate(call->levels[i].bin_memory);
    deallocate(call->levels[i].entry_memory);
    deallocate(call->levels[i].sum_memory);
    deallocate(call->levels[i].group_memory);
  }
  deallocate(call->scratch);
}

}  // namespace roipool
