// What needs more of a definition than its bins: where samples lie, and how far offsets move bins.
#include "placing.h"

#include "../deformable_ps_roi_pool.h"
#include "../positions.h"
#include "plan.h"

namespace roipool {

// ---- An argmax as positions, the form in which mmcv, Caffe and MXNet return it

template <typename T>
AxisBin<T> axis_bin(const Request& request, const AxisPlan& plan, Direction direction, wide_int box,
                    int bin) {
  const wide_int row = box * plan.bins + bin;
  return {request.definition,
          axis_of_box<T>(request, plan, direction, box),
          bin,
          {static_cast<const Sample<T>*>(plan.sample) + plan.begin[row], plan.count[row],
           plan.first_index[row], plan.total[row]}};
}

// Calls visit(value, rows, columns) for all values [channels, rows, columns] of one box.
template <typename T, typename Visit>
void for_each_value(const Request& request, const Job& job, wide_int box, Visit visit) {
  const wide_int values = static_cast<wide_int>(job.rows.bins) * job.columns.bins;
  LongWork work(job.watch);
  for (wide_int value = 0; value < job.channels * values && !work.ends_before(1); ++value) {
    const int row = static_cast<int>(value % values / job.columns.bins);
    const int column = static_cast<int>(value % job.columns.bins);
    visit(value, axis_bin<T>(request, job.rows, down, box, row),
          axis_bin<T>(request, job.columns, across, box, column));
  }
}

// Sample indices to positions. Where no sample lies inside the map (-1), it is the position of the
// bin's first sample.
template <typename T>
void locate_box(const Request& request, const Job& job, wide_int box, const wide_int* argmax, T* y,
                T* x) {
  for_each_value<T>(
      request, job, box, [&](wide_int value, const AxisBin<T>& rows, const AxisBin<T>& columns) {
        const wide_int index = maximum(read_once(argmax + value), 0LL);
        const wide_int across = maximum(columns.samples.total, 1LL);
        const Point<T> point = point_of(rows, columns, {index / across, index % across});
        y[value] = point.y;
        x[value] = point.x;
      });
}

// Positions back to sample indices; -1 where there is no sample inside the map.
template <typename T>
void identify_box(const Request& request, const Job& job, wide_int box, const T* y, const T* x,
                  wide_int* argmax) {
  for_each_value<T>(request, job, box,
                    [&](wide_int value, const AxisBin<T>& rows, const AxisBin<T>& columns) {
                      argmax[value] = sample_index_at(rows, columns, {y[value], x[value]});
                    });
}

// Both for box number `box` of whole arrays [boxes, channels, rows, columns].
inline wide_int values_per_box(const Job& job) {
  return job.channels * job.rows.bins * job.columns.bins;
}

void locate_argmax(const Request& request, const Job& job, wide_int box, const wide_int* argmax,
                   void* y, void* x) {
  const wide_int first = box * values_per_box(job);
  if (request.double_precision) {
    locate_box(request, job, box, argmax + first, static_cast<double*>(y) + first,
               static_cast<double*>(x) + first);
  } else {
    locate_box(request, job, box, argmax + first, static_cast<float*>(y) + first,
               static_cast<float*>(x) + first);
  }
}

void identify_argmax(const Request& request, const Job& job, wide_int box, const void* y,
                     const void* x, wide_int* argmax) {
  const wide_int first = box * values_per_box(job);
  if (request.double_precision) {
    identify_box(request, job, box, static_cast<const double*>(y) + first,
                 static_cast<const double*>(x) + first, argmax + first);
  } else {
    identify_box(request, job, box, static_cast<const float*>(y) + first,
                 static_cast<const float*>(x) + first, argmax + first);
  }
}

// ---- Gradients of boxes whose bins are moved

// Multiplies the gradients of a box's offsets along an axis by how far an offset of 1 moves a bin.
template <typename T>
void scale_offset_gradients(const Request& request, const AxisPlan& plan, Direction direction,
                            wide_int box, double* gradients) {
  const Axis<T> axis = axis_of_box<T>(request, plan, direction, box);
  const double moved = request.offset_factor * moved_side(request.definition, axis);
  for (int bin = 0; bin < plan.bins; ++bin) {
    // Neither of them makes a NaN of a 0.
    gradients[bin] = moved == 0 || gradients[bin] == 0 ? 0 : gradients[bin] * moved;
  }
}

// An engine leaves the gradients of bins that move as both ends of the box do.
template <typename T>
void finish_moved_gradient(const Request& request, const Job& job, wide_int box) {
  double* corners = job.grad_boxes + request.numbers * row_of_box(job, box);
  double* offsets = corners + numbers_of_corners;
  if (rounds_boxes(request.definition)) {
    for (int number = 0; number < numbers_of_corners; ++number) corners[number] = 0;
  }
  scale_offset_gradients<T>(request, job.columns, across, box, offsets);
  scale_offset_gradients<T>(request, job.rows, down, box, offsets + job.columns.bins);
}

void finish_box_gradient(const Request& request, const Job& job, wide_int box) {
  if (job.arrangement != paired_bins) return;
  if (request.double_precision) {
    finish_moved_gradient<double>(request, job, box);
  } else {
    finish_moved_gradient<float>(request, job, box);
  }
}

}  // namespace roipool
