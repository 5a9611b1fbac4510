#include "infer_shapes.h"

#include <atomic>
#include <string>
#include <vector>

#include "attribute_readers.h"
#include "ort_api.h"
#include "qkexport/op/check_signature.h"
#include "qkexport/op/fill_params.h"
#include "tensor_types.h"

namespace qkexport::ort {
namespace {

op::TensorType inferred_type(const OrtShapeInferContext* context, size_t position) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api().ShapeInferContext_GetInputTypeShape(context, position, &info));
  return info == nullptr ? op::TensorType{} : tensor_type(info, false);
}

// Names for the sizes of a shape: none where it is known, else one that nothing else has. Without
// a name the runtime would take the mark of an unknown size for a size.
std::vector<std::string> size_names(const op::Shape& shape) {
  static std::atomic<int64_t> count = 0;
  std::vector<std::string> names;
  for (const int64_t size : shape) {
    names.push_back(size == op::kUnknown ? "qkexport_size_" + std::to_string(count++) : "");
  }
  return names;
}

void set_output(OrtShapeInferContext* context, size_t index, const op::TensorType& query,
                const op::Shape& shape) {
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  check(api().CreateTensorTypeAndShapeInfo(&raw));
  const ShapeInfo info(raw);
  check(api().SetTensorElementType(raw, onnx_type(query.type)));
  check(api().SetDimensions(raw, shape.data(), shape.size()));
  const std::vector<std::string> names = size_names(shape);
  std::vector<const char*> pointers;
  for (const std::string& name : names) pointers.push_back(name.c_str());
  check(api().SetSymbolicDimensions(raw, pointers.data(), pointers.size()));
  check(api().ShapeInferContext_SetOutputTypeShape(context, index, raw));
}

}  // namespace

void infer_shapes(OrtShapeInferContext* context) {
  const InferenceAttributes attributes(context);
  size_t inputs = 0;
  check(api().ShapeInferContext_GetInputCount(context, &inputs));
  op::Signature signature = {};
  signature.spec = op::read_spec(attributes);
  const op::InputPositions positions =
      op::input_positions(read_or_empty(attributes, "input_roles"), inputs);
  for (const op::Input input : {op::kQuery, op::kKey, op::kValue, op::kPastKey}) {
    if (positions[input] == op::kAbsent) continue;
    signature.inputs[input] = inferred_type(context, positions[input]);
  }
  if (!signature.projections_shaped()) return;
  for (const op::Input input : {op::kQuery, op::kKey, op::kValue}) {
    op::check_projection(signature, input);
  }
  const auto shapes = op::output_shapes(signature);
  for (size_t i = 0; i < shapes.size(); ++i) {
    set_output(context, i, signature.inputs[op::kQuery], shapes[i]);
  }
}

}  // namespace qkexport::ort
