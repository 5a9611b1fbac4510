// The tile registers of Intel AMX as accumulators.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

constexpr int kTileSide = 16;    // rows or columns of a register
constexpr int kTileSize = 512;   // bfloat16 numbers in a register
constexpr int kTileStride = 64;  // bytes between the rows of a packed register

// The tile registers of this thread; they are zero-cost to the thread again when it ends.
class ProductScope {
 public:
  ProductScope() {
    struct alignas(64) Shape {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Shape shape;
    order_memory();
    _tile_loadconfig(&shape);
  }
  ~ProductScope() { _tile_release(); }
  ProductScope(const ProductScope&) = delete;

  // GCC's tile intrinsics do not say that they touch memory: no store may be moved past them.
  static void order_memory() { __asm__ volatile("" ::: "memory"); }
};

// Two or four registers of sums: 16 or 32 rows of 32 columns, out [rows][stride].
template <bool kBothRows>
inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kBothRows) {
    _tile_zero(2);
    _tile_zero(3);
  }
}
template <bool kBothRows>
inline void load_sums(const float* out, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  _tile_loadd(0, out, bytes);
  _tile_loadd(1, out + kTileSide, bytes);
  if constexpr (kBothRows) {
    _tile_loadd(2, out + kTileSide * stride, bytes);
    _tile_loadd(3, out + kTileSide * stride + kTileSide, bytes);
  }
}
template <bool kBothRows>
inline void store_sums(float* out, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, out, bytes);
  _tile_stored(1, out + kTileSide, bytes);
  if constexpr (kBothRows) {
    _tile_stored(2, out + kTileSide * stride, bytes);
    _tile_stored(3, out + kTileSide * stride + kTileSide, bytes);
  }
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
