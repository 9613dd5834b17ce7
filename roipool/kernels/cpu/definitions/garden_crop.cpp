// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../garden_crop.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(garden_crop)

}  // namespace roipool
