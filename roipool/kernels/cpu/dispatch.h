// Shared by the average and the maximum engine: the choice of a task's types, and the loop over the
// boxes of an image with their features.
#pragma once
#include <type_traits>

#include "schedule.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// The part of the work that an operation is run on, besides its block.
struct Part {
  wide_int number;  // of the part of the image
  wide_int box;     // for the gradient of one box
  char* scratch;
};

inline char* tile_of(const Job& job, char* scratch, int number = 0) {
  return scratch + job.row_sum_bytes + number * job.tile_bytes;
}
inline char* packed_of(const Job& job, char* scratch) { return tile_of(job, scratch, job.tiles); }

// Writes `count` neighbours, bins or cells, of a block's channels from lanes side by side.
template <typename Storage, typename Value>
__attribute__((noinline)) void write_lanes(const Job& job, const Value* from, int lanes,
                                           wide_int count, int channels, Storage* to,
                                           const Strides& strides, char* scratch) {
  if (job.non_temporal && strides.column == 1) {
    Storage* transposed = reinterpret_cast<Storage*>(tile_of(job, scratch, job.tiles - 1));
    lanes_to_rows(from, lanes, count, channels, transposed, count);
    copy_runs_non_temporal(transposed, channels, count, to, strides.channel);
    return;
  }
  if constexpr (std::is_same<Storage, Value>::value) {
    if (job.non_temporal && channels == lanes) {
      copy_runs_non_temporal(from, count, channels, to, strides.column);
      return;
    }
  }
  from_lanes(from, lanes, count, channels, to, strides);
}

// The type that values of a storage type are computed in.
template <typename Storage>
using ValueOf = typename ComputeOf<Storage>::type;

template <typename Storage>
constexpr bool is_computed = std::is_same<ValueOf<Storage>, Storage>::value;

template <typename Operation, typename Storage>
void run_stored(const Job& job, const Block& block, const Part& part) {
  typedef ValueOf<Storage> Value;
  typedef typename VectorOf<Value>::type Vector;
  if (block.single) {
    Operation::template run<Value, 1, Storage>(job, block, part);
  } else if (block.vectors == 1) {
    Operation::template run<Vector, 1, Storage>(job, block, part);
  } else if constexpr (Operation::takes_several_vectors) {
    Operation::template run<Vector, 0, Storage>(job, block, part);
  }
}

// Runs Operation::run<Vector, Vectors, Storage> for block number `number` of the call. Vectors is
// the number of vectors in the block, or 0, which stands for block.vectors.
template <typename Operation>
void run_block(const Job& job, wide_int number, const Part& part) {
  const Block block = block_of_task(job, number, lanes_of(job));
  switch (job.storage) {
    case float16_storage: run_stored<Operation, Float16>(job, block, part); break;
    case bfloat16_storage: run_stored<Operation, Bfloat16>(job, block, part); break;
    case float32_storage: run_stored<Operation, float>(job, block, part); break;
    case float64_storage: run_stored<Operation, double>(job, block, part); break;
  }
}

// A task is one block of channels in one part of an image.
template <typename Operation>
void run_task(const Job& job, wide_int task, char* scratch) {
  run_block<Operation>(job, task / job.parts, {task % job.parts, -1, scratch});
  if (job.non_temporal) finish_non_temporal_stores();
}

// The features of a block's channels: their address and strides.
template <typename Storage>
struct Maps {
  Storage* first;
  Strides strides;
  int channels;

  Storage* at(wide_int y, wide_int x) const { return first + y * strides.row + x * strides.column; }
};

template <typename Storage, typename Pointer>
inline Maps<Storage> maps_of(const Job& job, const Block& block, Pointer array) {
  const Strides strides = strides_of(job, job.rows.size, job.columns.size);
  Storage* maps = static_cast<Storage*>(array) + block.image * strides.outer;
  return {maps + block.first_channel * strides.channel, strides, block.channels};
}

// Maps used in place: of the computed type, or converted where they are read.
template <typename Value, typename Storage>
inline View<Value> view_in_place(const Maps<Storage>& maps, int vectors) {
  return {reinterpret_cast<Value*>(maps.first), maps.strides.row, maps.strides.column, vectors};
}

// Copies a window of maps to lanes side by side.
template <typename Storage, typename Value>
__attribute__((noinline)) void pack_window(const Maps<Storage>& maps, const Rectangle& window,
                                           int lanes, const View<Value>& to) {
  for_each_read_row(window, [&](wide_int y) {
    to_lanes(maps.at(y, window.left), maps.strides, maps.channels, window.width(), lanes,
             to.at(y, window.left));
  });
}

