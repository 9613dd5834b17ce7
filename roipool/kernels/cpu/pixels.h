// Averages of cells whose channels are few and lie side by side: pictures, or single planes. Rows
// of cells are summed as runs of numbers, whatever the channels, and the channels of a cell are
// pooled together. Sums are added in the order of the other engines, to the same bits.
#pragma once
#include "dispatch.h"
#include "taps.h"

namespace roipool {
namespace ROIPOOL_ENGINE {

// The channels of a cell, and what lies behind them; numbers side by side, whatever their channels.
typedef float PixelLanes __attribute__((vector_size(channels_of_pixel * sizeof(float))));
typedef float RunLanes __attribute__((vector_size(register_bytes)));
const int lanes_of_run = register_bytes / sizeof(float);

template <typename Vector>
inline Vector spread(float value) {
  return value - Vector{};
}

// a * b + c as it is rounded for plain numbers: a compiler may fuse c's product instead of a * b.
template <typename Vector>
inline Vector fused(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Vector) == 64) return Vector(_mm512_fmadd_ps(a, b, c));
#endif
#if defined(__FMA__)
  if constexpr (sizeof(Vector) == 32) return Vector(_mm256_fmadd_ps(a, b, c));
  if constexpr (sizeof(Vector) == 16) return Vector(_mm_fmadd_ps(a, b, c));
#endif
  for (int i = 0; i < int(sizeof(Vector) / sizeof(float)); ++i) {
    c[i] = multiply_add<float>(a[i], b[i], c[i]);
  }
  return c;
}

template <typename Vector>
inline Vector load_values(const float* from) {
  return load<Vector>(from);
}
template <typename Vector, typename Source>
inline Vector load_one_by_one(const Source* from) {
  float values[sizeof(Vector) / sizeof(float)];
  compute_values(from, sizeof(Vector) / sizeof(float), values);
  return load<Vector>(values);
}
// By the instructions that convert a vector, which GCC does not find.
template <typename Vector>
inline Vector load_values(const Bfloat16* from) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  if constexpr (sizeof(Vector) == 64) return Vector(float_lanes(from));
#endif
  if constexpr (sizeof(Vector) == 32) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return Vector(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  if constexpr (sizeof(Vector) == 16) {
    const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return Vector(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
  }
#elif defined(__aarch64__)
  if constexpr (sizeof(Vector) == 16) {
    uint16x4_t halves;
    memcpy(&halves, from, sizeof(halves));
    return Vector(vshll_n_u16(halves, 16));
  }
#endif
  return load_one_by_one<Vector>(from);
}
template <typename Vector>
inline Vector load_values(const Float16* from) {
#if defined(__F16C__)
#if defined(__AVX512F__)
  if constexpr (sizeof(Vector) == 64) return Vector(float_lanes(from));
#endif
  if constexpr (sizeof(Vector) == 32) {
    return Vector(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  if constexpr (sizeof(Vector) == 16) {
    return Vector(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
#elif defined(__aarch64__)
  if constexpr (sizeof(Vector) == 16) {
    float16x4_t halves;
    memcpy(&halves, from, sizeof(halves));
    return Vector(vcvt_f32_f16(halves));
  }
#endif
  return load_one_by_one<Vector>(from);
}
template <typename Vector, typename Byte>
inline Vector load_values(const Byte* from) {
#if defined(__AVX2__)
  const bool is_signed = std::is_signed<Byte>::value;
#if defined(__AVX512F__)
  if constexpr (sizeof(Vector) == 64) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return Vector(
        _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes)));
  }
#endif
  if constexpr (sizeof(Vector) == 32) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return Vector(
        _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes)));
  }
  if constexpr (sizeof(Vector) == 16) {
    int word;
    memcpy(&word, from, sizeof(word));
    const __m128i bytes = _mm_cvtsi32_si128(word);
    return Vector(_mm_cvtepi32_ps(is_signed ? _mm_cvtepi8_epi32(bytes) : _mm_cvtepu8_epi32(bytes)));
  }
#elif defined(__aarch64__)
  if constexpr (sizeof(Vector) == 16) {
    uint32_t word;
    memcpy(&word, from, sizeof(word));
    const uint8x8_t bytes = vcreate_u8(word);
    if constexpr (std::is_signed<Byte>::value) {
      return Vector(vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))))));
    } else {
      return Vector(vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes)))));
    }
  }
#endif
  return load_one_by_one<Vector>(from);
}

template <typename Vector>
inline Vector load_values(const uint16_t* from) {
  return load_one_by_one<Vector>(from);
}
template <typename Vector>
inline Vector load_values(const int16_t* from) {
  return load_one_by_one<Vector>(from);
}

