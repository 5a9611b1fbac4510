#pragma once

#include "device/attention_kernel.cuh"
#include "kernels.h"
#include "launch.h"

namespace qkexport::cuda {

template <class T, int kHeadDim>
Status launch_attention(const KernelArguments& arguments, int64_t blocks, int key_block,
                        Stream stream) {
  const int shared_bytes = attention_shared_bytes(kHeadDim, key_block, sizeof(T));
  return launch(attention_kernel<T, kHeadDim>,
                {blocks, kAttentionThreads, static_cast<std::size_t>(shared_bytes)}, stream,
                arguments);
}

}  // namespace qkexport::cuda
