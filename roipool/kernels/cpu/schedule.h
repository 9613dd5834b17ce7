// How the work of a call is divided into tasks, and how much scratch memory a thread needs for one.
// Runs once per call, before the parallel part.
#pragma once
#include <algorithm>

#include "../config.h"
#include "non_temporal.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// A thread may allocate this much for vectors of channels; beyond it channels are computed one by
// one.
const wide_int max_scratch_bytes = 1LL << 29;

// Bins that are computed before they are written: few enough for the nearest cache.
const wide_int bins_of_tile = 256;

// The cells that a box reads; all zero where there are none.
inline Rectangle window_of_box(const Job& job, wide_int box) {
  Rectangle window = {job.rows.window_first[box], job.rows.window_last[box],
                      job.columns.window_first[box], job.columns.window_last[box]};
  if (window.cells() <= 0) return {0, 0, 0, 0};
  if (is_volume(job)) {
    const AxisPlan& rows = job.volume->rows;
    window.rows_of_plane = rows.size;
    window.read_of_plane = rows.window_last[box] - rows.window_first[box];
  }
  return window;
}

// Positions [begin, end) in `box_order`.
struct BoxRange {
  wide_int begin;
  wide_int end;
};

inline BoxRange boxes_of_image(const Job& job, wide_int image) {
  return {job.image_begin[image], job.image_begin[image + 1]};
}

// Where a part of `count` units begins. From one to the next, parts shrink to a third: all threads
// wait for the last ones.
inline wide_int begin_of_part(const Job& job, wide_int count, wide_int part) {
  return count * part * (3 * job.parts - part) / (2 * job.parts * job.parts);
}

inline BoxRange boxes_of_part(const Job& job, wide_int image, wide_int part) {
  const BoxRange all = boxes_of_image(job, image);
  const wide_int count = all.end - all.begin;
  return {all.begin + begin_of_part(job, count, part),
          all.begin + begin_of_part(job, count, part + 1)};
}

// Rows [first, last) of a map.
struct RowRange {
  wide_int first;
  wide_int last;
};

// The rows that a part of a backward owns.
inline RowRange owned_rows(const Job& job, wide_int part) {
  return {begin_of_part(job, job.rows.size, part), begin_of_part(job, job.rows.size, part + 1)};
}

// Where a part of a backward adds to the features of an image: the rows of `window`, the window of
// the image's boxes, that are its own.
inline Rectangle rows_of_part(const Job& job, const Rectangle& window, wide_int part) {
  const RowRange own = owned_rows(job, part);
  const Rectangle rows = {maximum(window.top, own.first), minimum(window.bottom, own.last),
                          window.left, window.right};
  return rows.top < rows.bottom ? rows : Rectangle{own.first, own.first, 0, 0};
}

// What some boxes read.
struct Reach {
  Rectangle window = {0, 0, 0, 0};  // around all of them
  wide_int cells = 0;               // sum of what they read,
  wide_int max_cells = 0;           // the largest of their own windows
  wide_int max_width = 0;           // columns

  void add(const Rectangle& box) {
    if (box.cells() == 0) return;
    if (cells == 0) window = {box.top, box.bottom, box.left, box.right};
    window.top = minimum(window.top, box.top);
    window.bottom = maximum(window.bottom, box.bottom);
    window.left = minimum(window.left, box.left);
    window.right = maximum(window.right, box.right);
    cells += box.read_cells();
    max_cells = maximum(max_cells, box.cells());
    max_width = maximum(max_width, box.width());
  }
};

inline Reach reach_of(const Job& job, BoxRange range) {
  Reach reach;
  for (wide_int index = range.begin; index < range.end; ++index) {
    reach.add(window_of_box(job, job.box_order[index]));
  }
  return reach;
}

// Where a backward keeps the sums of an image whose boxes have this reach. Chunks add to the sums
// of those before them, wherever these are.
inline Rectangle window_of_sums(const Job& job, const Reach& reach) {
  return job.chunk.is_whole_call() ? reach.window
                                   : Rectangle{0, job.rows.size, 0, job.columns.size};
}

