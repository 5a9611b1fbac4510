// One QKNormAttention node on ONNX Runtime's CPU provider.
#pragma once

#include <onnxruntime_c_api.h>

#include <string>

#include "qkexport/cpu/attention_cpu.h"
#include "qkexport/op/fill_params.h"
#include "qkexport/op/signature.h"

namespace qkexport::ort {

// Immutable once made, so any number of threads may compute at once.
class AttentionKernel {
 public:
  // Throws Refusal where the node breaks the contract.
  explicit AttentionKernel(const OrtKernelInfo* info);

  void compute(OrtKernelContext* context) const;

 private:
  op::Signature read_inputs(OrtKernelContext* context, op::InputPointers& data) const;
  op::OutputPointers make_outputs(OrtKernelContext* context, const op::Signature& signature) const;

  std::string node_name_;
  op::InputPositions positions_;
  op::Signature signature_;  // as far as it was known when the session was made
  const cpu::KernelTable* kernels_;
  int64_t workers_;
};

}  // namespace qkexport::ort
