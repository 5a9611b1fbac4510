// Vectors of 4 floats in plain C++, for any processor; compilers turn the loops into SSE or NEON.
#pragma once

#include <cstdint>

#include "qkexport/cpu/half.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

constexpr int kVecWidth = 4;
// 4 rows x 2 vectors of accumulators fit in the 16 registers of SSE2 with room for operands.
constexpr int kRowBlock = 4;
constexpr int kMaxAccumulators = 8;

struct Vec {
  float lane[kVecWidth];
};

struct Bits {
  uint16_t lane[kVecWidth];
};

template <typename Function>
inline Vec each_lane(Function function) {
  Vec result;
  for (int i = 0; i < kVecWidth; ++i) result.lane[i] = function(i);
  return result;
}

inline Vec splat(float x) {
  return each_lane([&](int) { return x; });
}
inline Vec load(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
inline void store(float* p, Vec x) {
  for (int i = 0; i < kVecWidth; ++i) p[i] = x.lane[i];
}
// The first n < kVecWidth elements; the other lanes are 0 and are not read.
inline Vec load_n(const float* p, int64_t n) {
  return each_lane([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store_n(float* p, Vec x, int64_t n) {
  for (int i = 0; i < n; ++i) p[i] = x.lane[i];
}

inline Bits load_bits_n(const uint16_t* p, int64_t n) {
  Bits bits;
  for (int i = 0; i < kVecWidth; ++i) bits.lane[i] = i < n ? p[i] : uint16_t{0};
  return bits;
}
inline Bits load_bits(const uint16_t* p) { return load_bits_n(p, kVecWidth); }
inline Vec half_to_float(Bits bits) {
  return each_lane([&](int i) { return half_bits_to_float(bits.lane[i]); });
}
inline Vec bfloat16_to_float(Bits bits) {
  return each_lane([&](int i) { return bfloat16_bits_to_float(bits.lane[i]); });
}

// The elements of even and of odd index of the 8 at p.
inline Vec even_bfloat16(const uint16_t* p) {
  return each_lane([&](int i) { return bfloat16_bits_to_float(p[2 * i]); });
}
inline Vec odd_bfloat16(const uint16_t* p) { return even_bfloat16(p + 1); }
// Two vectors in order become the elements of even and of odd index, and back.
inline void to_parity(Vec& a, Vec& b) {
  const float all[8] = {a.lane[0], a.lane[1], a.lane[2], a.lane[3],
                        b.lane[0], b.lane[1], b.lane[2], b.lane[3]};
  a = each_lane([&](int i) { return all[2 * i]; });
  b = each_lane([&](int i) { return all[2 * i + 1]; });
}
inline void from_parity(Vec& a, Vec& b) {
  const Vec even = a, odd = b;
  a = {{even.lane[0], odd.lane[0], even.lane[1], odd.lane[1]}};
  b = {{even.lane[2], odd.lane[2], even.lane[3], odd.lane[3]}};
}

inline void store_half(uint16_t* p, Vec x) {
  for (int i = 0; i < kVecWidth; ++i) p[i] = float_to_half_bits(x.lane[i]);
}
inline void store_bfloat16(uint16_t* p, Vec x) {
  for (int i = 0; i < kVecWidth; ++i) p[i] = float_to_bfloat16_bits(x.lane[i]);
}

inline Vec fma(Vec a, Vec b, Vec c) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Vec add(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec div(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
// b where either is NaN.
inline Vec max(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec min(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// Exact for |a| < 2^22: adding 1.5 * 2^23 leaves no fraction bits.
inline Vec round(Vec a) {
  return each_lane([&](int i) {
    const float shifted = a.lane[i] + 0x1.8p23f;
    return shifted - 0x1.8p23f;
  });
}
// a * 2^n for integral n >= -127; n = -127 gives 0 (no gradual underflow).
inline Vec scale_by_power(Vec a, Vec n) {
  return each_lane([&](int i) {
    const bool number = !is_nan(n.lane[i]);
    const uint32_t biased = number ? static_cast<uint32_t>(static_cast<int>(n.lane[i]) + 127) : 0u;
    return a.lane[i] * float_from_bits(biased << 23);
  });
}
inline Vec clamp_power(Vec n) { return max(splat(-127.0f), n); }
// Adds the integer in the low bits of n to the exponents of a.
inline Vec add_to_exponent(Vec a, Vec n) {
  return each_lane([&](int i) {
    return float_from_bits(float_bits(a.lane[i]) + (float_bits(n.lane[i]) << 23));
  });
}

// Lane-wise a < b ? x : y; y where either is NaN.
inline Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
}
inline Vec absolute(Vec a) {
  return each_lane([&](int i) { return float_from_bits(float_bits(a.lane[i]) & 0x7FFFFFFFu); });
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return each_lane([&](int i) {
    const uint32_t kept = float_bits(magnitude.lane[i]) & 0x7FFFFFFFu;
    return float_from_bits(kept | (float_bits(sign.lane[i]) & 0x80000000u));
  });
}

// x where lo <= lane < hi, else `other`.
inline Vec select_lanes(Vec x, int64_t lo, int64_t hi, Vec other) {
  return each_lane([&](int i) { return lo <= i && i < hi ? x.lane[i] : other.lane[i]; });
}
// x where the byte is not 0, else `other`. Reads n <= kVecWidth bytes.
inline Vec select_bytes(Vec x, const uint8_t* bytes, int64_t n, Vec other) {
  return each_lane([&](int i) { return i < n && bytes[i] ? x.lane[i] : other.lane[i]; });
}

inline float sum(Vec a) { return (a.lane[0] + a.lane[2]) + (a.lane[1] + a.lane[3]); }
inline float maximum(Vec a) {
  float result = a.lane[0];
  for (int i = 1; i < kVecWidth; ++i) result = a.lane[i] > result ? a.lane[i] : result;
  return result;
}
// The sums of four vectors.
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
  out[0] = sum(a);
  out[1] = sum(b);
  out[2] = sum(c);
  out[3] = sum(d);
}

// dst[j * dst_stride + i] = src[i * src_stride + j] for i, j < kVecWidth.
inline void transpose_block(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  for (int j = 0; j < kVecWidth; ++j) {
    store(dst + j * dst_stride, each_lane([&](int i) { return src[i * src_stride + j]; }));
  }
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
