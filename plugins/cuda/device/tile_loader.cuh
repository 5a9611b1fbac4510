// Copies rows of a strided tensor into a shared tile, all threads of the block together.
#pragma once

#include "device/element_types.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/shared_tile.cuh"

namespace qkexport::cuda {

// A row in memory. An invalid one has an address that is never read, and counts as zeros.
template <class T>
struct RowPointer {
  const T* data;
  bool valid;
};

// Rows: a callable (row of the tile) -> RowPointer<Element>.
// `channels` is the number of elements a row has; the rest of the pitch up to kChannels is zeroed.
// With `vectorized` the rows are 16-byte aligned, channels % 8 == 0, and the copy is asynchronous.
template <int kRows, int kChannels, int kThreads, class Tile, class Rows>
QKEXPORT_DEVICE void load_tile(Tile tile, const Rows& rows, int channels, bool vectorized) {
  using T = typename Tile::Element;
  constexpr int kChunks = kChannels / Tile::kChunk;
  if (vectorized) {
    // A thread copies the same chunk of every kRowsPerStep-th row. Where those rows agree modulo 8
    // their chunks stand in the same place of the row, and one address serves all.
    static_assert(kThreads % kChunks == 0 && (kRows * kChunks) % kThreads == 0, "whole steps");
    constexpr int kRowsPerStep = kThreads / kChunks;
    const int thread = opaque(thread_index());  // cheaper to work out again than to keep
    const int first = thread / kChunks;
    const int chunk = thread % kChunks;
    T* const target = tile.chunk(first, chunk);
#pragma unroll
    for (int row = 0; row < kRows; row += kRowsPerStep) {
      const RowPointer<T> source = rows(first + row);
      const bool valid = source.valid && chunk * Tile::kChunk < channels;
      cp_async_16(
          kRowsPerStep % 8 == 0 ? target + row * Tile::kPitch : tile.chunk(first + row, chunk),
          source.data + (valid ? chunk * Tile::kChunk : 0), valid);
    }
    return;
  }
#pragma unroll 1
  for (int index = thread_index(); index < kRows * kChannels; index += kThreads) {
    const int row = index / kChannels;
    const int channel = index % kChannels;
    const RowPointer<T> source = rows(row);
    T value{};
    if (source.valid && channel < channels) value = source.data[channel];
    tile.at(row, channel) = value;
  }
}

// The same for a tile of floats, whatever the type in memory.
template <int kRows, int kChannels, int kThreads, class T, class Tile, class Rows>
QKEXPORT_DEVICE void load_float_tile(Tile tile, const Rows& rows, int first_channel, int channels) {
#pragma unroll 4
  for (int index = thread_index(); index < kRows * kChannels; index += kThreads) {
    const int row = index / kChannels;
    const int channel = index % kChannels;
    const RowPointer<T> source = rows(row);
    const bool valid = source.valid && first_channel + channel < channels;
    tile.at(row, channel) = valid ? to_float(source.data[first_channel + channel]) : 0.0f;
  }
}

}  // namespace qkexport::cuda