// Whether a backward leaves the sums of an image without boxes where they are.
inline bool keeps_sums(const Job& job) {
  return !job.chunk.is_first && (!job.chunk.is_last || job.sums == job.output);
}

inline wide_int bytes_of_value(const Job& job) { return job.storage == float64_storage ? 8 : 4; }
inline wide_int bytes_of_stored(const Job& job) {
  return is_computed_type(job) ? bytes_of_value(job) : 2;
}
inline int lanes_of(const Job& job) { return static_cast<int>(64 / bytes_of_value(job)); }

// Whether a maximum's gradients are added directly to the planes of the output.
inline bool owns_planes(const Job& job) { return is_computed_type(job) && !job.channels_last; }

// Whether a block's features, unless they are integers, and its pooled values can be used in place:
// already in the computed type, channels of a cell side by side.
inline bool is_direct(const Job& job, const Block& block, int lanes) {
  return is_computed_type(job) &&
         (block.single || (job.channels_last && block.channels % lanes == 0));
}

inline wide_int whole_lines(wide_int bytes) { return (bytes + 63) / 64 * 64; }

// Whether a result of so many values in each channel is written by non-temporal stores.
inline bool uses_non_temporal_stores(const Job& job, wide_int values) {
  return has_non_temporal_stores &&
         values * job.channels * bytes_of_stored(job) >= job.min_non_temporal_bytes;
}

// Integers are packed for each box from windows of more cells on: those of a picture would be a
// copy of it as float. A window that takes more memory is packed one channel at a time.
const wide_int max_cells_of_integers = 1LL << 18;
const wide_int max_bytes_of_integers = 1LL << 26;

// Whether integers are packed: averages convert bytes where they read them.
inline bool packs_integers(const Job& job, bool of_maximum) {
  return of_maximum ? holds_integers(job) : holds_16_bit_integers(job);
}

// Rows of 16-bit integers that an average of pixels converts at once.
const wide_int converted_rows = 4;

// Whether an average has few channels, all of which lie side by side, or each in a plane.
inline bool has_pixels(const Job& job) {
  return job.storage != float64_storage && job.channels <= channels_of_pixel &&
         job.arrangement == crossed_bins;
}

// Sets narrow, the sizes of scratch memory, and tasks: for each thread a row of up to `row_sums`
// sums and tiles of `tile` bins, each of the job's vectors, and `packed` vectors of cells.
inline void size_tasks(Job& job, wide_int row_sums, wide_int tile, wide_int packed,
                       bool of_maximum = false) {
  const int lanes = lanes_of(job);
  const wide_int value = bytes_of_value(job);
  // A vector's indices are 32-bit beside float; a single channel's are 64-bit.
  const wide_int vectors = packed + (row_sums + tile) * job.vectors;
  const bool packs = packs_integers(job, of_maximum);
  job.narrow = job.channels < min_padded_channels || job.wide_argmax ||
               vectors * lanes * value > (packs ? max_bytes_of_integers : max_scratch_bytes);
  const wide_int width = job.narrow ? 1 : lanes;
  const bool never_packs = job.pixels || (job.narrow && is_computed_type(job) && !packs);
  const wide_int pixel = job.whole_pixels ? job.channels : width;
  // A row of bins of a narrower type is pooled beside the sums.
  const wide_int pooled = job.pixels && !is_computed_type(job) ? job.columns.bins * pixel : 0;
  const wide_int rows = 1 + (holds_16_bit_integers(job) ? converted_rows : 0);
  const wide_int sums = rows * row_sums * job.vectors * pixel + pooled;
  // A single channel, or pixel, is loaded with what lies behind it.
  job.row_sum_bytes = whole_lines((sums + (job.narrow ? channels_of_pixel : 0)) * value);
  // Values, argmax, and what is transposed before it is written by non-temporal stores.
  job.tiles = 1 + (job.argmax || job.nan_restarts) + job.non_temporal;
  job.tile_bytes = whole_lines(tile * job.vectors * maximum<wide_int>(width * value, 8));
  job.scratch_bytes = job.row_sum_bytes + job.tiles * job.tile_bytes;
  if (!never_packs) job.scratch_bytes += whole_lines(packed * width * value);
  job.tasks = job.images * blocks_of_image(job, lanes).count() * job.parts;
}

