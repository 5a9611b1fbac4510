// Sizes of the tiles, in elements.
#pragma once

#include <cstdint>

#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// Keys of one tile. The weights of one row block (12 x 128 floats) stay in L1 between the two
// products, and the packed keys and values of a tile (128 KiB at head_dim 128) in L2.
constexpr int kTileKeys = 128;
// Columns of a packed panel: what one step of the micro kernel covers.
constexpr int kPanel = 2 * kVecWidth;
// Query rows that share the tiles they read; a multiple of every kBlockRows. Split numbers
// (packed_split.h) take 1.5 times the memory and half the time.
#if QKEXPORT_SPLIT_PRODUCTS
constexpr int kTileRows = 256;
#else
constexpr int kTileRows = 96;
#endif
// With so many query rows of a kv head, or fewer, each item packs what it reads for itself.
constexpr int kLocalRows = 96;
static_assert(kLocalRows <= kTileRows);

// Rows of present that one item writes.
constexpr int64_t kAppendRows = 64;

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr int64_t ceil_div(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
