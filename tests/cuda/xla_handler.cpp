// Calls the handler of XLA's programs for GPUs as XLA would, with right and with wrong attributes,
// on a driver that checks what it is given. For sanitizers.
#include <stdio.h>
#include <stdlib.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/xla_cuda.h"

using namespace roipool;
using namespace roipool::xla;

namespace {

const int image_bytes = 64;
std::atomic<int> loads{0}, launches{0}, fills{0};
thread_local long context = 1;
std::atomic<int> problems{0};

void check(bool is_right, const char* what) {
  if (is_right) return;
  printf("%s\n", what);
  ++problems;
}

// ---- The driver

Outcome text_of(Outcome, const char** text) {
  *text = nullptr;
  return 1;
}
Outcome current(void** found) {
  *found = reinterpret_cast<void*>(context);
  return 0;
}
Outcome load(void** module, const void* image) {
  ++loads;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // in which other threads come, too
  int sum = 0;
  for (int i = 0; i < image_bytes; ++i) sum += static_cast<const unsigned char*>(image)[i];
  *module = reinterpret_cast<void*>(static_cast<size_t>(sum + 1));
  return 0;
}
Outcome unload(void*) { return 0; }
Outcome function_of(void** function, void*, const char* name) {
  *function = reinterpret_cast<void*>(strlen(name) + 1);
  return 0;
}
Outcome set(void*, int attribute, int value) { return attribute == 8 && value > 0 ? 0 : 1; }
Outcome fill(Address address, unsigned char value, size_t bytes, void*) {
  ++fills;
  memset(reinterpret_cast<void*>(address), value, bytes);
  return 0;
}
Outcome launch(void* function, unsigned blocks, unsigned y, unsigned z, unsigned across,
               unsigned down, unsigned deep, unsigned shared, void* stream, void** arguments,
               void** extra) {
  ++launches;
  check(function && blocks > 0 && y == 1 && z == 1 && deep == 1 && !extra, "a wrong grid");
  check(across * down >= 1 && across * down <= 1024 && shared < 0x80000000u, "a wrong block");
  check(stream == reinterpret_cast<void*>(77), "another stream");
  Address sum = 0;
  for (int i = 0; i < 2; ++i) sum += *static_cast<const Address*>(arguments[i]);
  return sum == 1 ? 1 : 0;
}

// ---- XLA

Error* create_error(ErrorRequest* request) {
  return reinterpret_cast<Error*>(new std::string(request->message));
}
Error* get_stream(StreamRequest* request) {
  request->stream = reinterpret_cast<void*>(77);
  return nullptr;
}

struct Attribute {
  std::string name;
  int32_t element;
  std::vector<char> bytes;
  size_t count;
  int32_t kind = attribute_is_list;
};

template <typename T>
Attribute attribute_of(const char* name, int32_t element, const std::vector<T>& values) {
  const char* start = reinterpret_cast<const char*>(values.data());
  return {name, element, {start, start + values.size() * sizeof(T)}, values.size()};
}

// A call of two launches: two operands, a result, and scratch memory of which a part is cleared.
struct Call {
  std::vector<Attribute> attributes;
  alignas(16) char memory[4][64];
  int64_t size = 64;
  int32_t stage = stage_execute;
  size_t shift = 0;
  int64_t result_count = 2;

  Call() {
    const std::vector<unsigned char> image(image_bytes, 3), key(key_size, 5), structures(40, 7);
    const char text[] = "plan\0engine";
    const std::vector<unsigned char> names(text, text + sizeof text);
    const std::vector<int64_t> numbers = {
        16, 50000, 2, 1,  // cleared, shared, launches, patches
        3,  64,    1, 0,  16, 3, 0, 1, -1, -1, -1, -1, -1, -1,  // the plan
        5,  32,    8, 99, 24, 4, 0, 1, 2,  3,  -1, -1, -1, -1,  // the engine
        24, 2};
    attributes = {attribute_of("image", element_uint8, image),
                  attribute_of("key", element_uint8, key),
                  attribute_of("names", element_uint8, names),
                  attribute_of("numbers", element_int64, numbers),
                  attribute_of("structures", element_uint8, structures)};
  }
  static const size_t key_size = 32;

  int64_t* numbers() { return reinterpret_cast<int64_t*>(attributes[3].bytes.data()); }