// Parts of an image that give every thread a few tasks, of at least `min_units` units each.
inline wide_int parts_for(const Job& job, int threads, wide_int units, wide_int min_units) {
  const wide_int blocks = job.images * blocks_of_image(job, lanes_of(job)).count();
  const wide_int target_tasks = threads > 1 ? 4 * threads : 1;
  const wide_int parts = blocks > 0 ? (target_tasks + blocks - 1) / blocks : 1;
  return maximum<wide_int>(1, minimum<wide_int>(parts, units / min_units));
}

inline wide_int bins_of_boxes(const Job& job) { return job.chunk.boxes() * bins_of_box(job); }
inline wide_int bins_of_rows(const Job& job) { return job.tile_rows * job.columns.bins; }

inline void size_tile(Job& job) {
  const wide_int rows = bins_of_tile / (job.vectors * maximum<wide_int>(1, job.columns.bins));
  job.tile_rows = maximum<wide_int>(1, minimum<wide_int>(rows, rows_of_bins(job)));
}

// Whether whole vectors of channels are read where they lie, side by side. Averages convert
// narrower types where they read them.
inline bool keeps_channels_together(const Job& job, bool of_maximum) {
  if (of_maximum) return works_in_place(job);
  return job.channels_last && !packs_integers(job, of_maximum);
}

// Cells with few channels side by side are copied slowly: as many vectors as a core's cache holds,
// or two, which fill a cache line in half precision, unless half of the scratch memory cannot hold
// them.
inline int vectors_of_block(const Job& job, bool of_maximum) {
  if (!job.channels_last) return 1;
  wide_int vectors = job.channels / lanes_of(job);
  if (!keeps_channels_together(job, of_maximum)) {
    const wide_int bytes = maximum<wide_int>(1, job.rows.size * job.columns.size) * 64;
    const wide_int least = 4 * bytes > max_scratch_bytes ? 1 : 2;
    vectors = minimum(vectors, maximum(least, job.part_bytes / bytes));
  }
  return static_cast<int>(clamp(vectors, 1, max_vectors));
}

// Twice the centre of a box's window along one axis.
inline wide_int centre_of_window(const AxisPlan& axis, wide_int box) {
  return wide_int(axis.window_first[box]) + axis.window_last[box];
}

// The axis along which the centres of some boxes lie farther apart.
inline const AxisPlan& longer_axis(const Job& job, BoxRange range) {
  const auto extent = [&](const AxisPlan& axis) {
    wide_int least = INT64_MAX, most = 0;
    for (wide_int index = range.begin; index < range.end; ++index) {
      const wide_int centre = centre_of_window(axis, job.box_order[index]);
      least = minimum(least, centre);
      most = maximum(most, centre);
    }
    return most - least;
  };
  return extent(job.rows) > extent(job.columns) ? job.rows : job.columns;
}

// Orders the boxes of parts [first, last) of an image so that those of a part are neighbours: it
// halves them along the longer axis, and so on.
inline void order_by_place(const Job& job, wide_int image, wide_int first, wide_int last) {
  if (last - first < 2) return;
  const wide_int middle = (first + last) / 2;
  const BoxRange range = {boxes_of_part(job, image, first).begin,
                          boxes_of_part(job, image, last - 1).end};
  const AxisPlan& axis = longer_axis(job, range);
  std::nth_element(job.box_order + range.begin,
                   job.box_order + boxes_of_part(job, image, middle).begin,
                   job.box_order + range.end, [&axis](wide_int one, wide_int other) {
                     return centre_of_window(axis, one) < centre_of_window(axis, other);
                   });
  order_by_place(job, image, first, middle);
  order_by_place(job, image, middle, last);
}

