// TensorRT's descriptions of tensors in the operator's terms.
#pragma once

#include <NvInferRuntime.h>

#include "qkexport/op/roles.h"
#include "qkexport/op/signature.h"

namespace qkexport::trt {

inline op::ElementType element_type(nvinfer1::DataType type) {
  switch (type) {
    case nvinfer1::DataType::kFLOAT:
      return op::ElementType::kFloat32;
    case nvinfer1::DataType::kHALF:
      return op::ElementType::kFloat16;
    case nvinfer1::DataType::kBF16:
      return op::ElementType::kBFloat16;
    case nvinfer1::DataType::kBOOL:
      return op::ElementType::kBool;
    case nvinfer1::DataType::kINT64:
      return op::ElementType::kInt64;
    default:
      return op::ElementType::kOther;
  }
}

inline op::TensorType tensor_type(nvinfer1::DataType type, const nvinfer1::Dims& dims) {
  op::TensorType tensor;
  tensor.present = true;
  tensor.type = element_type(type);
  tensor.has_shape = dims.nbDims >= 0;
  if (tensor.has_shape) tensor.shape.assign(dims.d, dims.d + dims.nbDims);
  return tensor;
}

// The signature of a call whose input i is described by describe(i).
template <typename Describe>
op::Signature make_signature(const op::AttentionSpec& spec, const op::InputPositions& positions,
                             int num_outputs, Describe describe) {
  op::Signature signature = {};
  signature.spec = spec;
  signature.num_outputs = num_outputs;
  for (int i = 0; i < op::kNumInputs; ++i) {
    if (positions[i] != op::kAbsent) signature.inputs[i] = describe(positions[i]);
  }
  return signature;
}

}  // namespace qkexport::trt
