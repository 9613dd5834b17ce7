// What both engines share: from a task to the types it computes with, and the walk over the boxes
// of an image with their maps at hand.
#pragma once
#include <type_traits>

#include "rows.h"

namespace roipool {
namespace ROIPOOL_ISA {

// What an operation is run on besides its block.
struct Part {
  wide_int number;  // which part of the image
  wide_int box;     // for the gradient of one box
  char* scratch;
};

inline char* tile_of(const Job& job, char* scratch) { return scratch + job.mixed_bytes; }
inline char* packed_of(const Job& job, char* scratch) {
  return scratch + job.mixed_bytes + job.tile_bytes;
}

template <typename Operation, typename Storage>
void run_stored(const Job& job, const Block& block, const Part& part) {
  typedef typename ComputeOf<Storage>::type Value;
  typedef typename VectorOf<Value>::type Vector;
  if (block.single) {
    Operation::template run<Value, 1, Storage>(job, block, part);
  } else if (block.vectors == 1) {
    Operation::template run<Vector, 1, Storage>(job, block, part);
  } else if constexpr (std::is_same<Value, Storage>::value) {
    Operation::template run<Vector, 0, Storage>(job, block, part);
  }
}

// Runs Operation::run<Vector, Vectors, Storage> for block number `number` of the call. Vectors is
// how many of them the block has side by side, or 0: block.vectors.
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
}

// The map of one box's window.
template <typename Vector, typename Storage>
View<const typename Lanes<Vector>::Value> map_of_box(const Job& job, const Block& block,
                                                     wide_int box, char* scratch) {
  typedef typename Lanes<Vector>::Value Value;
  const int lanes = Lanes<Vector>::count;
  const Maps<const Storage> maps = maps_of<const Storage>(job, block, job.features);
  if (is_direct(job, block, lanes)) return view_in_place<const Value>(maps, block.vectors);
  const Rectangle window = window_of_box(job, box);
  Value* packed = reinterpret_cast<Value*>(packed_of(job, scratch));
  const View<Value> view = packed_view(packed, window.top, window.left, window.width(), lanes);
  for (wide_int y = window.top; y < window.bottom; ++y) {
    pack_row(maps, window, y, lanes, view.at(y, window.left));
  }
  return {view.base, view.row, view.column};
}

// Calls visit(box, map) for the boxes of a part.
template <typename Vector, typename Storage, typename Visit>
void visit_maps(const Job& job, const Block& block, const Part& part, Visit visit) {
  typedef typename Lanes<Vector>::Value Value;
  const int lanes = Lanes<Vector>::count;
  const BoxRange range = boxes_of_part(job, block.image, part.number);
  if (job.pack_each_box || is_direct(job, block, lanes)) {
    for (wide_int index = range.begin; index < range.end; ++index) {
      const wide_int box = job.box_order[index];
      visit(box, map_of_box<Vector, Storage>(job, block, box, part.scratch));
    }
    return;
  }
  const Rectangle window = walk_of(job, range).window;
  Value* packed = reinterpret_cast<Value*>(packed_of(job, part.scratch));
  PackedRows<Storage, Value> rows = {maps_of<const Storage>(job, block, job.features), window,
                                     lanes, ring_view(job, packed, window, lanes)};
  for (wide_int index = range.begin; index < range.end; ++index) {
    const wide_int box = job.box_order[index];
    rows.reach(window_of_box(job, box));
    visit(box, View<const Value>{rows.view.base, rows.view.row, lanes, 1, rows.view.mask});
  }
}

// The backward's walk: visit(position in box_order, map, rows) adds to rows of maps that this task
// alone owns, and that start at zero; in the end they are in the output, each cell written.
template <typename Vector, typename Storage, typename Visit>
void own_maps(const Job& job, const Block& block, const Part& part, Visit visit) {
  typedef typename Lanes<Vector>::Value Value;
  const int lanes = Lanes<Vector>::count;
  const BoxRange range = boxes_of_image(job, block.image);
  const Maps<Storage> maps = maps_of<Storage>(job, block, job.output);
  const Rectangle band = rows_of_part(job, part.number);
  Rectangle window = walk_of(job, range).window;
  window.top = band.top;
  window.bottom = band.bottom;
  const bool in_place = is_direct(job, block, lanes);
  Value* packed = reinterpret_cast<Value*>(packed_of(job, part.scratch));
  const View<Value> view =
      in_place ? view_in_place<Value>(maps, block.vectors) : ring_view(job, packed, window, lanes);
  OwnedRows<Storage, Value> rows = {maps, window,   job.columns.size, lanes,
                                    view, in_place, band.top,         band.top};
  for (wide_int index = range.begin; index < range.end; ++index) {
    const wide_int box = job.box_order[index];
    Rectangle owned = window_of_box(job, box);
    owned.top = maximum(owned.top, band.top);
    owned.bottom = minimum(owned.bottom, band.bottom);
    if (owned.bottom <= owned.top) continue;
    rows.reach(owned);
    visit(index, view, owned);
  }
  rows.finish(band.bottom);
}

}  // namespace ROIPOOL_ISA
}  // namespace roipool
