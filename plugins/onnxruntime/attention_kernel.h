// What computes a QKNormAttention node; each library has one implementation.
#pragma once

#include <onnxruntime_c_api.h>

#include <memory>

namespace qkexport::ort {

// Any number of threads may compute at once.
class AttentionKernel {
 public:
  virtual ~AttentionKernel() = default;
  virtual void compute(OrtKernelContext* context) const = 0;
};

// Throws Refusal where the node breaks the contract.
std::unique_ptr<AttentionKernel> make_attention_kernel(const OrtKernelInfo* info);

}  // namespace qkexport::ort
