// fp16 and bf16 values in memory and in packed pairs; arithmetic is always float.
#pragma once

#include <cstdint>

#include "device/platform.cuh"
#include "qkexport/attention_params.h"

#if !defined(QKEXPORT_CUDA_EMULATION)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace qkexport::cuda {

struct Half {
  static constexpr uint16_t kExponentMask = 0x7c00;
  uint16_t bits;
};
struct BFloat16 {
  static constexpr uint16_t kExponentMask = 0x7f80;
  uint16_t bits;
};

#if defined(QKEXPORT_CUDA_EMULATION)

QKEXPORT_DEVICE float bits_to_float(uint32_t bits) { return cuda_emulation::float_of(bits); }
QKEXPORT_DEVICE uint32_t float_to_bits(float value) { return cuda_emulation::bits_of(value); }
QKEXPORT_DEVICE float to_float(Half value) { return cuda_emulation::half_to_float(value.bits); }
QKEXPORT_DEVICE float to_float(BFloat16 value) {
  return cuda_emulation::bfloat16_to_float(value.bits);
}
QKEXPORT_DEVICE void from_float(float value, Half& out) {
  out.bits = cuda_emulation::float_to_half(value);
}
QKEXPORT_DEVICE void from_float(float value, BFloat16& out) {
  out.bits = cuda_emulation::float_to_bfloat16(value);
}

// Two values as the tensor core takes them: the first one in the low half.
template <class T>
QKEXPORT_DEVICE uint32_t pack_pair(float low, float high) {
  T a, b;
  from_float(low, a);
  from_float(high, b);
  return static_cast<uint32_t>(a.bits) | (static_cast<uint32_t>(b.bits) << 16);
}

#else

QKEXPORT_DEVICE float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
QKEXPORT_DEVICE uint32_t float_to_bits(float value) { return __float_as_uint(value); }
QKEXPORT_DEVICE float to_float(Half value) { return __half2float(__ushort_as_half(value.bits)); }
QKEXPORT_DEVICE float to_float(BFloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
QKEXPORT_DEVICE void from_float(float value, Half& out) {
  out.bits = __half_as_ushort(__float2half_rn(value));
}
QKEXPORT_DEVICE void from_float(float value, BFloat16& out) {
  out.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

// Two values as the tensor core takes them: the first one in the low half.
template <class T>
QKEXPORT_DEVICE uint32_t pack_pair(float low, float high);
template <>
QKEXPORT_DEVICE uint32_t pack_pair<Half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
QKEXPORT_DEVICE uint32_t pack_pair<BFloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

#endif

QKEXPORT_DEVICE float to_float(float value) { return value; }
QKEXPORT_DEVICE void from_float(float value, float& out) { out = value; }

// Element `index` of an array whose type is known only at run time (gains, caches, masks). The
// branch is uniform: a kernel reads one type per tensor.
QKEXPORT_DEVICE float load_float(const void* data, DataType dtype, int64_t index) {
  if (dtype == DataType::kFloat32) return static_cast<const float*>(data)[index];
  if (dtype == DataType::kFloat16) return to_float(static_cast<const Half*>(data)[index]);
  return to_float(static_cast<const BFloat16*>(data)[index]);
}

// Infinite or NaN: all exponent bits are ones. The same test serves a negative sign.
template <class T>
QKEXPORT_DEVICE bool is_nonfinite(T value) {
  return (value.bits & T::kExponentMask) == T::kExponentMask;
}

// Whether either half of a packed pair is infinite or NaN: adding the lowest exponent bit carries
// into the sign exactly when all exponent bits were ones.
template <class T>
QKEXPORT_DEVICE bool has_nonfinite(uint32_t pair) {
  constexpr uint32_t kExponents = T::kExponentMask * 0x00010001u;
  constexpr uint32_t kLowestBit = T::kExponentMask & (0u - T::kExponentMask);
  return (((pair & kExponents) + kLowestBit * 0x00010001u) & 0x80008000u) != 0;
}

}  // namespace qkexport::cuda
