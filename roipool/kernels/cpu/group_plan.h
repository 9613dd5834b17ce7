// The plan of position-sensitive averages. Of each box, a plane of the features serves a bin or
// two: in the order of boxes (plan.h), the weights of one bin lie far from those of the next box's.
// Here they lie side by side, for bins of few taps, and boxes whose bins have as many taps follow
// one another, so that the processor foresees how often each loop runs.
#pragma once
#include <algorithm>

#include "job.h"

namespace roipool {

const int max_few_taps = 4;

// The taps of a bin along one axis. Where it has none, the first cell is -1.
template <typename Value>
struct FewTaps {
  int cell[max_few_taps];
  Value weight[max_few_taps];
};

const TapShape many_taps = {max_few_taps + 1, 0};

inline TapShape tap_shape(const Job& job, wide_int box) {
  const int rows = job.rows.longest[box], columns = job.columns.longest[box];
  if (rows < 1 || columns < 1 || rows > max_few_taps || columns > max_few_taps) return many_taps;
  return {static_cast<unsigned char>(rows), static_cast<unsigned char>(columns)};
}
inline int key_of(TapShape shape) { return shape.rows * (max_few_taps + 1) + shape.columns; }

inline wide_int bytes_of_group_plan(const Job& job) {
  const bool is_double = job.storage == float64_storage;
  const wide_int bytes = is_double ? sizeof(FewTaps<double>) : sizeof(FewTaps<float>);
  return job.chunk.boxes() *
         ((job.rows.bins + job.columns.bins) * bytes + static_cast<wide_int>(sizeof(TapShape)));
}

template <typename Value>
void copy_few_taps(const AxisPlan& plan, wide_int box, FewTaps<Value>* to, wide_int step) {
  const Value* weights = static_cast<const Value*>(plan.weight);
  for (int bin = 0; bin < plan.bins; ++bin, to += step) {
    const wide_int begin = plan.begin[box * plan.bins + bin];
    const int count = plan.count[box * plan.bins + bin];
    if (count == 0) to->cell[0] = -1;
    for (int tap = 0; tap < count; ++tap) {
      to->cell[tap] = plan.cell[begin + tap];
      to->weight[tap] = weights[begin + tap];
    }
  }
}

template <typename Value>
void write_group_plan(Job* job, char* memory) {
  const wide_int boxes = job->chunk.boxes();
  FewTaps<Value>* rows = reinterpret_cast<FewTaps<Value>*>(memory);
  FewTaps<Value>* columns = rows + boxes * job->rows.bins;
  TapShape* shapes = reinterpret_cast<TapShape*>(columns + boxes * job->columns.bins);
  for (wide_int i = 0; i < boxes; ++i) {
    shapes[i] = tap_shape(*job, job->box_order[i]);
    if (shapes[i].rows > max_few_taps) continue;
    copy_few_taps(job->rows, job->box_order[i], rows + i, boxes);
    copy_few_taps(job->columns, job->box_order[i], columns + i, boxes);
  }
  job->group_plan = {shapes, rows, columns};
}

// Orders the boxes of each image by their bins' numbers of taps, and among as many as they were.
inline void order_by_taps(Job* job) {
  const auto comes_first = [job](wide_int one, wide_int other) {
    return key_of(tap_shape(*job, one)) < key_of(tap_shape(*job, other));
  };
  for (wide_int image = 0; image < job->images; ++image) {
    std::stable_sort(job->box_order + job->image_begin[image],
                     job->box_order + job->image_begin[image + 1], comes_first);
  }
}

// To be called once the bins are planned; `memory` has `bytes_of_group_plan`.
inline void plan_groups(Job* job, void* memory) {
  order_by_taps(job);
  if (job->storage == float64_storage) {
    write_group_plan<double>(job, static_cast<char*>(memory));
  } else {
    write_group_plan<float>(job, static_cast<char*>(memory));
  }
}

}  // namespace roipool
