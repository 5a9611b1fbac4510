// Rows of tensors in any of the three types, read as float and written back with one rounding.
#pragma once

#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/cpu/half.h"
#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// Storage of each data type; the tags keep the two 16-bit types apart.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline Vec load_as_float(const float* p) { return load(p); }
inline Vec load_as_float(const Float16* p) { return half_to_float(load_bits(&p->bits)); }
inline Vec load_as_float(const BFloat16* p) { return bfloat16_to_float(load_bits(&p->bits)); }
inline Vec load_as_float_n(const float* p, int64_t n) { return load_n(p, n); }
inline Vec load_as_float_n(const Float16* p, int64_t n) {
  return half_to_float(load_bits_n(&p->bits, n));
}
inline Vec load_as_float_n(const BFloat16* p, int64_t n) {
  return bfloat16_to_float(load_bits_n(&p->bits, n));
}

// Widened in order, two vectors of bfloat16 cost two shuffles and two shifts; by parity, where the
// first holds the elements of even index and the second the odd ones, a shift and a mask. Decode
// reads pairs of vectors so; what meets them must have that order too.
template <typename Element>
constexpr bool kByParity = false;
template <>
inline constexpr bool kByParity<BFloat16> = true;

inline Vec load_even(const BFloat16* p) { return even_bfloat16(&p->bits); }
inline Vec load_odd(const BFloat16* p) { return odd_bfloat16(&p->bits); }

inline void store_from_float(float* p, Vec x) { store(p, x); }
inline void store_from_float(Float16* p, Vec x) { store_half(&p->bits, x); }
inline void store_from_float(BFloat16* p, Vec x) { store_bfloat16(&p->bits, x); }

inline void store_element(float* p, float x) { *p = x; }
inline void store_element(Float16* p, float x) { p->bits = float_to_half_bits(x); }
inline void store_element(BFloat16* p, float x) { p->bits = float_to_bfloat16_bits(x); }

inline float weight_at(const float* row, int64_t key) { return row[key]; }
inline float weight_at(const BFloat16* row, int64_t key) {
  return bfloat16_bits_to_float(row[key].bits);
}

// Whether weights are stored two vectors at a time.
template <typename Weight>
constexpr bool kWeightPairs = false;

inline int64_t element_size(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBool:
      return 1;
    default:
      return 2;
  }
}

// Calls function with a typed null pointer that names the element type.
template <typename Function>
inline void with_element_type(DataType type, Function function) {
  switch (type) {
    case DataType::kFloat16:
      return function(static_cast<Float16*>(nullptr));
    case DataType::kBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    default:
      return function(static_cast<float*>(nullptr));
  }
}

template <typename Element>
inline void load_elements(const Element* src, int64_t n, float* dst) {
  int64_t i = 0;
  for (; i + kVecWidth <= n; i += kVecWidth) store(dst + i, load_as_float(src + i));
  if (i < n) store_n(dst + i, load_as_float_n(src + i, n - i), n - i);
}

// dst[0:n] = float(data[offset:offset + n])
inline void load_row(const void* data, DataType type, int64_t offset, int64_t n, float* dst) {
  with_element_type(type, [&](auto* tag) {
    load_elements(static_cast<decltype(tag)>(const_cast<void*>(data)) + offset, n, dst);
  });
}

inline void store_row(void* data, DataType type, int64_t offset, int64_t n, const float* src) {
  with_element_type(type, [&](auto* tag) {
    auto* dst = static_cast<decltype(tag)>(data) + offset;
    int64_t i = 0;
    for (; i + kVecWidth <= n; i += kVecWidth) store_from_float(dst + i, load(src + i));
    for (; i < n; ++i) store_element(dst + i, src[i]);
  });
}

// Asks for a row that is read soon: rows of one head lie apart, which hardware does not foresee.
// Inlined by force: GCC takes a function that does nothing but prefetch for one without effects,
// and deletes calls of it.
inline __attribute__((always_inline)) void prefetch_row(const char* row, int64_t bytes) {
  for (int64_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(row + offset);
}
// Farther than 1 to 3 KiB ahead costs 1 to 3 % at 512 tokens: about 16 lines can be under way.
constexpr int64_t kRowsAhead = 6;

inline float load_scalar(const void* data, DataType type, int64_t offset) {
  float x;
  load_row(data, type, offset, 1, &x);
  return x;
}

inline const char* row_address(const StridedTensor& t, DataType type, int64_t batch, int64_t head,
                               int64_t row) {
  const int64_t offset = batch * t.batch_stride + head * t.head_stride + row * t.row_stride;
  return static_cast<const char*>(t.data) + offset * element_size(type);
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
