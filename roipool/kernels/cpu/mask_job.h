// What the tasks of pasting masks get: plain pointers and sizes.
#pragma once
#include <string>

#include "../mask_axis.h"
#include "job.h"

namespace roipool {

// Types of the cells of masks, and of pasted pixels.
enum MaskStorage {
  mask_float16,
  mask_bfloat16,
  mask_float32,
  mask_float64,
  mask_uint8,
  mask_bool  // of what is pasted: whether a value is at least the threshold
};

// COCO's run lengths of one mask, compressed, and the pixels that are set.
struct RunLengths {
  std::string text;
  wide_int area;
};

struct MaskJob {
  MaskStorage cell_storage, output_storage;
  bool double_precision;  // of the computation, and of the boxes
  PasteRule rule;
  wide_int frame;
  wide_int masks, mask_rows, mask_columns;
  const void* cells;                 // [masks, mask_rows, mask_columns]
  const void* boxes;                 // [masks, 4]: x1, y1, x2, y2
  wide_int rows, columns;            // of the picture, or of a part of it
  wide_int first_row, first_column;  // of that part in the picture
  double threshold;
  double factor;  // of values that become bytes
  void* output;   // [masks, rows, columns], or in a backward the gradient of the cells
  const void* grad_output;
  double* grad_boxes;  // [masks, 4]
  RunLengths* run_lengths;
  wide_int rows_of_task;  // of pasting
  bool on_zeros;          // the output is 0: of pasting, pixels of masks alone are written
  Watch* watch;
};

// Bytes of scratch memory that a thread needs.
wide_int scratch_bytes_of(const MaskJob& job);

// Tasks; of all but pasting one for each mask.
wide_int paste_tasks(MaskJob* job);
void paste_rows(const MaskJob& job, wide_int task, char* scratch);
void paste_backward(const MaskJob& job, wide_int mask, char* scratch);
void paste_backward_boxes(const MaskJob& job, wide_int mask, char* scratch);
void encode_mask(const MaskJob& job, wide_int mask, char* scratch);  // may throw bad_alloc

// The pixels of a mask in the picture: rows, then columns, of [0, extent) each.
void window_of_mask(const MaskJob& job, wide_int mask, PixelRange window[2]);

}  // namespace roipool
