// What needs more of a definition than its bins. placing.cpp has it, so that calls.cpp includes no
// definition.
#pragma once
#include "request.h"

namespace roipool {

// Sample indices to positions, for box number `box` of whole arrays [boxes, channels, rows,
// columns].
void locate_argmax(const Request& request, const Job& job, wide_int box, const wide_int* argmax,
                   void* y, void* x);

// Positions back to sample indices; -1 where there is no sample inside the map.
void identify_argmax(const Request& request, const Job& job, wide_int box, const void* y,
                     const void* x, wide_int* argmax);

// Finishes the gradient of a box whose bins are moved, as the engine leaves it.
void finish_box_gradient(const Request& request, const Job& job, wide_int box);

}  // namespace roipool