// The same for integers.
inline void pack_integers(const Job& job, const Block& block, const Rectangle& window, int lanes,
                          const View<float>& to) {
  const auto pack = [&](auto integer) {
    pack_window(maps_of<const decltype(integer)>(job, block, job.features), window, lanes, to);
  };
  switch (job.feature_storage) {
    case stored_as_pooled: break;
    case stored_as_uint8: pack(uint8_t()); break;
    case stored_as_int8: pack(int8_t()); break;
    case stored_as_uint16: pack(uint16_t()); break;
    case stored_as_int16: pack(int16_t()); break;
  }
}

// A window of a block's features: copied, unless it can be used in place.
template <typename Storage>
__attribute__((noinline)) View<const ValueOf<Storage>> map_of_window(const Job& job,
                                                                     const Block& block, int lanes,
                                                                     const Rectangle& window,
                                                                     char* scratch) {
  typedef ValueOf<Storage> Value;
  if (is_direct(job, block, lanes) && !holds_integers(job)) {
    const Maps<const Storage> maps = maps_of<const Storage>(job, block, job.features);
    return view_in_place<const Value>(maps, block.vectors);
  }
  Value* packed = reinterpret_cast<Value*>(packed_of(job, scratch));
  const int width = lanes * block.vectors;
  const View<Value> view =
      packed_view(packed, window.top, window.left, window.width(), lanes, block.vectors);
  if constexpr (std::is_same<Storage, float>::value) {
    if (holds_integers(job)) {
      pack_integers(job, block, window, width, view);
      return {view.base, view.row, view.column, view.vectors};
    }
  }
  pack_window(maps_of<const Storage>(job, block, job.features), window, width, view);
  return {view.base, view.row, view.column, view.vectors};
}

// Pools a box from a map. A pointer, here and below, so that the loops over boxes are compiled once
// for each type rather than for each engine and width of vectors.
template <typename Value>
using PoolBox = void (*)(const Job&, const Block&, wide_int box, const View<const Value>& map,
                         char* scratch);

// Pools the boxes of a part.
template <typename Storage>
__attribute__((noinline)) void pool_boxes(const Job& job, const Block& block, const Part& part,
                                          int lanes, PoolBox<ValueOf<Storage>> pool_box) {
  const BoxRange range = boxes_of_part(job, block.image, part.number);
  View<const ValueOf<Storage>> map;
  if (!job.pack_each_box) {
    const Rectangle window = reach_of(job, range).window;
    map = map_of_window<Storage>(job, block, lanes, window, part.scratch);
  }
  for (wide_int index = range.begin; index < range.end && !is_interrupted(job); ++index) {
    const wide_int box = job.box_order[index];
    if (job.pack_each_box) {
      const Rectangle window = window_of_box(job, box);
      map = map_of_window<Storage>(job, block, lanes, window, part.scratch);
    }
    pool_box(job, block, box, map, part.scratch);
  }
}

// Copies the sums of a window to rows [first, last) of the output, which is zero outside it.
template <typename Storage, typename Value>
void unpack(const Job& job, const Maps<Storage>& maps, const View<Value>& sums,
            const Rectangle& window, wide_int first, wide_int last, int lanes, char* scratch) {
  const wide_int width = job.columns.size;
  for (wide_int y = first; y < last; ++y) {
    if (y < window.top || y >= window.bottom) {
      clear_cells(maps.at(y, 0), maps.strides, maps.channels, width);
      continue;
    }
    if (!job.non_temporal) {
      prefetch_for_write(maps.at(y + 1, window.left), maps.strides, maps.channels, window.width());
    }
    if (y == window.top) clear_cells(maps.at(y, 0), maps.strides, maps.channels, window.left);
    write_lanes(job, sums.at(y, window.left), lanes, window.width(), maps.channels,
                maps.at(y, window.left), maps.strides, scratch);
    // What is right of the window lies beside what is left of it in the next row.
    const wide_int next_left = y + 1 < window.bottom ? window.left : 0;
    clear_cells(maps.at(y, window.right), maps.strides, maps.channels,
                width - window.right + next_left);
  }
}

