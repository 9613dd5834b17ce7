// Executes calls that `arm64.py` recorded, without Python, on any processor: each twice, the second
// time between two calls of `mark`. Prints a digest of the results of each case.
#include <stdio.h>
#include <string.h>

#include <deque>
#include <vector>

#include "../roipool/kernels/cpu/call.h"
#include "../roipool/kernels/cpu/float_environment.h"

using namespace roipool;

extern "C" __attribute__((noinline)) void mark() { __asm__ __volatile__("" ::: "memory"); }

namespace {

// Memory as that of roipool's own results.
struct Array {
  char* start = nullptr;
  size_t bytes = 0;

  void resize(size_t size) {
    if (size > bytes) start = static_cast<char*>(allocate(bytes = size));
  }

  // Numbers between -1 and 1, or bytes, the same on every processor.
  void draw(wide_int count, const char* type) {
    uint32_t state = 1;
    const auto fill = [&](auto number) {
      resize(count * sizeof(number));
      for (size_t at = 0; at < bytes; at += sizeof(number)) {
        state = state * 1664525u + 1013904223u;
        if (sizeof(number) == 1) number = state >> 24;
        if (sizeof(number) == 2) number = 0x3800u | (state >> 16 & 0x83ffu);
        if (sizeof(number) >= 4) number = static_cast<int32_t>(state) * 0x1p-31;
        memcpy(start + at, &number, sizeof(number));
      }
    };
    if (strstr(type, "float16")) return fill(uint16_t());
    if (strstr(type, "int8")) return fill(uint8_t());
    if (strstr(type, "float64")) return fill(double());
    fill(float());
  }

  uint32_t digest() const {
    uint32_t sum = 2166136261u;
    for (size_t at = 0; at < bytes; ++at) {
      sum = (sum ^ static_cast<unsigned char>(start[at])) * 16777619u;
    }
    return sum;
  }
};

template <size_t Count>
int number_of(const char* name, const char* const (&names)[Count]) {
  int number = 0;
  while (strcmp(names[number], name)) ++number;
  return number;
}

struct Recorded {
  bool begins;  // a case
  Level level;
  Operation operation;
  bool has_argmax;
  char type[16], type_of_features[16];
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<wide_int> images;
  Array features, pooled, argmax;

