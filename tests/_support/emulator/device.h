// A CUDA device for a C++ compiler: included before a kernel text, which then is C++. A block's
// threads are fibres, so that barriers are real ones; blocks run one after the other. Threads take
// turns in one order before a barrier and in the reverse order after it, which shows results that
// rely on an order. A barrier that not all threads reach is an error, not a hang.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__has_feature)  // Clang's way to say what GCC does
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <ucontext.h>
#endif

#include <tuple>
#include <utility>
#include <vector>

namespace emulator {

struct Index {
  unsigned x, y, z;
};

// ---- Fibres: a thread that has to wait keeps its stack.

const size_t bytes_of_stack = 1 << 18;
void run_fibre();

#if defined(__x86_64__)
extern "C" void roipool_switch_stack(void** save, void* load);
asm(R"(
.text
.globl roipool_switch_stack
.hidden roipool_switch_stack
.type roipool_switch_stack, @function
roipool_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size roipool_switch_stack, .-roipool_switch_stack
)");

struct Context {
  void* stack_pointer;

  void start_at(char* stack) {
    void** top = reinterpret_cast<void**>(stack + bytes_of_stack - 64);
    *--top = nullptr;  // the return address of run_fibre, which does not return
    *--top = reinterpret_cast<void*>(run_fibre);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    stack_pointer = top;
  }
  void switch_to(Context* other) { roipool_switch_stack(&stack_pointer, other->stack_pointer); }
};
#else
struct Context {
  ucontext_t context;

  void start_at(char* stack) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes_of_stack;
    makecontext(&context, run_fibre, 0);
  }
  void switch_to(Context* other) { swapcontext(&context, &other->context); }
};
#endif

enum Waiting { for_nothing, for_block, for_warp };

struct Fibre {
  Context context;
  char* stack;
  int thread;  // that it runs
};

struct Thread {
  Index index;
  Fibre* fibre;
  bool started, finished;
  Waiting waiting;
  unsigned brought;  // to the other threads of its warp
};

struct Launch {
  Index grid, block, block_index;
  std::vector<Thread> threads;
  int next;        // thread to start, in this phase's order
  bool backwards;  // this phase's order
  void (*kernel)(void** arguments);
  void** arguments;
};

inline Launch launch;
inline Context scheduler;
inline Fibre* current_fibre;
inline std::vector<Fibre*> idle_fibres;
#if defined(__SANITIZE_ADDRESS__)
inline const void* scheduler_stack;
inline size_t scheduler_stack_size;
#endif

inline Thread& current_thread() { return launch.threads[current_fibre->thread]; }

inline void to_scheduler() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake;
  __sanitizer_start_switch_fiber(&fake, scheduler_stack, scheduler_stack_size);
#endif
  current_fibre->context.switch_to(&scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_size);
#endif
}

