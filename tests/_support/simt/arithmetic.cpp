// PTX instructions that compute each lane's result from its own operands, under their opcodes
// without what changes nothing here: no `.rn` or `.lo`, and `u32` for `b32`.
#include <cfenv>
#include <limits>

#include "../emulator/half.h"
#include "lanewise.h"

namespace simt {

namespace {

// ---- What they compute. Signed numbers wrap around: -fwrapv

// clang-format off
template <class T> T mov(T a) { return a; }
template <class T> T add(T a, T b) { return a + b; }
template <class T> T sub(T a, T b) { return a - b; }
template <class T> T mul(T a, T b) { return a * b; }
template <class T> T mad(T a, T b, T c) { return a * b + c; }
template <class T> T div(T a, T b) { return std::is_integral_v<T> && b == 0 ? T(-1) : a / b; }
template <class T> T rem(T a, T b) { return b == 0 ? T(-1) : a % b; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T neg(T a) { return -a; }
template <class T> T abs(T a) { return a < 0 ? -a : a; }
template <class T> T bit_and(T a, T b) { return a & b; }
template <class T> T bit_or(T a, T b) { return a | b; }
template <class T> T bit_xor(T a, T b) { return a ^ b; }
template <class T> T bit_not(T a) { return T(~a); }
inline bool not_pred(bool a) { return !a; }
template <class T> T shl(T a, u32 by) { return by < 8 * sizeof(T) ? T(a << by) : T(0); }
template <class T> T shr(T a, u32 by) { return by < 8 * sizeof(T) ? T(a >> by) : T(a < 0 ? -1 : 0); }
template <class T> T selp(T a, T b, bool first) { return first ? a : b; }
template <class T> T fma_of(T a, T b, T c) { return std::fma(a, b, c); }
template <class T> T rcp(T a) { return T(1) / a; }
template <class T> T copysign_of(T sign, T size) { return std::copysign(size, sign); }
template <class T, class Wide> Wide mul_wide(T a, T b) { return Wide(a) * Wide(b); }
template <class T, class Wide> Wide mad_wide(T a, T b, Wide c) { return Wide(a) * Wide(b) + c; }
template <class T, class Wide> T mul_hi(T a, T b) { return T(Wide(a) * Wide(b) >> 8 * sizeof(T)); }
template <class T> u32 popc(T a) { return __builtin_popcountll(a); }
template <class T> u32 clz(T a) { return a ? __builtin_clzll(a) - (64 - 8 * sizeof(T)) : 8 * sizeof(T); }

template <class T> bool eq(T a, T b) { return a == b; }
template <class T> bool ne(T a, T b) { return a < b || a > b; }
template <class T> bool lt(T a, T b) { return a < b; }
template <class T> bool le(T a, T b) { return a <= b; }
template <class T> bool gt(T a, T b) { return a > b; }
template <class T> bool ge(T a, T b) { return a >= b; }
// true of a NaN, too
template <class T> bool equ(T a, T b) { return !(a < b || a > b); }
template <class T> bool neu(T a, T b) { return a != b; }
template <class T> bool ltu(T a, T b) { return !(a >= b); }
template <class T> bool leu(T a, T b) { return !(a > b); }
template <class T> bool gtu(T a, T b) { return !(a <= b); }
template <class T> bool geu(T a, T b) { return !(a < b); }
template <class T> bool num(T a, T b) { return a == a && b == b; }
template <class T> bool nan(T a, T b) { return !num(a, b); }
// clang-format on

inline u32 brev(u32 a) {
  u32 result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (a >> bit & 1) << (31 - bit);
  return result;
}
inline u32 bfind_shiftamt(u32 a) { return a ? __builtin_clz(a) : ~0u; }
template <class T>
T bfi(T field, T into, u32 position, u32 length) {
  const T mask = shl<T>(length < 8 * sizeof(T) ? T((T(1) << length) - 1) : T(~T(0)), position);
  return (into & ~mask) | (shl(field, position) & mask);
}
inline u32 prmt(u32 a, u32 b, u32 selectors) {  // bytes of both, a selector of four bits each
  const u64 bytes = u64(b) << 32 | a;
  u32 result = 0;
  for (int n = 0; n < 4; ++n) {
    const u32 selector = selectors >> 4 * n & 15;
    u8 byte = u8(bytes >> 8 * (selector & 7));
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= u32(byte) << 8 * n;
  }
  return result;
}
inline u32 pack(u16 low, u16 high) { return u32(high) << 16 | low; }
inline u64 pack_words(u32 low, u32 high) { return u64(high) << 32 | low; }
template <class T>
T add_rz(T a, T b) {
  const int before = fegetround();
  fesetround(FE_TOWARDZERO);
  volatile T first = a, second = b;
  volatile T sum = first + second;
  fesetround(before);
  return sum;
}

// The halves of a number; one of them may go nowhere.
template <int bits>
void unpack(Warp& warp, const Instruction& instruction, u32 mask) {
  const u64* both = warp.lanes(instruction.operands[2]);
  for (int half = 0; half < 2; ++half) {
    if (instruction.operands[half] < 0) continue;
    u64* result = warp.lanes(instruction.operands[half]);
    for_each_lane(mask, [&](int l) { result[l] = both[l] >> bits * half & ((u64(1) << bits) - 1); });
  }
}

// ---- Conversions

enum Rounding { as_is, down, up, to_zero, to_even };
template <Rounding rounding, class T>
T rounded(T value) {
  switch (rounding) {
    case down: return std::floor(value);
    case up: return std::ceil(value);
    case to_zero: return std::trunc(value);
    case to_even: return std::nearbyint(value);
    default: return value;
  }
}
template <class To, class From, Rounding rounding = as_is>
To cvt(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const From whole = rounded<rounding>(value);
    const From limit = std::ldexp(From(1), 8 * sizeof(To) - std::is_signed_v<To>);
    if (whole != whole) return 0;
    if (whole >= limit) return std::numeric_limits<To>::max();
    if (whole < (std::is_signed_v<To> ? -limit : From(0))) return std::numeric_limits<To>::min();
    return To(whole);
  } else if constexpr (std::is_floating_point_v<From>) {
    return To(rounded<rounding>(value));
  } else {
    return To(value);
  }
}

// ---- Their names

template <auto function>
void enter(Table& table, const std::string& name, const std::string& type) {
  table[name + "." + type] = Lanewise<function>::template run<false>;
  if (Lanewise<function>::has_float32) {
    table[name + ".ftz." + type] = Lanewise<function>::template run<true>;
  }
}
// What depends on the sign.
template <class T>
void enter_ordered(Table& table, const std::string& type) {
  enter<div<T>>(table, "div", type);
  enter<min<T>>(table, "min", type);
  enter<max<T>>(table, "max", type);
  enter<abs<T>>(table, "abs", type);
  enter<eq<T>>(table, "setp.eq", type);
  enter<lt<T>>(table, "setp.lt", type);
  enter<le<T>>(table, "setp.le", type);
  enter<gt<T>>(table, "setp.gt", type);
  enter<ge<T>>(table, "setp.ge", type);
  enter<ne<T>>(table, "setp.ne", type);
}
template <class T>
void enter_signed(Table& table, const std::string& type) {
  enter_ordered<T>(table, type);
  enter<rem<T>>(table, "rem", type);
  enter<shr<T>>(table, "shr", type);
}
template <class T>
void enter_common(Table& table, const std::string& type) {
  enter<mov<T>>(table, "mov", type);
  enter<add<T>>(table, "add", type);
  enter<sub<T>>(table, "sub", type);
  enter<mul<T>>(table, "mul", type);
  enter<neg<T>>(table, "neg", type);
  enter<selp<T>>(table, "selp", type);
}
template <class T>
void enter_logic(Table& table, const std::string& type) {
  enter<bit_and<T>>(table, "and", type);
  enter<bit_or<T>>(table, "or", type);
  enter<bit_xor<T>>(table, "xor", type);
}
template <class T>
void enter_bits(Table& table, const std::string& type) {
  enter_common<T>(table, type);
  enter_signed<T>(table, type);
  enter_logic<T>(table, type);
  enter<bit_not<T>>(table, "not", type);
  enter<mad<T>>(table, "mad", type);
  enter<shl<T>>(table, "shl", type);
}
template <class T>
void enter_float(Table& table, const std::string& type) {
  enter_common<T>(table, type);
  enter_ordered<T>(table, type);
  enter<fma_of<T>>(table, "fma", type);
  enter<rcp<T>>(table, "rcp", type);
  enter<copysign_of<T>>(table, "copysign", type);
  enter<add_rz<T>>(table, "add.rz", type);
  enter<equ<T>>(table, "setp.equ", type);
  enter<neu<T>>(table, "setp.neu", type);
  enter<ltu<T>>(table, "setp.ltu", type);
  enter<leu<T>>(table, "setp.leu", type);
  enter<gtu<T>>(table, "setp.gtu", type);
  enter<geu<T>>(table, "setp.geu", type);
  enter<num<T>>(table, "setp.num", type);
  enter<nan<T>>(table, "setp.nan", type);
}
// Enters conversions of the bits of a register: a narrower integer is cut off, or extended.
template <class From>
void enter_extensions(Table& table, const std::string& from) {
  enter<cvt<u16, From>>(table, "cvt", "u16." + from);
  enter<cvt<u32, From>>(table, "cvt", "u32." + from);
  enter<cvt<u64, From>>(table, "cvt", "u64." + from);
  enter<cvt<s16, From>>(table, "cvt", "s16." + from);
  enter<cvt<s32, From>>(table, "cvt", "s32." + from);
  enter<cvt<s64, From>>(table, "cvt", "s64." + from);
}
template <class Integer, class Float>
void enter_between(Table& table, const std::string& integer, const std::string& real) {
  enter<cvt<Float, Integer>>(table, "cvt", real + "." + integer);
  enter<cvt<Integer, Float, down>>(table, "cvt.rmi", integer + "." + real);
  enter<cvt<Integer, Float, up>>(table, "cvt.rpi", integer + "." + real);
  enter<cvt<Integer, Float, to_zero>>(table, "cvt.rzi", integer + "." + real);
  enter<cvt<Integer, Float, to_even>>(table, "cvt.rni", integer + "." + real);
}
template <class Float>
void enter_float_conversions(Table& table, const std::string& type) {
  enter_between<u32, Float>(table, "u32", type);
  enter_between<s32, Float>(table, "s32", type);
  enter_between<u64, Float>(table, "u64", type);
  enter_between<s64, Float>(table, "s64", type);
  enter<cvt<Float, Float, down>>(table, "cvt.rmi", type + "." + type);
  enter<cvt<Float, Float, up>>(table, "cvt.rpi", type + "." + type);
  enter<cvt<Float, Float, to_zero>>(table, "cvt.rzi", type + "." + type);
  enter<cvt<Float, Float, to_even>>(table, "cvt.rni", type + "." + type);
}

}  // namespace

void enter_arithmetic(Table& table) {
  enter_logic<bool>(table, "pred");
  enter<not_pred>(table, "not", "pred");
  enter<mov<bool>>(table, "mov", "pred");
  enter_bits<u16>(table, "u16");
  enter_bits<u32>(table, "u32");
  enter_bits<u64>(table, "u64");
  enter_signed<s16>(table, "s16");
  enter_signed<s32>(table, "s32");
  enter_signed<s64>(table, "s64");
  enter_float<f32>(table, "f32");
  enter_float<f64>(table, "f64");
  enter<mul_wide<u16, u32>>(table, "mul.wide", "u16");
  enter<mul_wide<u32, u64>>(table, "mul.wide", "u32");
  enter<mul_wide<s32, s64>>(table, "mul.wide", "s32");
  enter<mad_wide<u32, u64>>(table, "mad.wide", "u32");
  enter<mad_wide<s32, s64>>(table, "mad.wide", "s32");
  enter<mul_hi<u32, u64>>(table, "mul.hi", "u32");
  enter<mul_hi<s32, s64>>(table, "mul.hi", "s32");
  enter<popc<u32>>(table, "popc", "u32");
  enter<popc<u64>>(table, "popc", "u64");
  enter<clz<u32>>(table, "clz", "u32");
  enter<clz<u64>>(table, "clz", "u64");
  enter<brev>(table, "brev", "u32");
  enter<bfind_shiftamt>(table, "bfind.shiftamt", "u32");
  enter<bfi<u32>>(table, "bfi", "u32");
  enter<bfi<u64>>(table, "bfi", "u64");
  enter<prmt>(table, "prmt", "u32");
  enter<pack>(table, "pack", "u32");
  enter<pack_words>(table, "pack", "u64");
  table["unpack.u32"] = unpack<16>;
  table["unpack.u64"] = unpack<32>;
  enter_extensions<u8>(table, "u8");
  enter_extensions<s8>(table, "s8");
  enter_extensions<u16>(table, "u16");
  enter_extensions<s16>(table, "s16");
  enter_extensions<u32>(table, "u32");
  enter_extensions<s32>(table, "s32");
  enter_extensions<u64>(table, "u64");
  enter_extensions<s64>(table, "s64");
  enter_float_conversions<f32>(table, "f32");
  enter_float_conversions<f64>(table, "f64");
  enter<cvt<f32, f64>>(table, "cvt", "f32.f64");
  enter<cvt<f64, f32>>(table, "cvt", "f64.f32");
  enter<float_of_half>(table, "cvt", "f32.f16");
  enter<half_of_float>(table, "cvt", "f16.f32");
}

}  // namespace simt
