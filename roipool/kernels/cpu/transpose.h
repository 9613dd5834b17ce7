// Planes of channels to channels side by side, and back. Pieces of 16 bytes are loaded into
// registers and transposed there: loads and stores, of which a core can do two or three at a time,
// do half of the work, and shuffles, mostly one at a time, the rest.
#pragma once
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "storage.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

const int piece_bytes = 16;
#if defined(__AVX512F__)
const int max_pieces = 4;
#elif defined(__AVX2__)
const int max_pieces = 2;
#else
const int max_pieces = 1;
#endif
const int register_bytes = max_pieces * piece_bytes;

// A register of some pieces, the one at `from` and those `step` bytes apart; how it falls into
// words and long words; and for two registers a and b, within each piece, the words a0 b0 a1 b1
// and a2 b2 a3 b3, or the long words a0 b0 and a1 b1.
template <int Pieces>
struct Register;

#if defined(__clang__)
#define ROIPOOL_SHUFFLE(Mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ROIPOOL_SHUFFLE(Mask, a, b, ...) __builtin_shuffle(a, b, (Mask){__VA_ARGS__})
#endif

template <>
struct Register<1> {
  typedef int32_t Words __attribute__((vector_size(16)));
  typedef int64_t Longs __attribute__((vector_size(16)));

  static Words join(const char* from, wide_int) {
    Words all;
    memcpy(&all, from, sizeof(all));
    return all;
  }
  static Words low(Words a, Words b) { return ROIPOOL_SHUFFLE(Words, a, b, 0, 4, 1, 5); }
  static Words high(Words a, Words b) { return ROIPOOL_SHUFFLE(Words, a, b, 2, 6, 3, 7); }
  static Longs low(Longs a, Longs b) { return ROIPOOL_SHUFFLE(Longs, a, b, 0, 2); }
  static Longs high(Longs a, Longs b) { return ROIPOOL_SHUFFLE(Longs, a, b, 1, 3); }
};

