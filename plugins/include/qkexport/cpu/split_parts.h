// float32 as the sum of three bfloat16 parts: high, middle and low.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "qkexport/cpu/elements.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// What a number takes in memory; the parts of one number do not lie side by side.
struct Split {
  uint16_t parts[3];
};
inline uint16_t* parts_of(Split* p) { return reinterpret_cast<uint16_t*>(p); }
inline const uint16_t* parts_of(const Split* p) { return reinterpret_cast<const uint16_t*>(p); }

// The upper halves of two vectors of floats as pairs.
inline __m512i upper_halves(Vec first, Vec second) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(first), 16);
  return _mm512_mask_blend_epi16(0xAAAAAAAAu, low, _mm512_castps_si512(second));
}
inline Vec truncate_to_bfloat16(Vec x) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), upper));
}
// Halves are rounded away from 0: a third part has 8 bits then as well.
inline Vec round_to_bfloat16(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  return truncate_to_bfloat16(
      _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000))));
}

// Each part of two vectors, as pairs. Rounded, products that are left out have either sign;
// truncation is cheaper, and enough where the other factor was rounded.
template <bool kRounded>
inline __attribute__((always_inline)) void split_pairs(Vec first, Vec second, __m512i (&parts)[3]) {
  const auto top = [](Vec x) { return kRounded ? round_to_bfloat16(x) : truncate_to_bfloat16(x); };
  for (int i = 0; i < 2; ++i) {
    const Vec first_top = top(first), second_top = top(second);
    parts[i] = upper_halves(first_top, second_top);
    first = sub(first, first_top);
    second = sub(second, second_top);
  }
  parts[2] = upper_halves(first, second);
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
