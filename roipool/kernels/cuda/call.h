// The argument of a kernel, and the helpers that every kernel needs. A source that includes this
// begins with its #defines: those below, and ROIPOOL_STORAGE. All shared memory is dynamic:
// the host states its size. Some of it is read 16 bytes at a time.
#pragma once
#include "../strides.h"
#include "../visit_bins.h"
#include "storage.h"

alignas(16) extern __shared__ double roipool_shared_memory[];

namespace roipool {

#define ROIPOOL_JOIN_TEXT(first, second) first##second
#define ROIPOOL_JOIN(first, second) ROIPOOL_JOIN_TEXT(first, second)
const Definition definition = ROIPOOL_JOIN(define_, ROIPOOL_DEFINITION);
const bool channels_last = ROIPOOL_CHANNELS_LAST;  // NHWC rather than NCHW
const int pack = ROIPOOL_PACK;  // channels of one bin that a thread of a forward computes
// Whether each bin is pooled from channels of its own group of bins.
const bool position_sensitive = ROIPOOL_POSITION_SENSITIVE;
// Whether maps are volumes: the rows of all planes follow each other, as those of their bins do.
const bool of_volumes = ROIPOOL_OF_VOLUMES;
// Whether a block has the plan of its box in shared memory, or in scratch where it does not fit.
const bool plan_is_shared = ROIPOOL_PLAN_IS_SHARED;
typedef ROIPOOL_OFFSET Offset;  // into one image: int or wide_int

// Chooses between a type for volumes and one for maps.
template <bool is_of_volumes, typename OfVolumes, typename OfMaps>
struct Select {
  typedef OfMaps type;
};
template <typename OfVolumes, typename OfMaps>
struct Select<true, OfVolumes, OfMaps> {
  typedef OfVolumes type;
};

// Elements that lie side by side, read or written at once.
template <typename T, int number>
struct alignas(sizeof(T) * number < 16 ? sizeof(T) * number : 16) Items {
  T item[number];
};
template <int number, typename T>
__device__ inline bool is_aligned(const T* address) {
  return reinterpret_cast<unsigned long long>(address) % sizeof(Items<T, number>) == 0;
}

// One axis of the call.
struct AxisCall {
  wide_int bins;      // bins of the output
  wide_int sampling;  // samples per bin; 0: adaptive
  wide_int capacity;  // entries of a box's plan that there is room for
  wide_int groups;    // of bins; 1 unless position-sensitive
};

// Depth and the rows of one plane of volumes.
struct VolumeCall {
  AxisCall depth, rows;
  wide_int planes, plane_rows;  // cells
  double depth_scale, row_scale;
};

// One of the maps that boxes are on; mostly there is one.
struct Level {
  unsigned long long address;  // of several: where the map begins
  wide_int rows, columns;      // cells
  wide_int first_tile;         // backward: how many tiles those before it have
  double scale;
};
const int level_count = ROIPOOL_LEVELS;

// The one argument beside the arrays; _cuda/arguments.py has the same fields in the same order.
struct Call {
  wide_int images;           // of each level
  wide_int channels, boxes;  // channels of pooled values
  // Elements from one box to the next, from one coordinate to the next, from one box's image
  // number to the next: columns of a table are read in place.
  wide_int box_stride, coordinate_stride, image_stride;
  AxisCall rows, columns;
  VolumeCall volume;
  // Bytes of a box's plan without its head, and the offset of its entries.
  wide_int plan_bytes, entries_at;
  double empty_value;    // of a bin that has nothing to pool
  double lowest;         // where a running maximum starts
  double angle_scale;    // multiplies a box's angle to give radians, counter-clockwise
  double offset_factor;  // multiplies a bin's offset to give the share of its box's side
  // Work, in the words of docs/glossary.md. Forward: `tasks` = boxes * `parts`; a part has `share`
  // packs (NCHW) or bins (NHWC), and of NCHW features one of `pieces`, which has `piece_rows` rows
  // of bins. Backward: a task for each of `tiles` tiles of cells and `lanes` channels. unpool.cu:
  // `parts` tasks for each `lanes` channels of an image, each of `share` cells.
  wide_int tasks, parts, share, pieces, piece_rows;
  wide_int lanes, tile_rows, tile_columns, tiles;
  // Backward of averages: more bins than `crowd` make a tile crowded; crowded tiles have at most
  // `portions` portions, and what counts them takes so many bytes.
  wide_int crowd, portions, tally_bytes;
  // Shared memory for passing values between threads: sums per warp (average forward), or bins of
  // one box at a time (backward of a maximum), as stage_rows by stage_columns.
  wide_int stage, stage_rows, stage_columns;
  int image_kind;  // how image numbers are stored: an ImageKind
  int aligned;
  int argmax_is_cell;   // argmax is y * width + x rather than the index of a sample
  int outside_is_zero;  // a sample outside the map takes part in a maximum, as 0
  int wide_argmax;      // int64 rather than int32
  Level levels[level_count];
};

enum ImageKind {
  int32_images,
  int64_images,
  float32_images,
  float64_images,
  cut_float32_images,  // to whole numbers
  cut_float64_images
};

// Division of numbers that are not negative. Nearly all fit into 32 bits; the compiler's own 64-bit
// division is a call, for which a kernel would have to save its registers.
__device__ inline wide_int divide(wide_int number, wide_int by) {
  if (((number | by) >> 32) == 0) {
    return static_cast<unsigned>(number) / static_cast<unsigned>(by);
  }
  wide_int quotient = 0;
  unsigned long long rest = 0;
#pragma unroll 1
  for (int bit = 62; bit >= 0; --bit) {
    rest = rest << 1 | (number >> bit & 1);
    if (rest < static_cast<unsigned long long>(by)) continue;
    rest -= by;
    quotient |= 1LL << bit;
  }
  return quotient;
}

struct Division {
  wide_int quotient;
  wide_int rest;
};
__device__ inline Division divide_with_rest(wide_int number, wide_int by) {
  const wide_int quotient = divide(number, by);
  return {quotient, number - quotient * by};
}

// Counts through the cells of a window, row by row, `by` at a time.
struct Walk {
  int row;
  int column;
  int width;
  int rows_per_step;
  int columns_per_step;

