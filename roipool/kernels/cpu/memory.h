// Memory that is used again. The kernel clears each page before it hands it out, which for a large
// result costs more than the pooling itself, and allocators return large blocks at once.
//
// Freed blocks go to a cache. An allocation of about the same size takes one from there. When the
// cache would exceed its limit, the oldest blocks are lent to the system: Linux may take their
// pages whenever memory is short, and until it does, they need not be cleared. Beyond a second
// limit, and where there is no such loan, blocks return to the system. So does every block that
// `max_age` allocations, of whatever size, did not need. There is no timer: a process that makes no
// more calls keeps what is cached until it is told to free it.
//
// Nothing here throws: NumPy calls it through C function pointers.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <atomic>
#include <mutex>
#include <new>

namespace roipool {

const size_t cache_line = 64;
const size_t huge_page = size_t(1) << 21;
const size_t min_cached_bytes = size_t(1) << 16;  // malloc is quick enough with less
const int max_cached_blocks = 32;
const uint64_t max_age = 192;  // allocations; a pooling call makes three, and one for its result
const uint64_t allocations_per_check = 64;

inline size_t page_bytes() noexcept {
#ifdef _WIN32
  return 4096;  // on all of its processors
#else
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
#endif
}

// ---- Blocks: the memory that is handed out, with a cache line in front of it. Large ones are
// mappings of their own, so that advice to the kernel and unmapping never reach another's memory.

struct BlockHead {
  size_t capacity;  // bytes, this line included
  size_t skipped;   // bytes of the allocation before it, unless it is a mapping
};

inline size_t round_up(size_t bytes, size_t step) noexcept {
  return (bytes + step - 1) / step * step;
}

// The capacity of a block for so many bytes: whole pages where it is a mapping of its own.
inline size_t block_capacity(size_t bytes, size_t page) noexcept {
  const size_t size = bytes + cache_line;
  return round_up(size, size < huge_page ? cache_line : page);
}

// How a mapping is trimmed to a block that begins at a huge page: pages before and after it.
struct Trim {
  size_t before;
  size_t after;
};

inline size_t mapping_alignment(size_t page) noexcept {
  return page > huge_page ? page : huge_page;
}

// A mapping of these bytes holds an aligned block wherever it begins.
inline size_t mapped_bytes(size_t capacity, size_t page) noexcept {
  return capacity + mapping_alignment(page) - page;
}

inline Trim trim_mapping(uintptr_t start, size_t capacity, size_t page) noexcept {
  const size_t before = round_up(start, mapping_alignment(page)) - start;
  return {before, mapped_bytes(capacity, page) - before - capacity};
}

// ---- The system: a block from it or null, and back

#ifdef _WIN32
// Its large pages are for those with a privilege only: a large block is like any other.
inline char* map_block(size_t) noexcept { return nullptr; }
inline void unmap_block(char*, size_t) noexcept {}
inline bool is_mapping(size_t) noexcept { return false; }
#else
inline char* map_block(size_t capacity) noexcept {
  const size_t page = page_bytes();
  void* mapping = mmap(nullptr, mapped_bytes(capacity, page), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  const Trim trim = trim_mapping(reinterpret_cast<uintptr_t>(mapping), capacity, page);
  char* start = static_cast<char*>(mapping) + trim.before;
  if (trim.before > 0) munmap(mapping, trim.before);
  if (trim.after > 0) munmap(start + capacity, trim.after);
#ifdef MADV_HUGEPAGE
  madvise(start, capacity, MADV_HUGEPAGE);
#endif
  return start;
}

inline void unmap_block(char* start, size_t capacity) noexcept { munmap(start, capacity); }
inline bool is_mapping(size_t capacity) noexcept { return capacity >= huge_page; }
#endif

inline BlockHead* head_of(char* start) noexcept { return reinterpret_cast<BlockHead*>(start); }

// Not by an aligned malloc, which takes several times as long for the few bytes of a small call.
inline char* system_allocate(size_t capacity) noexcept {
  if (is_mapping(capacity)) return map_block(capacity);
  char* memory = static_cast<char*>(malloc(capacity + cache_line));
  if (memory == nullptr) return nullptr;
  const size_t skipped = cache_line - reinterpret_cast<uintptr_t>(memory) % cache_line;
  head_of(memory + skipped)->skipped = skipped;
  return memory + skipped;
}

inline void system_free(char* start, size_t capacity) noexcept {
  if (is_mapping(capacity)) {
    unmap_block(start, capacity);
  } else {
    free(start - head_of(start)->skipped);
  }
}

// Lets the system take a mapping's pages from now on until they are written to; what they held may
// be lost. Returns whether it can.
inline bool lend_block(char* start, size_t capacity) noexcept {
#if defined(__linux__) && defined(MADV_FREE)
  return is_mapping(capacity) && madvise(start, capacity, MADV_FREE) == 0;
#else
  (void)start;
  (void)capacity;
  return false;
#endif
}

// ---- The cache

class BlockCache {
 public:
  // The smallest block that serves without wasting half of it, or null.
  char* allocate(size_t capacity, size_t* found) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    int best = -1;
    for (int i = 0; i < count_; ++i) {
      const size_t size = blocks_[i].capacity;
      const bool fits = size >= capacity && size / 2 <= capacity;
      if (fits && (best < 0 || size <= blocks_[best].capacity)) best = i;
    }
    if (best < 0) return nullptr;
    char* start = blocks_[best].start;
    *found = blocks_[best].capacity;
    remove(best);
    return start;
  }

  void free(char* start, size_t capacity) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (limit_ == 0) {
      system_free(start, capacity);
      return;
    }
    if (count_ == max_cached_blocks) release(0);
    blocks_[count_++] = {start, capacity, allocations_.load(std::memory_order_relaxed), false};
    bytes_ += capacity;
    if (capacity > limit_) lend(count_ - 1);  // which costs no other its place
    hold_limits();
  }

