// Programs that XLA compiled for a GPU launch kernels through this: without Python, without the
// GIL, on XLA's own threads, in memory that XLA owns. Nothing of a launch is decided here: Python
// did it when the program was lowered (roipool/jax/_cuda.py), and compiled the kernels; a call
// carries their machine code.
#pragma once
#include <stdio.h>

#include <atomic>
#include <mutex>
#include <new>

#include "xla_frame.h"

namespace roipool {

const int functions_of_driver = 8;
typedef int Outcome;                 // of a function of the driver; 0: done
typedef unsigned long long Address;  // in a GPU's memory

// The functions of CUDA's driver, in the order of `FUNCTIONS` in _cuda/driver.py, which finds them:
// nothing of CUDA is needed to build this.
struct Driver {
  Outcome (*text_of_outcome)(Outcome, const char**);
  Outcome (*current_context)(void**);
  Outcome (*load_module)(void**, const void*);
  Outcome (*unload_module)(void*);
  Outcome (*function_of_module)(void**, void*, const char*);
  Outcome (*set_attribute)(void*, int, int);
  Outcome (*fill_bytes)(Address, unsigned char, size_t, void*);
  Outcome (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    void*, void**, void**);
};

namespace xla {
namespace cuda {

inline Driver driver = {};

// What a program says of a call besides arrays; `_cuda.py` writes the list. Then the numbers of
// each launch follow, and those of each patch: a place in the structures, and the buffer whose
// address stands there. Buffers are numbered through operands and results.
enum Number {
  at_cleared_bytes,  // of the last result: it is scratch memory
  at_shared_bytes,   // that the kernels are allowed; 0: what they are allowed anyway
  at_launches,
  at_patches,
  header_count
};
const int most_launches = 2;
const int most_arguments = 8;  // beside the structure
enum NumberOfLaunch {
  at_blocks,
  at_across,
  at_down,
  at_shared,
  at_structure_bytes,
  at_argument_count,
  at_arguments,  // buffers; -1: no array
  launch_count = at_arguments + most_arguments
};
const int patch_count = 2;
const size_t structure_bytes = 4096;  // the most that a kernel takes
const int most_threads = 1024;
const int64_t most_blocks = 0x7fffffff;
const size_t key_bytes = 32;
const size_t alignment = 16;              // of arrays that kernels read as vectors
const int attribute_of_shared_bytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// What a program says of a call.
struct Program {
  const NumberList* image;       // machine code
  const unsigned char* key;      // of the kernels: equal ones have equal keys
  const NumberList* names;       // of the kernels, each with a 0 behind it
  const NumberList* structures;  // of the launches, one behind the other
  const int64_t* numbers;

