// The two conversions that the kernels leave to an instruction; compilers before GCC 12 have no type
// for it.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

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
