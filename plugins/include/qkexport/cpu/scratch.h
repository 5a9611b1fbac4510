// The private memory of one worker.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkexport/cpu/packed_format.h"
#include "qkexport/cpu/plan.h"
#include "qkexport/cpu/softmax_block.h"
#include "qkexport/cpu/tile_sizes.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

struct Scratch {
  float* query;       // row blocks, packed or in rows
  float* rows;        // [kMaxRows][head_dim], one tensor row each
  float* value_rows;  // [kValueRows][head_dim_v]
  float* transform;   // what norm_rotary.h asks for
  float* scores;      // [kScoreBlocks][kBlockRows][kTileKeys]
  Packed* weights;    // the same, or the scores themselves
  float* output;      // [kTileRows][head_dim_v]
  float* keys;        // a tile of keys: packed, or rows
  float* values;      // a tile of values: packed, or rows
  float* token;       // all heads of one token
  Row* row_state;     // [kTileRows]
  uint8_t* hidden;    // [kBlockRows][kTileKeys]
};

// Tensor rows that are packed together: a group of keys or a block of queries.
constexpr int kMaxRows = kBlockRows > kVecWidth ? kBlockRows : kVecWidth;

// While a block is weighed, the scores of the next are computed, where there is time for both.
constexpr int kScoreBlocks = kAsidesPerStep > 0 ? 2 : 1;

// Floats that a packed number takes, rounded up.
constexpr int kPackedFloats = (sizeof(Packed) + 3) / 4;

constexpr size_t kAlignment = 64;

// Hands out consecutive aligned blocks; with a null base it only measures.
class BlockCutter {
 public:
  explicit BlockCutter(char* base) : base_(reinterpret_cast<uintptr_t>(base)) {}

  template <typename T>
  T* take(int64_t count) {
    const uintptr_t block = base_ + used_;
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(block);
  }
  size_t used() const { return used_; }

 private:
  uintptr_t base_;
  size_t used_ = 0;
};

inline Scratch cut_scratch(const Plan& plan, BlockCutter& cutter) {
  const AttentionParams& p = *plan.params;
  const bool hidden_axis = p.norm_axis == NormAxis::kHidden;
  const int64_t widest_token = (p.num_heads > p.num_kv_heads ? p.num_heads : p.num_kv_heads);
  Scratch s;
  // A packed block may be overrun by the unused lanes of its last vector.
  s.query = cutter.take<float>(kTileRows * plan.head_dim * kPackedFloats + kVecWidth);
  s.rows = cutter.take<float>(kMaxRows * plan.head_dim);
  s.value_rows = cutter.take<float>(kValueRows * plan.head_dim_v);
  s.transform = cutter.take<float>(2 * plan.head_dim);
  s.scores = cutter.take<float>(kScoreBlocks * kBlockRows * kTileKeys);
  s.weights = kWeightsInPlace ? reinterpret_cast<Packed*>(s.scores)
                              : cutter.take<Packed>(kBlockRows * kTileKeys);
  s.output = cutter.take<float>(kTileRows * plan.head_dim_v);
  const int64_t own_tile = plan.mode == Mode::kPacked ? 0 : kTileKeys;
  s.keys = cutter.take<float>(own_tile * plan.head_dim * kPackedFloats);
  s.values = cutter.take<float>(own_tile * plan.head_dim_v * kPackedFloats);
  s.token = cutter.take<float>(hidden_axis ? widest_token * p.head_dim : 0);
  s.row_state = cutter.take<Row>(kTileRows);
  s.hidden = cutter.take<uint8_t>(kBlockRows * kTileKeys);
  return s;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
