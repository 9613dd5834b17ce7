// The arrays of plans, as engines read them: pointers, of which plan.h says how they are filled.
#pragma once
#include "../config.h"

namespace roipool {

// Lines of at most this many taps are made equally long within a box, for engines that are
// compiled for each length: a branch that is mispredicted costs more than a few taps.
const int max_padded_taps = 6;
const int uneven = 1 << 30;  // the length of lines that are not padded

// A transposed plan, for backwards: each line is a cell and lists the bins that read it. The lines
// of box k have the offsets of its entries in the plan, its taps twice those.
struct TransposedPlan {
  int* lines;       // per box
  int* longest;     // per box: taps of each line, or `uneven`
  int* cell;        // per line
  wide_int* begin;  // per line: its taps
  int* count;       // per line
  int* bin;         // per tap
  void* weight;     // per tap
};

struct BinWindow;

// The plans of all boxes along one axis. Bin b of box k is row k * bins + b of the per-bin arrays;
// its entries are begin[row] ... begin[row] + count[row] - 1 of the per-entry arrays. Real numbers
// are double for float64 features, else float. Arrays that a plan does not need are null.
struct AxisPlan {
  int bins;
  bool is_pointwise;  // of both axes together: see Job
  bool is_product;    // of two axes: the rows of all planes of a volume
  wide_int size;      // cells of the map along this axis
  wide_int* begin;    // per bin, and one more
  int* count;         // per bin
  int* longest;       // per box: entries of the longest bin; `uneven` if its taps are not padded
  int* window_first;  // per box: the cells that it reads are window_first ... window_last - 1
  int* window_last;
  // For averages: taps, merged over the bin's samples, the division by their number included.
  int* cell;
  void* weight;
  void* slope[5];  // d(weight) / d(a number of the box), for the gradient of boxes: by its low and
                   // high end, of a product by those of depth and of rows, or for a pointwise
                   // definition by all numbers
  BinWindow* bin_window;  // per bin, for a pointwise definition: where its taps are added up
  TransposedPlan transposed;
  // For maxima: samples.
  void* sample;           // Sample<T>
  wide_int* first_index;  // per bin: index of its first listed sample
  wide_int* total;        // per bin: samples, those outside the map included
};

// A volume is a map whose rows are those of all its planes. Each line of them is the product of one
// of depth and one of the rows of a plane.
struct VolumePlan {
  AxisPlan depth, rows;
};

// How many taps each bin of a box has along both axes, or `many_taps`
// (group_plan.h).
struct TapShape {
  unsigned char rows;
  unsigned char columns;
};
// The plans of position-sensitive averages: those of the boxes of a chunk, by place in `box_order`.
struct GroupPlan {
  TapShape* shape;  // per place
  void* rows;       // FewTaps of bin b at place i are number b * boxes + i
  void* columns;
};

}  // namespace roipool
