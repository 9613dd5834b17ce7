// How numbers are stored in arrays, and the type they are computed in.
#pragma once
#include "../config.h"

namespace roipool {

struct Float16 {
  unsigned short bits;
};
struct Bfloat16 {
  unsigned short bits;
};

// The text that includes this says what maps hold: Float16, Bfloat16, float or double.
typedef ROIPOOL_STORAGE Storage;

// The element type of a forward's features; it differs for integers of pictures and scans.
#ifdef ROIPOOL_FEATURE_STORAGE
typedef ROIPOOL_FEATURE_STORAGE FeatureStorage;
#else
typedef Storage FeatureStorage;
#endif

template <typename T>
struct ComputeOf {
  typedef float type;
};
template <>
struct ComputeOf<double> {
  typedef double type;
};

// Geometry, weights and sums.
typedef ComputeOf<Storage>::type Value;

union FloatBits {
  float value;
  unsigned bits;
};

ROIPOOL_HD float float_of_bits(unsigned bits) {
  FloatBits both;
  both.bits = bits;
  return both.value;
}
ROIPOOL_HD unsigned bits_of_float(float value) {
  FloatBits both;
  both.value = value;
  return both.bits;
}

ROIPOOL_HD float compute_value(float value) { return value; }
ROIPOOL_HD double compute_value(double value) { return value; }
ROIPOOL_HD float compute_value(unsigned char value) { return value; }
ROIPOOL_HD float compute_value(signed char value) { return value; }
ROIPOOL_HD float compute_value(unsigned short value) { return value; }
ROIPOOL_HD float compute_value(short value) { return value; }
ROIPOOL_HD float compute_value(Bfloat16 value) {
  return float_of_bits(static_cast<unsigned>(value.bits) << 16);
}

// Rounding to nearest, ties to even; overflow becomes infinity and NaN stays NaN.
ROIPOOL_HD void store_value(float value, float* address) { *address = value; }
ROIPOOL_HD void store_value(double value, double* address) { *address = value; }
ROIPOOL_HD void store_value(float value, Bfloat16* address) {
  address->bits = static_cast<unsigned short>(bfloat16_of_float_bits(bits_of_float(value)));
}

// One instruction each on a GPU, without a CUDA header, and not touched by -ftz.
#if defined(__CUDACC__)
__device__ inline float compute_value(Float16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ inline void store_value(float value, Float16* address) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(address->bits) : "f"(value));
}
#else
inline float compute_value(Float16 value) { return float_of_half(value.bits); }
inline void store_value(float value, Float16* address) { address->bits = half_of_float(value); }
#endif

ROIPOOL_HD float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
ROIPOOL_HD double multiply_add(double a, double b, double c) { return fma(a, b, c); }

}  // namespace roipool