  // To be called for each allocation, cached or not.
  void count_allocation() noexcept {
    const uint64_t now = 1 + allocations_.fetch_add(1, std::memory_order_relaxed);
    if (now % allocations_per_check != 0) return;
    const std::lock_guard<std::mutex> guard(mutex_);
    while (count_ > 0 && now - blocks_[0].freed_at >= max_age) release(0);
  }

  void clear() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    while (count_ > 0) release(0);
  }

  void set_limit(size_t bytes) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    limit_ = bytes;
    hold_limits();
  }

  // How many bytes may be lent to the system, besides those cached.
  void set_lent_limit(size_t bytes) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    lent_limit_ = bytes;
    hold_limits();
  }

  size_t limit() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    return limit_;
  }

  size_t bytes() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    return bytes_;
  }

  size_t lent_bytes() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    return lent_bytes_;
  }

  // Around a fork, so that the child does not inherit a mutex that a thread holds which it lacks.
  void lock() noexcept { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  struct Block {
    char* start;
    size_t capacity;
    uint64_t freed_at;  // number of the latest allocation then
    bool is_lent;
  };

  // Without a cache nothing is lent either.
  void hold_limits() noexcept {
    while (bytes_ > limit_) lend(oldest(false));
    while (lent_bytes_ > (limit_ == 0 ? 0 : lent_limit_)) release(oldest(true));
  }

  int oldest(bool is_lent) const noexcept {
    int index = 0;
    while (blocks_[index].is_lent != is_lent) ++index;
    return index;
  }

  void lend(int index) noexcept {
    Block& block = blocks_[index];
    if (block.capacity > lent_limit_ || !lend_block(block.start, block.capacity)) {
      release(index);
      return;
    }
    block.is_lent = true;
    bytes_ -= block.capacity;
    lent_bytes_ += block.capacity;
  }

  void release(int index) noexcept {
    system_free(blocks_[index].start, blocks_[index].capacity);
    remove(index);
  }

  void remove(int index) noexcept {
    (blocks_[index].is_lent ? lent_bytes_ : bytes_) -= blocks_[index].capacity;
    --count_;
    for (int i = index; i < count_; ++i) blocks_[i] = blocks_[i + 1];
  }

  std::mutex mutex_;
  std::atomic<uint64_t> allocations_{0};
  Block blocks_[max_cached_blocks];  // the oldest first
  int count_ = 0;
  size_t bytes_ = 0;  // of blocks that are not lent
  size_t limit_ = 0;
  size_t lent_bytes_ = 0;
  size_t lent_limit_ = 0;
};

// It is never destroyed: arrays may outlive everything else at the interpreter's end.
inline BlockCache& block_cache() noexcept {
  alignas(BlockCache) static char memory[sizeof(BlockCache)];
  static BlockCache* cache = new (memory) BlockCache;
  return *cache;
}

// ---- What calls and arrays use

// Uninitialised memory at a cache line's start, or null.
inline void* allocate(size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) return nullptr;
  BlockCache& cache = block_cache();
  cache.count_allocation();
  size_t capacity = block_capacity(bytes, page_bytes());
  char* start = nullptr;
  if (capacity >= min_cached_bytes) start = cache.allocate(capacity, &capacity);
  if (start == nullptr) start = system_allocate(capacity);
  if (start == nullptr) {
    cache.clear();
    start = system_allocate(capacity);
  }
  if (start == nullptr) return nullptr;
  head_of(start)->capacity = capacity;
  return start + cache_line;
}

inline size_t usable_bytes(const void* memory) noexcept {
  const char* start = static_cast<const char*>(memory) - cache_line;
  return reinterpret_cast<const BlockHead*>(start)->capacity - cache_line;
}

inline void deallocate(void* memory) noexcept {
  if (memory == nullptr) return;
  const size_t capacity = usable_bytes(memory) + cache_line;
  char* start = static_cast<char*>(memory) - cache_line;
  if (capacity < min_cached_bytes) {
    system_free(start, capacity);
  } else {
    block_cache().free(start, capacity);
  }
}

// The same for NumPy's arrays, which free their memory themselves.
inline void* array_malloc(void*, size_t bytes) noexcept { return allocate(bytes); }

inline void* array_calloc(void*, size_t count, size_t size) noexcept {
  if (size != 0 && count > SIZE_MAX / size) return nullptr;
  void* memory = allocate(count * size);
  if (memory != nullptr) memset(memory, 0, count * size);
  return memory;
}

inline void array_free(void*, void* memory, size_t) noexcept { deallocate(memory); }

inline void* array_realloc(void*, void* old, size_t bytes) noexcept {
  void* memory = allocate(bytes);
  if (memory == nullptr || old == nullptr) return memory;
  const size_t before = usable_bytes(old);
  memcpy(memory, old, bytes < before ? bytes : before);
  deallocate(old);
  return memory;
}

}  // namespace roipool