  bool is_forward() const { return operation == op_average || operation == op_maximum; }
  uint32_t digest() const {
    return is_forward() ? 31 * pooled.digest() + argmax.digest() : features.digest();
  }
};

bool read_boxes(Recorded* call) {
  Request& request = call->level.request;
  Job& job = call->level.job;
  for (wide_int box = 0; box < job.boxes; ++box) {
    wide_int image;
    double number;
    if (scanf("%lld", &image) < 1) return false;
    call->images.push_back(image);
    for (wide_int i = 0; i < request.numbers; ++i) {
      if (scanf("%lf", &number) < 1) return false;
      call->doubles.push_back(number);
    }
  }
  call->floats.assign(call->doubles.begin(), call->doubles.end());
  request.boxes = call->floats.data();
  if (request.double_precision) request.boxes = call->doubles.data();
  job.box_image = request.images = call->images.data();
  return true;
}

bool read(Recorded* call) {
  static const char* const operations[] = {"average", "average_backward", "average_backward_boxes",
                                           "maximum", "maximum_backward", "unpool"};
  static const char* const types[] = {"float16", "bfloat16", "float32", "float64"};
  static const char* const types_of_features[] = {"pooled", "uint8", "int8"};
  char operation[32], layout[8], definition[64];
  int begins, aligned, argmax_is_cell, has_argmax, number = 0;
  Request& request = call->level.request;
  Job& job = call->level.job;
  memset(&call->level, 0, sizeof(call->level));
  if (scanf("%d%31s%15s%15s%7s%63s", &begins, operation, call->type, call->type_of_features, layout,
            definition) < 6 ||
      scanf("%lf%lld%lld%d%lf%d%d", &request.scale, &request.sampling[0], &request.sampling[1],
            &aligned, &request.offset_factor, &job.group_rows, &job.group_columns) < 7 ||
      scanf("%lld%lld%lld%lld%d%d", &job.images, &job.channels, &job.rows.size, &job.columns.size,
            &job.rows.bins, &job.columns.bins) < 6 ||
      scanf("%lf%d%d%lld", &job.lowest, &argmax_is_cell, &has_argmax, &job.boxes) < 4) {
    return false;
  }
  while (strcmp(definition_rows[number].name, definition)) ++number;
  call->begins = begins;
  call->has_argmax = has_argmax;
  call->operation = static_cast<Operation>(number_of(operation, operations));
  job.storage = static_cast<Storage>(number_of(call->type, types));
  job.feature_storage =
      static_cast<FeatureStorage>(number_of(call->type_of_features, types_of_features));
  job.channels_last = !strcmp(layout, "NHWC");
  job.channels /= job.group_rows * job.group_columns;
  job.argmax_is_cell = argmax_is_cell;
  job.min_non_temporal_bytes = INT64_MAX;  // arm64 has no such stores
  request.definition = static_cast<Definition>(number);
  request.double_precision = job.storage == float64_storage;
  request.aligned = aligned;
  arrange_bins(&request, &job);
  return read_boxes(call);
}

// As `execute` of _cpu.pyx, with one thread and one chunk.
void execute(Recorded* recorded, Operation operation) {
  Call call;
  const Engine* engines[3];
  usable_engines(engines);
  begin_call(&call, operation, engines[0], &recorded->level, 1, nullptr);
  const FloatEnvironment environment = enter_standard_floats();
  begin_plan(&call);
  if (needs_plan(call)) {
    for (wide_int box = 0; box < call.boxes; ++box) count_entries_of(&call, box, 0);
    choose_max_taps(&call);
  }
  begin_chunk(&call);
  if (needs_plan(call)) {
    begin_entries(&call);
    for (wide_int box = 0; box < call.boxes; ++box) write_entries_of(&call, box, 0);
    if (checks_argmax(call)) {
      for (wide_int box = 0; box < call.boxes; ++box) check_argmax_of(&call, box, 0);
    }
    check_argmax_width(call);
  }
  begin_tasks(&call);
  for (wide_int task = 0; task < call.tasks; ++task) run_task_of(&call, task, 0);
  free_memory_of(&call);
  leave_standard_floats(environment);
}

// Makes the arrays of a call, and calls it once.
void prepare(Recorded* call) {
  Job& job = call->level.job;
  const bool has_bytes = job.feature_storage != stored_as_pooled;
  const wide_int cells = job.images * job.rows.size * job.columns.size;
  const wide_int values = job.boxes * job.channels * bins_of_box(job);
  call->features.draw(cells * job.channels * groups_of(job),
                      has_bytes ? call->type_of_features : call->type);
  call->pooled.draw(values, call->type);
  job.features = call->features.start;
  job.output = call->pooled.start;
  if (call->has_argmax) {
    call->argmax.resize(values * sizeof(int32_t));
    job.argmax = call->argmax.start;
  }
  if (!call->is_forward()) {
    if (call->has_argmax) execute(call, op_maximum);
    call->pooled.draw(values, call->type);
    job.grad_output = call->pooled.start;
    job.output = call->features.start;
  }
  execute(call, call->operation);
}

}  // namespace

int main() {
  std::deque<Recorded> calls(1);  // where each stays: its level has addresses of its own arrays
  while (read(&calls.back())) calls.emplace_back();
  calls.pop_back();
  for (size_t i = 0, end; i < calls.size(); i = end) {
    for (end = i; end == i || (end < calls.size() && !calls[end].begins); ++end) {
      prepare(&calls[end]);
    }
    mark();
    for (size_t k = i; k < end; ++k) execute(&calls[k], calls[k].operation);
    mark();
    uint32_t digest = 0;
    for (size_t k = i; k < end; ++k) digest = 31 * digest + calls[k].digest();
    fprintf(stderr, "%08x\n", digest);
  }
}
