// How queries, keys, values and weights are packed for the two products of a tile, and the products
// themselves. Each format defines
//
//   Packed          what packed numbers are stored as
//   kBlockRows      query rows of one block
//   kDepthStep      head_dim is padded to a multiple of this
//   kKeyStep        the products take keys in steps of this
//   kValueRows      value rows that are packed together
//   kPackedRoundoff unit roundoff of a packed query or key
//   kWeightsInPlace weights overwrite the scores
//   kAsidesPerStep  how often score_packed calls aside() for kKeyStep keys and a depth of
//                   kDepthStep; 0: never
//   ProductScope    lives while products are computed on this thread
//   serves          whether the format is for a call
//   fallback()      kernels for calls whose numbers the format is not for, or null: it takes all
//   ValueRange      whether the values that it saw are among those numbers
//   norm_packs      the same of a query or key with this Euclidean norm
//   weight_row, store_weight or store_weight_pair, weight_at
//   pack_query_block, pack_key_rows, pack_value_rows, packed_value
//   score_packed, value_packed
#pragma once

#if QKEXPORT_SPLIT_PRODUCTS
#include "qkexport/cpu/packed_split.h"
#elif defined(__AMX_BF16__)
#include "qkexport/cpu/packed_amx.h"
#else
#include "qkexport/cpu/packed_vector.h"
#endif

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

static_assert(kTileRows % kBlockRows == 0 && kTileKeys % kPanel == 0 && kTileKeys % kKeyStep == 0);
static_assert(kRowBlock <= kBlockRows, "the rows of a stream are one block");
static_assert(2 * kRowBlock <= kTileRows, "and are kept in two orders");

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
