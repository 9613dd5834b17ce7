// Blocks of channels side by side in one vector, and the copies that bring them there and back.
#pragma once
#include "../strides.h"
#include "job.h"
#include "transpose.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// One cache line of channels: 16 float or 8 double. GCC and Clang split the vector where registers
// are shorter. A "vector" of one value is the plain number, and the same loops serve it.
typedef float FloatLanes __attribute__((vector_size(64)));
typedef double DoubleLanes __attribute__((vector_size(64)));

template <typename Vector>
struct Lanes;
template <>
struct Lanes<FloatLanes> {
  typedef float Value;
  typedef int32_t Index;
  static const int count = 16;
};
template <>
struct Lanes<DoubleLanes> {
  typedef double Value;
  typedef int64_t Index;
  static const int count = 8;
};
template <>
struct Lanes<float> {
  typedef float Value;
  typedef int64_t Index;
  static const int count = 1;
};
template <>
struct Lanes<double> {
  typedef double Value;
  typedef int64_t Index;
  static const int count = 1;
};

// The registers that a vector falls into, each of some lanes. GCC splits sums and products of
// vectors by itself, but compares and selects in them one lane after the other.
template <typename Vector>
struct Registers {  // of one channel
  typedef Vector Values;
  typedef int64_t Indices;
  static const int lanes = 1;
  static const int count = 1;
};
template <typename Value, typename Index>
struct RegistersOf {
  typedef Value Values __attribute__((vector_size(register_bytes)));
  typedef Index Indices __attribute__((vector_size(register_bytes)));
  static const int lanes = register_bytes / sizeof(Value);
  static const int count = 64 / register_bytes;
};
template <>
struct Registers<FloatLanes> : RegistersOf<float, int32_t> {};
template <>
struct Registers<DoubleLanes> : RegistersOf<double, int64_t> {};

template <typename Value>
struct VectorOf {
  typedef FloatLanes type;
};
template <>
struct VectorOf<double> {
  typedef DoubleLanes type;
};

// Sixteen numbers of a narrower type. Each is what `compute_value` makes of it.
typedef uint16_t HalfLanes __attribute__((vector_size(32)));
typedef uint32_t WordLanes __attribute__((vector_size(64)));
typedef int32_t IndexLanes __attribute__((vector_size(64)));

inline WordLanes words_of(const void* halves) {
  HalfLanes bits;
  memcpy(&bits, halves, sizeof(bits));
  return __builtin_convertvector(bits, WordLanes);
}
inline FloatLanes float_lanes(const Bfloat16* address) {
  return reinterpret_cast<FloatLanes>(words_of(address) << 16);
}
inline FloatLanes float_lanes(const Float16* address) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(address));
  return reinterpret_cast<FloatLanes>(_mm512_maskz_cvtph_ps(0xffff, halves));
#elif defined(__F16C__) || defined(__aarch64__)
  FloatLanes vector;
  compute_values(address, 16, reinterpret_cast<float*>(&vector));
  return vector;
#else
  const WordLanes bits = words_of(address);
  const WordLanes magnitude = (bits & 0x7fffu) << 13;
  const FloatLanes scaled = reinterpret_cast<FloatLanes>(magnitude) * bits_of<float>(0x77800000u);
  // Bit 28 of the sum tells infinities and NaN, without a comparison of lanes.
  const WordLanes is_not_finite = WordLanes{} - ((magnitude + 0x00800000u) >> 28);
  return reinterpret_cast<FloatLanes>((bits & 0x8000u) << 16 | reinterpret_cast<WordLanes>(scaled) |
                                      (is_not_finite & 0x7f800000u));
#endif
}
// In steps, each of which is one instruction: GCC 12 divides a longer one into lanes.
template <typename Half, typename Byte>
inline FloatLanes lanes_of_bytes(const Byte* address) {
  typedef Byte Bytes __attribute__((vector_size(16)));
  typedef Half Halves __attribute__((vector_size(32)));
  Bytes bytes;
  memcpy(&bytes, address, sizeof(bytes));
  const Halves halves = __builtin_convertvector(bytes, Halves);
  return __builtin_convertvector(__builtin_convertvector(halves, IndexLanes), FloatLanes);
}
inline FloatLanes float_lanes(const uint8_t* address) { return lanes_of_bytes<uint16_t>(address); }
inline FloatLanes float_lanes(const int8_t* address) { return lanes_of_bytes<int16_t>(address); }

