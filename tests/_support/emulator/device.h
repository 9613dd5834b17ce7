// A CUDA device for a C++ compiler: included before a kernel text, which then is C++.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"
#include "runtime.h"

namespace emulator {
static const Launch* launch;
}

alignas(16) double roipool_shared_memory[emulator::bytes_of_shared_memory / 8];

// ---- What kernels use of CUDA

#define __global__
#define __device__
#define __host__
#define __shared__
#define __launch_bounds__(...)
#define threadIdx (emulator::launch->current->index)
#define blockIdx (emulator::launch->block_index)
#define blockDim (emulator::launch->block)
#define gridDim (emulator::launch->grid)

inline void __syncthreads() { emulator::launch->wait(emulator::for_block); }
inline void __syncwarp() { emulator::launch->wait(emulator::for_warp); }

// Calls `see(lane, value)` for every lane of the warp with the value it brings.
template <typename See>
inline void exchange(unsigned value, See see) {
  using namespace emulator;
  launch->current->brought = value;
  launch->wait(for_warp);
  const long self = launch->current - launch->threads;
  const long first = self / warp_size * warp_size;
  for (int lane = 0; lane < warp_size; ++lane) {
    if (first + lane < launch->count) see(lane, launch->threads[first + lane].brought);
  }
  launch->wait(for_warp);
}

inline unsigned __match_any_sync(unsigned, int value) {
  unsigned same = 0;
  const unsigned mine = static_cast<unsigned>(value);
  exchange(mine, [&](int lane, unsigned other) { same |= unsigned(other == mine) << lane; });
  return same;
}
template <typename T>
inline T __shfl_sync(unsigned, T value, int from) {
  T result;
  for (size_t at = 0; at < sizeof(T); at += sizeof(unsigned)) {
    unsigned word;
    memcpy(&word, reinterpret_cast<char*>(&value) + at, sizeof word);
    exchange(word, [&](int lane, unsigned other) {
      if (lane == (from & (emulator::warp_size - 1))) memcpy(reinterpret_cast<char*>(&result) + at, &other, sizeof other);
    });
  }
  return result;
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  exchange(vote, [&](int lane, unsigned other) { votes |= other << lane; });
  return votes;
}
inline int __any_sync(unsigned all, bool vote) { return __ballot_sync(all, vote) != 0; }

// Threads change at barriers alone, blocks run one after the other.
inline void __threadfence() {}
template <typename T>
inline T atomicAdd(T* address, T value) {
  const T before = *address;
  *address += value;
  return before;
}
inline int atomicMin(int* address, int value) {
  const int before = *address;
  if (value < before) *address = value;
  return before;
}
inline int atomicMax(int* address, int value) {
  const int before = *address;
  if (value > before) *address = value;
  return before;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }

// ---- What the runtime uses of kernels

namespace emulator {

template <typename Parameters>
struct Signature;
template <typename... Parameters>
struct Signature<void (*)(Parameters...)> {
  static constexpr int count = sizeof...(Parameters);
  static constexpr unsigned long sizes[] = {sizeof(Parameters)..., 0};

  // Braces are read from left to right, unlike a function's arguments.
  struct Call {
    Call(void (*kernel)(Parameters...), Parameters... values) { kernel(values...); }
  };
  template <void (*kernel)(Parameters...)>
  static void call(void** arguments) {
    Call{kernel, *static_cast<Parameters*>(*arguments++)...};
  }
};

}  // namespace emulator

#define ROIPOOL_EMULATE(name)                                                                      \
  extern "C" __attribute__((visibility("default")))                                                \
  const emulator::Kernel kernel_##name = {emulator::Signature<decltype(&name)>::call<&name>,       \
                                          emulator::Signature<decltype(&name)>::sizes,             \
                                          emulator::Signature<decltype(&name)>::count,             \
                                          sizeof(roipool::Value) == sizeof(float),                 \
                                          reinterpret_cast<unsigned char*>(roipool_shared_memory), \
                                          &emulator::launch};
