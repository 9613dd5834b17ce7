// Memory that is used again. The kernel clears each page before it hands it out, which for a large
// result costs more than the pooling itself, and allocators give large blocks back at once.
//
// Freed blocks are kept for the next call, up to a limit. Those that are not among the latest are
// offered to the kernel, which may take their pages when it runs short of memory; only then must it
// clear them again.
#pragma once
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace roipool {

const size_t cache_line = 64;
const size_t page = size_t(1) << 12;
const size_t huge_page = size_t(1) << 21;
const size_t smallest_kept = size_t(1) << 16;  // malloc is quick enough with less
const size_t most_kept_blocks = 32;
const size_t most_withheld_bytes = size_t(1) << 28;  // an offer interrupts every core

// A cache line in front of the memory that is handed out.
struct BlockHead {
  size_t capacity;  // bytes, this line included
};

inline size_t capacity_for(size_t bytes) {
  const size_t step = bytes < huge_page ? cache_line : page;
  return (bytes + cache_line + step - 1) / step * step;
}

inline void advise_huge_pages(char* start, size_t capacity) {
#ifdef MADV_HUGEPAGE
  if (capacity >= huge_page) madvise(start, capacity, MADV_HUGEPAGE);
#endif
}

inline void offer_to_kernel(char* start, size_t capacity) {
#ifdef MADV_FREE
  if (capacity >= huge_page) madvise(start, capacity, MADV_FREE);
#endif
}

class FreedBlocks {
 public:
  // The smallest block that serves without wasting half of it, or none.
  char* take(size_t capacity, size_t* found) {
    const std::lock_guard<std::mutex> guard(lock_);
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      const bool fits = block->capacity >= capacity && block->capacity / 2 <= capacity;
      if (fits && (best == blocks_.end() || block->capacity <= best->capacity)) best = block;
    }
    if (best == blocks_.end()) return nullptr;
    char* start = best->start;
    *found = best->capacity;
    remove(best);
    return start;
  }

  // Keeps a block; the oldest ones go where that is too much.
  void keep(char* start, size_t capacity) {
    const std::lock_guard<std::mutex> guard(lock_);
    blocks_.push_back({start, capacity, false});
    bytes_ += capacity;
    release_beyond(limit_);
    offer_beyond(most_withheld_bytes);
  }

  // Sets how many bytes may be kept.
  void set_limit(size_t bytes) {
    const std::lock_guard<std::mutex> guard(lock_);
    limit_ = bytes;
    release_beyond(limit_);
  }

  void release_all() {
    const std::lock_guard<std::mutex> guard(lock_);
    release_beyond(0);
  }

 private:
  struct Block {
    char* start;
    size_t capacity;
    bool offered;
  };

  void offer_beyond(size_t bytes) {
    size_t later = 0;
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      later += block->capacity;
      if (later <= bytes || block->offered) continue;
      offer_to_kernel(block->start, block->capacity);
      block->offered = true;
    }
  }

  void release_beyond(size_t bytes) {
    while (bytes_ > bytes || blocks_.size() > most_kept_blocks) {
      free(blocks_.front().start);
      remove(blocks_.begin());
    }
  }

  void remove(std::vector<Block>::iterator block) {
    bytes_ -= block->capacity;
    blocks_.erase(block);
  }

  std::mutex lock_;
  std::vector<Block> blocks_;  // the oldest first
  size_t bytes_ = 0;
  size_t limit_ = 0;
};

// It is never destroyed: arrays may outlive everything else at the interpreter's end.
inline FreedBlocks& freed_blocks() {
  static FreedBlocks* blocks = new FreedBlocks;
  return *blocks;
}

inline char* aligned_block(size_t capacity) {
  const size_t alignment = capacity >= huge_page ? huge_page : cache_line;
  void* start = nullptr;
  return posix_memalign(&start, alignment, capacity) == 0 ? static_cast<char*>(start) : nullptr;
}

inline char* new_block(size_t capacity) {
  char* start = aligned_block(capacity);
  if (start == nullptr) {
    freed_blocks().release_all();
    start = aligned_block(capacity);
  }
  if (start != nullptr) advise_huge_pages(start, capacity);
  return start;
}

// Uninitialised memory at a cache line's start, or null.
inline void* take_memory(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  size_t capacity = capacity_for(bytes);
  char* start = nullptr;
  if (capacity >= smallest_kept) start = freed_blocks().take(capacity, &capacity);
  if (start == nullptr) start = new_block(capacity);
  if (start == nullptr) return nullptr;
  reinterpret_cast<BlockHead*>(start)->capacity = capacity;
  return start + cache_line;
}

inline size_t memory_size(const void* memory) {
  const char* start = static_cast<const char*>(memory) - cache_line;
  return reinterpret_cast<const BlockHead*>(start)->capacity - cache_line;
}

inline void give_memory(void* memory) {
  if (memory == nullptr) return;
  const size_t capacity = memory_size(memory) + cache_line;
  char* start = static_cast<char*>(memory) - cache_line;
  if (capacity < smallest_kept) {
    free(start);
    return;
  }
  freed_blocks().keep(start, capacity);
}

inline void limit_kept_memory(size_t bytes) { freed_blocks().set_limit(bytes); }

// The same for NumPy's arrays, which free their memory themselves.
inline void* array_malloc(void*, size_t bytes) { return take_memory(bytes); }

inline void* array_calloc(void*, size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / size) return nullptr;
  void* memory = take_memory(count * size);
  if (memory != nullptr) memset(memory, 0, count * size);
  return memory;
}

inline void array_free(void*, void* memory, size_t) { give_memory(memory); }

inline void* array_realloc(void*, void* old, size_t bytes) {
  void* memory = take_memory(bytes);
  if (memory == nullptr || old == nullptr) return memory;
  memcpy(memory, old, std::min(bytes, memory_size(old)));
  give_memory(old);
  return memory;
}

}  // namespace roipool
