// Where the rows of the total key and value sequences lie before the kernel runs.
#pragma once

#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/cpu/elements.h"
#include "qkexport/cpu/visibility.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// Rows [begin, end) of the total sequence that lie in one tensor.
struct Run {
  const char* first;   // address of row `begin`
  int64_t row_stride;  // elements
  int64_t begin;
  int64_t end;
  int64_t new_token;  // index among the new tokens of row `begin`; -1 when the rows are cached
};

// The tensors of keys or of values.
struct Sequence {
  const StridedTensor* fresh;
  const StridedTensor* past;
  const StridedTensor* present;
};

// First row of the total sequence that holds a new token. May be negative in a static cache whose
// length is less than seqlen_kv: tokens that would land before row 0 are dropped.
inline int64_t first_new_row(const AttentionParams& p, int64_t batch) {
  if (p.kv_cache == KvCache::kStatic) return valid_keys(p, batch) - p.seqlen_kv;
  return p.seqlen_past;
}

// The run that holds `row`, read from the inputs (not from present).
inline Run input_run(const AttentionParams& p, const Sequence& s, int64_t batch, int64_t head,
                     int64_t row) {
  const int64_t begin = first_new_row(p, batch), end = begin + p.seqlen_kv;
  if (row >= begin && row < end) {
    const int64_t token = row - begin;
    return {row_address(*s.fresh, p.dtype, batch, head, token), s.fresh->row_stride, row, end,
            token};
  }
  const int64_t past_end = row < begin ? begin : p.seqlen_total;
  return {row_address(*s.past, p.dtype, batch, head, row), s.past->row_stride, row, past_end, -1};
}

// The run that holds `row` once present is written (if it is wanted).
inline Run current_run(const AttentionParams& p, const Sequence& s, int64_t batch, int64_t head,
                       int64_t row) {
  if (s.present->data == nullptr) return input_run(p, s, batch, head, row);
  return {row_address(*s.present, p.dtype, batch, head, row), s.present->row_stride, row,
          p.seqlen_total, -1};
}

inline Sequence key_sequence(const AttentionParams& p) {
  return {&p.key, &p.past_key, &p.present_key};
}
inline Sequence value_sequence(const AttentionParams& p) {
  return {&p.value, &p.past_value, &p.present_value};
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