#if defined(__AVX2__)
inline __m128i piece_at(const char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

template <>
struct Register<2> {
  typedef int32_t Words __attribute__((vector_size(32)));
  typedef int64_t Longs __attribute__((vector_size(32)));

  static Words join(const char* from, wide_int step) {
    const __m256i first = _mm256_castsi128_si256(piece_at(from));
    return reinterpret_cast<Words>(_mm256_inserti128_si256(first, piece_at(from + step), 1));
  }
  static Words low(Words a, Words b) {
    return ROIPOOL_SHUFFLE(Words, a, b, 0, 8, 1, 9, 4, 12, 5, 13);
  }
  static Words high(Words a, Words b) {
    return ROIPOOL_SHUFFLE(Words, a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
  static Longs low(Longs a, Longs b) { return ROIPOOL_SHUFFLE(Longs, a, b, 0, 4, 2, 6); }
  static Longs high(Longs a, Longs b) { return ROIPOOL_SHUFFLE(Longs, a, b, 1, 5, 3, 7); }
};
#endif

#if defined(__AVX512F__)
template <>
struct Register<4> {
  typedef int32_t Words __attribute__((vector_size(64)));
  typedef int64_t Longs __attribute__((vector_size(64)));

  static Words join(const char* from, wide_int step) {
    __m512i all = _mm512_zextsi128_si512(piece_at(from));
    all = _mm512_inserti32x4(all, piece_at(from + step), 1);
    all = _mm512_inserti32x4(all, piece_at(from + 2 * step), 2);
    return reinterpret_cast<Words>(_mm512_inserti32x4(all, piece_at(from + 3 * step), 3));
  }
  static Words low(Words a, Words b) {
    return ROIPOOL_SHUFFLE(Words, a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  }
  static Words high(Words a, Words b) {
    return ROIPOOL_SHUFFLE(Words, a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  static Longs low(Longs a, Longs b) {
    return ROIPOOL_SHUFFLE(Longs, a, b, 0, 8, 2, 10, 4, 12, 6, 14);
  }
  static Longs high(Longs a, Longs b) {
    return ROIPOOL_SHUFFLE(Longs, a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
};
#endif
#undef ROIPOOL_SHUFFLE

// Within each piece of 16 bytes: transposes 4 registers of 4 words, or 2 of 2 long words.
template <int Bytes>
struct Squares;
template <>
struct Squares<4> {
  static const int side = 4;
  template <typename Register>
  static void transpose(typename Register::Words* rows) {
    typedef typename Register::Words Words;
    typedef typename Register::Longs Longs;
    const Longs a = reinterpret_cast<Longs>(Register::low(rows[0], rows[1]));
    const Longs b = reinterpret_cast<Longs>(Register::high(rows[0], rows[1]));
    const Longs c = reinterpret_cast<Longs>(Register::low(rows[2], rows[3]));
    const Longs d = reinterpret_cast<Longs>(Register::high(rows[2], rows[3]));
    rows[0] = reinterpret_cast<Words>(Register::low(a, c));
    rows[1] = reinterpret_cast<Words>(Register::high(a, c));
    rows[2] = reinterpret_cast<Words>(Register::low(b, d));
    rows[3] = reinterpret_cast<Words>(Register::high(b, d));
  }
};
template <>
struct Squares<8> {
  static const int side = 2;
  template <typename Register>
  static void transpose(typename Register::Words* rows) {
    typedef typename Register::Words Words;
    typedef typename Register::Longs Longs;
    const Longs a = reinterpret_cast<Longs>(rows[0]), b = reinterpret_cast<Longs>(rows[1]);
    rows[0] = reinterpret_cast<Words>(Register::low(a, b));
    rows[1] = reinterpret_cast<Words>(Register::high(a, b));
  }
};

// By value: GCC stores an element of an array of registers by way of the stack.
template <typename Words, typename Value>
inline void store_words(Words words, Value* to) {
  memcpy(to, &words, sizeof(words));
}

// Rows [row, row + width) of a matrix become columns: to[x * to_stride + y] = from[y * stride + x].
// `columns` is at least the side of a square; the last square begins where it ends with the last
// column, so that some columns may be done twice.
template <int Pieces, typename Value>
inline void transpose_rows(const Value* from, wide_int stride, wide_int columns, Value* to,
                           wide_int to_stride) {
  typedef Squares<sizeof(Value)> Square;
  const int side = Square::side;
  const wide_int step = side * stride * sizeof(Value);
  for (wide_int next = 0; next < columns; next += side) {
    const wide_int x = next + side <= columns ? next : columns - side;
    typename Register<Pieces>::Words rows[side];
    for (int i = 0; i < side; ++i) {
      rows[i] = Register<Pieces>::join(reinterpret_cast<const char*>(from + i * stride + x), step);
    }
    Square::template transpose<Register<Pieces>>(rows);
    for (int i = 0; i < side; ++i) store_words(rows[i], to + (x + i) * to_stride);
  }
}

// The transpose of a matrix. Both dimensions are at least the side of a square.
template <typename Value>
inline void transpose(const Value* from, wide_int stride, wide_int rows, wide_int columns,
                      Value* to, wide_int to_stride) {
  const int side = Squares<sizeof(Value)>::side;
  const int width = side * max_pieces;
  wide_int y = 0;
  for (; y + width <= rows; y += width) {
    transpose_rows<max_pieces>(from + y * stride, stride, columns, to + y, to_stride);
  }
  for (; y < rows; y += side) {
    const wide_int first = y + side <= rows ? y : rows - side;
    transpose_rows<1>(from + first * stride, stride, columns, to + first, to_stride);
  }
}

// Numbers that must be converted pass through a buffer of up to so many columns. All types share
// these functions.
const int columns_of_buffer = 32;

template <typename Value>
__attribute__((noinline)) void transpose_from_buffer(const Value* buffer, int rows, int columns,
                                                     Value* to, int lanes) {
  transpose(buffer, columns_of_buffer, rows, columns, to, lanes);
}
template <typename Value>
__attribute__((noinline)) void transpose_to_buffer(const Value* from, int lanes, int rows,
                                                   int columns, Value* buffer) {
  transpose(from, lanes, rows, columns, buffer, columns_of_buffer);
}

template <typename Value>
inline bool transposes_in_registers(int channels, wide_int count, int lanes) {
  const int side = Squares<sizeof(Value)>::side;
  return channels >= side && lanes % side == 0 && count >= side;
}

const int max_lanes = 16;

// Calls visit(first) for groups of `size` numbers below `count`, the last of which ends with it.
template <typename Visit>
inline void for_each_group(wide_int count, int size, Visit visit) {
  for (wide_int first = 0; first + size < count; first += size) visit(first);
  visit(count - size);
}

inline int columns_at_once(wide_int count) {
  return count < columns_of_buffer ? static_cast<int>(count) : columns_of_buffer;
}

// Zeros in the lanes of `count` vectors that have no channel.
template <typename Value>
inline void clear_other_lanes(int channels, wide_int count, int lanes, Value* to) {
  if (channels == lanes) return;
  for (wide_int i = 0; i < count; ++i) {
    for (int lane = channels; lane < lanes; ++lane) {
      keep_scalar();
      to[i * lanes + lane] = Value(0);
    }
  }
}

// `count` values of each of `channels` rows, `stride` apart, to lanes side by side; the lanes that
// are left over become 0.
template <typename Storage, typename Value>
inline void rows_to_lanes(const Storage* from, wide_int stride, int channels, wide_int count,
                          int lanes, Value* to) {
  if (lanes == 1) {
    compute_values(from, count, to);
  } else if (!transposes_in_registers<Value>(channels, count, lanes)) {
    for (wide_int i = 0; i < count; ++i) {
      for (int lane = 0; lane < lanes; ++lane) {
        keep_scalar();
        to[i * lanes + lane] =
            lane < channels ? Value(compute_value(from[lane * stride + i])) : Value(0);
      }
    }
  } else if constexpr (std::is_same<Storage, Value>::value) {
    clear_other_lanes(channels, count, lanes, to);
    transpose(from, stride, channels, count, to, lanes);
  } else {
    Value buffer[max_lanes * columns_of_buffer];
    const int columns = columns_at_once(count);
    for_each_group(count, columns, [&](wide_int first) {
      for (int lane = 0; lane < channels; ++lane) {
        compute_values(from + lane * stride + first, columns, buffer + lane * columns_of_buffer);
      }
      transpose_from_buffer(buffer, channels, columns, to + first * lanes, lanes);
    });
    clear_other_lanes(channels, count, lanes, to);
  }
}

template <typename Storage, typename Value>
inline void lanes_to_rows(const Value* from, int lanes, wide_int count, int channels, Storage* to,
                          wide_int stride) {
  if (lanes == 1) {
    store_values(from, count, to);
  } else if (!transposes_in_registers<Value>(channels, count, lanes)) {
    for (wide_int i = 0; i < count; ++i) {
      for (int lane = 0; lane < channels; ++lane) {
        keep_scalar();
        store_value(from[i * lanes + lane], to + lane * stride + i);
      }
    }
  } else if constexpr (std::is_same<Storage, Value>::value) {
    transpose(from, lanes, count, channels, to, stride);
  } else {
    Value buffer[max_lanes * columns_of_buffer];
    const int columns = columns_at_once(count);
    for_each_group(count, columns, [&](wide_int first) {
      transpose_to_buffer(from + first * lanes, lanes, columns, channels, buffer);
      for (int lane = 0; lane < channels; ++lane) {
        store_values(buffer + lane * columns_of_buffer, columns, to + lane * stride + first);
      }
    });
  }
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
