// What a kernel and the runtime know of each other. Kernels are compiled one by one (device.h), the
// runtime that runs their threads once (runtime.cpp); neither includes the standard library here,
// because reading it takes longer than compiling a kernel.
#pragma once

namespace emulator {

struct Index {
  unsigned x, y, z;
};

enum Waiting { for_nothing, for_block, for_warp };

struct Fibre;

struct Thread {
  Index index;
  Fibre* fibre;
  bool finished;
  Waiting waiting;
  unsigned brought;  // to the other threads of its warp
};

// A launch as its threads see it.
struct Launch {
  Index grid, block, block_index;
  Thread* threads;  // of the block that runs
  int count;
  Thread* current;        // the thread that runs
  void (*wait)(Waiting);  // returns when all threads of the block or warp wait
};

const int warp_size = 32;
const unsigned long bytes_of_shared_memory = 227 * 1024;

// A kernel as the runtime sees it.
struct Kernel {
  void (*call)(void** arguments);
  const unsigned long* sizes;  // of its parameters, in bytes
  int parameters;
  bool flushes;  // float32 numbers too small for a normal exponent become 0
  unsigned char* shared_memory;
  const Launch** launch;  // where its threads look
};

}  // namespace emulator
