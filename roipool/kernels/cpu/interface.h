// Calls as `_cpu.pyx` describes and executes them. It includes none of what executes them, which
// calls.cpp compiles.
#pragma once
#include <atomic>

#include "engines.h"
#include "request.h"

namespace roipool {

enum Operation {
  op_average,
  op_average_backward,
  op_average_backward_boxes,
  op_maximum,
  op_maximum_backward,
  op_unpool,
  op_argmax_positions,
  op_argmax_at,
  op_average_windows,  // the cells that an average or a maximum reads
  op_maximum_windows
};

enum Status {
  status_done,
  status_no_memory,
  status_wide_argmax,   // a bin has more samples than 32-bit indices can count
  status_wrong_argmax,  // an index is not below its bin's samples
  status_long_axis,     // a map has more rows or columns than 32 bits number
  status_long_sum,      // a bin has more cells along an axis than float32 adds up
  status_interrupted
};

// A map of every image, and the boxes that are pooled from it. Most calls have one level; a feature
// pyramid's have one for each of its maps.
struct Level {
  Request request;
  Job job;
  // Set by `execute`.
  void* bin_memory;
  void* entry_memory;
  void* sum_memory;
  void* group_memory;
  wide_int first_box;  // boxes and tasks of the levels before it
  wide_int first_task;
};

struct Call {
  Operation operation;
  const Engine* engine;
  int threads;
  wide_int least_work;  // of a call that is worth other threads (execute.h); 0: any is
  Level* levels;
  int level_count;
  Watch* watch;  // null: the call cannot be interrupted
  // Set by `execute`.
  wide_int boxes;
  wide_int max_taps;     // of a chunk
  wide_int chunk_begin;  // its boxes, counted through the levels: [chunk_begin, chunk_end)
  wide_int chunk_end;
  wide_int chunk_entries;  // a bound of them
  wide_int tasks;
  int running_threads;
  wide_int scratch_bytes;  // of each thread
  void* scratch;
  wide_int bytes;              // of the latest allocation
  std::atomic<bool> is_wrong;  // set by any thread, of a part of the latest step
};

inline void begin_call(Call* call, Operation operation, const Engine* engine, Level* levels,
                       int level_count, Watch* watch) {
  call->operation = operation;
  call->engine = engine;
  call->levels = levels;
  call->level_count = level_count;
  call->watch = watch;
  call->threads = 1;
  call->least_work = 0;
  call->scratch = nullptr;
  call->is_wrong.store(false, std::memory_order_relaxed);
  for (int i = 0; i < level_count; ++i) {
    levels[i].bin_memory = levels[i].entry_memory = nullptr;
    levels[i].sum_memory = levels[i].group_memory = nullptr;
  }
}

// How the definition arranges rows and columns of bins; to be called once both are described.
void arrange_described_bins(Request* request, Job* job);

struct Execution;

// What each thread of a call does; the lead is number 0, on the thread that made the call.
void take_part_in_call(Execution* execution, int member);

// Executes a call; its memory is freed in every case. `start_threads(execution, threads)` calls
// `take_part_in_call` for each of several threads.
Status execute_whole_call(Call* call, void (*start_threads)(Execution*, int));

// The handler of calls in programs of XLA, which executes them by `executor`.
void* handler_for_xla(Status (*executor)(Call*, int running));

// The handler of calls in programs of XLA for a GPU, and the addresses of the driver's functions
// that it calls.
void* handler_for_cuda();
void set_cuda_driver(const size_t* addresses);

// Lets threads end before forks; to be called once. Returns whether that was possible.
bool make_forks_safe() noexcept;

// The rows of definitions.h, for Python.
const DefinitionRow* rows_of_definitions();
int number_of_definitions();

}  // namespace roipool
