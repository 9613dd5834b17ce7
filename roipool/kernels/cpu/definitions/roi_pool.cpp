// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../roi_pool.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(roi_pool)
ROIPOOL_EVALUATE(roi_average_pool)
ROIPOOL_EVALUATE(chainer_roi_average_pool)
ROIPOOL_EVALUATE(caffe_roi_pool_gather)
ROIPOOL_EVALUATE(mmcv_roi_pool)
ROIPOOL_EVALUATE(openvino_roi_pool)
ROIPOOL_EVALUATE(ps_roi_pool)
ROIPOOL_EVALUATE(chainercv_ps_roi_pool)
ROIPOOL_EVALUATE(torchvision_ps_roi_pool)

}  // namespace roipool
