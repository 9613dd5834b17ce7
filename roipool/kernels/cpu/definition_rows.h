// The rows of definitions.h as text.
#pragma once
#include "../definitions.h"
#include "request.h"

namespace roipool {

#define ROIPOOL_ROW(name, kind, samples_per_ratio, max_per_cell) \
  {#name, #kind, samples_per_ratio, max_per_cell},
const DefinitionRow definition_rows[definition_count] = {ROIPOOL_DEFINITIONS(
    ROIPOOL_ROW) ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_ROW) ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_ROW)};
#undef ROIPOOL_ROW

}  // namespace roipool
