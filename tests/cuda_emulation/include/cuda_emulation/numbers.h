// fp16 and bf16 as bits, with the device's rounding to nearest even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_emulation {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bfloat16_to_float(uint16_t bits) {
  return float_of(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bfloat16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | (fraction << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

inline uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return 0x7fff;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {                // subnormal: units of 2^-24, rounded by the addition
    const float shifted = magnitude + 0.5f;  // 0.5 has its last place at 2^-24
    return static_cast<uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const uint32_t rebased = (bits & 0x7fffffff) - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
}

}  // namespace cuda_emulation
