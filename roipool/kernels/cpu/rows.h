// Map rows at hand while the boxes of an image are walked from the top down. Each row is copied
// once, right before its first use, and the memory of rows that no later box reads goes to later
// ones: what the engines work on stays in the nearer caches.
#pragma once
#include "schedule.h"

namespace roipool {
namespace ROIPOOL_ISA {

// Where a block's maps begin, and how they lie.
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

// Maps used where they are. Called only if is_direct, that is, where Storage is the computed type.
template <typename Value, typename Storage>
inline View<Value> view_in_place(const Maps<Storage>& maps, int vectors) {
  return {reinterpret_cast<Value*>(maps.first), maps.strides.row, maps.strides.column, vectors};
}

template <typename Value>
inline View<Value> ring_view(const Job& job, Value* memory, const Rectangle& window, int lanes) {
  View<Value> view = packed_view(memory, 0, window.left, window.width(), lanes);
  if (job.ring_rows < job.rows.size) view.mask = job.ring_rows - 1;
  return view;
}

template <typename Storage, typename Value>
inline void pack_row(const Maps<const Storage>& maps, const Rectangle& window, wide_int y,
                     int lanes, Value* to) {
  to_lanes(maps.at(y, window.left), maps.strides, maps.channels, window.width(), lanes, to);
}

// Rows that are read.
template <typename Storage, typename Value>
struct PackedRows {
  Maps<const Storage> maps;
  Rectangle window;  // around all boxes
  int lanes;
  View<Value> view;
  wide_int packed = 0;  // rows before this one are in the ring, or were not needed

  void reach(const Rectangle& box) {
    for (wide_int y = maximum(packed, box.top); y < box.bottom; ++y) {
      pack_row(maps, window, y, lanes, view.at(y, window.left));
    }
    packed = maximum(packed, box.bottom);
  }
};

// Rows that one task alone adds to. They start at zero; all rows of the window are in the output
// when `finish` has been called with its bottom.
template <typename Storage, typename Value>
struct OwnedRows {
  Maps<Storage> maps;
  Rectangle window;  // rows of this task; columns around all boxes
  wide_int width;    // of the maps
  int lanes;
  View<Value> view;
  bool in_place;
  wide_int finished;  // rows before this one are in the output,
  wide_int opened;    //   and those from it to before this one are being added to

  void reach(const Rectangle& box) {
    finish(box.top);
    for (wide_int y = opened; y < box.bottom; ++y) {
      if (in_place) {
        clear_cells(maps.at(y, 0), maps.strides, maps.channels, width);
      } else {
        memset(view.at(y, window.left), 0, window.width() * lanes * sizeof(Value));
      }
    }
    opened = maximum(opened, box.bottom);
  }
  void finish(wide_int until) {
    for (wide_int y = finished; y < until; ++y) {
      if (y >= opened) {
        clear_cells(maps.at(y, 0), maps.strides, maps.channels, width);
      } else if (!in_place) {
        unpack_row(y);
      }
    }
    finished = maximum(finished, until);
    opened = maximum(opened, until);
  }
  void unpack_row(wide_int y) {
    const Strides& strides = maps.strides;
    expect<true>(maps.at(y + 1, window.left), strides, maps.channels, window.width());
    clear_cells(maps.at(y, 0), strides, maps.channels, window.left);
    from_lanes(view.at(y, window.left), lanes, window.width(), maps.channels,
               maps.at(y, window.left), strides);
    clear_cells(maps.at(y, window.right), strides, maps.channels, width - window.right);
  }
};

}  // namespace ROIPOOL_ISA
}  // namespace roipool
