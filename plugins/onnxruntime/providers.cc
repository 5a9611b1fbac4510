// The execution providers that libqkexport_ort.so has kernels for.
#include "attention_kernel.h"

namespace qkexport::ort {

const std::vector<KernelProvider>& kernel_providers() {
  static const std::vector<KernelProvider> kProviders = {
      {"CPUExecutionProvider", make_cpu_kernel},
#if defined(QKEXPORT_ORT_CUDA)
      // A runtime without this provider never asks for its kernels.
      {"CUDAExecutionProvider", make_cuda_kernel},
#endif
  };
  return kProviders;
}

}  // namespace qkexport::ort
