#include "engine.h"

#include <utility>

#include "saved_fields.h"

namespace qkexport::host {
namespace {

using nvinfer1::Dims;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::IPluginV3;
using nvinfer1::IPluginV3OneBuild;
using nvinfer1::IPluginV3OneRuntime;
using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginTensorDesc;
using nvinfer1::TensorFormat;
using nvinfer1::TensorRTPhase;

std::unique_ptr<IPluginV3> create(const PluginLibrary& library, const PluginId& id,
                                  const nvinfer1::PluginFieldCollection& fields,
                                  TensorRTPhase phase) {
  auto& creator = library.creator(id.name, id.version, id.plugin_namespace);
  std::unique_ptr<IPluginV3> plugin(creator.createPlugin(id.name.c_str(), &fields, phase));
  if (plugin == nullptr) fail("Plugin creator refused.");
  return plugin;
}

template <typename Capability>
Capability& capability(IPluginV3& plugin, PluginCapabilityType type) {
  auto* found = static_cast<Capability*>(plugin.getCapabilityInterface(type));
  if (found == nullptr) fail("Plugin must have every capability, got none of its kind.");
  return *found;
}

Dims symbolic(const InputProfile& input) {
  Dims dims = input.min;
  for (int32_t i = 0; i < dims.nbDims; ++i) {
    if (input.min.d[i] != input.max.d[i]) dims.d[i] = -1;
  }
  return dims;
}

PluginTensorDesc desc_of(const Dims& dims, nvinfer1::DataType type) {
  PluginTensorDesc desc = {};
  desc.dims = dims;
  desc.type = type;
  desc.format = TensorFormat::kLINEAR;
  desc.scale = 1.0f;
  return desc;
}

template <typename Pick>
std::vector<Dims> dims_of(const std::vector<InputProfile>& inputs, Pick pick) {
  std::vector<Dims> dims;
  for (const InputProfile& input : inputs) dims.push_back(pick(input));
  return dims;
}

}  // namespace

Engine::Engine(const PluginLibrary& library, const PluginId& id,
               const nvinfer1::PluginFieldCollection& fields, std::vector<InputProfile> inputs)
    : inputs_(std::move(inputs)) {
  take_log();
  std::unique_ptr<IPluginV3> built = create(library, id, fields, TensorRTPhase::kBUILD);
  build(*built);
  auto& runtime = capability<IPluginV3OneRuntime>(*built, PluginCapabilityType::kRUNTIME);
  const auto* serialized = runtime.getFieldsToSerialize();
  if (serialized == nullptr) fail("Plugin must say what to serialize, got nothing.");
  const SavedFields saved(*serialized);
  built.reset();
  plugin_ = create(library, id, saved.collection(), TensorRTPhase::kRUNTIME);
}

void Engine::build(IPluginV3& plugin) {
  auto& build = capability<IPluginV3OneBuild>(plugin, PluginCapabilityType::kBUILD);
  infer_outputs(build);
  negotiate_formats(build);
  const auto inputs = describe_inputs(), outputs = describe_outputs();
  const auto num_inputs = static_cast<int32_t>(inputs.size());
  const auto num_outputs = static_cast<int32_t>(outputs.size());
  if (build.configurePlugin(inputs.data(), num_inputs, outputs.data(), num_outputs) != 0) {
    fail("Plugin refused its configuration.");
  }
  workspace_size_ = build.getWorkspaceSize(inputs.data(), num_inputs, outputs.data(), num_outputs);
  const char* metadata = build.getMetadataString();
  metadata_ = metadata == nullptr ? "" : metadata;
}

void Engine::infer_outputs(IPluginV3OneBuild& plugin) {
  const int32_t count = plugin.getNbOutputs();
  output_types_.resize(static_cast<size_t>(count));
  output_shapes_.resize(static_cast<size_t>(count));
  std::vector<nvinfer1::DataType> types;
  std::vector<nvinfer1::DimsExprs> shapes(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    types.push_back(inputs_[i].type);
    shapes[i].nbDims = inputs_[i].min.nbDims;
    for (int32_t axis = 0; axis < shapes[i].nbDims; ++axis) {
      shapes[i].d[axis] = builder_.input_dim(static_cast<int>(i), axis);
    }
  }
  const auto num_inputs = static_cast<int32_t>(inputs_.size());
  if (plugin.getOutputDataTypes(output_types_.data(), count, types.data(), num_inputs) != 0) {
    fail("Plugin refused its input types.");
  }
  if (plugin.getOutputShapes(shapes.data(), num_inputs, nullptr, 0, output_shapes_.data(), count,
                             builder_) != 0) {
    fail("Plugin refused its input shapes.");
  }
}

void Engine::negotiate_formats(IPluginV3OneBuild& plugin) const {
  auto tensors = describe_inputs();
  const auto outputs = describe_outputs();
  tensors.insert(tensors.end(), outputs.begin(), outputs.end());
  const auto num_inputs = static_cast<int32_t>(inputs_.size());
  const auto num_outputs = static_cast<int32_t>(outputs.size());
  for (int32_t i = 0; i < num_inputs + num_outputs; ++i) {
    if (!plugin.supportsFormatCombination(i, tensors.data(), num_inputs, num_outputs)) {
      fail("Plugin supports no row-major format at position " + std::to_string(i) + ".");
    }
  }
}

std::vector<DynamicPluginTensorDesc> Engine::describe_inputs() const {
  std::vector<DynamicPluginTensorDesc> descs;
  for (const InputProfile& input : inputs_) {
    descs.push_back({desc_of(symbolic(input), input.type), input.min, input.max, input.opt});
  }
  return descs;
}

std::vector<DynamicPluginTensorDesc> Engine::describe_outputs() const {
  const auto min = output_dims(dims_of(inputs_, [](const InputProfile& p) { return p.min; }));
  const auto opt = output_dims(dims_of(inputs_, [](const InputProfile& p) { return p.opt; }));
  const auto max = output_dims(dims_of(inputs_, [](const InputProfile& p) { return p.max; }));
  std::vector<DynamicPluginTensorDesc> descs;
  for (size_t i = 0; i < output_types_.size(); ++i) {
    const InputProfile profile = {output_types_[i], min[i], opt[i], max[i]};
    descs.push_back({desc_of(symbolic(profile), profile.type), min[i], max[i], opt[i]});
  }
  return descs;
}

std::vector<Dims> Engine::output_dims(const std::vector<Dims>& inputs) const {
  InputDims values;
  for (const Dims& dims : inputs) values.emplace_back(dims.d, dims.d + dims.nbDims);
  std::vector<Dims> outputs;
  for (const nvinfer1::DimsExprs& shape : output_shapes_) {
    Dims dims = {};
    dims.nbDims = shape.nbDims;
    for (int32_t axis = 0; axis < shape.nbDims; ++axis) {
      dims.d[axis] = static_cast<const Expression*>(shape.d[axis])->evaluate(values);
    }
    outputs.push_back(dims);
  }
  return outputs;
}

std::unique_ptr<IPluginV3> Engine::attach() const {
  auto& runtime = capability<IPluginV3OneRuntime>(*plugin_, PluginCapabilityType::kRUNTIME);
  std::unique_ptr<IPluginV3> attached(runtime.attachToContext(nullptr));
  if (attached == nullptr) fail("Plugin must attach to a context, got none.");
  return attached;
}

Context::Context(const Engine& engine)
    : engine_(engine),
      plugin_(engine.attach()),
      runtime_(&capability<IPluginV3OneRuntime>(*plugin_, PluginCapabilityType::kRUNTIME)) {}

void Context::check_profile(const std::vector<Dims>& inputs) const {
  if (inputs.size() != engine_.inputs().size()) {
    fail("Call must have as many inputs as the engine, got " + std::to_string(inputs.size()) + ".");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputProfile& profile = engine_.inputs()[i];
    bool fits = inputs[i].nbDims == profile.min.nbDims;
    for (int32_t d = 0; fits && d < inputs[i].nbDims; ++d) {
      fits = profile.min.d[d] <= inputs[i].d[d] && inputs[i].d[d] <= profile.max.d[d];
    }
    if (!fits) fail("Input " + std::to_string(i) + " must lie in the engine's profile.");
  }
}

const std::vector<Dims>& Context::set_shapes(const std::vector<Dims>& inputs) {
  take_log();
  check_profile(inputs);
  output_dims_ = engine_.output_dims(inputs);
  input_descs_.clear();
  output_descs_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_descs_.push_back(desc_of(inputs[i], engine_.inputs()[i].type));
  }
  for (size_t i = 0; i < output_dims_.size(); ++i) {
    output_descs_.push_back(desc_of(output_dims_[i], engine_.output_types()[i]));
  }
  if (runtime_->onShapeChange(input_descs_.data(), static_cast<int32_t>(input_descs_.size()),
                              output_descs_.data(),
                              static_cast<int32_t>(output_descs_.size())) != 0) {
    fail("Plugin refused the shapes.");
  }
  return output_dims_;
}

void Context::enqueue(const void* const* inputs, void* const* outputs, void* workspace,
                      cudaStream_t stream) {
  take_log();
  if (runtime_->enqueue(input_descs_.data(), output_descs_.data(), inputs, outputs, workspace,
                        stream) != 0) {
    fail("Plugin failed to enqueue.");
  }
}

}  // namespace qkexport::host
