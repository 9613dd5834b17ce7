// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../roi_align.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(roi_align)
ROIPOOL_EVALUATE(mmcv_roi_align)
ROIPOOL_EVALUATE(paddle_roi_align)
ROIPOOL_EVALUATE(openvino_roi_align)
ROIPOOL_EVALUATE(chainercv_ps_roi_align)
ROIPOOL_EVALUATE(megengine_roi_align)
ROIPOOL_EVALUATE(onnx_roi_align_max)

}  // namespace roipool
