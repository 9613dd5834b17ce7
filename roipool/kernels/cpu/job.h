// The input of an engine: plain pointers and sizes. The geometry is compiled once, without
// contraction, the engines once per instruction set.
#pragma once
#include "../box_columns.h"
#include "axis_plan.h"
#include "watch.h"

namespace roipool {

// Reads an element of the caller's array exactly once. Another thread may change the array during a
// call: that may spoil values, but the value that was checked must be the one that is used.
template <typename T>
inline T read_once(const T* address) {
  return *static_cast<const volatile T*>(address);
}

// The type of pooled values and gradients.
enum Storage { float16_storage, bfloat16_storage, float32_storage, float64_storage };

// The type of features. Integers, of pictures and scans, are pooled to float32.
enum FeatureStorage {
  stored_as_pooled,
  stored_as_uint8,
  stored_as_int8,
  stored_as_uint16,
  stored_as_int16
};

// Boxes of a level that are planned and executed together. A call takes those of all levels chunk
// after chunk: its plan needs memory for one only.
struct Chunk {
  wide_int begin;  // boxes [begin, end)
  wide_int end;
  bool is_first;  // of its call
  bool is_last;

  wide_int boxes() const { return end - begin; }
  bool is_whole_call() const { return is_first && is_last; }
};

// How the bins of a box follow from the lines of its two axes.
enum Arrangement {
  crossed_bins,  // one where each line of the rows crosses each of the columns
  paired_bins,   // one of each pair of lines
  flat_bins      // one of each line of the columns: a map is one row of all cells (regions.h)
};

// What is to be pooled, and how.
struct JobRequest {
  Watch* watch;     // null: the call cannot be interrupted
  Storage storage;  // of pooled values
  FeatureStorage feature_storage;
  bool channels_last;                // NHWC rather than NCHW
  wide_int images, channels, boxes;  // channels of pooled values
  int group_rows, group_columns;     // of features: each channel of pooled values is pooled from as
                                     // many channels as there are groups, side by side
  int bins_down, bins_across;        // of a box
  Arrangement arrangement;

  double empty_value;    // of a bin that has nothing to pool
  double lowest;         // where a running maximum starts
  bool argmax_is_cell;   // argmax is y * width + x rather than the index of a sample
  bool nan_restarts;     // a NaN replaces the maximum, and the next sample replaces the NaN
  bool outside_is_zero;  // a sample outside the map takes part in a maximum, as 0

  wide_int min_non_temporal_bytes;  // smaller results are stored normally
};

// The caller's arrays, and those of the plan.
struct JobBuffers {
  const void* features;
  const void* grad_output;
  void* output;               // pooled values, or in a backward the gradient of features
  void* argmax;               // or null
  bool wide_argmax;           // int64 rather than int32
  double* grad_boxes;         // [boxes, numbers_of_box]
  void* positions[2];         // y and x of argmax in map cells, where one is turned into the other
  const wide_int* box_image;  // < images; negative: the box reads nothing, and goes with image 0
  const wide_int* box_row;    // which row of pooled values, argmax and gradients of boxes is each
                              // box's own; null: its number

  AxisPlan rows, columns;
  VolumePlan* volume;  // null: maps are no volumes
  GroupPlan group_plan;
  void* sums;  // in a backward of several chunks: what the gradient of features is so far, laid out
               // like it, in the computed type
  // The boxes of the chunk grouped by image, in their given order: those of image n are
  // box_order[image_begin[n]] ... box_order[image_begin[n + 1] - 1].
  wide_int* box_order;
  wide_int* image_begin;
};

// The division of the work into tasks, set by schedule.h.
struct JobSchedule {
  Chunk chunk;
  bool narrow;          // one channel at a time
  bool whole_pixels;    // or all of them, of cells that lie side by side
  bool pixels;          // by pixels.h, whatever the type
  int vectors;          // of channels in a whole block
  wide_int part_bytes;  // of maps that a task works on at a time: half of a core's own cache
  bool pack_each_box;   // copy each box's window rather than the image's
  wide_int parts;     // pieces that one image is cut into: of its boxes, or of its rows (backward)
  bool non_temporal;  // results are written by non-temporal stores
  int planes;         // of groups that are packed at once
  wide_int boxes_at_once;  // of a task of the gradient of boxes
  wide_int tile_rows;      // rows of bins that are computed before they are written
  int tiles;               // of bins, or in a backward of a row of cells
  // Scratch memory of a thread: a row of sums, then tiles, then packed cells.
  wide_int row_sum_bytes;
  wide_int tile_bytes;     // of each tile
  wide_int scratch_bytes;  // in all
  wide_int tasks;
};

struct Job : JobRequest, JobBuffers, JobSchedule {};

// Pooled values as rows of bins: a single one unless lines are crossed.
inline int rows_of_bins(const Job& job) {
  return job.arrangement == crossed_bins ? job.rows.bins : 1;
}
inline wide_int bins_of_box(const Job& job) {
  return wide_int(rows_of_bins(job)) * job.columns.bins;
}

#ifdef ROIPOOL_PLAYGROUND  // whose boxes have no depth
const bool knows_volumes = false;
#else
const bool knows_volumes = true;
#endif

// Whether its maps are volumes.
inline bool is_volume(const Job& job) { return knows_volumes && job.rows.is_product; }

// Columns of the table of boxes.
inline wide_int numbers_of_box(const Job& job) {
  switch (job.arrangement) {
    case flat_bins: return numbers_of_region;
    case paired_bins: return numbers_of_corners + numbers_of_bin * bins_of_box(job);
    default: return is_volume(job) ? numbers_of_volume : numbers_of_corners;
  }
}

// The lines of a bin along both axes, of which there are as many as bins where they are paired.
struct BinLines {
  int row;
  int column;
};
inline BinLines lines_of_bin(const Job& job, int row, int column) {
  const int bin = row * job.bins_across + column;
  return job.arrangement == paired_bins ? BinLines{bin, bin} : BinLines{row, column};
}

inline int groups_of(const Job& job) { return job.group_rows * job.group_columns; }
inline bool is_position_sensitive(const Job& job) { return groups_of(job) > 1; }

inline wide_int row_of_box(const Job& job, wide_int box) {
  return job.box_row ? job.box_row[box] : box;
}

inline bool is_interrupted(const Job& job) { return is_interrupted(job.watch); }

}  // namespace roipool
