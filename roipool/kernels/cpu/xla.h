// Programs that XLA compiled, JAX's on a CPU, call the kernels through this: without Python,
// without the GIL, on XLA's own threads.
#pragma once
#include <atomic>

#include "call.h"
#include "float_environment.h"
#include "xla_frame.h"

namespace roipool {

// Executes a described call with that share of the threads, on the engine in use.
typedef Status (*Executor)(Call*, int running);

namespace xla {

// What a program says of a call besides arrays; `_transport.py` writes both lists.
enum Integer {
  at_operation,
  at_definition,
  at_sampling_rows,
  at_sampling_columns,
  at_aligned,
  at_channels_last,
  at_argmax_is_cell,
  at_nan_restarts,
  at_outside_is_zero,
  at_min_non_temporal_bytes,
  at_group_rows,
  at_group_columns,
  at_depth_bins,  // 0: maps are no volumes
  at_planes,
  at_sampling_depth,
  at_maps,  // of a pyramid; 0: a call on one map, whose boxes have no levels
  integer_count
};
enum Real {
  at_angle_scale,
  at_offset_factor,
  at_empty_value,
  at_lowest,
  at_depth_scale,
  at_row_scale,
  real_count
};

// What a program says of a call besides arrays: lists of numbers, a scale for each map.
struct Attributes {
  const int64_t* integers;
  const double* reals;
  const double* scales;
  int maps;
};

inline Executor executor = nullptr;
inline std::atomic<int> running{0};  // calls that share the threads

struct Running {
  int count = ++running;
  ~Running() { --running; }
};

struct Memory {
  void* start;
  explicit Memory(wide_int bytes) : start(allocate(static_cast<size_t>(bytes))) {}
  ~Memory() { deallocate(start); }
};

inline bool storage_of(int32_t type, Storage* storage) {
  switch (type) {
    case element_float16: *storage = float16_storage; return true;
    case element_bfloat16: *storage = bfloat16_storage; return true;
    case element_float32: *storage = float32_storage; return true;
    case element_float64: *storage = float64_storage; return true;
    default: return false;
  }
}

inline FeatureStorage feature_storage_of(int32_t type) {
  switch (type) {
    case element_uint8: return stored_as_uint8;
    case element_int8: return stored_as_int8;
    case element_uint16: return stored_as_uint16;
    case element_int16: return stored_as_int16;
    default: return stored_as_pooled;
  }
}

inline size_t bytes_of(const Buffer& buffer) {
  size_t bytes = buffer.element == element_float64 ? 8 : buffer.element == element_float32 ? 4 : 2;
  for (int64_t i = 0; i < buffer.rank; ++i) bytes *= static_cast<size_t>(buffer.sizes[i]);
  return bytes;
}

inline void describe_maps(const Buffer& maps, const Buffer& pooled, const int64_t* integers,
                          const double* reals, Job* job) {
  const bool last = integers[at_channels_last] != 0;
  job->channels_last = last;
  job->boxes = pooled.sizes[0];
  job->images = maps.sizes[0];
  job->group_rows = static_cast<int>(integers[at_group_rows]);
  job->group_columns = static_cast<int>(integers[at_group_columns]);
  job->channels = maps.sizes[last ? 3 : 1] / groups_of(*job);
  job->rows.size = maps.sizes[last ? 1 : 2];
  job->columns.size = maps.sizes[last ? 2 : 3];
  job->rows.bins = static_cast<int>(pooled.sizes[last ? 1 : 2]);
  job->columns.bins = static_cast<int>(pooled.sizes[last ? 2 : 3]);
  job->min_non_temporal_bytes = integers[at_min_non_temporal_bytes];
  job->empty_value = reals[at_empty_value];
  job->lowest = reals[at_lowest];
  job->argmax_is_cell = integers[at_argmax_is_cell] != 0;
  job->nan_restarts = integers[at_nan_restarts] != 0;
  job->outside_is_zero = integers[at_outside_is_zero] != 0;
}

inline void describe_definition(const Attributes& given, int map, const void* boxes, Level* level) {
  const int64_t* integers = given.integers;
  Request* request = &level->request;
  request->definition = static_cast<Definition>(integers[at_definition]);
  request->double_precision = level->job.storage == float64_storage;
  request->scale = given.scales[map];
  request->sampling[0] = integers[at_sampling_rows];
  request->sampling[1] = integers[at_sampling_columns];
  request->aligned = integers[at_aligned] != 0;
  request->angle_scale = given.reals[at_angle_scale];
  request->offset_factor = given.reals[at_offset_factor];
  request->depth = {static_cast<int>(integers[at_depth_bins]), integers[at_planes],
                    integers[at_sampling_depth], given.reals[at_depth_scale],
                    given.reals[at_row_scale]};
  request->boxes = boxes;
  request->images = level->job.box_image;
  arrange_bins(request, &level->job);
}

// Sets the arrays of a map by its number: maps are the first operands, or follow the gradient, or
// are the results.
inline void set_arrays(const CallFrame* frame, Operation operation, int map, Job* job) {
  switch (operation) {
    case op_average:
    case op_maximum:
      job->features = operand(frame, map).data;
      job->feature_storage = feature_storage_of(operand(frame, map).element);
      if (operation == op_maximum) job->argmax = result(frame, 1).data;
      job->output = result(frame, 0).data;
      return;
    case op_average_backward_boxes:
      job->grad_output = operand(frame, 0).data;
      job->features = operand(frame, 1 + map).data;
      return;
    case op_maximum_backward:
    case op_unpool: job->argmax = operand(frame, 1).data; [[fallthrough]];
    default: job->grad_output = operand(frame, 0).data; job->output = result(frame, map).data;
  }
}

inline bool is_forward(Operation operation) {
  return operation == op_average || operation == op_maximum;
}

inline const Buffer& map_of(const CallFrame* frame, Operation operation, int map) {
  if (operation == op_average_backward_boxes) return operand(frame, 1 + map);
  return is_forward(operation) ? operand(frame, map) : result(frame, map);
}

// ---- Boxes

// The boxes of a call as levels read them: their images, and of a pyramid the boxes of each map
// together, with the rows of their pooled values.
struct Boxes {
  wide_int count;
  wide_int columns;
  wide_int size;  // of a box, in bytes
  Memory images;
  Memory table;
  Memory rows;

