// Non-temporal stores, for results that are larger than the caches: a whole line is written without
// reading it first, and without evicting lines that are still needed.
#pragma once
#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>  // a tenth as long
#endif

#include "../config.h"
#include "lanes.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

#if defined(__SSE2__)
const bool has_non_temporal_stores = true;

// Copies a cache line; `to` is at a line's start.
inline void copy_line_non_temporal(const char* from, char* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#else
  for (int at = 0; at < 64; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
#endif
}

// Orders the non-temporal stores before what the thread stores later.
inline void finish_non_temporal_stores() { _mm_sfence(); }
#else
const bool has_non_temporal_stores = false;
inline void copy_line_non_temporal(const char* from, char* to) { memcpy(to, from, 64); }
inline void finish_non_temporal_stores() {}
#endif

template <bool NonTemporal, typename Vector, typename Value>
inline void store_line(Vector vector, Value* address) {
  if (NonTemporal) {
    copy_line_non_temporal(reinterpret_cast<const char*>(&vector),
                           reinterpret_cast<char*>(address));
  } else {
    store(vector, address);
  }
}

// Whether the channels of each cell or bin begin with a cache line.
template <typename Storage>
inline bool consists_of_lines(const Storage* first, const Strides& strides) {
  return reinterpret_cast<uintptr_t>(first) % 64 == 0 && strides.column * sizeof(Storage) % 64 == 0;
}

// Copies `count` values; parts of lines are stored normally.
template <typename Storage>
inline void copy_non_temporal(const Storage* from, wide_int count, Storage* to) {
  const char* source = reinterpret_cast<const char*>(from);
  char* target = reinterpret_cast<char*>(to);
  const wide_int bytes = count * static_cast<wide_int>(sizeof(Storage));
  const wide_int head = minimum<wide_int>(bytes, -reinterpret_cast<uintptr_t>(target) % 64);
  memcpy(target, source, head);
  wide_int at = head;
  for (; at + 64 <= bytes; at += 64) copy_line_non_temporal(source + at, target + at);
  memcpy(target + at, source + at, bytes - at);
}

// Copies `runs` runs of `count` values, those at `from` side by side.
template <typename Storage>
inline void copy_runs_non_temporal(const Storage* from, wide_int runs, wide_int count, Storage* to,
                                   wide_int stride) {
  if (stride == count) {
    copy_non_temporal(from, runs * count, to);
    return;
  }
  for (wide_int run = 0; run < runs; ++run) {
    copy_non_temporal(from + run * count, count, to + run * stride);
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