  __device__ Walk(int start, int width, int by)
      : row(start / width),
        column(start % width),
        width(width),
        rows_per_step(by / width),
        columns_per_step(by % width) {}
  __device__ void step() {
    row += rows_per_step;
    column += columns_per_step;
    if (column < width) return;
    column -= width;
    ++row;
  }
};

// The image of a box, or -1 if its batch index is out of range: it then pools nothing and gets no
// gradient.
__device__ inline wide_int checked_image(double number, wide_int images) {
  const bool is_valid =
      number >= 0 && number < static_cast<double>(images) && number == floor(number);
  return is_valid ? static_cast<wide_int>(number) : -1;
}
__device__ inline wide_int checked_image(wide_int number, wide_int images) {
  return number >= 0 && number < images ? number : -1;
}

// Where boxes are: columns of a table, the batch index of each, and, of several maps, the number of
// its level.
struct Boxes {
  const Value* corners;
  const void* images;
  const wide_int* levels;
};

__device__ inline wide_int image_of_box(const void* images, const Call& call, wide_int box) {
  const wide_int at = box * call.image_stride;
  switch (call.image_kind) {
    case int32_images:
      return checked_image(wide_int(static_cast<const int*>(images)[at]), call.images);
    case int64_images: return checked_image(static_cast<const wide_int*>(images)[at], call.images);
  }
  const bool is_double = call.image_kind == float64_images || call.image_kind == cut_float64_images;
  double number = is_double ? static_cast<const double*>(images)[at]
                            : double(static_cast<const float*>(images)[at]);
  if (call.image_kind >= cut_float32_images) number = number < 0 ? ceil(number) : floor(number);
  return checked_image(number, call.images);
}

// JAX's levels are int32.
__device__ inline wide_int level_of_box(const Boxes& boxes, wide_int box) {
#ifdef ROIPOOL_NARROW_LEVELS
  return reinterpret_cast<const int*>(boxes.levels)[box];
#else
  return boxes.levels[box];
#endif
}

// The image of a box, counted through the levels; negative: none.
__device__ inline wide_int image_of_box(const Boxes& boxes, const Call& call, wide_int box) {
  const wide_int image = image_of_box(boxes.images, call, box);
  if (boxes.levels == nullptr) return image;
  const wide_int level = level_of_box(boxes, box);
  return image < 0 || level < 0 || level >= level_count ? -1 : level * call.images + image;
}

// The level of an image, counted so; the first if there is no image.
__device__ inline int level_of_image(const Call& call, wide_int image) {
  return level_count == 1 || image < 0 ? 0 : static_cast<int>(divide(image, call.images));
}

// Groups of bins: each channel of pooled values has a channel of the maps for each of them.
__device__ inline wide_int groups_of(const Call& call) {
  return position_sensitive ? call.rows.groups * call.columns.groups : 1;
}
// The group of a bin along an axis, and the first bin that no earlier group has.
__device__ inline wide_int group_of_bin(const AxisCall& axis, wide_int bin) {
  return axis.groups == axis.bins ? bin : divide(bin * axis.groups, axis.bins);
}
__device__ inline wide_int first_bin_of_group(const AxisCall& axis, wide_int group) {
  if (axis.groups == axis.bins) return group;
  return divide(group * axis.bins + axis.groups - 1, axis.groups);
}

// The map of an image, counted so; of position-sensitive calls, its channels for the first group of
// bins. `maps` is the first level's.
template <typename Element>
struct Map {
  Element* cells;
  Strides strides;
  wide_int group_stride;  // from a channel to the same for the next group

  __device__ Map(const Call& call, Element* maps, wide_int image) {
    const int number = level_of_image(call, image);
    const Level& level = call.levels[number];
    strides =
        strides_of_array(channels_last, call.channels * groups_of(call), level.rows, level.columns);
    group_stride = strides.channel;
    strides.channel *= groups_of(call);
    cells = level_count == 1 ? maps : reinterpret_cast<Element*>(level.address);
    cells += maximum<wide_int>(image - number * call.images, 0) * strides.outer;
  }

  // Where the channels begin that a bin is pooled from.
  __device__ Element* cells_of_bin(const Call& call, wide_int row, wide_int column) const {
    if (!position_sensitive) return cells;
    return cells_of_group(call, group_of_bin(call.rows, row), group_of_bin(call.columns, column));
  }
  __device__ Element* cells_of_group(const Call& call, wide_int row, wide_int column) const {
    return cells + (row * call.columns.groups + column) * group_stride;
  }
};

__device__ inline Strides strides_of_pooled(const Call& call) {
  return strides_of_array(channels_last, call.channels, call.rows.bins, call.columns.bins);
}

}  // namespace roipool
