// The scratch memory of a backward that lists bins, filled for all boxes: their images, and the
// cells that their bins read.
#pragma once
#include "plan.h"

namespace roipool {

struct BinOfBox {
  int box;
  int row, column;
};
static_assert(sizeof(BinOfBox) == 12, "BYTES_OF_LISTED_BIN in partition.py");

// A bin's two lines, or those of a whole box: the numbers of their windows.
struct Lines {
  wide_int down, across;
};

// After what else is planned. Boxes lie side by side, for neighbouring threads test neighbouring
// ones.
struct Windows {
  wide_int* images;
  Window* cells;
  wide_int boxes;

  __device__ Windows(char* scratch, const Call& call) : boxes(call.boxes) {
    char* after = scratch + boxes * (call.plan_bytes + sizeof(PlanHead));
    images = reinterpret_cast<wide_int*>(after);
    cells = reinterpret_cast<Window*>(images + boxes);
  }
  __device__ Window& of_line(wide_int line, wide_int box) const {
    return cells[line * boxes + box];
  }
};
static_assert(sizeof(Window) == 8, "BYTES_OF_WINDOW in launch.py");

// The weights with which a bin reads some cells along an axis, `step` apart in shared memory.
struct WeightsOfCells {
  int first, cells, step;
  Value* weights;
  Window window;  // the cells that are read, counted from the first

  __device__ WeightsOfCells(wide_int begin, wide_int end, Value* weights, int step)
      : first(static_cast<int>(begin)),
        cells(static_cast<int>(end - begin)),
        step(step),
        weights(weights) {
    for (int cell = 0; cell < cells; ++cell) weights[cell * step] = Value(0);
  }
  __device__ void add(int cell, Value weight) {
    const int at = cell - first;
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(cells)) return;
    weights[at * step] += weight;
    window.include(at);
  }
};

}  // namespace roipool
