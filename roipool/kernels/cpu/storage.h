// How numbers are stored in arrays, and the type they are computed in.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "../config.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

template <typename To, typename From>
inline To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
  To result;
  memcpy(&result, &value, sizeof(result));
  return result;
}

struct Float16 {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

template <typename Storage>
struct ComputeOf {
  typedef float type;
};
template <>
struct ComputeOf<double> {
  typedef double type;
};

inline float compute_value(float value) { return value; }
inline double compute_value(double value) { return value; }
inline float compute_value(uint8_t value) { return value; }
inline float compute_value(int8_t value) { return value; }
inline float compute_value(uint16_t value) { return value; }
inline float compute_value(int16_t value) { return value; }
inline int32_t compute_value(int32_t value) { return value; }  // an argmax moves as values do
inline float compute_value(Bfloat16 value) {
  return bits_of<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounding to nearest, ties to even; overflow becomes infinity and NaN stays NaN.
inline void store_value(float value, float* address) { *address = value; }
inline void store_value(double value, double* address) { *address = value; }
inline void store_value(int32_t value, int32_t* address) { *address = value; }
inline void store_value(float value, Bfloat16* address) {
  address->bits = static_cast<uint16_t>(bfloat16_of_float_bits(bits_of<uint32_t>(value)));
}
#if defined(__aarch64__)
inline float compute_value(Float16 value) { return bits_of<__fp16>(value.bits); }
inline void store_value(float value, Float16* address) {
  address->bits = bits_of<uint16_t>(static_cast<__fp16>(value));
}
#elif defined(__F16C__)
inline float compute_value(Float16 value) { return _cvtsh_ss(value.bits); }
inline void store_value(float value, Float16* address) {
  address->bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}
#else
inline float compute_value(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  // Scaling by 2^112 moves the exponent to float32's bias and makes subnormals normal, exactly.
  const float scaled = bits_of<float>(magnitude) * bits_of<float>(0x77800000u);
  const bool is_finite = magnitude < 0x0f800000u;
  return bits_of<float>(sign | (is_finite ? bits_of<uint32_t>(scaled) : 0x70000000u | magnitude));
}
inline void store_value(float value, Float16* address) {
  const uint32_t bits = bits_of<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 leaves multiples of 2^-24, float16's smallest step, in the low bits, rounded.
  const uint32_t subnormal = bits_of<uint32_t>(bits_of<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;  // below 2^-14
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;              // rounds to 65536 or more
  half = magnitude > 0x7f800000u ? nan : half;
  address->bits = static_cast<uint16_t>(sign | half);
}
#endif

// Keeps compilers from making vectors of a loop that is too short for them: the code would be
// several times as long.
inline void keep_scalar() { asm volatile(""); }

// Conversions of neighbours. The loops have no branches, so that compilers make vectors of them.
template <typename Storage, typename Value>
inline void compute_values(const Storage* from, wide_int count, Value* to) {
  for (wide_int i = 0; i < count; ++i) to[i] = compute_value(from[i]);
}
template <typename Value, typename Storage>
inline void store_values(const Value* from, wide_int count, Storage* to) {
  for (wide_int i = 0; i < count; ++i) store_value(from[i], to + i);
}

#if defined(__F16C__)
inline void convert_eight(const Float16* from, float* to) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  _mm256_storeu_ps(to, _mm256_cvtph_ps(halves));
}
inline void convert_eight(const float* from, Float16* to) {
  const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
}
#elif defined(__aarch64__)
inline void convert_eight(const Float16* from, float* to) {
  float16x8_t halves;
  memcpy(&halves, from, sizeof(halves));
  vst1q_f32(to, vcvt_f32_f16(vget_low_f16(halves)));
  vst1q_f32(to + 4, vcvt_high_f32_f16(halves));
}
inline void convert_eight(const float* from, Float16* to) {
  const float16x4_t low = vcvt_f16_f32(vld1q_f32(from));
  const float16x8_t halves = vcvt_high_f16_f32(low, vld1q_f32(from + 4));
  memcpy(to, &halves, sizeof(halves));
}
#endif

#if defined(__F16C__) || defined(__aarch64__)
inline void compute_values(const Float16* from, wide_int count, float* to) {
  wide_int i = 0;
  for (; i + 8 <= count; i += 8) convert_eight(from + i, to + i);
  for (; i < count; ++i) to[i] = compute_value(from[i]);
}
inline void store_values(const float* from, wide_int count, Float16* to) {
  wide_int i = 0;
  for (; i + 8 <= count; i += 8) convert_eight(from + i, to + i);
  for (; i < count; ++i) store_value(from[i], to + i);
}
#endif

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
