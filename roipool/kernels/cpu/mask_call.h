// Pasting as a call, whose tasks the threads of any call take.
#pragma once
#include "interface.h"
#include "mask_job.h"

namespace roipool {

enum MaskOperation { masks_paste, masks_backward, masks_backward_boxes, masks_encode };

struct MaskCall : Call {
  MaskOperation mask_operation;
  MaskJob mask_job;
};

inline void begin_mask_call(MaskCall* call, MaskOperation operation, const MaskJob& job,
                            Watch* watch) {
  begin_call(call, op_average, nullptr, nullptr, 0, watch);
  call->mask_operation = operation;
  call->mask_job = job;
  call->mask_job.watch = watch;
}

// Executes a call, as `execute_whole_call` does.
Status execute_mask_call(MaskCall* call, void (*start_threads)(Execution*, int));

}  // namespace roipool
