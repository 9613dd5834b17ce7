// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../roi_align_rotated.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE_POINTS(roi_align_rotated)

}  // namespace roipool