// What the parts of a forward's images read: their windows in `cells` and `max_cells`, and their
// boxes.
struct ReachOfParts {
  wide_int cells = 0, max_cells = 0;
  Reach boxes;
};

inline ReachOfParts reach_of_parts(const Job& job) {
  ReachOfParts all;
  for (wide_int number = 0; number < job.images * job.parts; ++number) {
    const Reach part = reach_of(job, boxes_of_part(job, number / job.parts, number % job.parts));
    all.cells += part.window.cells();
    all.max_cells = maximum(all.max_cells, part.window.cells());
    all.boxes.cells += part.cells;
    all.boxes.max_cells = maximum(all.boxes.max_cells, part.max_cells);
    all.boxes.max_width = maximum(all.boxes.max_width, part.max_width);
  }
  return all;
}

// Whether it costs less to order boxes by place, once, than what a thread packs because neighbours
// are in different parts.
inline bool is_worth_ordering(const Job& job, int threads, const ReachOfParts& given,
                              bool of_maximum) {
  if (job.parts < 2 || keeps_channels_together(job, of_maximum)) return false;
  const wide_int blocks = blocks_of_image(job, lanes_of(job)).count();
  wide_int visits = 0;
  for (wide_int parts = job.parts; parts > 1; parts /= 2) visits += job.chunk.boxes();
  return minimum(given.cells, given.boxes.cells) * blocks / threads > visits;
}

// The boxes of a forward's part, at least: so many of few bins, one of a large crop.
inline wide_int least_boxes_of_part(const Job& job) {
  return clamp(4096 / maximum<wide_int>(1, bins_of_box(job)), 1, 16);
}

// Forward: pack either the window of a part's boxes once per channel block or each box's own,
// whichever copies less; divide an image's boxes where there are too few blocks for all threads.
inline void schedule_forward(Job& job, int threads, bool of_maximum) {
  job.pixels = !of_maximum && has_pixels(job);
  job.whole_pixels = job.pixels && job.channels_last && job.channels > 1;
  job.vectors = vectors_of_block(job, of_maximum);
  size_tile(job);
  job.non_temporal = uses_non_temporal_stores(job, bins_of_boxes(job));
  job.parts = parts_for(job, threads, job.chunk.boxes(), least_boxes_of_part(job));
  ReachOfParts reach = reach_of_parts(job);
  if (is_worth_ordering(job, threads, reach, of_maximum)) {
    for (wide_int image = 0; image < job.images; ++image) {
      order_by_place(job, image, 0, job.parts);
    }
    reach = reach_of_parts(job);
  }
  job.pack_each_box = reach.boxes.cells < reach.cells ||
                      (holds_integers(job) && reach.max_cells > max_cells_of_integers);
  wide_int packed = job.pack_each_box ? reach.boxes.max_cells : reach.max_cells;
  if (!keeps_channels_together(job, of_maximum)) packed *= job.vectors;
  size_tasks(job, reach.boxes.max_width, bins_of_rows(job), packed, of_maximum);
}

// Many channels together are added up in parts of the maps that stay in a core's own cache. With
// few channels it costs more to visit boxes again that lie in several parts.
inline wide_int parts_of_backward(const Job& job, int threads) {
  const wide_int parts = parts_for(job, threads, job.rows.size, 16);
  if (!job.channels_last || (is_computed_type(job) && !job.non_temporal)) return parts;
  const wide_int bytes = job.rows.size * job.columns.size * job.vectors * 64;
  return maximum(parts, minimum(job.rows.size, bytes / job.part_bytes));
}

