#include "attention_plugin.h"

#include <new>
#include <utility>

#include "formats.h"
#include "log.h"
#include "output_shapes.h"
#include "qkexport/cuda/attention_cuda.h"
#include "qkexport/op/check_signature.h"
#include "qkexport/op/fill_params.h"
#include "tensor_descs.h"

namespace qkexport::trt {
namespace {

using nvinfer1::DataType;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginTensorDesc;
using nvinfer1::TensorFormat;

constexpr int32_t kOk = 0;
constexpr int32_t kFailed = -1;

int32_t output_count(const std::string& output_roles) {
  const int32_t count = output_roles.find(',') == std::string::npos ? 1 : op::kNumOutputs;
  op::check_output_roles(output_roles, static_cast<size_t>(count));
  return count;
}

void check_required(const op::InputPositions& found, const std::string& given) {
  for (const op::Input input : {op::kQuery, op::kKey, op::kValue}) {
    if (found[input] == op::kAbsent) op::refuse("needs query, key and value", given);
  }
}

// Addresses for tensors whose bytes nobody reads. Sizes depend on what is present and on whether a
// present cache is its past one, which under TensorRT it never is: each tensor has its own address.
void* somewhere(int tensor) {
  return reinterpret_cast<void*>(cuda::kWorkspaceAlignment * static_cast<size_t>(1 + tensor));
}

AttentionParams sizing_params(const op::Signature& signature) {
  op::InputPointers inputs = {};
  op::OutputPointers outputs = {};
  for (int i = 0; i < op::kNumInputs; ++i) {
    if (signature.inputs[i].present) inputs[i] = somewhere(i);
  }
  for (int i = 0; i < signature.num_outputs; ++i) outputs[i] = somewhere(op::kNumInputs + i);
  return op::fill_params(signature, inputs, outputs);
}

void check_implemented(const op::Signature& signature) {
  const Status status = cuda::can_implement(sizing_params(signature));
  if (status == Status::kSuccess) return;
  const op::Dims dims = op::dims_of(signature);
  op::refuse("must be of sizes the CUDA kernels have",
             "head_dim " + std::to_string(dims.head_dim) + ", head_dim_v " +
                 std::to_string(dims.head_dim_v) + " (status " +
                 std::to_string(static_cast<int>(status)) + ")");
}

}  // namespace

AttentionPlugin::AttentionPlugin(std::shared_ptr<const Fields> fields)
    : fields_(std::move(fields)),
      spec_(op::read_spec(*fields_)),
      description_(fields_->text()),
      num_outputs_(output_count(fields_->string_or_empty("output_roles"))),
      serialized_(fields_->plugin_fields()),
      collection_{static_cast<int32_t>(serialized_.size()), serialized_.data()} {
  const std::string roles = fields_->string_or_empty("input_roles");
  has_roles_ = !roles.empty();
  num_inputs_ = has_roles_ ? op::role_count(roles) : 0;
  packed_ = op::input_positions(roles, static_cast<size_t>(num_inputs_));
  if (has_roles_) check_required(packed_, "input_roles '" + roles + "'");
}

nvinfer1::IPluginCapability* AttentionPlugin::getCapabilityInterface(
    nvinfer1::PluginCapabilityType type) noexcept {
  switch (type) {
    case nvinfer1::PluginCapabilityType::kCORE:
      return static_cast<nvinfer1::IPluginV3OneCore*>(this);
    case nvinfer1::PluginCapabilityType::kBUILD:
      return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
    case nvinfer1::PluginCapabilityType::kRUNTIME:
      return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
  }
  return nullptr;
}

nvinfer1::IPluginV3* AttentionPlugin::clone() noexcept {
  return guarded<nvinfer1::IPluginV3*>(nullptr, [&] {
    auto copy = std::make_unique<AttentionPlugin>(fields_);
    copy->num_inputs_ = num_inputs_;
    return copy.release();
  });
}

op::InputPositions AttentionPlugin::positions(int32_t num_inputs) const {
  if (!has_roles_) {
    const auto found = op::positional_inputs(static_cast<size_t>(num_inputs));
    check_required(found, std::to_string(num_inputs) + " inputs");
    return found;
  }
  if (num_inputs != num_inputs_) op::refuse_role_count(num_inputs_, num_inputs);
  return packed_;
}

op::Signature AttentionPlugin::signature(const PluginTensorDesc* inputs, int32_t num_inputs) const {
  return make_signature(spec_, positions(num_inputs), num_outputs_, [&](int position) {
    return tensor_type(inputs[position].type, inputs[position].dims);
  });
}

op::Signature AttentionPlugin::signature(const DynamicPluginTensorDesc* inputs, int32_t num_inputs,
                                         nvinfer1::Dims DynamicPluginTensorDesc::* end) const {
  return make_signature(spec_, positions(num_inputs), num_outputs_, [&](int position) {
    return tensor_type(inputs[position].desc.type, inputs[position].*end);
  });
}

int32_t AttentionPlugin::getOutputDataTypes(DataType* outputs, int32_t num_outputs,
                                            const DataType* inputs,
                                            int32_t num_inputs) const noexcept {
  return guarded(kFailed, [&] {
    const op::InputPositions found = positions(num_inputs);
    const op::ElementType tensor = element_type(inputs[found[op::kQuery]]);
    for (int role = 0; role < op::kNumInputs; ++role) {
      if (found[role] == op::kAbsent) continue;
      const op::ElementType type = element_type(inputs[found[role]]);
      if (!accepts(role, type, tensor)) {
        op::refuse(std::string(op::kInputNames[role]) + " must be of a supported type",
                   op::name_of(type), kTypeMatrix);
      }
    }
    for (int32_t i = 0; i < num_outputs; ++i) outputs[i] = inputs[found[op::kQuery]];
    return kOk;
  });
}

int32_t AttentionPlugin::getOutputShapes(const nvinfer1::DimsExprs* inputs, int32_t num_inputs,
                                         const nvinfer1::DimsExprs* /*shape_inputs*/,
                                         int32_t /*num_shape_inputs*/, nvinfer1::DimsExprs* outputs,
                                         int32_t num_outputs,
                                         nvinfer1::IExprBuilder& builder) noexcept {
  return guarded(kFailed, [&] {
    write_output_shapes(spec_, positions(num_inputs), inputs, outputs, num_outputs, builder);
    return kOk;
  });
}

bool AttentionPlugin::supportsFormatCombination(int32_t position,
                                                const DynamicPluginTensorDesc* tensors,
                                                int32_t num_inputs,
                                                int32_t /*num_outputs*/) noexcept {
  return guarded(false, [&] {
    const op::InputPositions found = positions(num_inputs);
    // Only positions up to this one are decided; the first of them that has the tensor type rules.
    op::ElementType tensor = op::ElementType::kOther;
    for (int32_t i = 0; i < position && tensor == op::ElementType::kOther; ++i) {
      if (has_tensor_type(role_at(found, num_inputs, i)))
        tensor = element_type(tensors[i].desc.type);
    }
    const PluginTensorDesc& desc = tensors[position].desc;
    const bool supported =
        desc.format == TensorFormat::kLINEAR &&
        accepts(role_at(found, num_inputs, position), element_type(desc.type), tensor);
    if (!supported) log(nvinfer1::ILogger::Severity::kVERBOSE, kTypeMatrix);
    return supported;
  });
}

int32_t AttentionPlugin::configurePlugin(const DynamicPluginTensorDesc* inputs, int32_t num_inputs,
                                         const DynamicPluginTensorDesc* /*outputs*/,
                                         int32_t num_outputs) noexcept {
  return guarded(kFailed, [&] {
    op::check_output_roles("", static_cast<size_t>(num_outputs));
    const op::Signature largest = signature(inputs, num_inputs, &DynamicPluginTensorDesc::max);
    op::check_signature(largest);
    check_implemented(largest);
    return kOk;
  });
}

size_t AttentionPlugin::getWorkspaceSize(const DynamicPluginTensorDesc* inputs, int32_t num_inputs,
                                         const DynamicPluginTensorDesc* /*outputs*/,
                                         int32_t /*num_outputs*/) const noexcept {
  return guarded(size_t{0}, [&] {
    return cuda::workspace_bound(
        sizing_params(signature(inputs, num_inputs, &DynamicPluginTensorDesc::min)),
        sizing_params(signature(inputs, num_inputs, &DynamicPluginTensorDesc::max)));
  });
}

// A static cache is written where it stands. TensorRT asks only where a builder allows plugins to
// alias their inputs; elsewhere a present is another buffer, and the kernels copy the past into it.
int32_t AttentionPlugin::getAliasedInput(int32_t output) noexcept {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    if (spec_.kv_cache != KvCache::kStatic || output == op::kOutput) return -1;
    const op::InputPositions found = positions(has_roles_ ? num_inputs_ : op::kNumInputs);
    return found[output == op::kPresentKey ? op::kPastKey : op::kPastValue];
  });
}

