// Statistics of norms over all heads at once (norm_axis "hidden"): one warp a token.
//
// The heads of a token are spread over many blocks of the attention kernel, so this norm needs a
// pass of its own; what it writes is eight bytes a token.
#pragma once

#include "device/row_transform.cuh"
#include "tile_config.cuh"

namespace qkexport::cuda {

// The heads of one token in memory, as rows of a tile.
template <class T>
struct TokenHeads {
  const T* base;
  int64_t head_stride;

  QKEXPORT_DEVICE const T& at(int head, int channel) const {
    return base[head * head_stride + channel];
  }
};

enum class TokenKind { kQuery, kKey };

template <class T, TokenKind kKind>
QKEXPORT_DEVICE float token_sum(const KernelArguments& arguments, TokenHeads<T> heads,
                                int64_t batch, int position, int num_heads, float mean,
                                bool squared) {
  float sum = 0.0f;
#pragma unroll 1
  for (int head = lane_index() / kLanesPerRow; head < num_heads; head += kRowsPerStep) {
    const TransformRow transform = kKind == TokenKind::kQuery
                                       ? query_transform(arguments, batch, head, position, true)
                                       : key_transform(arguments, batch, head, position, true);
    sum += lane_sum(heads, head, transform, mean, squared);
  }
  return group_sum<kWarpSize>(sum);
}

template <class T, TokenKind kKind>
QKEXPORT_DEVICE void token_statistics(const KernelArguments& arguments, const StridedTensor& tensor,
                                      int64_t token, int64_t seqlen, int64_t num_heads,
                                      RowStatistics* statistics) {
  const AttentionParams& p = arguments.params;
  const int64_t batch = token / seqlen;
  const int position = static_cast<int>(token % seqlen);
  const TokenHeads<T> heads{static_cast<const T*>(tensor.data) + batch * tensor.batch_stride +
                                position * tensor.row_stride,
                            tensor.head_stride};
  const int count_heads = static_cast<int>(num_heads);
  const float count = static_cast<float>(num_heads * p.head_dim);
  RowStatistics result{0.0f, 0.0f};
  if (p.qk_norm == QkNorm::kLayer) {
    result.mean =
        token_sum<T, kKind>(arguments, heads, batch, position, count_heads, 0.0f, false) / count;
  }
  const float squares =
      token_sum<T, kKind>(arguments, heads, batch, position, count_heads, result.mean, true);
  result.inverse = inverse_norm(p, squares, count);
  if (lane_index() == 0) statistics[token] = result;
}

// Queries first, then new keys (where keys are normalized at all).
template <class T>
__global__ void __launch_bounds__(kAttentionWarps* kWarpSize)
    hidden_statistics_kernel(const __grid_constant__ KernelArguments arguments) {
  const AttentionParams& p = arguments.params;
  const int64_t token = block_index() * kAttentionWarps + warp_index();
  const int64_t num_queries = p.batch_size * p.seqlen_q;
  const int64_t num_keys = arguments.key_statistics == nullptr ? 0 : p.batch_size * p.seqlen_kv;
  if (token < num_queries) {
    token_statistics<T, TokenKind::kQuery>(arguments, p.query, token, p.seqlen_q, p.num_heads,
                                           arguments.query_statistics);
  } else if (token < num_queries + num_keys) {
    token_statistics<T, TokenKind::kKey>(arguments, p.key, token - num_queries, p.seqlen_kv,
                                         p.num_kv_heads, arguments.key_statistics);
  }
}

}  // namespace qkexport::cuda
