// Plans and steps of calls, for `_cpu.pyx`: whatever evaluates definitions. Built once.
#include <new>

#include "definition_rows.h"
#include "execute.h"
#include "forks.h"
#include "interface.h"
#include "mask_call.h"
#include "xla.h"
#include "xla_cuda.h"

namespace roipool {

void arrange_described_bins(Request* request, Job* job) { arrange_bins(request, job); }

void take_part_in_call(Execution* execution, int member) { take_part(execution, member); }

Status execute_whole_call(Call* call, void (*start_threads)(Execution*, int)) {
  return execute_call(call, start_threads);
}

// ---- Masks

inline void run_mask_task(Call* call, wide_int task, int slot) {
  const MaskCall* const own = static_cast<MaskCall*>(call);
  const MaskJob& job = own->mask_job;
  char* const scratch = static_cast<char*>(call->scratch) + slot * call->scratch_bytes;
  switch (own->mask_operation) {
    case masks_paste: return paste_rows(job, task, scratch);
    case masks_backward: return paste_backward(job, task, scratch);
    case masks_backward_boxes: return paste_backward_boxes(job, task, scratch);
    case masks_encode: break;
  }
  try {
    encode_mask(job, task, scratch);
  } catch (const std::bad_alloc&) {
    call->is_wrong.store(true, std::memory_order_relaxed);
  }
}

inline Status take_mask_steps(Call* call, Team* team) {
  MaskCall* const own = static_cast<MaskCall*>(call);
  call->tasks =
      own->mask_operation == masks_paste ? paste_tasks(&own->mask_job) : own->mask_job.masks;
  call->scratch_bytes = (scratch_bytes_of(own->mask_job) + 63) / 64 * 64;
  call->scratch = allocate_for(call, call->scratch_bytes * call->threads);
  if (!call->scratch) return status_no_memory;
  team->run(run_mask_task, 0, call->tasks, 1);
  return call->is_wrong ? status_no_memory : status_done;
}

Status execute_mask_call(MaskCall* call, void (*start_threads)(Execution*, int)) {
  return execute_call(call, start_threads, take_mask_steps);
}

void* handler_for_xla(Executor executor) { return xla_handler(executor); }

void* handler_for_cuda() { return xla_cuda_handler(); }

void set_cuda_driver(const size_t* addresses) { use_cuda_driver(addresses); }

bool make_forks_safe() noexcept { return prepare_for_forks(); }

const DefinitionRow* rows_of_definitions() { return definition_rows; }

int number_of_definitions() { return definition_count; }

}  // namespace roipool
