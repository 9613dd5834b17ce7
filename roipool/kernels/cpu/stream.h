// Stores that go around the caches, for results that are larger than these: a line that is written
// whole is then not read before, and does not push out what is still needed.
#pragma once
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "../config.h"
#include "lanes.h"

namespace roipool {
namespace ROIPOOL_ISA {

#if defined(__SSE2__)
const bool can_stream = true;

// Copies a cache line; `to` is at a line's start.
inline void stream_line(const char* from, char* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#else
  for (int at = 0; at < 64; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
#endif
}

// Waits until what was streamed is there for everyone.
inline void finish_streams() { _mm_sfence(); }
#else
const bool can_stream = false;
inline void stream_line(const char* from, char* to) { memcpy(to, from, 64); }
inline void finish_streams() {}
#endif

template <bool Stream, typename Vector, typename Value>
inline void store_to_line(Vector vector, Value* place) {
  if (Stream) {
    stream_line(reinterpret_cast<const char*>(&vector), reinterpret_cast<char*>(place));
  } else {
    store(vector, place);
  }
}

// Whether the channels of each cell or bin begin with a cache line.
template <typename Storage>
inline bool consists_of_lines(const Storage* first, const Strides& strides) {
  return reinterpret_cast<uintptr_t>(first) % 64 == 0 && strides.column * sizeof(Storage) % 64 == 0;
}

// Copies `count` values; lines that are not whole are left to the caches.
template <typename Storage>
inline void stream_values(const Storage* from, wide_int count, Storage* to) {
  const char* source = reinterpret_cast<const char*>(from);
  char* target = reinterpret_cast<char*>(to);
  const wide_int bytes = count * static_cast<wide_int>(sizeof(Storage));
  const wide_int head = minimum<wide_int>(bytes, -reinterpret_cast<uintptr_t>(target) % 64);
  memcpy(target, source, head);
  wide_int at = head;
  for (; at + 64 <= bytes; at += 64) stream_line(source + at, target + at);
  memcpy(target + at, source + at, bytes - at);
}

// Copies `runs` runs of `count` values, those at `from` side by side.
template <typename Storage>
inline void stream_runs(const Storage* from, wide_int runs, wide_int count, Storage* to,
                        wide_int stride) {
  if (stride == count) {
    stream_values(from, runs * count, to);
    return;
  }
  for (wide_int run = 0; run < runs; ++run) {
    stream_values(from + run * count, count, to + run * stride);
  }
}

}  // namespace ROIPOOL_ISA
}  // namespace roipool