// Backward: a task owns rows of the maps of its block, so that nothing is added by two threads.
inline void schedule_backward(Job& job, int threads, bool of_maximum) {
  job.pixels = job.whole_pixels = false;
  job.vectors = vectors_of_block(job, of_maximum);
  job.tile_rows = rows_of_bins(job);
  job.non_temporal = uses_non_temporal_stores(job, job.images * job.rows.size * job.columns.size);
  job.parts = of_maximum ? 1 : parts_of_backward(job, threads);
  wide_int packed = 0, max_width = 0;
  for (wide_int image = 0; image < job.images; ++image) {
    const Reach reach = reach_of(job, boxes_of_image(job, image));
    max_width = maximum(max_width, reach.max_width);
    for (wide_int part = 0; part < job.parts; ++part) {
      packed = maximum(packed, rows_of_part(job, window_of_sums(job, reach), part).cells());
    }
  }
  const wide_int row = job.columns.size;  // of cells
  if (of_maximum) {
    size_tasks(job, 0, row, owns_planes(job) ? 0 : packed * job.vectors);
  } else {
    size_tasks(job, rows_of_bins(job) * max_width, maximum(row, bins_of_rows(job)),
               packed * job.vectors);
  }
}

// Gradient of boxes: a task is one box, all channels.
inline void schedule_boxes(Job& job) {
  job.pixels = job.whole_pixels = false;
  job.vectors = 1;
  size_tile(job);
  job.parts = 1;
  job.pack_each_box = true;
  size_tasks(job, 0, bins_of_rows(job), reach_of(job, {0, job.chunk.boxes()}).max_cells);
  job.boxes_at_once = 1;
  job.tasks = job.chunk.boxes();
}

// The boxes of a task of the gradient of boxes.
inline BoxRange boxes_of_gradient(const Job& job, wide_int task) {
  const wide_int begin = job.chunk.begin + task * job.boxes_at_once;
  return {begin, minimum(begin + job.boxes_at_once, job.chunk.begin + job.chunk.boxes())};
}

// ---- Position-sensitive averages: position_sensitive.cpp

// Whether the planes of groups can be used in place: in the computed type, each on its own.
inline bool uses_planes_in_place(const Job& job) {
  return is_computed_type(job) && !job.channels_last;
}

// Sets the scratch memory for planes of up to `cells` cells: a row of groups, or one at a time
// where they are too large.
inline void size_planes(Job& job, wide_int cells) {
  const wide_int bytes = whole_lines(cells * bytes_of_value(job));
  job.planes = bytes * job.group_columns > max_scratch_bytes ? 1 : job.group_columns;
  job.scratch_bytes = uses_planes_in_place(job) ? 0 : bytes * job.planes;
}

// The cells that a task reads of a plane, or of a backward those that it owns.
inline wide_int max_cells_of_task(const Job& job, bool is_forward) {
  if (!is_forward) return (owned_rows(job, 0).last + 1) * job.columns.size;  // the most
  wide_int cells = 0;
  for (wide_int image = 0; image < job.images; ++image) {
    cells = maximum(cells, reach_of(job, boxes_of_image(job, image)).window.cells());
  }
  return cells;
}

// A task is a row of groups of one channel; of a forward for some of the boxes, of a backward for
// some rows of the maps, which are its own. Gradient of boxes: a task is one box, or where bins
// move by themselves several, which read the planes of a group before those of the next.
inline void schedule_groups(Job& job, int threads, bool is_forward, bool of_boxes) {
  if (of_boxes) {
    const wide_int boxes = job.chunk.boxes(), most = 64;
    const wide_int share = job.arrangement == paired_bins ? boxes / (4 * threads) : 1;
    job.boxes_at_once = clamp(share, wide_int(1), most);
    size_planes(job, reach_of(job, {0, boxes}).max_cells);
    job.tasks = (boxes + job.boxes_at_once - 1) / job.boxes_at_once;
    return;
  }
  const wide_int rows = job.images * job.channels * job.group_rows;
  const wide_int wanted = threads > 1 && rows > 0 ? (4 * threads + rows - 1) / rows : 1;
  const wide_int units = is_forward ? job.chunk.boxes() : job.rows.size;
  job.parts = maximum<wide_int>(1, minimum(wanted, units / 16));
  job.tasks = rows * job.parts;
  size_planes(job, max_cells_of_task(job, is_forward));
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
