// Kernels whose blocks work on one box at a time: they plan it first, and their threads share its
// values. Neighbouring threads write neighbouring values, and a thread computes several channels of
// one bin.
#pragma once
#include "plan.h"

namespace roipool {

// The plan of a block's box: if it is not in shared memory, its head is.
template <typename Kind>
__device__ inline BoxPlan<Kind> plan_of_block(char* scratch, const Call& call) {
  PlanHead* head = reinterpret_cast<PlanHead*>(roipool_shared_memory);
  char* memory =
      plan_is_shared ? reinterpret_cast<char*>(head + 1) : scratch + blockIdx.x * call.plan_bytes;
  return {head, memory, call};
}

// The shared memory that follows.
__device__ inline void* shared_after_plan(const Call& call) {
  return reinterpret_cast<char*>(roipool_shared_memory) + sizeof(PlanHead) +
         (plan_is_shared ? call.plan_bytes : 0);
}

// The bins and the packs of channels of one thread: every `step`-th one from `first` below `last`.
// Loops count in Offset, too: of counters of 64 bits the assembler made wrong code for sm_90.
struct Range {
  Offset first;
  Offset last;
  Offset step;
};
struct Share {
  Range bins;
  Range packs;
};

__device__ inline Share share_of_thread(const Call& call, wide_int part) {
  const Offset bins = static_cast<Offset>(call.rows.bins * call.columns.bins);
  const Offset packs = static_cast<Offset>((call.channels + pack - 1) / pack);
  const Offset begin = static_cast<Offset>(part * call.share);
  const Range inner = {static_cast<Offset>(threadIdx.x), channels_last ? packs : bins,
                       static_cast<Offset>(blockDim.x)};
  const Range outer = {
      begin + static_cast<Offset>(threadIdx.y),
      minimum(begin + static_cast<Offset>(call.share), channels_last ? bins : packs),
      static_cast<Offset>(blockDim.y)};
  if (channels_last) return {outer, inner};
  return {inner, outer};
}

// A pack of channels, as a thread reads and writes it. NHWC: adjacent (except in position-sensitive
// maps); `pack` divides the channels. NCHW: the last pack begins
// early enough to be whole: some of its channels are computed twice, and written twice with the
// same value.
struct Channels {
  Offset first;  // an image has at least as many elements as channels

  __device__ Channels(const Call& call, wide_int number)
      : first(minimum(static_cast<Offset>(number) * pack,
                      static_cast<Offset>(call.channels) - pack)) {}

  static __device__ void load(const FeatureStorage* address, wide_int stride, Value* values) {
    if (channels_last && !position_sensitive) {
      typedef Items<FeatureStorage, pack> Pack;
      const Pack items = *reinterpret_cast<const Pack*>(address);
      for (int c = 0; c < pack; ++c) values[c] = compute_value(items.item[c]);
    } else {
      for (int c = 0; c < pack; ++c) values[c] = compute_value(address[c * stride]);
    }
  }
  static __device__ void store(const Value* values, Storage* address, wide_int stride) {
    if (channels_last) {
      Items<Storage, pack> items;
      for (int c = 0; c < pack; ++c) store_value(values[c], &items.item[c]);
      *reinterpret_cast<Items<Storage, pack>*>(address) = items;
    } else {
      for (int c = 0; c < pack; ++c) store_value(values[c], address + c * stride);
    }
  }
};

// A task of a box: which share of its packs or bins, and the bins that it needs planned.
struct Part {
  wide_int number;
  Bins bins;
};

__device__ inline Part part_of_box(const Call& call, wide_int part) {
  const Bins all = all_bins(call);
  if (channels_last) {  // bins, counted row by row
    const wide_int begin = part * call.share,
                   end = minimum(begin + call.share, all.rows * all.columns);
    const Division first = divide_with_rest(begin, all.columns);
    const wide_int last_row = divide(end - 1, all.columns);
    return {part,
            {first.quotient, last_row + 1 - first.quotient, first.rest,
             minimum(end - begin, all.columns)}};
  }
  if (call.pieces == 1) return {part, all};
  const Division packs = divide_with_rest(part, call.pieces);
  const wide_int row = packs.rest * call.piece_rows;
  return {packs.quotient, {row, minimum(call.piece_rows, all.rows - row), 0, all.columns}};
}

struct Task {
  wide_int box, part;
};

// Blocks that run at the same time read, of NCHW, the same channels of all boxes: these fit the
// second-level cache where whole maps do not. Of NHWC they read the same boxes.
__device__ inline Task task_of_number(const Call& call, wide_int number) {
  if (channels_last) {
    const Division by_box = divide_with_rest(number, call.parts);
    return {by_box.quotient, by_box.rest};
  }
  const Division by_part = divide_with_rest(number, call.boxes);
  return {by_part.rest, by_part.quotient};
}

// For each part of a box that is this block's: `prepare(box, bins)` by all threads at once, and
// then `pool(box, part)`.
template <typename Prepare, typename Pool>
__device__ inline void for_each_part(const Call& call, Prepare prepare, Pool pool) {
  for (wide_int task = blockIdx.x; task < call.tasks; task += gridDim.x) {
    const Task at = task_of_number(call, task);
    const Part part = part_of_box(call, at.part);
    prepare(at.box, part.bins);
    pool(at.box, part);
  }
}

// Calls `pool(row, column, packs)` for every bin of a part, with this thread's packs of channels.
template <typename Pool>
__device__ inline void for_each_bin(const Call& call, const Part& part, Pool pool) {
  const Share share = share_of_thread(call, part.number);
  for (Offset bin = share.bins.first; bin < share.bins.last; bin += share.bins.step) {
    const Division row = divide_with_rest(bin, call.columns.bins);
    pool(row.quotient, row.rest, share.packs);
  }
}

// For each value of this block: as `for_each_part`, but `pool(box, row, column, channels)`.
template <typename Prepare, typename Pool>
__device__ inline void for_each_value(const Call& call, Prepare prepare, Pool pool) {
  for_each_part(call, prepare, [&](wide_int box, const Part& part) {
    for_each_bin(call, part, [&](wide_int row, wide_int column, const Range& packs) {
      for (Offset p = packs.first; p < packs.last; p += packs.step) {
        pool(box, row, column, Channels(call, p));
      }
    });
  });
}

}  // namespace roipool