// Channels of a computed type, or of a narrower one, which are converted wherever they are read.
template <typename Vector, typename Value>
inline Vector load(const Value* address) {
  if constexpr (sizeof(Value) >= sizeof(float)) {
    Vector vector;
    memcpy(&vector, address, sizeof(vector));
    return vector;
  } else if constexpr (Lanes<Vector>::count == 1) {
    return compute_value(*address);
  } else {
    return float_lanes(address);
  }
}
template <typename Vector, typename Value>
inline void store(Vector vector, Value* address) {
  memcpy(address, &vector, sizeof(vector));
}
// Not a sum with zeroes, which GCC computes and stores lane by lane. The scalar one keeps what sums
// make of -0: weights and empty values are 0 instead.
template <typename Vector>
inline Vector broadcast(typename Lanes<Vector>::Value value) {
  return (value + 0) - Vector{};
}
template <typename Vector, typename Value>
inline void fill(Value value, int vectors, Value* address) {
  for (int v = 0; v < vectors; ++v)
    store(broadcast<Vector>(value), address + v * Lanes<Vector>::count);
}

// a * b + c, rounded once where the instruction set has the operation. Spelled out for plain
// numbers, since a compiler that vectorises their loops would fuse some and not others.
template <typename Vector>
inline Vector multiply_add(Vector a, Vector b, Vector c) {
  return a * b + c;
}
#if defined(__AVX512F__)  // where GCC 12 divides the barrier of `rounded` into lanes
template <>
inline FloatLanes multiply_add(FloatLanes a, FloatLanes b, FloatLanes c) {
  return FloatLanes(_mm512_fmadd_ps(a, b, c));
}
template <>
inline DoubleLanes multiply_add(DoubleLanes a, DoubleLanes b, DoubleLanes c) {
  return DoubleLanes(_mm512_fmadd_pd(a, b, c));
}
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
template <>
inline float multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
template <>
inline double multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
#endif

// A product that is rounded before it becomes the last argument of `multiply_add`. Left to itself,
// a compiler that meets a * b + c * d may fuse either product, in vectors another than in plain
// numbers.
template <typename Vector>
inline Vector rounded(Vector product) {
#if (defined(__FMA__) || defined(__ARM_FEATURE_FMA)) && !defined(__AVX512F__) && \
    defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(product);
#endif
#endif
  return product;
}

inline bool is_computed_type(const Job& job) {
  return job.storage == float32_storage || job.storage == float64_storage;
}

inline bool holds_integers(const Job& job) { return job.feature_storage != stored_as_pooled; }
inline bool holds_16_bit_integers(const Job& job) {
  return job.feature_storage == stored_as_uint16 || job.feature_storage == stored_as_int16;
}

// Whether channels lie side by side in the computed type, so that features and pooled values need
// no copies.
inline bool works_in_place(const Job& job) {
  return job.channels_last && is_computed_type(job) && !holds_integers(job);
}

// Vectors of neighbouring channels that a task computes together where they lie side by side in
// memory: memory is fast at long runs.
const int max_vectors = 16;

// A run of channels that one task computes together.
struct Block {
  wide_int image;
  wide_int first_channel;
  int channels;
  int vectors;
  bool single;  // one channel, without a vector, or those of whole pixels
};

// Fewer channels than this at the end are computed one by one rather than in a padded vector.
const int min_padded_channels = 5;

// The most channels of a whole pixel: fewer than are padded.
const int channels_of_pixel = 4;

// How the channels of an image are divided into blocks: groups of vectors, vectors, the rest.
struct Blocks {
  int lanes;
  int group;  // channels
  wide_int groups, vectors, rest;
  bool padded;  // the rest is one block rather than one for each channel

  wide_int count() const { return groups + vectors + (padded ? 1 : rest); }
};

inline Blocks blocks_of_image(const Job& job, int lanes) {
  if (job.whole_pixels) return {lanes, lanes, 0, 0, 1, false};
  if (job.narrow) return {lanes, lanes, 0, 0, job.channels, false};
  const int group = lanes * job.vectors;
  const wide_int left = job.channels % group;
  const wide_int rest = left % lanes;
  return {lanes, group, job.channels / group, left / lanes, rest, rest >= min_padded_channels};
}

inline Block block_of_task(const Job& job, wide_int task, int lanes) {
  const Blocks blocks = blocks_of_image(job, lanes);
  const wide_int image = task / blocks.count();
  wide_int number = task % blocks.count();
  if (number < blocks.groups) {
    return {image, number * blocks.group, blocks.group, blocks.group / lanes, false};
  }
  number -= blocks.groups;
  const wide_int first = blocks.groups * blocks.group;
  if (number < blocks.vectors) return {image, first + number * lanes, lanes, 1, false};
  const wide_int last = first + blocks.vectors * lanes + number - blocks.vectors;
  if (blocks.padded) return {image, last, static_cast<int>(blocks.rest), 1, false};
  const int channels = job.whole_pixels ? static_cast<int>(job.channels) : 1;
  return {image, last, channels, 1, true};
}

inline Strides strides_of(const Job& job, wide_int height, wide_int width) {
  return strides_of_array(job.channels_last, job.channels, height, width);
}

// A rectangle of map cells: rows [top, bottom), columns [left, right). A box of a volume reads some
// rows of each plane, the same of each.
struct Rectangle {
  wide_int top, bottom, left, right;
  wide_int rows_of_plane = 0;  // 0: all rows are read
  wide_int read_of_plane = 0;  // from the first of a plane on

