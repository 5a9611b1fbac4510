// The phase that writes present_key and present_value: cached rows copied (unless they are already
// in place), new rows normalized, rotated and stored.
#pragma once

#include <cstdint>
#include <cstring>

#include "qkexport/cpu/key_value_source.h"
#include "qkexport/cpu/row_transforms.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

struct AppendTarget {
  const StridedTensor* present;
  Sequence sequence;
  int64_t width;
  const RowTransform* transform;  // null: rows are stored as they are
};

inline void append_new_row(const Plan& plan, const AppendTarget& target, int64_t batch,
                           int64_t head, const Run& run, char* destination,
                           const Scratch& scratch) {
  const AttentionParams& p = *plan.params;
  if (target.transform == nullptr) {
    std::memcpy(destination, run.first, static_cast<size_t>(target.width * element_size(p.dtype)));
    return;
  }
  load_row(run.first, p.dtype, 0, target.width, scratch.rows);
  transform_row(*target.transform, batch, head, run.new_token, scratch.rows, scratch.transform);
  store_row(destination, p.dtype, 0, target.width, scratch.rows);
}

inline void append_rows(const Plan& plan, const AppendTarget& target, int64_t batch, int64_t head,
                        int64_t begin, int64_t end, const Scratch& scratch) {
  const AttentionParams& p = *plan.params;
  const size_t bytes = static_cast<size_t>(target.width * element_size(p.dtype));
  for (int64_t row = begin; row < end; ++row) {
    const Run run = input_run(p, target.sequence, batch, head, row);
    char* destination = const_cast<char*>(row_address(*target.present, p.dtype, batch, head, row));
    if (run.new_token >= 0) {
      append_new_row(plan, target, batch, head, run, destination, scratch);
    } else if (destination != run.first) {
      std::memcpy(destination, run.first, bytes);
    }
  }
}

// Item: up to kAppendRows rows of one kv head.
inline void append_item(const Plan& plan, char* workspace, int64_t /*first_pair*/, int64_t item,
                        char* scratch_memory) {
  const AttentionParams& p = *plan.params;
  BlockCutter cutter(scratch_memory);
  const Scratch scratch = cut_scratch(plan, cutter);
  const int64_t pair = item / plan.append_chunks;
  const int64_t batch = pair / p.num_kv_heads, head = pair % p.num_kv_heads;
  const int64_t origin = plan.appends_in_place ? first_new_row(p, batch) : 0;
  const int64_t chunk = item % plan.append_chunks * kAppendRows;
  const int64_t chunk_end =
      chunk + kAppendRows < plan.append_rows ? chunk + kAppendRows : plan.append_rows;
  const int64_t begin = clamp(origin + chunk, 0, p.seqlen_total);
  const int64_t end = clamp(origin + chunk_end, 0, p.seqlen_total);
  const RowTransform transform = key_transform(plan, workspace);
  const RowTransform* key = p.normalize_key ? &transform : nullptr;
  append_rows(plan, {&p.present_key, key_sequence(p), p.head_dim, key}, batch, head, begin, end,
              scratch);
  append_rows(plan, {&p.present_value, value_sequence(p), p.head_dim_v, nullptr}, batch, head,
              begin, end, scratch);
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