inline void to_fibre(Fibre* fibre) {
  current_fibre = fibre;
#if defined(__SANITIZE_ADDRESS__)
  void* fake;
  __sanitizer_start_switch_fiber(&fake, fibre->stack, bytes_of_stack);
#endif
  scheduler.switch_to(&fibre->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

inline Fibre* new_fibre() {
  Fibre* fibre = new Fibre;
  fibre->stack = static_cast<char*>(mmap(nullptr, bytes_of_stack, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (fibre->stack == MAP_FAILED) abort();
  fibre->context.start_at(fibre->stack);
  return fibre;
}

// Runs one thread after the other; a fibre only changes hands when its thread has to wait.
void run_fibre() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
#endif
  for (;;) {
    const int count = static_cast<int>(launch.threads.size());
    if (launch.next < count) {
      current_fibre->thread = launch.backwards ? count - 1 - launch.next : launch.next;
      ++launch.next;
      Thread& thread = current_thread();
      thread.fibre = current_fibre;
      thread.started = true;
      launch.kernel(launch.arguments);
      current_thread().finished = true;
    } else {
      idle_fibres.push_back(current_fibre);
      to_scheduler();
    }
  }
}

inline void wait(Waiting what) {
  current_thread().waiting = what;
  to_scheduler();
}

// ---- Blocks

const int warp_size = 32;

// Lets threads go on whose barrier all its threads have reached; returns whether there are any.
inline bool release(int first, int last, Waiting what) {
  bool any = false;
  for (int i = first; i < last; ++i) {
    if (launch.threads[i].waiting != what) return false;
    any = true;
  }
  for (int i = first; i < last; ++i) launch.threads[i].waiting = for_nothing;
  return any;
}

inline bool release_all() {
  const int count = static_cast<int>(launch.threads.size());
  bool any = release(0, count, for_block);
  for (int first = 0; first < count; first += warp_size) {
    any |= release(first, first + warp_size < count ? first + warp_size : count, for_warp);
  }
  return any;
}

inline const char* run_block() {
  const int count = static_cast<int>(launch.threads.size());
  int number = 0;
  for (Thread& thread : launch.threads) {
    const unsigned at = static_cast<unsigned>(number++);
    thread = {{at % launch.block.x, at / launch.block.x % launch.block.y,
               at / (launch.block.x * launch.block.y)},
              nullptr,
              false,
              false,
              for_nothing,
              0};
  }
  launch.next = 0;
  for (;;) {
    while (launch.next < count) {
      Fibre* fibre;
      if (idle_fibres.empty()) {
        fibre = new_fibre();
      } else {
        fibre = idle_fibres.back();
        idle_fibres.pop_back();
      }
      to_fibre(fibre);
    }
    bool all_finished = true, any_waits = false;
    for (const Thread& thread : launch.threads) {
      all_finished &= thread.finished;
      any_waits |= thread.waiting != for_nothing;
    }
    if (all_finished) return nullptr;
    if (any_waits && !release_all()) {
      return "a barrier was reached by some threads only: the others have ended or wait at another";
    }
    launch.backwards = !launch.backwards;
    for (int i = 0; i < count; ++i) {
      Thread& thread = launch.threads[launch.backwards ? count - 1 - i : i];
      if (!thread.finished && thread.waiting == for_nothing) to_fibre(thread.fibre);
    }
  }
}

// ---- Shared memory: what a launch did not ask for must not be touched.

const size_t bytes_of_shared_memory = 227 * 1024;
const unsigned char untouched = 0xa5;

}  // namespace emulator

alignas(16) inline double roipool_shared_memory[emulator::bytes_of_shared_memory / 8];

namespace emulator {

inline unsigned char* shared_bytes() {
  return reinterpret_cast<unsigned char*>(roipool_shared_memory);
}

const size_t bytes_of_guard = 4096;

inline bool guard_is_whole(size_t asked) {
  for (size_t i = asked; i < asked + bytes_of_guard; ++i) {
    if (shared_bytes()[i] != untouched) return false;
  }
  return true;
}

// ---- Launches

inline const char* run_grid(size_t shared) {
  if (shared > bytes_of_shared_memory - bytes_of_guard) return "too much shared memory";
  launch.threads.resize(static_cast<size_t>(launch.block.x) * launch.block.y * launch.block.z);
  if (launch.threads.empty() || launch.threads.size() > 1024)
    return "a block has 1 to 1024 threads";
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        launch.block_index = {x, y, z};
        memset(shared_bytes(), untouched, shared + bytes_of_guard);
#if defined(__SANITIZE_ADDRESS__)
        ASAN_POISON_MEMORY_REGION(shared_bytes() + (shared + 7) / 8 * 8,
                                  bytes_of_shared_memory - (shared + 7) / 8 * 8);
#endif
        const char* error = run_block();
#if defined(__SANITIZE_ADDRESS__)
        ASAN_UNPOISON_MEMORY_REGION(shared_bytes(), bytes_of_shared_memory);
#endif
        if (error) return error;
        if (!guard_is_whole(shared)) return "more shared memory was written than asked for";
      }
    }
  }
  return nullptr;
}

template <typename T>
struct Plain {
  typedef T type;
};
template <typename T>
struct Plain<const T> {
  typedef T type;
};

