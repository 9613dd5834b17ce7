// What every kernel header needs: one function qualifier, and scalar helpers that mean the same
// to a C++ compiler, nvcc and NVRTC. No standard library beyond <math.h>, so the text compiles
// under NVRTC without any header path.
//
// Geometry is compiled with contraction off (-ffp-contract=off, NVRTC -fmad=false) and never with
// fast-math: the CPU and the GPU then take the same floor, ceil and outside decisions.
#pragma once

#if defined(__CUDACC__)
#define ROIPOOL_HD __host__ __device__ inline
#else
#define ROIPOOL_HD inline
#include <math.h>
#endif

// The CPU's engines are compiled once per instruction set and linked together. What they share with
// the rest must not have a copy out of line, which could be another set's.
#if defined(__CUDACC__)
#define ROIPOOL_ENGINE_HD ROIPOOL_HD
#else
#define ROIPOOL_ENGINE_HD __attribute__((always_inline)) inline
#endif

// For what definitions and sinks share. Compilers would copy it into each definition, for each
// sink, which takes them seconds and saves little.
#if defined(__CUDACC__) || defined(__wasm__)
#define ROIPOOL_HD_ONCE ROIPOOL_HD
#else
#define ROIPOOL_HD_ONCE __attribute__((noinline)) inline
#endif

namespace roipool {

// Offsets into arrays and numbers of samples. At least 64 bits on every platform.
typedef long long wide_int;

ROIPOOL_HD float floor_of(float value) { return floorf(value); }
ROIPOOL_HD double floor_of(double value) { return floor(value); }
ROIPOOL_HD float ceil_of(float value) { return ceilf(value); }
ROIPOOL_HD double ceil_of(double value) { return ceil(value); }

// Half away from zero, as C's round: 0.5 -> 1, -0.5 -> -1, 2.5 -> 3.
ROIPOOL_HD float round_half_away(float value) { return roundf(value); }
ROIPOOL_HD double round_half_away(double value) { return round(value); }

template <typename T>
ROIPOOL_HD T minimum(T a, T b) {
  return b < a ? b : a;
}

template <typename T>
ROIPOOL_HD T maximum(T a, T b) {
  return a < b ? b : a;
}

template <typename T>
ROIPOOL_HD T magnitude(T value) {
  return value < T(0) ? -value : value;
}

// False for NaN and both infinities.
template <typename T>
ROIPOOL_HD bool is_finite(T value) {
  return value - value == T(0);
}

// Casting a NaN or a value that does not fit is undefined in C++: values are held within +-2^60,
// far beyond any map and far enough from the limit that sums of a few of them cannot overflow.
// A NaN becomes the lower limit; callers have excluded it already where it matters.
template <typename T>
ROIPOOL_HD wide_int to_wide_int(T value) {
  const T limit = T(1152921504606846976LL);
  if (!(value > -limit)) return -(1LL << 60);
  if (value >= limit) return 1LL << 60;
  return static_cast<wide_int>(value);
}

ROIPOOL_HD wide_int clamp(wide_int value, wide_int low, wide_int high) {
  return value < low ? low : (value > high ? high : value);
}

// The upper half of a float's bits, rounded to nearest, ties to even; overflow becomes infinity and
// NaN stays NaN.
ROIPOOL_ENGINE_HD unsigned bfloat16_of_float_bits(unsigned bits) {
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return is_nan ? (bits >> 16) | 0x0040u : rounded;
}

}  // namespace roipool
