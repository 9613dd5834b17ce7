// Loads, stores and atomics: where they go, and what is wrong with them.
#include <algorithm>
#include <cstring>

#include "lanewise.h"

namespace simt {

namespace {

const char out_of_bounds[] = "an address outside of the memory that there is";

// What a warp's lanes ask for together: where each lane's bytes are, once they are known to be
// there.
struct Request {
  Warp& warp;
  const Instruction& instruction;
  u32 mask;
  Space space;
  int bytes;  // of each lane
  u64 addresses[warp_size];
  u8* host[warp_size];
  Region* regions[warp_size];  // of global memory

  Request(Warp& warp, const Instruction& instruction, u32 mask, int base)
      : warp(warp),
        instruction(instruction),
        mask(mask),
        space(Space(instruction.space)),
        bytes(instruction.width * instruction.vector) {
    const u64* from = warp.lanes(base);
    for_each_lane(mask, [&](int lane) { addresses[lane] = from[lane] + u64(instruction.offset); });
    if (space == generic_memory) resolve();
    for_each_lane(mask, [&](int lane) {
      if (addresses[lane] % u64(bytes)) fail(warp, instruction, "a misaligned address");
      host[lane] = find(lane);
    });
  }

  // Generic addresses: of one kind for all lanes.
  void resolve() {
    u64 window = 0;
    const u64 any = addresses[__builtin_ctz(mask)];
    space = global_memory;
    if (any >= shared_window) {
      space = shared_memory;
      window = shared_window;
    } else if (any >= local_window) {
      space = local_memory;
      window = local_window;
    }
    for_each_lane(mask, [&](int lane) { addresses[lane] -= window; });
  }

  u8* find(int lane) {
    Block& block = *warp.block;
    const Machine& machine = block.machine;
    const u64 at = addresses[lane];
    if (space == global_memory) return find_global(lane);
    if (space == shared_memory) return within(block.shared.data(), at, machine.shared_bytes);
    if (space == parameters) {
      return within(const_cast<u8*>(machine.arguments), at, machine.argument_bytes);
    }
    const u64 own = (warp.first_thread + lane) * machine.local_bytes;
    return within(block.local.data() + own, at, machine.local_bytes);
  }

  u8* within(u8* memory, u64 at, u64 size) const {
    if (at > size || u64(bytes) > size - at) fail(warp, instruction, out_of_bounds);
    return memory + at;
  }

