// The state of a SIMT machine while it runs a kernel, and its memory. Blocks run one after the
// other, a block's warps in turns from barrier to barrier, a warp's 32 lanes in step. What would be
// an error or undefined on a GPU ends the launch with a `Fault`.
#pragma once
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
const int sector_bytes = 32;  // the least that moves between L2 and L1
const int banks = 32;         // of shared memory, each 4 bytes wide
// Races are found among pieces of so many bytes: the smallest elements of our arrays.
const int piece_bytes = 2;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a launch did. kernel.py has the same fields, in the same order, and says what they are.
struct Counts {
  u64 warp_instructions, thread_instructions, branches, divergent_branches;
  u64 barriers, warp_barriers, collectives;
  u64 load_requests, load_sectors, load_bytes;
  u64 store_requests, store_sectors, store_bytes;
  u64 atomic_requests, atomic_sectors, atomic_conflicts;
  u64 block_load_sectors, unique_load_sectors, unique_store_sectors;
  u64 shared_requests, shared_wavefronts, shared_least_wavefronts;
  u64 local_requests;
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

// What an instruction costs a GPU, for models of time; kernel.py has the same fields.
struct Cost {
  f32 slots;         // instructions of the machine that it becomes
  f32 latency;       // cycles until its results can be used; without any, until the next one begins
  s32 results;       // how many of its operands are written, the first
  s32 starts_block;  // a basic block: what can be reached by a branch, or follows one
};

// What a block did by these costs: its instructions, and cycles that its warps need if nothing else
// runs.
struct Timing {
  f64 slots, cycles;
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

// An array that a kernel was given. Pieces are those of global memory: blocks may only share what
// none of them writes. Sectors: who loaded and who stored them last, a block's number plus one.
struct Region {
  u64 address, bytes;
  std::vector<u32> writers, readers;
  std::vector<u32> loaded, stored;

  Region(u64 address, u64 bytes)
      : address(address),
        bytes(bytes),
        writers(bytes / piece_bytes + 1),
        readers(bytes / piece_bytes + 1),
        loaded(bytes / sector_bytes + 1),
        stored(bytes / sector_bytes + 1) {}
  bool holds(u64 at, u64 size) const { return at >= address && at + size <= address + bytes; }
  // A lane's bytes, aligned and 16 at most, are of one. CuPy's arrays begin with one, these may
  // not.
  u64 sector(u64 at) const { return (at - address) / sector_bytes; }
};
const u32 several_blocks = ~0u;

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
  std::vector<Stacked> stack;  // of diverged lanes: the last entry runs
  std::vector<u64> registers;
  // By costs: when the basic block started, when the last of its instructions began, how many there
  // were; when shared memory was last stored to; when each register can be read.
  f64 start = 0, latest = 0, slots = 0, stored = 0;
  std::vector<f64> ready;

  u64* lanes(int number) { return registers.data() + size_t(number) * warp_size; }
  bool is_done() const { return stack.empty(); }
};

typedef void (*Operation)(Warp&, const Instruction&, u32 mask);

struct Machine {
  const Instruction* program;
  int length;
  const Operation* operations;
  Counts* counts;
  const u8* arguments;
  u64 argument_bytes, shared_bytes, local_bytes;
  u32 grid[3], threads[3];
  std::vector<Region> regions;
  const Cost* costs = nullptr;  // of each instruction, or null
  f64 miss_latency = 0;         // of a load from global memory that the block had not loaded before
  bool missed = false;          // by the last instruction
};

struct Block {
  Machine& machine;
  u64 number = 0;
  int barriers = 0;
  Timing timing = {};
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

// By name: what computes each lane's result (arithmetic.h), and loads, stores and atomics.
typedef std::unordered_map<std::string, Operation> Table;
void enter_arithmetic(Table& table);
void enter_memory(Table& table);

}  // namespace simt