  // Returns the error's message, or nothing.
  std::string made() {
    Functions functions;
    memset(&functions, 0, sizeof functions);
    functions.create_error = create_error;
    functions.get_stream = get_stream;
    std::vector<Buffer> buffers(4);
    std::vector<void*> items;
    for (int i = 0; i < 4; ++i) {
      buffers[i] = {{sizeof(Buffer), nullptr}, element_uint8, memory[i] + shift, 1, &size};
      items.push_back(&buffers[i]);
    }
    std::vector<Text> texts;
    std::vector<NumberList> lists;
    std::vector<int32_t> kinds;
    for (const Attribute& each : attributes) {
      texts.push_back({each.name.data(), each.name.size()});
      // Exactly as much memory as the list has, for sanitizers.
      char* own = static_cast<char*>(malloc(each.bytes.size() ? each.bytes.size() : 1));
      memcpy(own, each.bytes.data(), each.bytes.size());
      lists.push_back({each.element, each.count, own});
      kinds.push_back(each.kind);
    }
    std::vector<Text*> names;
    std::vector<void*> values;
    for (size_t i = 0; i < attributes.size(); ++i) {
      names.push_back(&texts[i]);
      values.push_back(&lists[i]);
    }
    const Prefix none = {0, nullptr};
    CallFrame frame = {
        none,
        &functions,
        nullptr,
        stage,
        {none, 2, nullptr, items.data()},
        {none, result_count, nullptr, items.data() + 2},
        {none, int64_t(attributes.size()), kinds.data(), names.data(), values.data()}};
    std::string* error = reinterpret_cast<std::string*>(cuda::handle(&frame));
    for (NumberList& each : lists) free(each.data);
    const std::string message = error ? *error : "";
    delete error;
    return message;
  }
};

// ---- Checks

const char* const not_a_call = "roipool: not a call of roipool.jax";

void check_right_calls() {
  Call call;
  memset(call.memory, 9, sizeof call.memory);
  call.stage = stage_initialize;
  check(call.made().empty() && loads == 1 && launches == 0, "initializing loads the kernels");
  call.stage = stage_execute;
  check(call.made().empty() && loads == 1 && launches == 2 && fills == 1, "a call launches them");
  check(call.memory[3][15] == 0 && call.memory[3][16] == 9, "scratch memory is cleared as asked");
  call.stage = 0;
  check(call.made().empty() && launches == 2, "other stages do nothing");
}

void check_lists() {
  for (size_t number = 0; number < 5; ++number) {
    const bool is_image = number == 0;  // of any length
    for (int change = 0; change < 6; ++change) {
      Call call;
      Attribute& own = call.attributes[number];
      const size_t item = own.bytes.size() / own.count;
      if (change == 0) own.name += "s";
      if (change == 1) own.element = element_float64;
      if (change == 2) own.kind = 4;
      if (change == 3) own.bytes.resize(own.bytes.size() - item), --own.count;
      if (change == 4) own.bytes.resize(own.bytes.size() + item, 1), ++own.count;
      if (change == 5) own.bytes.clear(), own.count = 0;
      if (is_image && change > 2) continue;
      check(call.made() == not_a_call, ("a wrong list is told: " + own.name).c_str());
    }
  }
  Call call;
  call.attributes[2].bytes = {'a', 'b'};  // no end, and one name for two launches
  call.attributes[2].count = 2;
  check(call.made() == not_a_call, "names without ends are told");
}

void check_arrays() {
  Call call;
  call.shift = 4;
  check(call.made() == "roipool: arrays must begin at multiples of 16 bytes", "alignment is told");
  call.shift = 0;
  call.size = 15;
  const char* const wrong = "roipool: not the arrays of a call of roipool.jax";
  check(call.made() == wrong, "scratch memory that is too short is told");
  call.size = 64;
  call.result_count = 0;
  check(call.made() == wrong, "missing results are told");
  call.result_count = 2;
  check(call.made().empty(), "and the right ones are taken again");
}

// Whatever numbers a call has, it is refused or has sizes that a driver takes.
void check_random_numbers(unsigned seed) {
  std::mt19937_64 random(seed);
  const int64_t few[] = {-1,   0,    1,       2,          3,          8,         9,
                         4096, 4097, 1 << 20, 0x7fffffff, 0x80000000, INT64_MAX, INT64_MIN};
  for (int turn = 0; turn < 20000; ++turn) {
    Call call;
    const int changes = 1 + random() % 3;
    for (int i = 0; i < changes; ++i) {
      const int64_t drawn = static_cast<int64_t>(random());
      call.numbers()[random() % call.attributes[3].count] =
          random() % 4 ? few[random() % (sizeof few / sizeof *few)] : drawn;
    }
    if (random() % 4 == 0) call.result_count = random() % 3;
    call.made();
  }
}

void check_threads() {
  loads = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int turn = 0; turn < 200; ++turn) {
        context = 100 + (i + turn) % 3;
        Call call;
        call.attributes[1].bytes[0] = static_cast<char>(turn % 5);  // another program
        check(call.made().empty(), "a call on several threads");
      }
    });
  }
  for (std::thread& each : threads) each.join();
  check(loads == 15, "each program is loaded once in each context");
}

}  // namespace

int main() {
  Call call;
  check(call.made() == "roipool: the library of CUDA's driver is missing", "no driver is told");
  const Driver own = {text_of, current, load, unload, function_of, set, fill, launch};
  use_cuda_driver(reinterpret_cast<const size_t*>(&own));
  check_right_calls();
  check_lists();
  check_arrays();
  for (unsigned seed = 0; seed < 3; ++seed) check_random_numbers(seed);
  check_threads();
  printf("%d problems\n", problems.load());
  return problems != 0;
}
