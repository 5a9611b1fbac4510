// Which tiles of keys a block of rows sees, so that hidden ones are skipped and visible ones need
// no mask.
#pragma once

#include <cstdint>

#include "qkexport/cpu/row_tile.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// How much of a tile of keys a block of rows sees.
enum class Sight { kNone, kSome, kAll };

// A mask row over `columns`, noted in `some` (one of them is visible) and `all`.
inline void look(const char* mask, KeyRange columns, bool& some, bool& all) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(mask);
  uint8_t any = 0, none = 0;
  for (int64_t c = columns.begin; c < columns.end; ++c) {
    any |= bytes[c];
    none |= bytes[c] == 0;
  }
  some = some || any != 0;
  all = all && none == 0;
}

// What the rows of the block see of the tile by their positions and a bool mask: a causal mask, a
// padding mask or blocks on the diagonal hide whole tiles. Reading the mask once more costs a
// thousandth of the products of a tile. kAll: the tile has all its columns too.
inline Sight sight_of(const RowTile& t, const RowBlock& block, int64_t origin) {
  const int64_t end = origin + kTileKeys;
  if (block.any.end <= origin || block.any.begin >= end) return Sight::kNone;
  bool all = block.all.begin <= origin && block.all.end >= end;
  if (t.rules.mask == nullptr) return all ? Sight::kAll : Sight::kSome;
  const AttentionMask& mask = *t.rules.mask;
  if (mask.dtype != DataType::kBool || mask.column_stride == 0) return Sight::kSome;
  bool some = false;
  for (int64_t i = 0; i < block.rows; ++i) {
    const Row& row = t.scratch.row_state[block.first + i];
    look(row.mask, {clamp(row.begin, origin, end), clamp(row.end, origin, end)}, some, all);
    if (some && !all) return Sight::kSome;
  }
  if (some) return Sight::kAll;
  for (int64_t i = 0; i < block.rows; ++i) {
    prefetch_next_mask(mask, t.scratch.row_state[block.first + i], end);
  }
  return Sight::kNone;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
