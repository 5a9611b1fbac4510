#include "named_problems.h"

#include <cmath>

namespace qkexport::gpu {
namespace {

using cases::AttentionCase;

AttentionCase prefill(int64_t batch_size, int64_t seqlen, int64_t num_heads, int64_t num_kv_heads,
                      int64_t head_dim, Causal causal) {
  AttentionCase c;
  c.dtype = DataType::kBFloat16;
  c.batch_size = batch_size;
  c.seqlen_q = c.seqlen_kv = seqlen;
  c.num_heads = num_heads;
  c.num_kv_heads = num_kv_heads;
  c.head_dim = c.head_dim_v = c.rotary_dim = head_dim;
  c.rotary = Rotary::kAfterNorm;
  c.float_gains = true;
  c.causal = causal;
  c.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return c;
}

// One new token behind `past` others, in the buffers of a static cache, appended in place.
AttentionCase decode(int64_t total) {
  AttentionCase c = prefill(1, 1, 32, 8, 128, Causal::kLowerRight);
  c.cache_rows = total;
  c.full_cache = true;
  c.presents = cases::Presents::kAliased;
  return c;
}

// No queries: the norm and RoPE of the keys alone.
AttentionCase key_norm(int64_t seqlen) {
  AttentionCase c = prefill(1, seqlen, 24, 24, 128, Causal::kNone);
  c.seqlen_q = 0;
  c.separate_key_rotary = true;
  return c;
}

double size(const AttentionCase& c) { return c.dtype == DataType::kFloat32 ? 4.0 : 2.0; }

}  // namespace

const std::vector<NamedProblem>& named_problems() {
  static const std::vector<NamedProblem> kProblems = {
      {"prefill_1k", prefill(1, 1024, 16, 4, 128, Causal::kNone)},
      {"prefill_4k", prefill(1, 4096, 24, 24, 128, Causal::kNone)},
      {"prefill_8x1k_d64", prefill(8, 1024, 16, 16, 64, Causal::kNone)},
      {"gqa_causal_8k", prefill(1, 8192, 32, 8, 128, Causal::kLowerRight)},
      {"decode_8k", decode(8192)},
      {"decode_32k", decode(32768)},
      {"key_norm_16k", key_norm(16384)},
      {"prefill_16k",
       prefill(1, 16384, 24, 24, 128, Causal::kNone)},  // last: takes the host longest
  };
  return kProblems;
}

double flops(const AttentionCase& c) {
  const double keys = static_cast<double>(c.cache_rows > 0 ? c.cache_rows : c.seqlen_kv);
  const double seen = c.causal != Causal::kNone && c.seqlen_q > 1 ? keys / 2.0 : keys;
  return 2.0 * static_cast<double>(c.batch_size * c.num_heads * c.seqlen_q) * seen *
         static_cast<double>(c.head_dim + c.head_dim_v);
}

double least_bytes(const AttentionCase& c) {
  const double queries = static_cast<double>(c.batch_size * c.num_heads * c.seqlen_q) *
                         static_cast<double>(c.head_dim + c.head_dim_v);
  const double kv_rows = static_cast<double>(c.batch_size * c.num_kv_heads) *
                         static_cast<double>(c.cache_rows > 0 ? c.cache_rows : c.seqlen_kv);
  const double new_rows = static_cast<double>(c.batch_size * c.num_kv_heads * c.seqlen_kv);
  const double values = c.seqlen_q == 0 ? 0.0 : static_cast<double>(c.head_dim_v);
  return size(c) * (queries + kv_rows * (static_cast<double>(c.head_dim) + values) +
                    new_rows * static_cast<double>(c.head_dim));
}

}  // namespace qkexport::gpu
