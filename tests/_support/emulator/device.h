// A CUDA device for a C++ compiler: included before a kernel text, which then is C++.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
inline unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  exchange(vote, [&](int lane, unsigned other) { votes |= other << lane; });
  return votes;
}
inline int __any_sync(unsigned all, bool vote) { return __ballot_sync(all, vote) != 0; }

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }

// The two conversions that the kernels leave to an instruction.
inline float float_of_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexpf(static_cast<float>(fraction), -24);
  return sign * ldexpf(static_cast<float>(1024 + fraction), exponent - 25);
}
inline unsigned short half_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const unsigned sign = bits >> 16 & 0x8000u;
  const double size = fabs(static_cast<double>(value));
  if (value != value) return 0x7fffu;  // as the instruction does
  if (size >= 65520.0) return static_cast<unsigned short>(sign | 0x7c00u);
  int exponent = -14;
  if (size >= ldexp(1.0, -14)) frexp(size, &exponent), exponent -= 1;
  const unsigned steps = static_cast<unsigned>(nearbyint(ldexp(size, 10 - exponent)));
  // Above the smallest normal number the first of the 11 bits is not stored; a carry into the next
  // exponent comes out right by itself.
  const unsigned stored =
      steps < 1024u ? steps : (static_cast<unsigned>(exponent + 14) << 10) + steps;
  return static_cast<unsigned short>(sign | stored);
}

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
