// The branches of the main loop that only some blocks of keys take: masks, and scores that are more
// than scale * q.k.
#pragma once

#include "device/fragments.cuh"
#include "device/query_rows.cuh"
#include "device/scores.cuh"
#include "device/visibility.cuh"

namespace qkexport::cuda {

// Scale, head_scale and softcap, in exponents of two. Only where plain_scores is false: elsewhere
// the scale is folded into the exponential.
template <int kRowFragments, int kBlockN>
QKEXPORT_DEVICE void transform_scores(Accumulator<kRowFragments, kBlockN>& s,
                                      const KernelArguments& arguments, const RowMap& map,
                                      int64_t batch, int first_row) {
  const AttentionParams& p = arguments.params;
#pragma unroll
  for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryRow query = map(first_row + fragment_row(m, 2 * r));
      const float scale = row_scale(p, batch, query.head, query.position);
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          s.value[m][n][e] = capped(p, s.value[m][n][e] * scale) * kLog2E;
        }
      }
    }
  }
}

// Hides keys and adds biases. A hidden score is replaced, not added to, so that a NaN in a key that
// a row may not see stays out of it.
template <int kRowFragments, int kBlockN>
QKEXPORT_DEVICE void mask_scores(Accumulator<kRowFragments, kBlockN>& s, const AttentionParams& p,
                                 const RowMap& map, const Visibility& visibility, int64_t batch,
                                 int first_row, int first_key) {
#pragma unroll
  for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryRow query = map(first_row + fragment_row(m, 2 * r));
      const RowVisibility row(p, visibility, batch, query.head, query.position, query.valid);
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          const float bias = row.bias(first_key + fragment_column(n, e));
          float& score = s.value[m][n][e];
          score = bias == -INFINITY ? -INFINITY : score + bias_exponent(bias);
        }
      }
    }
  }
}

}  // namespace qkexport::cuda
