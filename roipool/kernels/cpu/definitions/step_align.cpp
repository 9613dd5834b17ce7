// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../step_align.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(caffe_roi_align)
ROIPOOL_EVALUATE(mxnet_roi_align)
ROIPOOL_EVALUATE(mxnet_roi_align_gather)

}  // namespace roipool
