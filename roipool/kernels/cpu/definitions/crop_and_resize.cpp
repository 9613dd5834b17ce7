// The definitions of this header, compiled for the sinks of plans: see evaluate.h.
#include "../../crop_and_resize.h"

#include "../evaluate.h"

namespace roipool {

ROIPOOL_EVALUATE(crop_bilinear)
ROIPOOL_EVALUATE(crop_nearest)
ROIPOOL_EVALUATE(crop_antialias)
ROIPOOL_EVALUATE(tensorflow_crop_bilinear)
ROIPOOL_EVALUATE(tensorflow_crop_nearest)
ROIPOOL_EVALUATE(tensorflow_crop_gradient)

}  // namespace roipool
