// Which keys a query row may see because of its position: causal, window and length together.
#pragma once

#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

struct KeyRange {
  int64_t begin;
  int64_t end;  // begin == end: no key is visible
};

inline int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : (x > hi ? hi : x); }

// Valid leading keys of one batch entry.
inline int64_t valid_keys(const AttentionParams& p, int64_t batch) {
  if (p.kv_lengths == nullptr) return p.seqlen_total;
  return clamp(p.kv_lengths[batch], 0, p.seqlen_total);
}

// Query row i stands at key position i + offset.
inline int64_t position_offset(const AttentionParams& p, int64_t valid) {
  if (p.causal == Causal::kLowerRight) return valid - p.seqlen_q;
  return p.kv_cache == KvCache::kStatic ? 0 : p.seqlen_past;
}

inline KeyRange visible_keys(const AttentionParams& p, int64_t batch, int64_t row) {
  const int64_t valid = valid_keys(p, batch);
  const int64_t position = row + position_offset(p, valid);
  int64_t begin = 0, end = valid;
  if (p.causal != Causal::kNone && position + 1 < end) end = position + 1;
  if (p.window_right >= 0 && position + p.window_right + 1 < end) {
    end = position + p.window_right + 1;
  }
  if (p.window_left >= 0 && position - p.window_left > begin) begin = position - p.window_left;
  if (end <= begin) return {0, 0};
  return {begin, end};
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
