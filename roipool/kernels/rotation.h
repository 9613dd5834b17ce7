// Sine and cosine by arithmetic alone: the C library's and CUDA's differ in the last bit, and a
// sample at the map's border would be inside on one and outside on the other.
#pragma once
#include "config.h"

namespace roipool {

struct Rotation {
  double cosine;
  double sine;
};

// Taylor series, for angles of at most pi / 4.
ROIPOOL_HD double short_sine(double angle) {
  const double square = angle * angle;
  double sum = 1;
  for (int n = 18; n >= 2; n -= 2) sum = 1 - square / (n * (n + 1)) * sum;
  return angle * sum;
}
ROIPOOL_HD double short_cosine(double angle) {
  const double square = angle * angle;
  double sum = 1;
  for (int n = 19; n >= 1; n -= 2) sum = 1 - square / (n * (n + 1)) * sum;
  return sum;
}

// Within two roundings. NaN for infinite angles, and for those beyond 2^30, which float32 knows to
// the nearest 64 radians only.
ROIPOOL_HD Rotation rotation_by(double angle) {
  const double largest = 1073741824.0;
  if (!(magnitude(angle) <= largest)) {
    const double nan = 0.0 / (angle - angle);
    return {nan, nan};
  }
  // pi / 2 in parts of 23 bits, so that multiples of the first three are exact.
  const double quarters = round_half_away(angle * 0x1.45f306dc9c883p-1);
  const double rest = (((angle - quarters * 0x1.921fb4p+0) - quarters * 0x1.4442dp-24) -
                       quarters * 0x1.846988p-48) -
                      quarters * 0x1.8cc51701b839ap-72;
  const double sine = short_sine(rest), cosine = short_cosine(rest);
  switch (to_wide_int(quarters) & 3) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

}  // namespace roipool