// The sums that a task owns of a window of an image, in scratch memory: zero, or what the chunks
// before this one left.
template <typename Value>
View<Value> begin_sums(const Job& job, const Block& block, const Rectangle& window, int lanes,
                       char* scratch) {
  Value* packed = reinterpret_cast<Value*>(packed_of(job, scratch));
  const View<Value> sums =
      packed_view(packed, window.top, window.left, window.width(), lanes, block.vectors);
  if (job.chunk.is_first) {
    memset(packed, 0, window.cells() * block.vectors * lanes * sizeof(Value));
  } else {
    pack_window(maps_of<const Value>(job, block, job.sums), window, block.vectors * lanes, sums);
  }
  return sums;
}

// Adds the gradients of a box to rows of a map that its task owns. `next` is the box after it.
template <typename Value>
using AddBox = void (*)(const Job&, const Block&, wide_int box, wide_int next,
                        const View<Value>& map, const Rectangle& owned, char* scratch);

// The boxes of an image, in the order in which a backward adds their gradients to the rows
// [first, last) of its maps.
struct OwnedBoxes {
  const Job& job;
  BoxRange range;
  wide_int first, last;

  Rectangle rows_of(wide_int index) const {
    Rectangle owned = window_of_box(job, job.box_order[index]);
    owned.top = maximum(owned.top, first);
    owned.bottom = minimum(owned.bottom, last);
    return owned;
  }
  // The first box from there on that reads these rows.
  wide_int next_from(wide_int index) const {
    for (; index < range.end; ++index) {
      const Rectangle owned = rows_of(index);
      if (owned.top < owned.bottom) break;
    }
    return index;
  }
};

// The loop of a backward: `add_box` adds to rows that this task alone owns, and that start at zero.
// Then they are written to the output, every cell; or before the last chunk to the sums, which are
// rounded to the output's type once.
template <typename Storage>
__attribute__((noinline)) void own_maps(const Job& job, const Block& block, const Part& part,
                                        int lanes, AddBox<ValueOf<Storage>> add_box) {
  typedef ValueOf<Storage> Value;
  const wide_int first = owned_rows(job, part.number).first;
  const wide_int last = owned_rows(job, part.number).last;
  const BoxRange range = boxes_of_image(job, block.image);
  if (range.begin == range.end && keeps_sums(job)) return;
  const Rectangle window =
      rows_of_part(job, window_of_sums(job, reach_of(job, range)), part.number);
  const Maps<Storage> maps = maps_of<Storage>(job, block, job.output);
  const bool in_place = is_direct(job, block, lanes) && (block.single || !job.non_temporal);
  View<Value> map = view_in_place<Value>(maps, block.vectors);
  if (!in_place) {
    map = begin_sums<Value>(job, block, window, lanes, part.scratch);
  } else if (job.chunk.is_first) {
    for (wide_int y = first; y < last; ++y) {
      clear_cells(maps.at(y, 0), maps.strides, block.channels, job.columns.size);
    }
  }
  const OwnedBoxes boxes = {job, range, first, last};
  for (wide_int index = boxes.next_from(range.begin); index < range.end && !is_interrupted(job);) {
    const wide_int next = boxes.next_from(index + 1);
    const wide_int box = job.box_order[index];
    add_box(job, block, box, next < range.end ? job.box_order[next] : box, map,
            boxes.rows_of(index), part.scratch);
    index = next;
  }
  if (in_place) return;
  const int width_of_cell = block.vectors * lanes;
  if (job.chunk.is_last) {
    unpack(job, maps, map, window, first, last, width_of_cell, part.scratch);
  } else {
    unpack(job, maps_of<Value>(job, block, job.sums), map, window, first, last, width_of_cell,
           part.scratch);
  }
}

// Copies and loops of both engines: maximum.cpp compiles them, average.cpp only calls them.
#define ROIPOOL_SHARED(KEYWORDS, Storage, Value)                                                 \
  KEYWORDS void write_lanes(const Job&, const Value*, int, wide_int, int, Storage*,              \
                            const Strides&, char*);                                              \
  KEYWORDS View<const Value> map_of_window<Storage>(const Job&, const Block&, int,               \
                                                    const Rectangle&, char*);                    \
  KEYWORDS void pool_boxes<Storage>(const Job&, const Block&, const Part&, int, PoolBox<Value>); \
  KEYWORDS void own_maps<Storage>(const Job&, const Block&, const Part&, int, AddBox<Value>);
#define ROIPOOL_ALL_SHARED(KEYWORDS)        \
  ROIPOOL_SHARED(KEYWORDS, Float16, float)  \
  ROIPOOL_SHARED(KEYWORDS, Bfloat16, float) \
  ROIPOOL_SHARED(KEYWORDS, float, float)    \
  ROIPOOL_SHARED(KEYWORDS, double, double)

ROIPOOL_ALL_SHARED(extern template)

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