  u8* find_global(int lane) {
    const u64 at = addresses[lane];
    for (Region& region : warp.block->machine.regions) {
      if (!region.holds(at, bytes)) continue;
      regions[lane] = &region;
      return reinterpret_cast<u8*>(at);
    }
    fail(warp, instruction, out_of_bounds);
  }
};

// ---- Races

enum Kind { loads, stores, atomics };

// Atomics are in no race with each other.
void check_shared(const Request& request, int lane, Kind kind) {
  const bool writes = kind != loads;
  Warp& warp = request.warp;
  Block& block = *warp.block;
  const int thread = warp.first_thread + lane;
  auto same_warp = [&](const Access& other) {
    return other.thread / warp_size == thread / warp_size;
  };
  auto unordered = [&](const Access& other) {
    return other.thread >= 0 && other.thread != thread && other.barriers == block.barriers &&
           (!same_warp(other) || other.warp_barriers == warp.warp_barriers);
  };
  auto race = [&](const Access& other, const char* how) {
    fail(warp, request.instruction,
         std::string("a race ") + (same_warp(other) ? "within a warp" : "between warps") + ": " +
             how + " by threads " + std::to_string(other.thread) + " and " +
             std::to_string(thread));
  };
  const Access now = {thread, block.barriers, warp.warp_barriers};
  const u64 first = request.addresses[lane] / piece_bytes;
  const u64 last = (request.addresses[lane] + request.bytes - 1) / piece_bytes;
  for (u64 at = first; at <= last; ++at) {
    Piece& piece = block.pieces[at];
    if (unordered(piece.write)) race(piece.write, writes ? "writes" : "a write and a read");
    const bool atomic_since = piece.atomic.thread >= 0 && piece.atomic.barriers == block.barriers;
    if (kind != atomics && (unordered(piece.atomic) || (atomic_since && piece.several_atomics))) {
      race(piece.atomic, writes ? "an atomic and a write" : "an atomic and a read");
    }
    const bool read_since = piece.read.thread >= 0 && piece.read.barriers == block.barriers;
    if (writes) {
      const bool by_lanes = piece.several_lanes && same_warp(piece.read) &&
                            piece.read.warp_barriers == warp.warp_barriers;
      if (unordered(piece.read) || (read_since && (piece.several_warps || by_lanes))) {
        race(piece.read, "a read and a write");
      }
      const bool several = atomic_since && (piece.several_atomics || piece.atomic.thread != thread);
      if (kind == atomics) {
        piece = {piece.write, Access(), now, false, false, several};
      } else {
        piece = {now, Access(), Access(), false, false, false};
      }
      continue;
    }
    const bool same = same_warp(piece.read);
    piece.several_warps = read_since && (piece.several_warps || !same);
    piece.several_lanes = read_since && same && piece.read.warp_barriers == warp.warp_barriers &&
                          (piece.several_lanes || piece.read.thread != thread);
    piece.read = now;
  }
}

void check_shared(const Request& request, Kind kind) {
  if (request.space != shared_memory) return;
  for_each_lane(request.mask, [&](int lane) { check_shared(request, lane, kind); });
}

// Whether a block may read what another wrote at a time: that one let it know, by a __threadfence, a
// barrier and an atomic, which this one has seen and passed a __threadfence since.
bool is_known(const Block& block, u32 writer, u32 time) {
  const auto found = block.known.find(writer);
  return found != block.known.end() && found->second > time;
}

// `written`: the lane's bytes, or null of a read. To write what is there already is no race:
// forwards compute a few channels twice.
void check_global(const Request& request, int lane, const u8* written) {
  const u64 at = request.addresses[lane];
  Region& region = *request.regions[lane];
  const u32 block = static_cast<u32>(request.warp.block->number) + 1;
  const u64 first = (at - region.address) / piece_bytes;
  const u64 last = (at + request.bytes - 1 - region.address) / piece_bytes;
  const bool changes = written && memcmp(request.host[lane], written, request.bytes) != 0;
  for (u64 piece = first; piece <= last; ++piece) {
    u32& writer = region.writers[piece];
    u32& reader = region.readers[piece];
    const bool by_another = writer && writer != block &&
                            !(!written && is_known(*request.warp.block, writer, region.times[piece]));
    const bool is_shared = by_another || (reader && reader != block);
    if (is_shared && (changes || (!written && by_another))) {
      fail(request.warp, request.instruction, "a race between blocks");
    }
    if (written) {
      writer = block;
      region.times[piece] = request.warp.block->machine.time;
    } else {
      reader = reader == 0 || reader == block ? block : several_blocks;
    }
  }
}

// An atomic lets other blocks know what its block's stores were before, and the block what others'
// were.
void atomic_in_global(const Request& request, int lane) {
  Block& block = *request.warp.block;
  Region& region = *request.regions[lane];
  const u64 piece = (request.addresses[lane] - region.address) / piece_bytes;
  const u32 own = static_cast<u32>(block.number) + 1;
  u32& writer = region.writers[piece];
  const u32 reader = region.readers[piece];
  if ((writer && writer != own && writer != by_atomics) || (reader && reader != own)) {
    fail(request.warp, request.instruction, "a race between blocks");
  }
  writer = by_atomics;
  Times& released = block.machine.released[request.addresses[lane]];
  join(block.heard, released);
  join(released, block.known);
  released[own] = block.fenced;
}

}  // namespace

static void load(Warp& warp, const Instruction& instruction, u32 mask) {
  const int width = instruction.width, vector = instruction.vector;
  const Request request(warp, instruction, mask, instruction.operands[vector]);
  check_shared(request, loads);
  for_each_lane(mask, [&](int lane) {
    if (request.space == global_memory) check_global(request, lane, nullptr);
    const u8* from = request.host[lane];
    for (int n = 0; n < vector; ++n) {
      u64 bits = 0;
      memcpy(&bits, from + n * width, width);
      const int unused = 64 - 8 * width;
      if (instruction.is_signed) bits = u64(s64(bits << unused) >> unused);
      warp.lanes(instruction.operands[n])[lane] = bits;
    }
  });
}

static void store(Warp& warp, const Instruction& instruction, u32 mask) {
  const int width = instruction.width;
  const Request request(warp, instruction, mask, instruction.operands[0]);
  check_shared(request, stores);
  for_each_lane(mask, [&](int lane) {
    u8 bytes[16];
    for (int n = 0; n < instruction.vector; ++n) {
      memcpy(bytes + n * width, warp.lanes(instruction.operands[n + 1]) + lane, width);
    }
    if (request.space == global_memory) check_global(request, lane, bytes);
    memcpy(request.host[lane], bytes, request.bytes);
  });
  if (request.space != global_memory) return;
  const u32 now = warp.block->machine.time++;
  warp.unfenced = std::min(warp.unfenced, now);
}

// Lanes whose address is one do so in turn. `red` has no register for what was there before.
template <class T, T combine(T, T)>
static void atomic(Warp& warp, const Instruction& instruction, u32 mask) {
  const Request request(warp, instruction, mask, instruction.operands[1]);
  check_shared(request, atomics);
  for_each_lane(mask, [&](int lane) {
    if (request.space == global_memory) atomic_in_global(request, lane);
    T before;
    memcpy(&before, request.host[lane], sizeof before);
    const T after = combine(before, value_of<T>(warp.lanes(instruction.operands[2])[lane]));
    memcpy(request.host[lane], &after, sizeof after);
    if (instruction.operands[0] >= 0) warp.lanes(instruction.operands[0])[lane] = bits_of(before);
  });
}

template <class T>
static T sum(T a, T b) {
  return a + b;
}
static s32 smaller(s32 a, s32 b) { return std::min(a, b); }
static s32 larger(s32 a, s32 b) { return std::max(a, b); }

void enter_memory(Table& table) {
  table["ld"] = load;
  table["st"] = store;
  for (const std::string name : {"atom", "red"}) {
    table[name + ".add.u32"] = atomic<u32, sum<u32>>;
    table[name + ".add.u64"] = atomic<u64, sum<u64>>;
    table[name + ".min.s32"] = atomic<s32, smaller>;
    table[name + ".max.s32"] = atomic<s32, larger>;
  }
}

}  // namespace simt