  wide_int height() const { return bottom - top; }
  wide_int width() const { return right - left; }
  wide_int cells() const { return height() * width(); }
  wide_int read_rows() const {
    if (rows_of_plane == 0) return height();
    return ((height() - read_of_plane) / rows_of_plane + 1) * read_of_plane;
  }
  wide_int read_cells() const { return read_rows() * width(); }
};

// Calls visit(y) for the rows that are read.
template <typename Visit>
inline void for_each_read_row(const Rectangle& window, Visit visit) {
  const bool has_planes = window.rows_of_plane != 0;
  const wide_int step = has_planes ? window.rows_of_plane : window.height();
  const wide_int read = has_planes ? window.read_of_plane : window.height();
  for (wide_int plane = window.top; plane < window.bottom; plane += step) {
    for (wide_int y = plane; y < plane + read; ++y) visit(y);
  }
}

// Where the vectors of cell (y, x) lie, side by side: at base + y * row + x * column.
template <typename Value>
struct View {
  Value* base;
  wide_int row;
  wide_int column;
  int vectors;

  Value* line(wide_int y) const { return base + y * row; }
  Value* at(wide_int y, wide_int x) const { return line(y) + x * column; }
};

// Packed cells: lanes side by side, then columns from `left` on, then rows from `top` on.
template <typename Value>
inline View<Value> packed_view(Value* memory, wide_int top, wide_int left, wide_int width,
                               int lanes, int vectors = 1) {
  const wide_int column = lanes * vectors, row = width * column;
  return {memory - top * row - left * column, row, column, vectors};
}

// `count` neighbours along a row, or bins, of a block's channels to lanes side by side. `from`
// points at the block's first channel.
template <typename Storage, typename Value>
inline void to_lanes(const Storage* from, const Strides& strides, int channels, wide_int count,
                     int lanes, Value* to) {
  if (strides.column == 1) {
    rows_to_lanes(from, strides.channel, channels, count, lanes, to);
    return;
  }
  for (wide_int i = 0; i < count; ++i) {
    compute_values(from + i * strides.column, channels, to + i * lanes);
    for (int lane = channels; lane < lanes; ++lane) to[i * lanes + lane] = Value(0);
  }
}

template <typename Storage, typename Value>
inline void from_lanes(const Value* from, int lanes, wide_int count, int channels, Storage* to,
                       const Strides& strides) {
  if (strides.column == 1) {
    lanes_to_rows(from, lanes, count, channels, to, strides.channel);
    return;
  }
  for (wide_int i = 0; i < count; ++i) {
    store_values(from + i * lanes, channels, to + i * strides.column);
  }
}

// Prefetches the cache lines of `count` neighbours of each channel: latency, not bandwidth, is the
// bottleneck. GCC takes a function that only prefetches for one without effect, and drops calls of
// it that are not inlined early.
template <bool ToWrite, typename Storage>
__attribute__((always_inline)) inline void prefetch_cells(const Storage* cells,
                                                          const Strides& strides, int channels,
                                                          wide_int count) {
  if (strides.column != 1) return;
  for (int lane = 0; lane < channels; ++lane) {
    const char* line = reinterpret_cast<const char*>(cells + lane * strides.channel);
    const char* end = line + count * sizeof(Storage);
    for (; line < end; line += 64) __builtin_prefetch(line, ToWrite);
  }
}
template <typename Storage>
__attribute__((always_inline)) inline void prefetch_for_read(const Storage* cells,
                                                             const Strides& strides, int channels,
                                                             wide_int count) {
  prefetch_cells<false>(cells, strides, channels, count);
}
template <typename Storage>
__attribute__((always_inline)) inline void prefetch_for_write(const Storage* cells,
                                                              const Strides& strides, int channels,
                                                              wide_int count) {
  prefetch_cells<true>(cells, strides, channels, count);
}

template <typename Storage>
inline void clear_cells(Storage* to, const Strides& strides, int channels, wide_int count) {
  if (strides.column == 1) {
    for (int lane = 0; lane < channels; ++lane) {
      memset(static_cast<void*>(to + lane * strides.channel), 0, count * sizeof(Storage));
    }
    return;
  }
  const size_t bytes = channels * sizeof(Storage);
  for (wide_int i = 0; i < count; ++i) {
    void* const cell = static_cast<void*>(to + i * strides.column);
    if (bytes == 64) {
      memset(cell, 0, 64);  // no call: the compiler knows the size
    } else {
      memset(cell, 0, bytes);
    }
  }
}

// Calls visit(first, last) for runs of rows of bins that are computed before they are written.
template <typename Visit>
inline void for_each_tile(const Job& job, Visit visit) {
  for (wide_int first = 0; first < rows_of_bins(job); first += job.tile_rows) {
    const wide_int last = first + job.tile_rows;
    visit(static_cast<int>(first), static_cast<int>(minimum<wide_int>(last, rows_of_bins(job))));
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
