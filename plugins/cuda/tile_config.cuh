// Tile sizes of the tensor-core attention kernel, with their reasons.
#pragma once

namespace qkexport::cuda {

// Rows are loaded, normalized and multiplied by four warps: the tensor cores of an SM belong to
// four schedulers, and two blocks a multiprocessor cover each other's barriers.
inline constexpr int kAttentionWarps = 4;

// Rows of a warp's tile in units of 16 (one mma). With two, each key and value fragment read from
// shared memory feeds two mma: at one, ldmatrix (4 cycles per 512 bytes) would take as long as the
// two mma it feeds. At head_dim 256 the accumulator of a single fragment already fills 128
// registers.
constexpr int row_fragments(int head_dim) { return head_dim <= 128 ? 2 : 1; }

// Keys per step. The scores of a step take row_fragments * key_block / 2 registers beside the
// accumulator's row_fragments * head_dim / 2: at head_dim 128 a step of 64 does not fit 255
// registers without spilling, at 64 it does. Shared memory: 48 KiB at 64, 64 KiB at 128 and 96 KiB
// at 256, inside the 99 KiB that sm_86 and sm_89 offer.
// Without asynchronous copies what is on its way to shared memory takes registers too, and a step
// of 64 spills at head_dim 64 as well. A step of 32 takes 32 KiB there: two blocks in the 64 KiB
// that a multiprocessor of sm_75 has.
constexpr int key_block(int head_dim, bool copies_asynchronously) {
  return head_dim <= 64 && copies_asynchronously ? 64 : 32;
}
template <int kHeadDim, bool kCopiesAsynchronously>
inline constexpr int kKeyBlock = key_block(kHeadDim, kCopiesAsynchronously);

// Elements between rows in shared memory: a power of two of at least 64, so that the swizzle of
// eight 16-byte chunks stays inside a row.
constexpr int row_pitch(int head_dim) {
  int pitch = 64;
  while (pitch < head_dim) pitch *= 2;
  return pitch;
}

// Key and value tiles in flight. Two: the next step's copies run during the whole of this step,
// with one barrier a step; three would cost the second block per multiprocessor.
inline constexpr int kStages = 2;

// Rows of a tile of the key prologue: 32 to 64 KiB of floats, which even sm_75 has.
constexpr int key_tile_rows(int pitch) { return pitch <= 128 ? 64 : 32; }
template <int kPitch>
inline constexpr int kKeyTileRows = key_tile_rows(kPitch);

// Rows of a block of the kernel without tensor cores: four a warp. At 512 channels four warps' rows
// and a piece of keys fill the 48 KiB that need no opt-in.
constexpr int simt_warps(int head_dim) { return head_dim <= 256 ? 8 : 4; }
constexpr int simt_block_rows(int head_dim) { return 4 * simt_warps(head_dim); }

constexpr int attention_block_rows(int head_dim) {
  return kAttentionWarps * 16 * row_fragments(head_dim);
}

// Queries, and the keys and values of every stage.
constexpr int attention_shared_bytes(int head_dim, int key_block, int element_bytes) {
  const int rows = attention_block_rows(head_dim) + 2 * kStages * key_block;
  return rows * row_pitch(head_dim) * element_bytes;
}

inline constexpr int kAttentionThreads = kAttentionWarps * 32;

template <class T, int kHeadDimension, int kKeys>
struct AttentionTraits {
  using Element = T;
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kPitch = row_pitch(kHeadDim);
  static constexpr int kRowFragments = row_fragments(kHeadDim);
  static constexpr int kBlockM = attention_block_rows(kHeadDim);
  static constexpr int kBlockN = kKeys;
  static constexpr int kThreads = kAttentionThreads;
};

}  // namespace qkexport::cuda
