// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../deform_roi_pool.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(deform_roi_pool)
ROIPOOL_EVALUATE(mmcv_deform_roi_pool)
ROIPOOL_EVALUATE(mmcv_deform_roi_offsets)

}  // namespace roipool
