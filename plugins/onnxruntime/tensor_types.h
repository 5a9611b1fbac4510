// Types and shapes as ONNX Runtime tells them.
#pragma once

#include <onnxruntime_c_api.h>

#include "qkexport/op/tensor_type.h"

namespace qkexport::ort {

ONNXTensorElementDataType onnx_type(op::ElementType type);

// A dimension that has no number is kUnknown. Graph values of unknown rank look like scalars, so
// before run time a scalar counts as "no shape".
op::TensorType tensor_type(const OrtTensorTypeAndShapeInfo* info, bool running);

}  // namespace qkexport::ort
