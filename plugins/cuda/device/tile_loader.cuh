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
  constexpr int kSteps = (kRows * kChunks + kThreads - 1) / kThreads;
  if (vectorized) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int index = thread_index() + step * kThreads;
      if ((kRows * kChunks) % kThreads != 0 && index >= kRows * kChunks) break;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const RowPointer<T> source = rows(row);
      const bool valid = source.valid && chunk * Tile::kChunk < channels;
      cp_async_16(tile.chunk(row, chunk), source.data + (valid ? chunk * Tile::kChunk : 0), valid);
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
