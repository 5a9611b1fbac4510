// One QKNormAttention node of a model: its attributes, and the tensors of a call.
#pragma once

#include <onnxruntime_c_api.h>

#include <string>

#include "qkexport/op/fill_params.h"
#include "qkexport/op/signature.h"

namespace qkexport::ort {

// Immutable once made, so any number of threads may read calls at once.
class AttentionNode {
 public:
  // Throws Refusal where the node breaks the contract.
  explicit AttentionNode(const OrtKernelInfo* info);

  // As far as it was known when the session was made.
  const op::Signature& signature() const { return signature_; }

  // Types and shapes of a call, checked; fills the addresses of its inputs.
  op::Signature read_inputs(OrtKernelContext* context, op::InputPointers& data) const;
  op::OutputPointers make_outputs(OrtKernelContext* context, const op::Signature& signature) const;

  // Runs function; what it refuses names the node.
  template <typename Function>
  void naming(Function function) const {
    try {
      function();
    } catch (const op::Refusal& refusal) {
      throw op::Refusal("Node '" + name_ + "': " + refusal.what());
    }
  }

 private:
  std::string name_;
  op::InputPositions positions_;
  op::Signature signature_;
};

}  // namespace qkexport::ort