// to[i] = the weighted sum of number i of up to four lines; with Accumulate it is added to to[i].
template <int Rows, bool Accumulate, typename Source>
inline void add_runs(const Source* const* line, const float* weights, wide_int count, float* to) {
  const int lanes = lanes_of_run;
  RunLanes weight[Rows];
  for (int j = 0; j < Rows; ++j) weight[j] = spread<RunLanes>(weights[j]);
  wide_int i = 0;
  for (; i + lanes <= count; i += lanes) {
    const RunLanes first = load_values<RunLanes>(line[0] + i);
    RunLanes sum = Accumulate ? fused(weight[0], first, load<RunLanes>(to + i)) : weight[0] * first;
    for (int j = 1; j < Rows; ++j) sum = fused(weight[j], load_values<RunLanes>(line[j] + i), sum);
    store(sum, to + i);
  }
  for (; i < count; ++i) {
    keep_scalar();
    const float first = compute_value(line[0][i]);
    float sum = Accumulate ? multiply_add(weights[0], first, to[i]) : weights[0] * first;
    for (int j = 1; j < Rows; ++j) {
      sum = multiply_add(weights[j], float(compute_value(line[j][i])), sum);
    }
    to[i] = sum;
  }
}

template <bool Accumulate, typename Source>
inline void add_up_to_four_runs(int rows, const Source* const* line, const float* weights,
                                wide_int count, float* to) {
  switch (rows) {
    case 1: add_runs<1, Accumulate>(line, weights, count, to); break;
    case 2: add_runs<2, Accumulate>(line, weights, count, to); break;
    case 3: add_runs<3, Accumulate>(line, weights, count, to); break;
    default: add_runs<4, Accumulate>(line, weights, count, to); break;
  }
}

// The channels of some cells of a map, or of bins: those of cell (y, x) are at
// base + y * row + x * channels.
template <typename Value>
struct Pixels {
  Value* base;
  wide_int row;
  int channels;

  Value* line(wide_int y) const { return base + y * row; }
};

// Numbers of a map row as they are added up.
template <typename Source>
inline const Source* added_run(const Source* from, wide_int, float*) {
  return from;
}
// 16-bit integers are converted beforehand: compilers take long for additions of another type.
inline const float* added_run(const uint16_t* from, wide_int count, float* copy) {
  compute_values(from, count, copy);
  return copy;
}
inline const float* added_run(const int16_t* from, wide_int count, float* copy) {
  compute_values(from, count, copy);
  return copy;
}

// The weighted sum of map rows, of the columns of a window. Converted rows follow the sums.
template <typename Source>
inline void sum_map_rows(const Pixels<const Source>& map, const Taps<float>& rows,
                         const Rectangle& window, float* to, LongWork* work) {
  const wide_int first = window.left * map.channels, count = window.width() * map.channels;
  for (int done = 0; done < rows.count; done += 4) {
    const int now = minimum(rows.count - done, 4);
    if (work->ends_before(now * window.width())) return;
    decltype(added_run(map.base, count, to)) line[4];
    for (int j = 0; j < now; ++j) {
      const Source* run = map.line(rows.source[done + j]) + first;
      line[j] = added_run(run, count, to + (j + 1) * count);
    }
    const float* weights = rows.weight + done;
    if (done == 0) {
      add_up_to_four_runs<false>(now, line, weights, count, to);
    } else {
      add_up_to_four_runs<true>(now, line, weights, count, to);
    }
  }
}

// Stores the channels of a bin, of which there are `left` in its row: what follows them is stored
// later.
inline void store_pixel(PixelLanes pixel, int left, int channels, float* to) {
  if (wide_int(left) * channels >= channels_of_pixel) {
    store(pixel, to);
    return;
  }
  for (int channel = 0; channel < channels; ++channel) to[channel] = pixel[channel];
}

// A row of bins, of which `pool` gives the channels of one from its taps.
template <typename Pool>
inline void pool_row_of_pixels(const Lines<float>& columns, float empty, int channels, float* to,
                               Pool pool) {
  for (int bin = 0; bin < columns.count; ++bin) {
    const Taps<float> taps = columns.taps_of(bin);
    const PixelLanes pixel = taps.count > 0 ? pool(taps) : spread<PixelLanes>(empty);
    store_pixel(pixel, columns.count - bin, channels, to + wide_int(bin) * channels);
  }
}

// Count is the number of taps if known at compile time, else 0.
template <int Count>
inline void sum_pixels(const float* sums, const Lines<float> columns, float empty, int channels,
                       float* to) {
  pool_row_of_pixels(columns, empty, channels, to, [&](const Taps<float>& taps) {
    const int count = Count ? Count : taps.count;
    PixelLanes sum =
        taps.weight[0] * load_values<PixelLanes>(sums + wide_int(taps.source[0]) * channels);
    for (int i = 1; i < count; ++i) {
      const PixelLanes cell = load_values<PixelLanes>(sums + wide_int(taps.source[i]) * channels);
      sum = fused(spread<PixelLanes>(taps.weight[i]), cell, sum);
    }
    return sum;
  });
}

inline void sum_columns_of_pixels(const float* sums, const Lines<float>& columns, float empty,
                                  int channels, float* to) {
  switch (columns.longest) {
    case 1: sum_pixels<1>(sums, columns, empty, channels, to); break;
    case 2: sum_pixels<2>(sums, columns, empty, channels, to); break;
    case 3: sum_pixels<3>(sums, columns, empty, channels, to); break;
    case 4: sum_pixels<4>(sums, columns, empty, channels, to); break;
    default: sum_pixels<0>(sums, columns, empty, channels, to); break;
  }
}

