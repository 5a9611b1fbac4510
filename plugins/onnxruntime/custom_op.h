// QKNormAttention as ONNX Runtime registers it: one operator name, a registration for each
// execution provider and T.
#pragma once

#include <onnxruntime_c_api.h>

namespace qkexport::ort {

// Null past the last registration.
const OrtCustomOp* attention_op(size_t index);

}  // namespace qkexport::ort
