// What computes a QKNormAttention node, for each execution provider that a library serves.
#pragma once

#include <onnxruntime_c_api.h>

#include <memory>
#include <vector>

namespace qkexport::ort {

// Any number of threads may compute at once.
class AttentionKernel {
 public:
  virtual ~AttentionKernel() = default;
  virtual void compute(OrtKernelContext* context) const = 0;
};

struct KernelProvider {
  const char* name;  // of the execution provider
  // Throws Refusal where the node breaks the contract.
  std::unique_ptr<AttentionKernel> (*make_kernel)(const OrtKernelInfo* info);
};

// The providers of this library; each library defines its own.
const std::vector<KernelProvider>& kernel_providers();

std::unique_ptr<AttentionKernel> make_cpu_kernel(const OrtKernelInfo* info);
std::unique_ptr<AttentionKernel> make_cuda_kernel(const OrtKernelInfo* info);

}  // namespace qkexport::ort
