// From a function of numbers to an instruction that computes each lane's result from its operands.
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "machine.h"

namespace simt {

// ---- Registers hold 64 bits; an instruction reads the low ones, as its type says

template <class T>
inline T value_of(u64 bits) {
  if constexpr (std::is_same_v<T, bool>) return bits != 0;
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
inline u64 bits_of(T value) {
  u64 bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}

// `.ftz`: float32 numbers below the smallest normal one are zero, read or written.
template <class T>
inline T flushed(T value) {
  return value;
}
inline f32 flushed(f32 value) {
  return fabsf(value) < 1.17549435e-38f ? copysignf(0.0f, value) : value;
}

template <auto function>
struct Lanewise;
template <class Result, class... Operand, Result (*function)(Operand...)>
struct Lanewise<function> {
  static constexpr bool has_float32 =
      std::is_same_v<Result, f32> || (std::is_same_v<Operand, f32> || ...);

  template <bool ftz, size_t... n>
  static u64 lane(const u64* const* operands, int lane, std::index_sequence<n...>) {
    if constexpr (ftz) {
      return bits_of(flushed(function(flushed(value_of<Operand>(operands[n][lane]))...)));
    } else {
      return bits_of(function(value_of<Operand>(operands[n][lane])...));
    }
  }
  template <bool ftz>
  static void run(Warp& warp, const Instruction& instruction, u32 mask) {
    const std::index_sequence_for<Operand...> all;
    u64* result = warp.lanes(instruction.operands[0]);
    const u64* operands[sizeof...(Operand)];  // may be those of the result
    for (size_t n = 0; n < sizeof...(Operand); ++n) {
      operands[n] = warp.lanes(instruction.operands[n + 1]);
    }
    if (mask == whole_warp) {  // which the compiler can vectorise
      u64 results[warp_size];
      for (int l = 0; l < warp_size; ++l) results[l] = lane<ftz>(operands, l, all);
      memcpy(result, results, sizeof results);
    } else {
      for_each_lane(mask, [&](int l) { result[l] = lane<ftz>(operands, l, all); });
    }
  }
};

}  // namespace simt