  int64_t launches() const { return numbers[at_launches]; }
  const int64_t* launch(int64_t number) const {
    return numbers + header_count + number * launch_count;
  }
  int64_t patches() const { return numbers[at_patches]; }
  const int64_t* patch(int64_t number) const { return launch(launches()) + number * patch_count; }
};

inline bool is_within(int64_t number, int64_t first, int64_t last) {
  return first <= number && number <= last;
}

// Whether there are as many names as launches.
inline bool has_names(const Program& program) {
  const char* name = static_cast<const char*>(program.names->data);
  const size_t count = program.names->count;
  int64_t ends = 0;
  for (size_t i = 0; i < count; ++i) ends += name[i] == 0;
  return ends == program.launches() && name[count - 1] == 0;
}

inline bool has_launches(const Program& program) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < program.launches(); ++i) {
    const int64_t* launch = program.launch(i);
    const bool is_known = is_within(launch[at_blocks], 1, most_blocks) &&
                          is_within(launch[at_across], 1, most_threads) &&
                          is_within(launch[at_down], 1, most_threads / launch[at_across]) &&
                          is_within(launch[at_shared], 0, most_blocks) &&
                          is_within(launch[at_structure_bytes], 1, structure_bytes) &&
                          launch[at_structure_bytes] % sizeof(Address) == 0 &&
                          is_within(launch[at_argument_count], 0, most_arguments);
    if (!is_known) return false;
    bytes += launch[at_structure_bytes];
  }
  return static_cast<size_t>(bytes) == program.structures->count;
}

// Reads what a program says of a call; returns whether it is complete.
inline bool read(const CallFrame* frame, Program* program) {
  program->image = list(frame, "image", element_uint8);
  program->key = attribute<unsigned char>(frame, "key", element_uint8, key_bytes);
  program->names = list(frame, "names", element_uint8);
  program->structures = list(frame, "structures", element_uint8);
  const NumberList* numbers = list(frame, "numbers", element_int64);
  if (!program->image || !program->key || !program->names || !program->structures) return false;
  if (!numbers || numbers->count < header_count || program->names->count == 0) return false;
  program->numbers = static_cast<const int64_t*>(numbers->data);
  const bool is_known =
      is_within(program->launches(), 1, most_launches) &&
      is_within(program->patches(), 0, structure_bytes) &&
      is_within(program->numbers[at_shared_bytes], 0, most_blocks) &&
      static_cast<int64_t>(numbers->count) ==
          header_count + program->launches() * launch_count + program->patches() * patch_count;
  return is_known && has_names(*program) && has_launches(*program);
}

// ---- Arrays

inline int64_t buffers_of(const CallFrame* frame) {
  return frame->operands.count + frame->results.count;
}

inline const Buffer& buffer(const CallFrame* frame, int64_t number) {
  const int64_t operands = frame->operands.count;
  return number < operands ? operand(frame, number) : result(frame, number - operands);
}

// Whether a call has the arrays that the program speaks of.
inline bool has_arrays(const CallFrame* frame, const Program& program) {
  const int64_t buffers = buffers_of(frame);
  for (int64_t i = 0; i < program.launches(); ++i) {
    const int64_t* launch = program.launch(i);
    for (int64_t argument = 0; argument < launch[at_argument_count]; ++argument) {
      if (!is_within(launch[at_arguments + argument], -1, buffers - 1)) return false;
    }
  }
  const int64_t last = static_cast<int64_t>(program.structures->count - sizeof(Address));
  for (int64_t i = 0; i < program.patches(); ++i) {
    const int64_t* patch = program.patch(i);
    if (!is_within(patch[0], 0, last) || !is_within(patch[1], 0, buffers - 1)) return false;
  }
  const int64_t cleared = program.numbers[at_cleared_bytes];
  if (cleared == 0) return true;
  if (frame->results.count == 0) return false;
  const Buffer& scratch = result(frame, frame->results.count - 1);
  return scratch.element == element_uint8 && scratch.rank == 1 &&
         is_within(cleared, 1, scratch.sizes[0]);
}

inline bool are_aligned(const CallFrame* frame) {
  for (int64_t i = 0; i < buffers_of(frame); ++i) {
    if (reinterpret_cast<size_t>(buffer(frame, i).data) % alignment) return false;
  }
  return true;
}

inline Address address_of(const CallFrame* frame, int64_t number) {
  return number < 0 ? 0 : reinterpret_cast<size_t>(buffer(frame, number).data);
}

// ---- Kernels

inline Error* refused(const CallFrame* frame, const char* function, Outcome outcome) {
  const char* text = nullptr;
  if (driver.text_of_outcome(outcome, &text) || !text) text = "unknown error";
  char message[512];
  snprintf(message, sizeof message, "roipool: %s: %s (error %d)", function, text, outcome);
  return failed(frame, internal_error, message);
}

// The kernels of a program in one of the driver's contexts: each GPU has one.
struct Loaded {
  unsigned char key[key_bytes];
  void* context;
  void* functions[most_launches];
  Loaded* next;
};

// They stay loaded: programs come again, and their contexts end with the process.
inline std::atomic<Loaded*> all_loaded{nullptr};
inline std::mutex loading;

inline const Loaded* find(const Program& program, const void* context) {
  const Loaded* found = all_loaded;
  while (found && (found->context != context || memcmp(found->key, program.key, key_bytes))) {
    found = found->next;
  }
  return found;
}

inline Error* find_functions(const CallFrame* frame, const Program& program, void* module,
                             void** functions) {
  const char* name = static_cast<const char*>(program.names->data);
  const int shared = static_cast<int>(program.numbers[at_shared_bytes]);
  for (int64_t i = 0; i < program.launches(); ++i, name += strlen(name) + 1) {
    Outcome outcome = driver.function_of_module(&functions[i], module, name);
    if (outcome) return refused(frame, "cuModuleGetFunction", outcome);
    if (!shared) continue;
    outcome = driver.set_attribute(functions[i], attribute_of_shared_bytes, shared);
    if (outcome) return refused(frame, "cuFuncSetAttribute", outcome);
  }
  return nullptr;
}

// Loads the kernels of a program in a context, unless another thread has.
inline Error* load(const CallFrame* frame, const Program& program, void* context,
                   const Loaded** found) {
  const std::lock_guard<std::mutex> lock(loading);
  if ((*found = find(program, context)) != nullptr) return nullptr;
  Loaded* own = new (std::nothrow) Loaded;
  if (!own) return failed(frame, resource_exhausted, "roipool: no memory for a kernel");
  memcpy(own->key, program.key, key_bytes);
  own->context = context;
  void* module = nullptr;
  const Outcome outcome = driver.load_module(&module, program.image->data);
  Error* error = outcome ? refused(frame, "cuModuleLoadData", outcome)
                         : find_functions(frame, program, module, own->functions);
  if (error) {
    if (!outcome) driver.unload_module(module);
    delete own;
    return error;
  }
  own->next = all_loaded;
  *found = all_loaded = own;
  return nullptr;
}

inline Error* kernels_of(const CallFrame* frame, const Program& program, const Loaded** found) {
  void* context = nullptr;
  const Outcome outcome = driver.current_context(&context);
  if (outcome) return refused(frame, "cuCtxGetCurrent", outcome);
  *found = find(program, context);
  return *found ? nullptr : load(frame, program, context, found);
}

// ---- Launches

inline Error* launch_all(const CallFrame* frame, const Program& program, const Loaded& loaded,
                         void* stream) {
  Address memory[most_launches * structure_bytes / sizeof(Address)];
  char* structure = reinterpret_cast<char*>(memory);
  memcpy(structure, program.structures->data, program.structures->count);
  for (int64_t i = 0; i < program.patches(); ++i) {
    const int64_t* patch = program.patch(i);
    const Address address = address_of(frame, patch[1]);
    memcpy(structure + patch[0], &address, sizeof address);
  }
  if (const int64_t cleared = program.numbers[at_cleared_bytes]) {
    const Address scratch = address_of(frame, buffers_of(frame) - 1);
    const Outcome outcome = driver.fill_bytes(scratch, 0, static_cast<size_t>(cleared), stream);
    if (outcome) return refused(frame, "cuMemsetD8Async", outcome);
  }
  for (int64_t i = 0; i < program.launches(); ++i) {
    const int64_t* launch = program.launch(i);
    Address addresses[most_arguments];
    void* arguments[most_arguments + 1];
    const int64_t count = launch[at_argument_count];
    for (int64_t argument = 0; argument < count; ++argument) {
      addresses[argument] = address_of(frame, launch[at_arguments + argument]);
      arguments[argument] = &addresses[argument];
    }
    arguments[count] = structure;
    structure += launch[at_structure_bytes];
    const Outcome outcome = driver.launch(
        loaded.functions[i], static_cast<unsigned>(launch[at_blocks]), 1, 1,
        static_cast<unsigned>(launch[at_across]), static_cast<unsigned>(launch[at_down]), 1,
        static_cast<unsigned>(launch[at_shared]), stream, arguments, nullptr);
    if (outcome) return refused(frame, "cuLaunchKernel", outcome);
  }
  return nullptr;
}

// Kernels are loaded before a program runs: it may be captured in a graph, where nothing else can
// happen than launches.
inline Error* handle(CallFrame* frame) {
  if (answers_metadata(frame, fits_command_buffers)) return nullptr;
  if (frame->stage != stage_initialize && frame->stage != stage_execute) return nullptr;
  Program program;
  if (!read(frame, &program)) {
    return failed(frame, invalid_argument, "roipool: not a call of roipool.jax");
  }
  if (!driver.launch) {
    return failed(frame, internal_error, "roipool: the library of CUDA's driver is missing");
  }
  const Loaded* loaded;
  Error* error = kernels_of(frame, program, &loaded);
  if (error || frame->stage == stage_initialize) return error;
  if (!has_arrays(frame, program)) {
    return failed(frame, invalid_argument, "roipool: not the arrays of a call of roipool.jax");
  }
  if (!are_aligned(frame)) {
    return failed(frame, invalid_argument, "roipool: arrays must begin at multiples of 16 bytes");
  }
  StreamRequest request;
  memset(&request, 0, sizeof request);
  request.prefix.bytes = sizeof request;
  request.context = frame->context;
  error = frame->functions->get_stream(&request);
  return error ? error : launch_all(frame, program, *loaded, request.stream);
}

}  // namespace cuda
}  // namespace xla

// The handler as XLA wants it.
inline void* xla_cuda_handler() { return reinterpret_cast<void*>(&xla::cuda::handle); }

// Uses a driver, whose functions have these addresses.
inline void use_cuda_driver(const size_t* addresses) {
  static_assert(sizeof(Driver) == functions_of_driver * sizeof *addresses, "functions alone");
  memcpy(&xla::cuda::driver, addresses, sizeof(Driver));
}

}  // namespace roipool
