#include "tensor_types.h"

#include "ort_api.h"

namespace qkexport::ort {
namespace {

op::ElementType element_type(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return op::ElementType::kFloat32;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return op::ElementType::kFloat16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return op::ElementType::kBFloat16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
      return op::ElementType::kBool;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      return op::ElementType::kInt64;
    default:
      return op::ElementType::kOther;
  }
}

}  // namespace

ONNXTensorElementDataType onnx_type(op::ElementType type) {
  switch (type) {
    case op::ElementType::kFloat32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    case op::ElementType::kFloat16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case op::ElementType::kBFloat16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
    default:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  }
}

op::TensorType tensor_type(const OrtTensorTypeAndShapeInfo* info, bool running) {
  ONNXTensorElementDataType type;
  size_t rank = 0;
  check(api().GetTensorElementType(info, &type));
  check(api().GetDimensionsCount(info, &rank));
  op::TensorType result;
  result.present = true;
  result.type = element_type(type);
  result.has_shape = running || rank > 0;
  result.shape.resize(rank);
  check(api().GetDimensions(info, result.shape.data(), rank));
  for (int64_t& size : result.shape) size = size < 0 ? op::kUnknown : size;
  return result;
}

}  // namespace qkexport::ort
