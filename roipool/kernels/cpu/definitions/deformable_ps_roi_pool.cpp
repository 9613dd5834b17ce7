// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../deformable_ps_roi_pool.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(deformable_ps_roi_pool)

}  // namespace roipool
