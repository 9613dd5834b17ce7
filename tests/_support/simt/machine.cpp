// Runs a kernel: the flow of control, barriers and what lanes of a warp do together.
//
// Lanes that a branch parts run one group after the other until both reach the instruction where
// all ways meet again (the branch's immediate post-dominator), as on GPUs before Volta, and as a
// compiler arranges it since.
#include "machine.h"

#include <algorithm>
#include <cstring>

namespace simt {

void fail(const Warp& warp, const Instruction& instruction, const std::string& what) {
  const Block& block = *warp.block;
  throw Fault(what + " (block " + std::to_string(block.number) + ", warp " +
              std::to_string(warp.first_thread / warp_size) + ", line " +
              std::to_string(instruction.line) + " of the PTX)");
}

namespace {

// ---- Collectives: what lanes of a warp do together

void check_collective(const Warp& warp, const Instruction& instruction, u32 asked, u32 mask) {
  if (asked & ~mask) fail(warp, instruction, "a collective that some of its lanes miss");
}

u32 ballot(Warp& warp, const Instruction& instruction, u32 mask) {
  u32 votes = 0;
  const u64* predicate = warp.lanes(instruction.operands[1]);
  for_each_lane(mask, [&](int lane) { votes |= u32(predicate[lane] != 0) << lane; });
  return votes;
}

enum Vote { vote_ballot, vote_any, vote_all };

template <Vote kind>
void vote(Warp& warp, const Instruction& instruction, u32 mask) {
  const u32 asked = u32(warp.lanes(instruction.operands[2])[__builtin_ctz(mask)]);
  check_collective(warp, instruction, asked, mask);
  const u32 votes = ballot(warp, instruction, mask);
  const u32 result = kind == vote_ballot ? votes : kind == vote_any ? votes != 0 : votes == mask;
  for_each_lane(mask, [&](int lane) { warp.lanes(instruction.operands[0])[lane] = result; });
}

void match_any(Warp& warp, const Instruction& instruction, u32 mask) {
  const u32 asked = u32(warp.lanes(instruction.operands[2])[__builtin_ctz(mask)]);
  check_collective(warp, instruction, asked, mask);
  const u64* values = warp.lanes(instruction.operands[1]);
  u32 same[warp_size] = {};
  for_each_lane(mask, [&](int lane) {
    for_each_lane(mask, [&](int other) {
      same[lane] |= u32(u32(values[lane]) == u32(values[other])) << other;
    });
  });
  for_each_lane(mask, [&](int lane) { warp.lanes(instruction.operands[0])[lane] = same[lane]; });
}

enum Shuffle { shuffle_up, shuffle_down, shuffle_xor, shuffle_index };

// Operands: result, value, lane or distance, and bounds: the segment's mask and its last lane.
template <Shuffle kind>
void shuffle(Warp& warp, const Instruction& instruction, u32 mask) {
  const u32 asked = u32(warp.lanes(instruction.operands[4])[__builtin_ctz(mask)]);
  check_collective(warp, instruction, asked, mask);
  u64 values[warp_size];
  memcpy(values, warp.lanes(instruction.operands[1]), sizeof values);
  for_each_lane(mask, [&](int lane) {
    const int by = int(warp.lanes(instruction.operands[2])[lane] & 31);
    const int bounds = int(warp.lanes(instruction.operands[3])[lane]);
    const int segment = bounds >> 8 & 31;
    const int last = (lane & segment) | (bounds & 31 & ~segment);
    int from = kind == shuffle_up     ? lane - by
               : kind == shuffle_down ? lane + by
               : kind == shuffle_xor  ? lane ^ by
                                      : (lane & segment) | (by & ~segment);
    if (kind == shuffle_up ? from < last : from > last) from = lane;
    if (!(mask >> from & 1)) fail(warp, instruction, "a shuffle from a lane that takes no part");
    warp.lanes(instruction.operands[0])[lane] = values[from];
  });
}

void warp_barrier(Warp& warp, const Instruction& instruction, u32 mask) {
  const u32 asked = u32(warp.lanes(instruction.operands[0])[__builtin_ctz(mask)]);
  check_collective(warp, instruction, asked & warp.all, mask);
  ++warp.warp_barriers;
}

// ---- Control

void branch(Warp& warp, const Instruction& instruction, u32 taken) {
  Stacked& top = warp.stack.back();
  const u32 others = top.mask & ~taken;
  if (!others) {
    top.next = instruction.target;
  } else if (!taken) {
    ++top.next;
  } else {
    const int meet = instruction.reconvergence;
    const int next = top.next + 1;
    top.next = meet;
    warp.stack.push_back({next, meet, others});
    warp.stack.push_back({instruction.target, meet, taken});
  }
}

void leave(Warp& warp, const Instruction&, u32 mask) {
  warp.exited |= mask;
  ++warp.stack.back().next;
}

void block_barrier(Warp& warp, const Instruction& instruction, u32 mask) {
  if (mask != warp.all) fail(warp, instruction, "a barrier that some threads of a warp miss");
  ++warp.warp_barriers;
  warp.at_barrier = true;
}

// __threadfence: of a warp's stores, and of what its block has heard by atomics.
void fence(Warp& warp, const Instruction&, u32) {
  Block& block = *warp.block;
  warp.unfenced = never;
  join(block.known, block.heard);
}

Table all_operations() {
  Table table;
  enter_arithmetic(table);
  enter_memory(table);
  table["vote.ballot.u32"] = vote<vote_ballot>;
  table["vote.any.pred"] = vote<vote_any>;
  table["vote.all.pred"] = vote<vote_all>;
  table["match.any.u32"] = match_any;
  table["shfl.up.u32"] = shuffle<shuffle_up>;
  table["shfl.down.u32"] = shuffle<shuffle_down>;
  table["shfl.bfly.u32"] = shuffle<shuffle_xor>;
  table["shfl.idx.u32"] = shuffle<shuffle_index>;
  table["bar.warp"] = warp_barrier;
  table["bar"] = block_barrier;
  table["membar.gl"] = fence;
  table["bra"] = branch;
  table["ret"] = leave;
  return table;
}

const std::vector<std::pair<std::string, Operation>>& operations() {
  static const Table table = all_operations();
  static const std::vector<std::pair<std::string, Operation>> list(table.begin(), table.end());
  return list;
}

// ---- A block

u32 guarded(Warp& warp, const Instruction& instruction, u32 mask) {
  if (instruction.guard < 0) return mask;
  const u64* predicate = warp.lanes(instruction.guard);
  u32 result = 0;
  for_each_lane(mask, [&](int lane) {
    result |= u32((predicate[lane] != 0) != (instruction.guard_is_not != 0)) << lane;
  });
  return result;
}

// Runs a warp until it waits at a barrier or has ended.
void run_warp(Warp& warp) {
  Machine& machine = warp.block->machine;
  while (!warp.stack.empty() && !warp.at_barrier) {
    Stacked& top = warp.stack.back();
    top.mask &= ~warp.exited;
    if (!top.mask || top.next == top.reconvergence) {
      warp.stack.pop_back();
      continue;
    }
    const Instruction& instruction = machine.program[top.next];
    const Operation operation = machine.operations[instruction.operation];
    const u32 mask = guarded(warp, instruction, top.mask);
    if (operation == branch) {
      branch(warp, instruction, mask);
    } else {
      if (operation != leave || !mask) ++top.next;
      if (mask) operation(warp, instruction, mask);
    }
  }
}

// Where the thread's numbers are: the first registers (see ptx.py).
void start_warp(Block& block, int number) {
  const Machine& machine = block.machine;
  Warp& warp = block.warps[number];
  const u32 threads = machine.threads[0] * machine.threads[1] * machine.threads[2];
  const u32 in_grid[3] = {u32(block.number % machine.grid[0]),
                          u32(block.number / machine.grid[0] % machine.grid[1]),
                          u32(block.number / machine.grid[0] / machine.grid[1])};
  warp.block = &block;
  warp.first_thread = number * warp_size;
  warp.all = 0;
  for (u32 lane = 0; lane < warp_size; ++lane) {
    const u32 thread = warp.first_thread + lane;
    if (thread < threads) warp.all |= 1u << lane;
    u64* numbers = warp.lanes(0) + lane;
    const u32 in_block[3] = {thread % machine.threads[0],
                             thread / machine.threads[0] % machine.threads[1],
                             thread / machine.threads[0] / machine.threads[1]};
    for (int axis = 0; axis < 3; ++axis) {
      numbers[(0 + axis) * warp_size] = in_block[axis];
      numbers[(3 + axis) * warp_size] = machine.threads[axis];
      numbers[(6 + axis) * warp_size] = in_grid[axis];
      numbers[(9 + axis) * warp_size] = machine.grid[axis];
    }
    numbers[12 * warp_size] = lane;
  }
  warp.exited = 0;
  warp.warp_barriers = 0;
  warp.at_barrier = false;
  warp.unfenced = never;
  warp.stack.assign(1, {0, machine.length, warp.all});
}

void run_block(Block& block) {
  const Machine& machine = block.machine;
  block.barriers = 0;
  block.fenced = 0;
  block.heard.clear();
  block.known.clear();
  block.shared.assign(machine.shared_bytes, 0xff);
  block.pieces.assign(machine.shared_bytes / piece_bytes + 1, Piece());
  for (size_t n = 0; n < block.warps.size(); ++n) start_warp(block, static_cast<int>(n));
  for (;;) {
    for (Warp& warp : block.warps) run_warp(warp);
    const auto waits = [](const Warp& warp) { return warp.at_barrier; };
    const size_t waiting = std::count_if(block.warps.begin(), block.warps.end(), waits);
    if (waiting == 0) return;
    if (waiting != block.warps.size()) throw Fault("a barrier that some warps of a block miss");
    block.fenced = machine.time;
    for (Warp& warp : block.warps) {
      warp.at_barrier = false;
      block.fenced = std::min(block.fenced, warp.unfenced);
    }
    ++block.barriers;
  }
}

struct Launch {  // as kernel.py has it
  u32 grid[3], threads[3];
  u64 shared_bytes, local_bytes, argument_bytes;
  const u8* arguments;
  const u64* regions;  // address and bytes of each
  u64 number_of_regions;
  const u64* registers;  // what each holds at the start
  u64 number_of_registers;
  const Instruction* program;
  u64 length;
};

void run(const Launch& launch) {
  std::vector<Operation> table;
  for (const auto& [name, operation] : operations()) table.push_back(operation);
  Machine machine = {launch.program,
                     int(launch.length),
                     table.data(),
                     launch.arguments,
                     launch.argument_bytes,
                     launch.shared_bytes,
                     launch.local_bytes,
                     {},
                     {},
                     {},
                     0,
                     {}};
  std::copy_n(launch.grid, 3, machine.grid);
  std::copy_n(launch.threads, 3, machine.threads);
  for (u64 n = 0; n < launch.number_of_regions; ++n) {
    machine.regions.emplace_back(launch.regions[2 * n], launch.regions[2 * n + 1]);
  }
  Block block(machine);
  const u32 threads = launch.threads[0] * launch.threads[1] * launch.threads[2];
  block.local.resize(size_t(threads + warp_size) * launch.local_bytes);
  block.warps.resize((threads + warp_size - 1) / warp_size);
  for (Warp& warp : block.warps) {
    for (u64 n = 0; n < launch.number_of_registers; ++n) {
      warp.registers.insert(warp.registers.end(), warp_size, launch.registers[n]);
    }
  }
  const u64 blocks = u64(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  for (; block.number < blocks; ++block.number) run_block(block);
}

}  // namespace

}  // namespace simt

// Returns what is wrong, or null.
extern "C" const char* run_launch(const simt::Launch* launch) {
  static thread_local std::string message;
  try {
    simt::run(*launch);
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

// The names of operations; an instruction's operation is a place among them.
extern "C" const char* operation_name(int number) {
  const auto& list = simt::operations();
  return number < int(list.size()) ? list[number].first.c_str() : nullptr;
}
