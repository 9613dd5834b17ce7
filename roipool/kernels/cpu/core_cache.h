// The cache of its own that each core has: the second level.
#pragma once
#ifndef _WIN32
#include <unistd.h>
#endif

#include <atomic>

#include "../config.h"

namespace roipool {

const wide_int usual_core_cache = 1LL << 21;

// As the system knows it, within what processors have: virtual machines may say anything.
inline wide_int known_core_cache() noexcept {
#ifdef _SC_LEVEL2_CACHE_SIZE
  const wide_int bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (bytes > 0) return clamp(bytes, 1LL << 18, 1LL << 22);
#endif
  return usual_core_cache;
}

// What calls suppose.
inline std::atomic<wide_int>& core_cache() noexcept {
  static std::atomic<wide_int> bytes{known_core_cache()};
  return bytes;
}
inline wide_int core_cache_bytes() noexcept { return core_cache().load(std::memory_order_relaxed); }
inline void suppose_core_cache(wide_int bytes) noexcept {
  core_cache().store(bytes, std::memory_order_relaxed);
}

}  // namespace roipool
