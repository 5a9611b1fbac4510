// Vectors of 16 floats for AVX-512 (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

using Vec = __m512;
constexpr int kVecWidth = 16;
// 12 rows x 2 vectors of accumulators, 2 vectors of b and a broadcast: 27 of 32 registers.
constexpr int kRowBlock = 12;
constexpr int kMaxAccumulators = 24;

inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }

inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
// The first n < kVecWidth elements; the other lanes are 0 and are not read.
inline Vec load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store_n(float* p, Vec x, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }

inline Vec half_to_float(__m256i bits) { return _mm512_cvtph_ps(bits); }
inline Vec bfloat16_to_float(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m256i load_bits(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i load_bits_n(const uint16_t* p, int64_t n) {
  return _mm256_maskz_loadu_epi16(first_lanes(n), p);
}

// The elements of even and of odd index of the 32 at p.
inline Vec even_bfloat16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
inline Vec odd_bfloat16(const uint16_t* p) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), upper));
}
// Two vectors in order become the elements of even and of odd index, and back.
inline void to_parity(Vec& a, Vec& b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const Vec first = a;
  a = _mm512_permutex2var_ps(first, even, b);
  b = _mm512_permutex2var_ps(first, odd, b);
}
inline void from_parity(Vec& a, Vec& b) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const Vec even = a;
  a = _mm512_permutex2var_ps(even, low, b);
  b = _mm512_permutex2var_ps(even, high, b);
}

inline void store_half(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Round to nearest, ties to even; NaN stays NaN.
inline void store_bfloat16(uint16_t* p, Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
  const __m512i kept = _mm512_mask_blend_epi32(nan, rounded, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
}

inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// b where either is NaN.
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec round(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n for integral n; 0 for n < -126. A subnormal result would cost a microcode assist, about
// 150 cycles, and the weight of every hidden key would be one.
inline Vec scale_by_power(Vec a, Vec n) {
  const __mmask16 normal = _mm512_cmp_ps_mask(n, splat(-126.0f), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(normal, a, n);
}
inline Vec clamp_power(Vec n) { return n; }
// Adds the integer in the low bits of n to the exponents of a.
inline Vec add_to_exponent(Vec a, Vec n) {
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), power));
}

// Lane-wise a < b ? x : y; y where either is NaN.
inline Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline Vec absolute(Vec a) { return _mm512_abs_ps(a); }
inline Vec copy_sign(Vec magnitude, Vec sign) {
  const __m512i bit = _mm512_set1_epi32(INT32_MIN);
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign),
                                                       _mm512_castps_si512(magnitude), 0xCA));
}

// x where lo <= lane < hi, else `other`.
inline Vec select_lanes(Vec x, int64_t lo, int64_t hi, Vec other) {
  const int first = lo <= 0 ? 0 : (lo >= 16 ? 16 : static_cast<int>(lo));
  const int last = hi <= 0 ? 0 : (hi >= 16 ? 16 : static_cast<int>(hi));
  const __mmask16 keep = static_cast<__mmask16>(((1u << last) - 1) & ~((1u << first) - 1));
  return _mm512_mask_blend_ps(keep, other, x);
}
// x where the byte is not 0, else `other`. Reads n <= kVecWidth bytes.
inline Vec select_bytes(Vec x, const uint8_t* bytes, int64_t n, Vec other) {
  const __m128i b = _mm_maskz_loadu_epi8(first_lanes(n), bytes);
  return _mm512_mask_blend_ps(_mm_test_epi8_mask(b, b), other, x);
}

inline float sum(Vec a) { return _mm512_reduce_add_ps(a); }
inline float maximum(Vec a) { return _mm512_reduce_max_ps(a); }

inline __m256 fold(Vec a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
// The sums of four vectors.
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
  const __m256 ab = _mm256_hadd_ps(fold(a), fold(b));
  const __m256 cd = _mm256_hadd_ps(fold(c), fold(d));
  const __m256 abcd = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

// dst[j * dst_stride + i] = src[i * src_stride + j] for i, j < kVecWidth.
inline void transpose_block(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = load(src + i * src_stride);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  const auto pair = [](__m512 lo, __m512 hi, bool upper) {
    const __m512d a = _mm512_castps_pd(lo), b = _mm512_castps_pd(hi);
    return _mm512_castpd_ps(upper ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
  };
  for (int i = 0; i < 16; i += 4) {
    r[i] = pair(t[i], t[i + 2], false);
    r[i + 1] = pair(t[i], t[i + 2], true);
    r[i + 2] = pair(t[i + 1], t[i + 3], false);
    r[i + 3] = pair(t[i + 1], t[i + 3], true);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
    const __m512 c = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
    store(dst + i * dst_stride, _mm512_shuffle_f32x4(a, c, 0x88));
    store(dst + (i + 4) * dst_stride, _mm512_shuffle_f32x4(b, d, 0x88));
    store(dst + (i + 8) * dst_stride, _mm512_shuffle_f32x4(a, c, 0xDD));
    store(dst + (i + 12) * dst_stride, _mm512_shuffle_f32x4(b, d, 0xDD));
  }
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
