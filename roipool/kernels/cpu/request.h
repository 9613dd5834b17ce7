// What a call asks of a definition. The definitions themselves are included by those alone who
// evaluate them, so that a change of one compiles little.
#pragma once
#include "job.h"

namespace roipool {

enum Definition : int;  // definitions.h

// A row of definitions.h as text.
struct DefinitionRow {
  const char* name;
  const char* kind;
  int samples_per_ratio;
  int max_per_cell;
};

// The entries that an engine needs for each box.
enum Entries {
  padded_taps,         // sums: taps, as many in each bin of a box where they are few
  transposed_taps,     // their transpose: taps, and the transposed plan
  taps_with_gradient,  // gradients of boxes: taps with their derivatives
  listed_samples       // maxima
};

// Along which axis of the maps; it numbers the coordinates of a corner.
enum Direction { across, down, deep };

// The third axis of volumes: their planes follow each other as rows of one map.
struct Depth {
  int bins;           // 0: maps are no volumes
  wide_int planes;    // of a map
  wide_int sampling;  // as `Request::sampling`
  double scale;       // as `Request::scale`
  double row_scale;   // instead of `Request::scale` for rows
};

// The definition of one call with its options, for every box.
struct Request {
  Definition definition;
  bool double_precision;
  Entries entries;
  double scale;
  wide_int sampling[2];  // rows, columns
  bool aligned;
  double angle_scale;      // multiplies a box's angle to give radians, counter-clockwise
  double offset_factor;    // multiplies offsets of bins to give shares of the box's sides
  const void* boxes;       // as float or double, `numbers` of each: x1, y1, x2, y2, and where bins
                           // are moved the offsets by x of all bins, then those by y; or of volumes
                           // x1, y1, z1, x2, y2, z2; or for a pointwise definition centre x,
                           // centre y, width, height, angle
  const wide_int* images;  // [boxes]; negative: the box reads nothing
  Watch* watch;            // null: the call cannot be interrupted
  Depth depth;
  // Set by `arrange_bins`.
  wide_int numbers;
  bool moves_bins;
  int bins_down, bins_across;
  wide_int map_rows, map_columns;
};

// Whether its maps are volumes.
inline bool has_depth(const Request& request) { return knows_volumes && request.depth.bins > 0; }

}  // namespace roipool
