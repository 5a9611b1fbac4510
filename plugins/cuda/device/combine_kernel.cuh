// Merges the partial results of split keys: one block a query row.
#pragma once

#include "device/element_types.cuh"
#include "device/epilogue.cuh"
#include "device/ptx/warp.cuh"

namespace qkexport::cuda {

inline constexpr int kCombineThreads = 128;

// A split weighs sum * 2^(maximum - largest); the splits are added in their order, so results are
// the same on every run.
template <class T>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ KernelArguments arguments) {
  const AttentionParams& p = arguments.params;
  const int64_t row = block_index();  // of [B, H, Sq]
  const int64_t num_rows = p.batch_size * p.num_heads * p.seqlen_q;
  float largest = -INFINITY;
  for (int split = 0; split < arguments.num_splits; ++split) {
    const SplitState state = arguments.partial_state[split * num_rows + row];
    if (state.sum != 0.0f) largest = fmaxf(largest, state.maximum);
  }
  const QueryRow query{static_cast<int>(row % p.seqlen_q),
                       static_cast<int>(row / p.seqlen_q % p.num_heads), true};
  T* output = output_row<T>(p, row / p.seqlen_q / p.num_heads, query);
  for (int64_t channel = thread_index(); channel < p.head_dim_v; channel += kCombineThreads) {
    float sum = 0.0f;
    float weights = 0.0f;
    for (int split = 0; split < arguments.num_splits; ++split) {
      const int64_t partial = split * num_rows + row;
      const SplitState state = arguments.partial_state[partial];
      const float value = arguments.partial_output[partial * p.head_dim_v + channel];
      // Keys that weigh nothing pass on a NaN of theirs, as they do in a row that is not split.
      const float weight =
          state.sum == 0.0f
              ? 0.0f
              : state.sum * exp2_approximate((state.maximum - largest) * arguments.exponent_factor);
      weights += weight;
      sum += weight * value;
    }
    from_float(sum * inverse_sum(weights), output[channel]);
  }
}

}  // namespace qkexport::cuda