// What is known of a kernel from its type: sizes of its parameters, and how to call it.
template <typename Kernel>
struct Signature;
template <typename... Parameters>
struct Signature<void (*)(Parameters...)> {
  static int sizes(size_t* bytes) {
    const size_t all[] = {sizeof(Parameters)..., 0};
    memcpy(bytes, all, sizeof(all));
    return sizeof...(Parameters);
  }
  template <void (*kernel)(Parameters...), size_t... Numbers>
  static void call(void** arguments, std::index_sequence<Numbers...>) {
    kernel(*static_cast<typename Plain<Parameters>::type*>(arguments[Numbers])...);
  }
  template <void (*kernel)(Parameters...)>
  static void call_all(void** arguments) {
    call<kernel>(arguments, std::index_sequence_for<Parameters...>());
  }
};

// CuPy compiles with -ftz=true: float32 numbers too small for a normal exponent become 0. The
// processor's switch is for double too, so texts that compute in double go without.
struct FlushToZero {
  explicit FlushToZero(bool enabled) {
#if defined(__x86_64__)
    saved = _mm_getcsr();
    if (enabled) _mm_setcsr(saved | 0x8040);
#else
    (void)enabled;
#endif
  }
  ~FlushToZero() {
#if defined(__x86_64__)
    _mm_setcsr(saved);
#endif
  }
  unsigned saved = 0;
};

inline const char* run(void (*kernel)(void**), const unsigned* grid, const unsigned* block,
                       size_t shared, void** arguments, bool flush) {
  const FlushToZero mode(flush);
  launch.grid = {grid[0], grid[1], grid[2]};
  launch.block = {block[0], block[1], block[2]};
  launch.kernel = kernel;
  launch.arguments = arguments;
  launch.backwards = false;
  return run_grid(shared);
}

}  // namespace emulator

// ---- What kernels use of CUDA

#define __global__
#define __device__
#define __host__
#define __shared__
#define __launch_bounds__(...)
#define threadIdx (emulator::current_thread().index)
#define blockIdx (emulator::launch.block_index)
#define blockDim (emulator::launch.block)
#define gridDim (emulator::launch.grid)

inline void __syncthreads() { emulator::wait(emulator::for_block); }
inline void __syncwarp() { emulator::wait(emulator::for_warp); }

// Calls `see(lane, value)` for every lane of the warp with the value it brings.
template <typename See>
inline void exchange(unsigned value, See see) {
  using namespace emulator;
  current_thread().brought = value;
  wait(for_warp);
  const int first = current_fibre->thread / emulator::warp_size * emulator::warp_size;
  for (int lane = 0; lane < emulator::warp_size; ++lane) {
    if (static_cast<size_t>(first + lane) < launch.threads.size()) {
      see(lane, launch.threads[first + lane].brought);
    }
  }
  wait(for_warp);
}

inline unsigned __match_any_sync(unsigned, int value) {
  unsigned same = 0;
  const unsigned mine = static_cast<unsigned>(value);
  exchange(mine, [&](int lane, unsigned other) { same |= unsigned(other == mine) << lane; });
  return same;
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  exchange(vote, [&](int lane, unsigned other) { votes |= other << lane; });
  return votes;
}
inline int __any_sync(unsigned all, bool vote) { return __ballot_sync(all, vote) != 0; }

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }

// The two conversions that the kernels leave to an instruction.
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

#define ROIPOOL_EMULATE(name)                                                                \
  extern "C" __attribute__((visibility("default"))) int sizes_of_##name(size_t* bytes) {     \
    return emulator::Signature<decltype(&name)>::sizes(bytes);                               \
  }                                                                                          \
  extern "C" __attribute__((visibility("default"))) const char* launch_##name(               \
      const unsigned* grid, const unsigned* block, size_t shared, void** arguments) {        \
    return emulator::run(emulator::Signature<decltype(&name)>::call_all<&name>, grid, block, \
                         shared, arguments, sizeof(roipool::Value) == sizeof(float));        \
  }
