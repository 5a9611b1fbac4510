// Merges the partial results of split keys: one block a query row.
#pragma once

#include "device/element_types.cuh"
#include "device/epilogue.cuh"
#include "device/ptx/warp.cuh"

namespace qkexport::cuda {

inline constexpr int kCombineThreads = 128;

// Weights 2^(lse - largest) of the splits; the sum runs in their order, so results are the same on
// every run.
template <class T>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ KernelArguments arguments) {
  const AttentionParams& p = arguments.params;
  const int64_t row = block_index();  // of [B, H, Sq]
  const int64_t num_rows = p.batch_size * p.num_heads * p.seqlen_q;
  float largest = -INFINITY;
  for (int split = 0; split < arguments.num_splits; ++split) {
    largest = fmaxf(largest, arguments.partial_lse[split * num_rows + row]);
  }
  const QueryRow query{static_cast<int>(row % p.seqlen_q),
                       static_cast<int>(row / p.seqlen_q % p.num_heads), true};
  T* output = output_row<T>(p, row / p.seqlen_q / p.num_heads, query);
  const float shift = shift_of(largest, 1.0f);
  for (int64_t channel = thread_index(); channel < p.head_dim_v; channel += kCombineThreads) {
    float sum = 0.0f;
    float weights = 0.0f;
    for (int split = 0; split < arguments.num_splits; ++split) {
      const int64_t partial = split * num_rows + row;
      const float lse = arguments.partial_lse[partial];
      if (lse == -INFINITY) continue;
      const float weight = exp2_approximate(lse - shift);
      weights += weight;
      sum += weight * arguments.partial_output[partial * p.head_dim_v + channel];
    }
    from_float(sum * inverse_sum(weights), output[channel]);
  }
}

}  // namespace qkexport::cuda