// A row of bins that read 2 x 2 cells each.
template <typename Source>
inline void pool_pixels_2x2(const Pixels<const Source>& map, const Taps<float>& rows,
                            const Lines<float> columns, float empty, float* to) {
  const Source *upper = map.line(rows.source[0]), *lower = map.line(rows.source[1]);
  const PixelLanes above = spread<PixelLanes>(rows.weight[0]);
  const PixelLanes below = spread<PixelLanes>(rows.weight[1]);
  const int channels = map.channels;
  pool_row_of_pixels(columns, empty, channels, to, [&](const Taps<float>& taps) {
    const wide_int left = wide_int(taps.source[0]) * channels;
    const wide_int right = wide_int(taps.source[1]) * channels;
    const PixelLanes first = fused(below, load_values<PixelLanes>(lower + left),
                                   above * load_values<PixelLanes>(upper + left));
    const PixelLanes second = fused(below, load_values<PixelLanes>(lower + right),
                                    above * load_values<PixelLanes>(upper + right));
    return fused(spread<PixelLanes>(taps.weight[1]), second, taps.weight[0] * first);
  });
}

// Whether a row of bins reads the last rows of the array, where a load of PixelLanes could end
// behind it.
template <typename Source>
inline bool reads_end(const Pixels<const Source>& map, const Taps<float>& rows, wide_int width,
                      const Source* end) {
  const int last = maximum(rows.source[0], rows.source[rows.count - 1]);
  return end - map.line(last) < width * map.channels + channels_of_pixel;
}

// Windows of more cells than so many for each bin are read where bins need them.
const int min_skipped_cells = 3;

// All bins of one box. Rows of bins of a narrower type are pooled after the sums of the widest box.
template <typename Source, typename Pooled>
void pool_pixels(const Job& job, wide_int box, const Pixels<const Source>& map, const Source* end,
                 float* row_sums, float* pooled, const Pixels<Pooled>& to) {
  const Lines<float> rows = bins_from_cells<float>(job.rows, box);
  const Lines<float> columns = bins_from_cells<float>(job.columns, box);
  const Rectangle window = window_of_box(job, box);
  const float empty = static_cast<float>(job.empty_value);
  const bool is_2x2 = rows.longest == 2 && columns.longest == 2;
  const bool skips = is_2x2 && window.width() > wide_int(min_skipped_cells) * columns.count;
  const float* sums = row_sums - window.left * map.channels;
  const wide_int count = wide_int(columns.count) * map.channels;
  LongWork work(job.watch);
  for (int row = 0; row < rows.count; ++row) {
    if (work.ends_before(columns.count)) return;
    const Taps<float> taps = rows.taps_of(row);
    float* target = pooled;
    if constexpr (is_computed<Pooled>) target = to.line(row);
    if (taps.count == 0) {
      for (wide_int i = 0; i < count; ++i) target[i] = empty;
    } else if (skips && !reads_end(map, taps, job.columns.size, end)) {
      pool_pixels_2x2(map, taps, columns, empty, target);
    } else {
      sum_map_rows(map, taps, window, row_sums, &work);
      sum_columns_of_pixels(sums, columns, empty, map.channels, target);
    }
    if constexpr (!is_computed<Pooled>) store_values(pooled, count, to.line(row));
  }
}

// The boxes of a part.
template <typename Source, typename Pooled>
void pool_boxes_of_pixels(const Job& job, const Block& block, const Part& part) {
  const Maps<const Source> maps = maps_of<const Source>(job, block, job.features);
  const Pixels<const Source> map = {maps.first, maps.strides.row, block.channels};
  const Source* const end = static_cast<const Source*>(job.features) +
                            job.images * job.channels * job.rows.size * job.columns.size;
  const Strides strides = strides_of(job, rows_of_bins(job), job.columns.bins);
  Pooled* const output = static_cast<Pooled*>(job.output) + block.first_channel * strides.channel;
  float* const row_sums = reinterpret_cast<float*>(part.scratch);
  float* const pooled =
      row_sums + job.row_sum_bytes / wide_int(sizeof(float)) - job.columns.bins * block.channels;
  const BoxRange range = boxes_of_part(job, block.image, part.number);
  for (wide_int index = range.begin; index < range.end && !is_interrupted(job); ++index) {
    const wide_int box = job.box_order[index];
    const Pixels<Pooled> to = {output + row_of_box(job, box) * strides.outer, strides.row,
                               block.channels};
    pool_pixels(job, box, map, end, row_sums, pooled, to);
  }
}

// Whether a block's channels are all that lie between neighbouring cells.
inline bool is_of_pixels(const Job& job, const Block& block) {
  return block.single && job.arrangement == crossed_bins &&
         strides_of(job, job.rows.size, job.columns.size).column == block.channels;
}

}  // namespace ROIPOOL_ENGINE
}  // namespace roipool
