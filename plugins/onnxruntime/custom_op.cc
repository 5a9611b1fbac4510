#include "custom_op.h"

#include "attention_kernel.h"
#include "infer_shapes.h"
#include "ort_api.h"
#include "qkexport/op/roles.h"
#include "tensor_types.h"

namespace qkexport::ort {
namespace {

// OrtCustomOp first, so that callbacks get from it to what the registration is for.
struct AttentionOp : OrtCustomOp {
  ONNXTensorElementDataType type;
  const KernelProvider* provider;
};

const KernelProvider& provider_of(const OrtCustomOp* op) {
  return *static_cast<const AttentionOp*>(op)->provider;
}

ONNXTensorElementDataType tensor_type_of(const OrtCustomOp* op) {
  return static_cast<const AttentionOp*>(op)->type;
}

// Query, key and value lead in both spellings. Behind them a position can hold any input (packed
// spelling), so any type is accepted here and the kernel checks it when it is created.
ONNXTensorElementDataType input_type(const OrtCustomOp* op, size_t index) {
  return index <= op::kValue ? tensor_type_of(op) : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

OrtCustomOpInputOutputCharacteristic input_presence(const OrtCustomOp*, size_t index) {
  return index <= op::kValue ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
}

OrtCustomOpInputOutputCharacteristic output_presence(const OrtCustomOp*, size_t index) {
  return index == op::kOutput ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
}

OrtStatusPtr create_kernel(const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info,
                           void** kernel) {
  return guarded([&] { *kernel = provider_of(op).make_kernel(info).release(); });
}

OrtStatusPtr compute(void* kernel, OrtKernelContext* context) {
  return guarded([&] { static_cast<const AttentionKernel*>(kernel)->compute(context); });
}

OrtStatusPtr infer(const OrtCustomOp*, OrtShapeInferContext* context) {
  return guarded([&] { infer_shapes(context); });
}

AttentionOp make_op(const KernelProvider& provider, op::ElementType type) {
  AttentionOp op = {};
  op.version = kApiVersion;
  op.type = onnx_type(type);
  op.provider = &provider;
  op.GetName = [](const OrtCustomOp*) { return "QKNormAttention"; };
  op.GetExecutionProviderType = [](const OrtCustomOp* self) { return provider_of(self).name; };
  op.GetInputType = input_type;
  op.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return op::kNumInputs; };
  op.GetOutputType = [](const OrtCustomOp* self, size_t) { return tensor_type_of(self); };
  op.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return op::kNumOutputs; };
  op.GetInputCharacteristic = input_presence;
  op.GetOutputCharacteristic = output_presence;
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  op.GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  op.GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
  op.CreateKernelV2 = create_kernel;
  op.KernelComputeV2 = compute;
  op.KernelDestroy = [](void* kernel) { delete static_cast<AttentionKernel*>(kernel); };
  op.InferOutputShapeFn = infer;
  op.GetStartVersion = [](const OrtCustomOp*) { return 1; };
  op.GetEndVersion = [](const OrtCustomOp*) { return 1; };
  return op;
}

}  // namespace

const OrtCustomOp* attention_op(size_t index) {
  static const std::vector<AttentionOp> kOps = [] {
    std::vector<AttentionOp> ops;
    for (const KernelProvider& provider : kernel_providers()) {
      for (const op::ElementType type :
           {op::ElementType::kFloat32, op::ElementType::kFloat16, op::ElementType::kBFloat16}) {
        ops.push_back(make_op(provider, type));
      }
    }
    return ops;
  }();
  return index < kOps.size() ? &kOps[index] : nullptr;
}

}  // namespace qkexport::ort
