// Vectors of 8 floats for AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

using Vec = __m256;
constexpr int kVecWidth = 8;
// 6 rows x 2 vectors of accumulators, 2 vectors of b and a broadcast: 15 of 16 registers.
constexpr int kRowBlock = 6;
constexpr int kMaxAccumulators = 12;

inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }

inline __m256i lane_index() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane_index());
}
// The first n < kVecWidth elements; the other lanes are 0 and are not read.
inline Vec load_n(const float* p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
inline void store_n(float* p, Vec x, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), x); }

inline Vec half_to_float(__m128i bits) { return _mm256_cvtph_ps(bits); }
inline Vec bfloat16_to_float(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m128i load_bits(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline __m128i load_bits_n(const uint16_t* p, int64_t n) {
  alignas(16) uint16_t copy[8] = {};
  __builtin_memcpy(copy, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_bits(copy);
}

// The elements of even and of odd index of the 16 at p.
inline Vec even_bfloat16(const uint16_t* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
inline Vec odd_bfloat16(const uint16_t* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
}
// Two vectors in order become the elements of even and of odd index, and back.
inline void to_parity(Vec& a, Vec& b) {
  const auto in_order = [](__m256 x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
  };
  const Vec first = a;
  a = in_order(_mm256_shuffle_ps(first, b, 0x88));
  b = in_order(_mm256_shuffle_ps(first, b, 0xDD));
}
inline void from_parity(Vec& a, Vec& b) {
  const Vec low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  a = _mm256_permute2f128_ps(low, high, 0x20);
  b = _mm256_permute2f128_ps(low, high, 0x31);
}

inline void store_half(uint16_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Round to nearest, ties to even; NaN stays NaN.
inline void store_bfloat16(uint16_t* p, Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256i kept =
      _mm256_srli_epi32(_mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                                                             _mm256_castsi256_ps(quiet), nan)),
                        16);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
// b where either is NaN.
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec round(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n for integral n >= -127; n = -127 gives 0 (no gradual underflow).
inline Vec scale_by_power(Vec a, Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)));
}
inline Vec clamp_power(Vec n) { return max(splat(-127.0f), n); }
// Adds the integer in the low bits of n to the exponents of a.
inline Vec add_to_exponent(Vec a, Vec n) {
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), power));
}

// Lane-wise a < b ? x : y; y where either is NaN.
inline Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline Vec absolute(Vec a) { return _mm256_andnot_ps(splat(-0.0f), a); }
inline Vec copy_sign(Vec magnitude, Vec sign) {
  const Vec bit = splat(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}

// x where lo <= lane < hi, else `other`.
inline Vec select_lanes(Vec x, int64_t lo, int64_t hi, Vec other) {
  const int64_t first = lo <= 0 ? 0 : (lo >= 8 ? 8 : lo);
  const int64_t last = hi <= 0 ? 0 : (hi >= 8 ? 8 : hi);
  const __m256i keep = _mm256_andnot_si256(first_lanes(first), first_lanes(last));
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(keep));
}
// x where the byte is not 0, else `other`. Reads n <= kVecWidth bytes.
inline Vec select_bytes(Vec x, const uint8_t* bytes, int64_t n, Vec other) {
  int64_t packed = 0;
  __builtin_memcpy(&packed, bytes, static_cast<size_t>(n));
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(packed));
  const __m256i hidden = _mm256_cmpeq_epi32(wide, _mm256_setzero_si256());
  return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(hidden));
}

inline __m128 fold(Vec a) {
  return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}
inline float sum(Vec a) {
  __m128 x = fold(a);
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float maximum(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
// The sums of four vectors.
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
  _mm_storeu_ps(out, _mm_hadd_ps(_mm_hadd_ps(fold(a), fold(b)), _mm_hadd_ps(fold(c), fold(d))));
}

// dst[j * dst_stride + i] = src[i * src_stride + j] for i, j < kVecWidth.
inline void transpose_block(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = load(src + i * src_stride);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    store(dst + i * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    store(dst + (i + 4) * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
