// Pooled values as integers, of pictures and scans. Built once per instruction set, whose vectors
// compilers use.
#include <stdint.h>
#include <string.h>

#include <limits>

#include "job.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// Turns the bits of a float into a whole number that is ordered as floats are, and back.
inline int32_t ordered_bits(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

inline int32_t bits_of_float(float value) {
  int32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Rounded half to even; what an integer cannot hold becomes the nearest that it can, and NaN 0.
// Bits are compared: compilers make no vectors of a loop with comparisons of floats, which may
// trap.
template <typename Integer>
inline Integer integer_of(float value) {
  const int32_t least = ordered_bits(bits_of_float(std::numeric_limits<Integer>::min()));
  const int32_t most = ordered_bits(bits_of_float(std::numeric_limits<Integer>::max()));
  const int32_t given = bits_of_float(value);
  const int32_t is_number = (given & 0x7fffffff) <= 0x7f800000;
  int32_t bits = ordered_bits(given);
  bits = bits > least ? bits : least;
  bits = bits < most ? bits : most;
  bits = ordered_bits(bits & -is_number);
  float limited;
  memcpy(&limited, &bits, sizeof(limited));
  // The sum's last bit counts ones: adding rounds. Its low bits are those of the whole number.
  return static_cast<Integer>(bits_of_float(limited + 12582912.0f));  // 1.5 * 2^23
}

template <typename Integer>
inline void store_all(const float* from, wide_int count, Integer* to) {
  for (wide_int i = 0; i < count; ++i) to[i] = integer_of<Integer>(from[i]);
}

void store_integers(const float* from, wide_int count, FeatureStorage type, void* to) {
  switch (type) {
    case stored_as_pooled: break;
    case stored_as_uint8: store_all(from, count, static_cast<uint8_t*>(to)); break;
    case stored_as_int8: store_all(from, count, static_cast<int8_t*>(to)); break;
    case stored_as_uint16: store_all(from, count, static_cast<uint16_t*>(to)); break;
    case stored_as_int16: store_all(from, count, static_cast<int16_t*>(to)); break;
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
