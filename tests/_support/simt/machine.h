// The state of a SIMT machine while it runs a kernel, and its memory. Blocks run one after the
// other, a block's warps in turns from barrier to barrier, a warp's 32 lanes in step. What would be
// an error or undefined on a GPU ends the launch with a `Fault`.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace simt {

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

const int warp_size = 32;
const u32 whole_warp = ~0u;
// Races are found among pieces of so many bytes: the smallest elements of our arrays.
const int piece_bytes = 2;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ptx.py has the same fields. Operands are registers, the result first.
struct Instruction {
  s32 operation;
  s32 guard;  // a predicate register, or -1
  s32 guard_is_not;
  s32 space, width, vector, is_signed;  // of memory: bytes of an element, elements
  s32 target, reconvergence;            // of a branch: instructions
  s32 line;                             // of the PTX
  s64 offset;                           // added to the address
  s32 operands[8];
};

enum Space : s32 { global_memory, shared_memory, local_memory, parameters, generic_memory };
const u64 shared_window = 0x7000000000000000, local_window = 0x6000000000000000;

// ---- Races in shared memory: two accesses of which one writes, by threads that nothing orders. Of
// one warp only __syncwarp orders lanes, for a compiler may let them run apart.

struct Access {
  int thread = -1;
  int barriers = 0;       // of the block, before it
  int warp_barriers = 0;  // of its warp
};
struct Piece {
  Access write, read, atomic;
  bool several_lanes = false;  // of the reader's warp have read it since
  bool several_warps = false;
  bool several_atomics = false;  // by different threads, without a barrier between
};

// An array that a kernel was given, and which blocks last wrote and read its pieces, their numbers
// plus one, and when they wrote: blocks may only share what none of them writes, and what one wrote
// before it let others know.
struct Region {
  u64 address, bytes;
  std::vector<u32> writers, readers, times;

  Region(u64 address, u64 bytes)
      : address(address),
        bytes(bytes),
        writers(bytes / piece_bytes + 1),
        readers(bytes / piece_bytes + 1),
        times(bytes / piece_bytes + 1) {}
  bool holds(u64 at, u64 size) const { return at >= address && at + size <= address + bytes; }
};
const u32 several_blocks = ~0u;
const u32 by_atomics = ~0u - 1;  // in the place of a writer: blocks may share it by those alone

const u32 never = ~0u;

// By the number of a block plus one: until when another block may read what it wrote.
typedef std::unordered_map<u32, u32> Times;
inline void join(Times& times, const Times& others) {
  for (const auto& [block, time] : others) times[block] = std::max(times[block], time);
}

struct Stacked {
  int next, reconvergence;
  u32 mask;
};

struct Block;

struct Warp {
  Block* block = nullptr;
  int first_thread = 0;
  u32 all = 0, exited = 0;  // lanes
  int warp_barriers = 0;
  bool at_barrier = false;
  u32 unfenced = never;         // since when it has stores without a __threadfence
  std::vector<Stacked> stack;  // of diverged lanes: the last entry runs
  std::vector<u64> registers;

  u64* lanes(int number) { return registers.data() + size_t(number) * warp_size; }
  bool is_done() const { return stack.empty(); }
};

typedef void (*Operation)(Warp&, const Instruction&, u32 mask);

struct Machine {
  const Instruction* program;
  int length;
  const Operation* operations;
  const u8* arguments;
  u64 argument_bytes, shared_bytes, local_bytes;
  u32 grid[3], threads[3];
  std::vector<Region> regions;
  u32 time = 0;                             // counts stores to global memory
  std::unordered_map<u64, Times> released;  // by address: what atomics there let others know
};

struct Block {
  Machine& machine;
  u64 number = 0;
  int barriers = 0;
  // Until when all stores of its warps have had a __threadfence and a barrier; what others let it
  // know by an atomic, before and after the next __threadfence.
  u32 fenced = 0;
  Times heard, known;
  std::vector<u8> shared, local;
  std::vector<Piece> pieces;
  std::vector<Warp> warps;

  explicit Block(Machine& machine) : machine(machine) {}
};

template <class Visit>
inline void for_each_lane(u32 mask, Visit visit) {
  for (; mask; mask &= mask - 1) visit(__builtin_ctz(mask));
}

[[noreturn]] void fail(const Warp& warp, const Instruction& instruction, const std::string& what);

// By name: what computes each lane's result (arithmetic.cpp), and loads, stores and atomics.
typedef std::unordered_map<std::string, Operation> Table;
void enter_arithmetic(Table& table);
void enter_memory(Table& table);

}  // namespace simt
