#include "attention_node.h"

#include "attribute_readers.h"
#include "ort_api.h"
#include "qkexport/op/check_signature.h"
#include "tensor_types.h"

namespace qkexport::ort {
namespace {

std::string node_name(const OrtKernelInfo* info) {
  size_t size = 0;
  check(api().KernelInfo_GetNodeName(info, nullptr, &size));
  std::string name(size, '\0');
  check(api().KernelInfo_GetNodeName(info, name.data(), &size));
  name.resize(size > 0 ? size - 1 : 0);
  return name;
}

op::TensorType declared_type(const OrtKernelInfo* info, size_t position) {
  OrtTypeInfo* raw = nullptr;
  check(api().KernelInfo_GetInputTypeInfo(info, position, &raw));
  const TypeInfo type(raw);
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  check(api().CastTypeInfoToTensorInfo(type.get(), &tensor));
  if (tensor == nullptr) return {};
  return tensor_type(tensor, false);
}

// An optional input that is left out still has a position; its name is empty.
bool is_passed(const OrtKernelInfo* info, size_t position) {
  size_t size = 0;
  check(api().KernelInfo_GetInputName(info, position, nullptr, &size));
  return size > 1;
}

}  // namespace

AttentionNode::AttentionNode(const OrtKernelInfo* info) : name_(node_name(info)) {
  naming([&] {
    const KernelAttributes attributes(info);
    size_t inputs = 0, outputs = 0;
    check(api().KernelInfo_GetInputCount(info, &inputs));
    check(api().KernelInfo_GetOutputCount(info, &outputs));
    signature_.spec = op::read_spec(attributes);
    positions_ = op::input_positions(read_or_empty(attributes, "input_roles"), inputs);
    op::check_output_roles(read_or_empty(attributes, "output_roles"), outputs);
    signature_.num_outputs = static_cast<int>(outputs);
    for (int i = 0; i < op::kNumInputs; ++i) {
      if (positions_[i] == op::kAbsent) continue;
      if (!is_passed(info, positions_[i])) {
        positions_[i] = op::kAbsent;
        continue;
      }
      signature_.inputs[i] = declared_type(info, positions_[i]);
    }
    op::check_signature(signature_);
  });
}

op::Signature AttentionNode::read_inputs(OrtKernelContext* context, op::InputPointers& data) const {
  op::Signature signature = signature_;
  for (int i = 0; i < op::kNumInputs; ++i) {
    data[i] = nullptr;
    if (positions_[i] == op::kAbsent) continue;
    const OrtValue* value = nullptr;
    check(api().KernelContext_GetInput(context, positions_[i], &value));
    if (value == nullptr) {
      signature.inputs[i] = {};
      continue;
    }
    OrtTensorTypeAndShapeInfo* raw = nullptr;
    check(api().GetTensorTypeAndShape(value, &raw));
    const ShapeInfo info(raw);
    signature.inputs[i] = tensor_type(info.get(), true);
    void* pointer = nullptr;
    check(api().GetTensorMutableData(const_cast<OrtValue*>(value), &pointer));
    data[i] = pointer;
  }
  op::check_signature(signature);
  return signature;
}

op::OutputPointers AttentionNode::make_outputs(OrtKernelContext* context,
                                               const op::Signature& signature) const {
  op::OutputPointers outputs = {};
  const std::array<op::Shape, op::kNumOutputs> shapes = op::output_shapes(signature);
  for (int i = 0; i < signature.num_outputs; ++i) {
    OrtValue* value = nullptr;
    check(api().KernelContext_GetOutput(context, i, shapes[i].data(), shapes[i].size(), &value));
    if (value != nullptr) check(api().GetTensorMutableData(value, &outputs[i]));
  }
  return outputs;
}

}  // namespace qkexport::ort
