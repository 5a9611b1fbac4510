// A tile of rows in shared memory whose 16-byte chunks are swizzled.
//
// Chunk c of row r stands at chunk c ^ (r % 8). The eight rows of an ldmatrix matrix, read at one
// chunk, then fall into eight different groups of four banks, and so do the eight chunks of a row
// that neighbouring threads write.
#pragma once

#include "device/platform.cuh"

namespace qkexport::cuda {

template <class T, int kPitchElements>
struct SharedTile {
  using Element = T;
  static constexpr int kPitch = kPitchElements;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  // elements
  static constexpr int kChunksPerRow = kPitch / kChunk;
  static_assert(kChunksPerRow >= 8 && (kChunksPerRow & (kChunksPerRow - 1)) == 0,
                "the swizzle permutes eight chunks");

  T* data;

  QKEXPORT_DEVICE T* chunk(int row, int index) const {
    return data + row * kPitch + (index ^ (row & 7)) * kChunk;
  }
  // The tile from `row` on, a multiple of 8: chunks stay where they are.
  QKEXPORT_DEVICE SharedTile from_row(int row) const { return {data + row * kPitch}; }
  QKEXPORT_DEVICE T& at(int row, int channel) const {
    return chunk(row, channel / kChunk)[channel % kChunk];
  }
};

}  // namespace qkexport::cuda
