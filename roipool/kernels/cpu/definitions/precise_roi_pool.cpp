// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../precise_roi_pool.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(precise_roi_pool)

}  // namespace roipool
