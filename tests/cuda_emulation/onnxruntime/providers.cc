// The kernels of the CUDA provider, offered to the CPU provider too: its memory is theirs here.
#include "attention_kernel.h"

namespace qkexport::ort {

const std::vector<KernelProvider>& kernel_providers() {
  static const std::vector<KernelProvider> kProviders = {
      {"CPUExecutionProvider", make_cuda_kernel},
      // As in the real library, so that runtimes without the provider are seen to accept it.
      {"CUDAExecutionProvider", make_cuda_kernel}};
  return kProviders;
}

}  // namespace qkexport::ort
