#pragma once

#include "device/attention_kernel.cuh"
#include "kernels.h"
#include "launch.h"

namespace qkexport::cuda {

template <class T, int kHeadDim>
Status launch_attention(const KernelArguments& arguments, int64_t blocks, Stream stream) {
  using Traits = AttentionTraits<T, kHeadDim>;
  return launch(attention_kernel<Traits>, {blocks, Traits::kThreads, Traits::kSharedBytes}, stream,
                arguments);
}

}  // namespace qkexport::cuda
