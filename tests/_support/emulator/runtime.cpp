// Runs the threads of a kernel. A block's threads are fibres, so that barriers are real ones;
// blocks run one after the other. Threads take turns in one order before a barrier and in the
// reverse order after it, which shows results that rely on an order. A barrier that not all threads
// reach is an error, not a hang.
#include <stddef.h>
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

#include <vector>

#include "runtime.h"

namespace emulator {

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

struct Fibre {
  Context context;
  char* stack;
  Thread* thread;  // that it runs
};

Launch launch;
std::vector<Thread> threads;
int next_thread;  // to start, in this phase's order
bool backwards;   // this phase's order
void (*call)(void** arguments);
void** arguments;

Context scheduler;
Fibre* current_fibre;
std::vector<Fibre*> idle_fibres;
#if defined(__SANITIZE_ADDRESS__)
const void* scheduler_stack;
size_t scheduler_stack_size;
#endif

void run_on(Fibre* fibre, Thread* thread) {
  fibre->thread = thread;
  thread->fibre = fibre;
  launch.current = thread;
}

void to_scheduler() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake;
  __sanitizer_start_switch_fiber(&fake, scheduler_stack, scheduler_stack_size);
#endif
  current_fibre->context.switch_to(&scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_size);
#endif
}

void to_fibre(Fibre* fibre) {
  current_fibre = fibre;
  launch.current = fibre->thread;
#if defined(__SANITIZE_ADDRESS__)
  void* fake;
  __sanitizer_start_switch_fiber(&fake, fibre->stack, bytes_of_stack);
#endif
  scheduler.switch_to(&fibre->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

Fibre* new_fibre() {
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
    if (next_thread < launch.count) {
      const int number = backwards ? launch.count - 1 - next_thread : next_thread;
      ++next_thread;
      run_on(current_fibre, &threads[number]);
      call(arguments);
      current_fibre->thread->finished = true;
    } else {
      idle_fibres.push_back(current_fibre);
      to_scheduler();
    }
  }
}

void wait(Waiting what) {
  launch.current->waiting = what;
  to_scheduler();
}

// ---- Blocks

// Lets threads go on whose barrier all its threads have reached; returns whether there are any.
bool release(int first, int last, Waiting what) {
  bool any = false;
  for (int i = first; i < last; ++i) {
    if (threads[i].waiting != what) return false;
    any = true;
  }
  for (int i = first; i < last; ++i) threads[i].waiting = for_nothing;
  return any;
}

bool release_all() {
  bool any = release(0, launch.count, for_block);
  for (int first = 0; first < launch.count; first += warp_size) {
    any |= release(first, first + warp_size < launch.count ? first + warp_size : launch.count,
                   for_warp);
  }
  return any;
}

void reset_threads() {
  unsigned at = 0;
  for (Thread& thread : threads) {
    const Index index = {at % launch.block.x, at / launch.block.x % launch.block.y,
                         at / (launch.block.x * launch.block.y)};
    thread = {index, nullptr, false, for_nothing, 0};
    ++at;
  }
}

// Starts every thread; a thread that waits keeps its fibre, and the next one gets another.
void start_threads() {
  next_thread = 0;
  while (next_thread < launch.count) {
    Fibre* fibre;
    if (idle_fibres.empty()) {
      fibre = new_fibre();
    } else {
      fibre = idle_fibres.back();
      idle_fibres.pop_back();
    }
    to_fibre(fibre);
  }
}

const char* run_block() {
  reset_threads();
  start_threads();
  for (;;) {
    bool all_finished = true, any_waits = false;
    for (const Thread& thread : threads) {
      all_finished &= thread.finished;
      any_waits |= thread.waiting != for_nothing;
    }
    if (all_finished) return nullptr;
    if (any_waits && !release_all()) {
      return "a barrier was reached by some threads only: the others have ended or wait at another";
    }
    backwards = !backwards;
    for (int i = 0; i < launch.count; ++i) {
      Thread& thread = threads[backwards ? launch.count - 1 - i : i];
      if (!thread.finished && thread.waiting == for_nothing) to_fibre(thread.fibre);
    }
  }
}

// ---- Shared memory: what a launch did not ask for must not be touched.

const unsigned char untouched = 0xa5;
const size_t bytes_of_guard = 4096;

bool guard_is_whole(const unsigned char* memory, size_t asked) {
  for (size_t i = asked; i < asked + bytes_of_guard; ++i) {
    if (memory[i] != untouched) return false;
  }
  return true;
}

const char* run_block_in(unsigned char* memory, size_t asked) {
  memset(memory, untouched, asked + bytes_of_guard);
#if defined(__SANITIZE_ADDRESS__)
  const size_t end = (asked + 7) / 8 * 8;
  ASAN_POISON_MEMORY_REGION(memory + end, bytes_of_shared_memory - end);
#endif
  const char* error = run_block();
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes_of_shared_memory);
#endif
  if (error) return error;
  return guard_is_whole(memory, asked) ? nullptr : "more shared memory was written than asked for";
}

// ---- Launches

const char* run_grid(unsigned char* memory, size_t asked) {
  if (asked > bytes_of_shared_memory - bytes_of_guard) return "too much shared memory";
  const size_t count = static_cast<size_t>(launch.block.x) * launch.block.y * launch.block.z;
  if (count == 0 || count > 1024) return "a block has 1 to 1024 threads";
  threads.resize(count);
  launch.threads = threads.data();
  launch.count = static_cast<int>(count);
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        launch.block_index = {x, y, z};
        const char* error = run_block_in(memory, asked);
        if (error) return error;
      }
    }
  }
  return nullptr;
}

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

}  // namespace emulator

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Returns how many parameters a kernel has, and their sizes.
EXPORTED int parameters_of(const emulator::Kernel* kernel, size_t* bytes) {
  memcpy(bytes, kernel->sizes, kernel->parameters * sizeof(*bytes));
  return kernel->parameters;
}

// Runs a kernel; returns what is wrong, or nullptr.
EXPORTED const char* run_kernel(const emulator::Kernel* kernel, const unsigned* grid,
                                const unsigned* block, size_t shared, void** arguments) {
  using namespace emulator;
  const FlushToZero mode(kernel->flushes);
  launch.grid = {grid[0], grid[1], grid[2]};
  launch.block = {block[0], block[1], block[2]};
  launch.wait = wait;
  call = kernel->call;
  emulator::arguments = arguments;
  backwards = false;
  *kernel->launch = &launch;
  return run_grid(kernel->shared_memory, shared);
}