int32_t AttentionPlugin::onShapeChange(const PluginTensorDesc* inputs, int32_t num_inputs,
                                       const PluginTensorDesc* /*outputs*/,
                                       int32_t /*num_outputs*/) noexcept {
  return guarded(kFailed, [&] {
    const op::Signature called = signature(inputs, num_inputs);
    op::check_signature(called);
    check_implemented(called);
    num_inputs_ = num_inputs;
    return kOk;
  });
}

// Shapes are read here, not where they were last announced: one plugin serves many calls.
int32_t AttentionPlugin::enqueue(const PluginTensorDesc* input_descs,
                                 const PluginTensorDesc* /*output_descs*/,
                                 const void* const* inputs, void* const* outputs, void* workspace,
                                 cudaStream_t stream) noexcept {
  return guarded(kFailed, [&] {
    const op::InputPositions found = positions(num_inputs_);
    op::InputPointers in = {};
    op::OutputPointers out = {};
    for (int i = 0; i < op::kNumInputs; ++i) {
      if (found[i] != op::kAbsent) in[i] = inputs[found[i]];
    }
    for (int32_t i = 0; i < num_outputs_; ++i) out[i] = outputs[i];
    const AttentionParams params = op::fill_params(signature(input_descs, num_inputs_), in, out);
    const Status status = cuda::run(params, workspace, cuda::workspace_size(params), stream);
    if (status == Status::kSuccess) return kOk;
    op::refuse("must run on this device", "status " + std::to_string(static_cast<int>(status)));
  });
}

nvinfer1::IPluginV3* AttentionPlugin::attachToContext(
    nvinfer1::IPluginResourceContext* /*context*/) noexcept {
  return clone();
}

const nvinfer1::PluginFieldCollection* AttentionPlugin::getFieldsToSerialize() noexcept {
  return &collection_;
}

}  // namespace qkexport::trt
