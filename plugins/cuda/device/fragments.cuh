// Register fragments of a warp: the two products of attention, and P without a trip through memory.
//
// A warp owns kRowFragments * 16 rows. Lane l holds, of each 16-row fragment, row g = l / 4 in
// elements 0 and 1 and row g + 8 in elements 2 and 3, at columns 2t and 2t + 1, t = l % 4.
#pragma once

#include "device/ptx/ldmatrix.cuh"
#include "device/ptx/mma.cuh"
#include "device/shared_tile.cuh"

namespace qkexport::cuda {

template <int kRowFragments, int kColumns>
struct Accumulator {
  static constexpr int kColumnFragments = kColumns / 8;
  float value[kRowFragments][kColumnFragments][4];

  QKEXPORT_DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
      for (int n = 0; n < kColumnFragments; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) value[m][n][e] = 0.0f;
      }
    }
  }
};

// Row of the warp's rows that element `e` of row fragment `m` belongs to, and its column.
QKEXPORT_DEVICE int fragment_row(int m, int e) { return m * 16 + lane_index() / 4 + (e / 2) * 8; }
QKEXPORT_DEVICE int fragment_column(int n, int e) { return n * 8 + (lane_index() % 4) * 2 + e % 2; }

// The rows of a tile as one lane names them to ldmatrix: row lane % 16 of every 16, and in turn the
// first or second 16-byte chunk of each step of two. One pattern serves queries, keys and values,
// so that the lane's part of the addresses is worked out once and takes one register.
//
// All rows of a lane agree modulo 8, so the swizzle permutes the chunks of every 128 bytes in the
// same way: the lane's chunk of step s is its chunk of step 0 with bits of the address flipped.
// Steps and rows that are known at compile time then cost no register.
template <class Tile>
struct LaneRows {
  uint32_t address;  // of the lane's row of the first 16 and its chunk of step 0

  QKEXPORT_DEVICE explicit LaneRows(Tile tile)
      : address(shared_address(tile.chunk(lane_index() % 16, lane_index() / 16))) {}

  // `rows_further` is a multiple of 8.
  QKEXPORT_DEVICE uint32_t operator()(int rows_further, int step) const {
    constexpr int kRowBytes = Tile::kPitch * static_cast<int>(sizeof(typename Tile::Element));
    return (address ^ ((step % 4) * 32)) + rows_further * kRowBytes + (step / 4) * 128;
  }
};

// s = q k^T over kHeadDim channels. `query` begins at the warp's first row.
template <int kHeadDim, int kRowFragments, int kBlockN, class Tile>
QKEXPORT_DEVICE void multiply_query_key(Accumulator<kRowFragments, kBlockN>& s, Tile query,
                                        Tile key) {
  using T = typename Tile::Element;
  const LaneRows<Tile> query_rows(query);
  const LaneRows<Tile> key_rows(key);
  s.clear();
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a[kRowFragments][4];
#pragma unroll
    for (int m = 0; m < kRowFragments; ++m) ldmatrix_x4(a[m], query_rows(m * 16, k));
#pragma unroll
    for (int n = 0; n < kBlockN / 16; ++n) {
      uint32_t b[4];
      ldmatrix_x4(b, key_rows(n * 16, k));
#pragma unroll
      for (int m = 0; m < kRowFragments; ++m) {
        mma_m16n8k16<T>(s.value[m][2 * n], a[m], {b[0], b[2]});
        mma_m16n8k16<T>(s.value[m][2 * n + 1], a[m], {b[1], b[3]});
      }
    }
  }
}

// o += p v. The score fragments of p are already in the layout of the left operand.
template <int kRowFragments, int kBlockN, int kHeadDim, class Tile>
QKEXPORT_DEVICE void multiply_weight_value(Accumulator<kRowFragments, kHeadDim>& o,
                                           const Accumulator<kRowFragments, kBlockN>& p,
                                           Tile value) {
  using T = typename Tile::Element;
  const LaneRows<Tile> value_rows(value);
#pragma unroll
  for (int k = 0; k < kBlockN / 16; ++k) {
    uint32_t a[kRowFragments][4];
#pragma unroll
    for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &p.value[m][2 * k + i / 2][(i % 2) * 2];
        a[m][i] = pack_pair<T>(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b[4];
      ldmatrix_x4_transposed(b, value_rows(k * 16, n));
#pragma unroll
      for (int m = 0; m < kRowFragments; ++m) {
        mma_m16n8k16<T>(o.value[m][2 * n], a[m], {b[0], b[1]});
        mma_m16n8k16<T>(o.value[m][2 * n + 1], a[m], {b[2], b[3]});
      }
    }
  }
}

}  // namespace qkexport::cuda