  Boxes(const Buffer& boxes, bool by_level)
      : count(boxes.sizes[0]),
        columns(boxes.sizes[1]),
        size(columns * static_cast<wide_int>(boxes.element == element_float64 ? sizeof(double)
                                                                              : sizeof(float))),
        images(count * static_cast<wide_int>(sizeof(wide_int))),
        table(by_level ? count * size : 0),
        rows(by_level ? count * static_cast<wide_int>(sizeof(wide_int)) : 0) {}

  wide_int* image() { return static_cast<wide_int*>(images.start); }
  wide_int* row() { return static_cast<wide_int*>(rows.start); }
  char* box() { return static_cast<char*>(table.start); }
};

// Puts the boxes of a map behind those of the maps before it; returns where they end.
inline wide_int gather(const char* boxes, const int32_t* index, const int32_t* level, int map,
                       wide_int begin, Boxes* sorted) {
  for (wide_int box = 0; box < sorted->count; ++box) {
    if (level[box] != map) continue;
    memcpy(sorted->box() + begin * sorted->size, boxes + box * sorted->size,
           static_cast<size_t>(sorted->size));
    sorted->image()[begin] = index[box];
    sorted->row()[begin] = box;
    ++begin;
  }
  return begin;
}

inline Error* execute(CallFrame* frame, Call* call) {
  Running share;
  switch (executor(call, share.count)) {
    case status_done: return nullptr;
    case status_no_memory:
      return failed(frame, resource_exhausted,
                    "roipool: no memory for a call's plan or scratch memory");
    case status_wide_argmax:
      return failed(frame, invalid_argument,
                    "roipool: a bin's adaptive grid has more than 2**31 - 1 samples; give a "
                    "sampling_ratio");
    case status_long_axis:
      return failed(frame, invalid_argument,
                    "roipool: maps must have at most 2**31 - 1 rows and columns");
    case status_long_sum:
      return failed(frame, invalid_argument,
                    "roipool: a bin must have at most 2**22 cells along an axis in float32; pass "
                    "float64 features");
    default:
      return failed(frame, invalid_argument,
                    "roipool: argmax is out of range for these rois, spatial_scale and "
                    "sampling_ratio");
  }
}

// Sums of slopes are double; a program gets them in the type of its boxes.
inline Error* execute_box_gradient(CallFrame* frame, Call* call) {
  const Buffer& slopes = result(frame, 0);
  const wide_int count = slopes.sizes[0] * slopes.sizes[1];
  Memory sums(count * static_cast<wide_int>(sizeof(double)));
  if (!sums.start) {
    return failed(frame, resource_exhausted, "roipool: no memory for slopes");
  }
  double* sum = static_cast<double*>(sums.start);
  memset(sum, 0, static_cast<size_t>(count) * sizeof(double));
  for (int i = 0; i < call->level_count; ++i) call->levels[i].job.grad_boxes = sum;
  Error* error = execute(frame, call);
  const FloatEnvironment environment = enter_standard_floats();
  const bool is_double = slopes.element == element_float64;
  for (wide_int i = 0; !error && i < count; ++i) {
    if (is_double)
      static_cast<double*>(slopes.data)[i] = sum[i];
    else
      static_cast<float*>(slopes.data)[i] = static_cast<float>(sum[i]);
  }
  leave_standard_floats(environment);
  return error;
}

// Describes the levels of a call; returns how many there are. Those without cells or boxes add
// nothing to a gradient.
inline int describe_levels(const CallFrame* frame, Operation operation, const Attributes& given,
                           Boxes* sorted, Level* levels) {
  const bool is_pyramid = given.integers[at_maps] != 0;
  const int64_t last = frame->operands.count - 1;
  const Buffer& pooled = is_forward(operation) ? result(frame, 0) : operand(frame, 0);
  const char* boxes = static_cast<const char*>(operand(frame, last - is_pyramid - 1).data);
  const int32_t* index = static_cast<const int32_t*>(operand(frame, last - is_pyramid).data);
  wide_int begin = 0;
  int count = 0;
  for (int map = 0; map < given.maps; ++map) {
    Level* level = levels + count;
    memset(level, 0, sizeof *level);
    Job* job = &level->job;
    storage_of(pooled.element, &job->storage);
    const Buffer& maps = map_of(frame, operation, map);
    describe_maps(maps, pooled, given.integers, given.reals, job);
    set_arrays(frame, operation, map, job);
    job->box_image = sorted->image() + begin;
    const void* own = boxes;
    if (is_pyramid) {
      const int32_t* box_level = static_cast<const int32_t*>(operand(frame, last).data);
      const wide_int end = gather(boxes, index, box_level, map, begin, sorted);
      job->boxes = end - begin;
      job->box_row = sorted->row() + begin;
      own = sorted->box() + begin * sorted->size;
      begin = end;
    } else {
      for (wide_int box = 0; box < sorted->count; ++box) sorted->image()[box] = index[box];
      begin = sorted->count;
    }
    if (operation != op_unpool) describe_definition(given, map, own, level);
    const bool has_cells = job->rows.size * job->columns.size > 0;
    if (has_cells || is_forward(operation)) ++count;
  }
  if (is_forward(operation) && begin < sorted->count) {  // boxes of no map pool nothing
    memset(result(frame, 0).data, 0, bytes_of(pooled));
  }
  return count;
}

// Whether the table of boxes has as many columns as the definition reads.
inline bool are_whole(const Boxes& boxes, Operation operation, const Level* levels, int count) {
  for (int i = 0; i < count && operation != op_unpool; ++i) {
    if (boxes.columns != levels[i].request.numbers) return false;
  }
  return true;
}

inline Error* handle(CallFrame* frame) {
  if (answers_metadata(frame, 0) || frame->stage != stage_execute) return nullptr;
  Attributes given;
  given.integers = attribute<int64_t>(frame, "integers", element_int64, integer_count);
  given.reals = attribute<double>(frame, "reals", element_float64, real_count);
  given.maps = given.integers ? static_cast<int>(maximum<int64_t>(given.integers[at_maps], 1)) : 1;
  given.scales =
      attribute<double>(frame, "scales", element_float64, static_cast<size_t>(given.maps));
  if (!given.integers || !given.reals || !given.scales) {
    return failed(frame, invalid_argument, "roipool: not a call of roipool.jax");
  }
  const Operation operation = static_cast<Operation>(given.integers[at_operation]);
  Storage storage;
  if (!storage_of(is_forward(operation) ? result(frame, 0).element : operand(frame, 0).element,
                  &storage)) {
    return failed(frame, invalid_argument, "roipool: not a call of roipool.jax");
  }
  const bool is_pyramid = given.integers[at_maps] != 0;
  Boxes sorted(operand(frame, frame->operands.count - 2 - is_pyramid), is_pyramid);
  Memory described(given.maps * static_cast<wide_int>(sizeof(Level)));
  if (!sorted.images.start || !sorted.table.start || !sorted.rows.start || !described.start) {
    return failed(frame, resource_exhausted, "roipool: no memory for indices");
  }
  Level* levels = static_cast<Level*>(described.start);
  const int count = describe_levels(frame, operation, given, &sorted, levels);
  if (!are_whole(sorted, operation, levels, count)) {
    return failed(frame, invalid_argument, "roipool: boxes must have a column for each number");
  }
  Call call;
  begin_call(&call, operation, nullptr, levels, count, nullptr);  // `executor` knows the engine
  return operation == op_average_backward_boxes ? execute_box_gradient(frame, &call)
                                                : execute(frame, &call);
}

}  // namespace xla

// The handler as XLA wants it.
inline void* xla_handler(Executor executor) {
  xla::executor = executor;
  return reinterpret_cast<void*>(&xla::handle);
}

}  // namespace roipool
