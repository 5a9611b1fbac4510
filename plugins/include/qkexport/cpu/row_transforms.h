// The transforms of queries and keys of a call, and the phase that computes whole-width statistics.
#pragma once

#include <cstdint>

#include "qkexport/cpu/norm_rotary.h"
#include "qkexport/cpu/plan.h"
#include "qkexport/cpu/scratch.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

inline NormStatistics* statistics_at(const Plan& plan, char* workspace, size_t offset) {
  if (plan.params->norm_axis != NormAxis::kHidden) return nullptr;
  return reinterpret_cast<NormStatistics*>(workspace + offset);
}

inline RowTransform query_transform(const Plan& plan, char* workspace) {
  const AttentionParams& p = *plan.params;
  return {&p,
          &p.q_norm_weight,
          &p.q_norm_bias,
          &p.query_rotary,
          statistics_at(plan, workspace, plan.layout.query_statistics),
          p.seqlen_q,
          p.num_heads};
}

inline RowTransform key_transform(const Plan& plan, char* workspace) {
  const AttentionParams& p = *plan.params;
  return {&p,
          &p.k_norm_weight,
          &p.k_norm_bias,
          &p.key_rotary,
          statistics_at(plan, workspace, plan.layout.key_statistics),
          p.seqlen_kv,
          p.num_kv_heads};
}

// Item: one token of the batch. Only with norm_axis hidden.
inline void statistics_item(const Plan& plan, char* workspace, int64_t /*first_pair*/, int64_t item,
                            char* scratch_memory) {
  const AttentionParams& p = *plan.params;
  BlockCutter cutter(scratch_memory);
  const Scratch scratch = cut_scratch(plan, cutter);
  const int64_t tokens = plan.statistics_items / p.batch_size;
  const int64_t batch = item / tokens, token = item % tokens;
  const auto run = [&](const RowTransform& t, const StridedTensor& tensor, size_t offset) {
    if (token >= t.rows) return;
    statistics_at(plan, workspace, offset)[batch * t.rows + token] =
        token_statistics(t, tensor, batch, token, scratch.token, scratch.transform);
  };
  run(query_transform(plan, workspace), p.query, plan.layout.query_statistics);
  if (p.normalize_key) {
    run(key_transform(plan, workspace), p.key, plan.layout.key_statistics);
  }
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
