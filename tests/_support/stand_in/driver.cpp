// CUDA's driver without a GPU: its modules are libraries of the emulator, whose kernels it runs.
// Contexts, streams and shared memory are as strict as a GPU's. `stand_in` is a handler for XLA's
// CPU that calls roipool's handler for GPUs as XLA does on a GPU: with a context, that of the
// device, and with a stream, which a CPU has not.
#include <dlfcn.h>
#include <string.h>

#include <atomic>
#include <mutex>
#include <string>

#include "emulator/runtime.h"
#include "xla/ffi/api/c_api.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

enum Outcome { success = 0, invalid_value = 1, invalid_image = 200, invalid_handle = 400 };
enum Function { load, find, set, fill, launch, functions };

struct Context {
  char stream;  // its address is one
};
struct Module {
  void* library;
  Context* context;
};
struct Kernel {
  const emulator::Kernel* kernel;
  Context* context;
  unsigned most_shared;
  std::string name;
};

typedef const char* (*Run)(const emulator::Kernel*, const unsigned*, const unsigned*, size_t,
                           void**);

Run run;
XLA_FFI_Handler* handler;
const int most_devices = 8;
int capabilities[most_devices] = {90, 90, 80, 61, 90, 90, 90, 90};
std::atomic<Context*> contexts{new Context[most_devices]};
thread_local Context* current;
std::mutex running;  // the emulator runs one kernel at a time
std::atomic<long> calls[functions];
std::atomic<int> failing{-1};  // a function that fails, with this outcome
std::atomic<int> failure{0};
std::string problem;   // of a kernel
std::string launched;  // the names of kernels, each with a space behind it

int called(Function function) {
  ++calls[function];
  return failing == function ? failure.load() : 0;
}

XLA_FFI_Error* stream_of_context(XLA_FFI_Stream_Get_Args* args) {
  args->stream = &current->stream;
  return nullptr;
}

}  // namespace

EXPORTED int cuGetErrorString(int outcome, const char** text) {
  *text = outcome == invalid_value    ? "invalid argument"
          : outcome == invalid_image  ? "device kernel image is invalid"
          : outcome == invalid_handle ? "invalid resource handle"
          : outcome == 2              ? "out of memory"
          : outcome == 719            ? problem.c_str()
                                      : nullptr;
  return *text ? success : invalid_value;
}

EXPORTED int cuInit(unsigned flags) { return flags ? invalid_value : success; }

EXPORTED int cuDriverGetVersion(int* version) {
  *version = 12080;
  return success;
}

EXPORTED int cuDeviceGet(int* device, int number) {
  *device = number;
  return number < most_devices ? success : invalid_value;
}

EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 75: *value = capabilities[device] / 10; return success;
    case 76: *value = capabilities[device] % 10; return success;
    case 81: *value = 228 << 10; return success;
    case 97: *value = 227 << 10; return success;
  }
  return invalid_value;
}

EXPORTED int cuCtxGetCurrent(void** context) {
  *context = current;
  return success;
}

EXPORTED int cuModuleLoadData(void** module, const void* image) {
  if (int outcome = called(load)) return outcome;
  const char* path = static_cast<const char*>(image);
  void* library = *path == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) return invalid_image;
  *module = new Module{library, current};
  return success;
}

EXPORTED int cuModuleUnload(void* module) {
  delete static_cast<Module*>(module);
  return success;
}

EXPORTED int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (int outcome = called(find)) return outcome;
  const Module* own = static_cast<Module*>(module);
  const void* kernel = dlsym(own->library, (std::string("kernel_") + name).c_str());
  if (!kernel || own->context != current) return invalid_handle;
  *function = new Kernel{static_cast<const emulator::Kernel*>(kernel), current, 48 << 10, name};
  return success;
}

EXPORTED int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (int outcome = called(set)) return outcome;
  if (attribute != 8 || value > 227 << 10) return invalid_value;
  static_cast<Kernel*>(function)->most_shared = static_cast<unsigned>(value);
  return success;
}

EXPORTED int cuMemsetD8Async(unsigned long long address, unsigned char value, size_t bytes,
                             void* stream) {
  if (int outcome = called(fill)) return outcome;
  if (stream != &current->stream) return invalid_handle;
  memset(reinterpret_cast<void*>(address), value, bytes);
  return success;
}

EXPORTED int cuLaunchKernel(void* function, unsigned blocks, unsigned y, unsigned z,
                            unsigned across, unsigned down, unsigned deep, unsigned shared,
                            void* stream, void** arguments, void** extra) {
  if (int outcome = called(launch)) return outcome;
  const Kernel* own = static_cast<Kernel*>(function);
  if (own->context != current || stream != &current->stream) return invalid_handle;
  if (shared > own->most_shared || extra) return invalid_value;
  const std::lock_guard<std::mutex> lock(running);
  launched += own->name + " ";
  const unsigned grid[] = {blocks, y, z}, block[] = {across, down, deep};
  const char* error = run(own->kernel, grid, block, shared, arguments);
  if (!error) return success;
  problem = error;
  return 719;
}

// ---- For XLA

EXPORTED XLA_FFI_Error* stand_in(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start) return handler(frame);  // asks for metadata
  XLA_FFI_DeviceOrdinal_Get_Args device = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, nullptr,
                                           frame->ctx, 0};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_DeviceOrdinal_Get(&device)) return error;
  current = contexts + device.device_ordinal;
  XLA_FFI_Api api = *frame->api;
  api.XLA_FFI_Stream_Get = stream_of_context;
  XLA_FFI_CallFrame own = *frame;
  own.api = &api;
  XLA_FFI_Error* error = nullptr;
  for (int stage : {XLA_FFI_ExecutionStage_INITIALIZE, XLA_FFI_ExecutionStage_EXECUTE}) {
    if (error) break;
    own.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
    error = handler(&own);
  }
  current = nullptr;
  return error;
}

// ---- For tests

EXPORTED void begin(XLA_FFI_Handler* its_handler, Run its_run) {
  handler = its_handler;
  run = its_run;
}

// Gives each device another context, in which nothing is loaded.
EXPORTED void begin_anew() { contexts = new Context[most_devices]; }

EXPORTED void let_fail(int function, int outcome) {
  failing = function;
  failure = outcome;
}

EXPORTED long calls_of(int function) { return calls[function].exchange(0); }

EXPORTED const char* names_of_launched() {
  static std::string names;
  const std::lock_guard<std::mutex> lock(running);
  names.swap(launched);
  launched.clear();
  return names.c_str();
}
