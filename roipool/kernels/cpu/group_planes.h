// The planes of groups of bins, of position-sensitive averages: in the features, or packed in
// scratch memory.
#pragma once
#include "lanes.h"
#include "schedule.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// A run of groups: planes [first_column, last_column) of one row of groups of a channel.
struct GroupRun {
  wide_int image;
  wide_int channel;
  int row;
  int first_column;
  int last_column;
};

// Bins [first, last) along an axis.
struct BinRange {
  int first;
  int last;
};

inline BinRange bins_of_group(int bins, int groups, int group) {
  if (groups == bins) return {group, group + 1};  // at once
  const auto first_bin = [bins, groups](wide_int of) {
    return static_cast<int>((of * bins + groups - 1) / groups);
  };
  return {first_bin(group), first_bin(group + 1)};
}

// The inverse: the group that holds a bin.
inline wide_int group_of_bin(int bins, int groups, int bin) {
  return wide_int(bin) * groups / bins;
}

inline Strides strides_of_features(const Job& job) {
  return strides_of_array(job.channels_last, job.channels * groups_of(job), job.rows.size,
                          job.columns.size);
}

// Where a group's plane begins in the features, or in what is laid out like them.
template <typename Storage>
inline Storage* plane_in_array(const Job& job, const GroupRun& run, int column, Storage* array) {
  const Strides strides = strides_of_features(job);
  const wide_int group = run.row * job.group_columns + column;
  return array + run.image * strides.outer +
         (run.channel * groups_of(job) + group) * strides.channel;
}

template <typename Value>
inline Value* plane_in_scratch(const GroupRun& run, int column, const Rectangle& window,
                               char* scratch) {
  const wide_int bytes = whole_lines(window.cells() * static_cast<wide_int>(sizeof(Value)));
  return reinterpret_cast<Value*>(scratch + (column - run.first_column) * bytes);
}

// Calls copy(cell in the array, cell in scratch, number of cells side by side) for what lies in the
// window of the planes of a run.
template <typename Storage, typename Value, typename Copy>
inline void for_each_cell(const Job& job, const GroupRun& run, const Rectangle& window,
                          Storage* array, char* scratch, Copy copy) {
  const Strides strides = strides_of_features(job);
  const wide_int width = window.width();
  const wide_int at_once = strides.column == 1 ? width : 1;
  for (wide_int y = window.top; y < window.bottom; ++y) {
    for (wide_int x = 0; x < width; x += at_once) {
      // Channels of a cell lie side by side in NHWC: all groups of a run, before the next cell.
      for (int column = run.first_column; column < run.last_column; ++column) {
        Storage* cell = plane_in_array(job, run, column, array) + y * strides.row +
                        (window.left + x) * strides.column;
        Value* packed = plane_in_scratch<Value>(run, column, window, scratch);
        copy(cell, packed + (y - window.top) * width + x, at_once);
      }
    }
  }
}

template <typename Value, typename Storage>
void pack_planes(const Job& job, const GroupRun& run, const Rectangle& window, const Storage* array,
                 char* scratch) {
  for_each_cell<const Storage, Value>(job, run, window, array, scratch,
                                      [](const Storage* cell, Value* packed, wide_int cells) {
                                        compute_values(cell, cells, packed);
                                      });
}

template <typename Value, typename Storage>
void unpack_planes(const Job& job, const GroupRun& run, const Rectangle& window, Storage* array,
                   char* scratch) {
  for_each_cell<Storage, Value>(job, run, window, array, scratch,
                                [](Storage* cell, const Value* packed, wide_int cells) {
                                  store_values(packed, cells, cell);
                                });
}

// The plane of a group, in place or packed.
template <typename Value>
inline View<Value> view_of_plane(const Job& job, const GroupRun& run, int column,
                                 const Rectangle& window, Value* array, char* scratch) {
  if (uses_planes_in_place(job)) {
    return {plane_in_array(job, run, column, array), job.columns.size, 1, 1};
  }
  typedef typename std::remove_const<Value>::type Packed;
  Packed* packed = plane_in_scratch<Packed>(run, column, window, scratch);
  const View<Packed> view = packed_view(packed, window.top, window.left, window.width(), 1);
  return {view.base, view.row, view.column, view.vectors};
}

// Calls pool(column, plane) for each group of a run, with its features in the window.
template <typename Value, typename Storage, typename Pool>
void visit_planes(const Job& job, const GroupRun& all, const Rectangle& window, char* scratch,
                  Pool pool) {
  const Storage* features = static_cast<const Storage*>(job.features);
  GroupRun run = all;
  for (; run.first_column < all.last_column; run.first_column += job.planes) {
    run.last_column = minimum(run.first_column + job.planes, all.last_column);
    if (!uses_planes_in_place(job)) {
      pack_planes<Value>(job, run, window, features, scratch);
    }
    for (int column = run.first_column; column < run.last_column; ++column) {
      pool(column, view_of_plane(job, run, column, window, static_cast<const Value*>(job.features),
                                 scratch));
    }
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
