#pragma once

#include "device/simt_kernel.cuh"
#include "kernels.h"
#include "launch.h"

namespace qkexport::cuda {

template <class T, int kHeadDim>
Status launch_simt_attention(const KernelArguments& arguments, int64_t blocks, Stream stream) {
  using Traits = SimtTraits<T, kHeadDim>;
  return launch(simt_attention_kernel<Traits>, {blocks, Traits::kThreads, Traits::kSharedBytes},
                stream, arguments);
}

}  // namespace qkexport::cuda
