// Four neighbouring channels at once: one access of 8 bytes (fp16, bf16) or 16 (float).
#pragma once

#include "device/element_types.cuh"

namespace qkexport::cuda {

inline constexpr int kQuad = 4;

template <class T>
QKEXPORT_DEVICE void unpack_pair(uint32_t word, float& low, float& high) {
  low = to_float(T{static_cast<uint16_t>(word & 0xffffu)});
  high = to_float(T{static_cast<uint16_t>(word >> 16)});
}

template <class T>
QKEXPORT_DEVICE void load_quad(const T* source, float (&x)[kQuad]) {
  const uint2 words = *reinterpret_cast<const uint2*>(source);
  unpack_pair<T>(words.x, x[0], x[1]);
  unpack_pair<T>(words.y, x[2], x[3]);
}
QKEXPORT_DEVICE void load_quad(const float* source, float (&x)[kQuad]) {
  const uint4 words = *reinterpret_cast<const uint4*>(source);
  x[0] = bits_to_float(words.x);
  x[1] = bits_to_float(words.y);
  x[2] = bits_to_float(words.z);
  x[3] = bits_to_float(words.w);
}

// Stores the quad and leaves the values as they are stored in x.
template <class T>
QKEXPORT_DEVICE void store_quad(T* target, float (&x)[kQuad]) {
  const uint32_t low = pack_pair<T>(x[0], x[1]);
  const uint32_t high = pack_pair<T>(x[2], x[3]);
  // One store: of a uint2 the compiler makes two, which meet in the banks.
  *reinterpret_cast<uint64_t*>(target) = static_cast<uint64_t>(high) << 32 | low;
  unpack_pair<T>(low, x[0], x[1]);
  unpack_pair<T>(high, x[2], x[3]);
}
QKEXPORT_DEVICE void store_quad(float* target, float (&x)[kQuad]) {
  uint4 words;
  words.x = float_to_bits(x[0]);
  words.y = float_to_bits(x[1]);
  words.z = float_to_bits(x[2]);
  words.w = float_to_bits(x[3]);
  *reinterpret_cast<uint4*>(target) = words;
}

// Quads and pairs of arrays whose type is known only at run time, as load_float.
QKEXPORT_DEVICE void load_quad(const void* data, DataType dtype, int64_t index, float (&x)[kQuad]) {
  if (dtype == DataType::kFloat32) {
    load_quad(static_cast<const float*>(data) + index, x);
  } else if (dtype == DataType::kFloat16) {
    load_quad(static_cast<const Half*>(data) + index, x);
  } else {
    load_quad(static_cast<const BFloat16*>(data) + index, x);
  }
}
QKEXPORT_DEVICE void load_pair(const void* data, DataType dtype, int64_t index, float (&x)[2]) {
  if (dtype == DataType::kFloat32) {
    const uint2 words = *reinterpret_cast<const uint2*>(static_cast<const float*>(data) + index);
    x[0] = bits_to_float(words.x);
    x[1] = bits_to_float(words.y);
    return;
  }
  const uint32_t word = *reinterpret_cast<const uint32_t*>(static_cast<const Half*>(data) + index);
  if (dtype == DataType::kFloat16) {
    unpack_pair<Half>(word, x[0], x[1]);
  } else {
    unpack_pair<BFloat16>(word, x[0], x[1]);
  }
}

}  // namespace qkexport::cuda
