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

std::string text(const char* given) { return given == nullptr ? "" : given; }

template <typename Pick>
std::vector<Dims> dims_of(const Profile& inputs, Pick pick) {
  std::vector<Dims> dims;
  for (const InputProfile& input : inputs) dims.push_back(pick(input));
  return dims;
}

}  // namespace

Engine::Engine(const PluginLibrary& library, const PluginId& id,
               const nvinfer1::PluginFieldCollection& fields, std::vector<Profile> profiles)
    : profiles_(std::move(profiles)) {
  take_log();
  check_profiles();
  std::unique_ptr<IPluginV3> built = create(library, id, fields, TensorRTPhase::kBUILD);
  build(*built);
  auto& runtime = capability<IPluginV3OneRuntime>(*built, PluginCapabilityType::kRUNTIME);
  const auto* serialized = runtime.getFieldsToSerialize();
  if (serialized == nullptr) fail("Plugin must say what to serialize, got nothing.");
  const SavedFields saved(*serialized);
  built.reset();
  plugin_ = create(library, id, saved.collection(), TensorRTPhase::kRUNTIME);
}

void Engine::check_profiles() const {
  if (profiles_.empty()) fail("Engine must have a profile, got none.");
  for (const Profile& profile : profiles_) {
    bool same = profile.size() == profiles_[0].size();
    for (size_t i = 0; same && i < profile.size(); ++i) {
      same = profile[i].type == profiles_[0][i].type &&
             profile[i].min.nbDims == profiles_[0][i].min.nbDims;
    }
    if (!same) fail("Profiles must agree in the types and ranks of their inputs.");
  }
}

void Engine::build(IPluginV3& plugin) {
  auto& build = capability<IPluginV3OneBuild>(plugin, PluginCapabilityType::kBUILD);
  infer_outputs(build);
  read_aliases(build);
  for (const Profile& profile : profiles_) {
    negotiate_formats(build, profile);
    configure(build, profile);
  }
  metadata_ = text(build.getMetadataString());
  timing_cache_id_ = text(build.getTimingCacheID());
}

// Outputs that share memory with an input came with the second version of the interface.
void Engine::read_aliases(IPluginV3OneBuild& plugin) {
  aliased_inputs_.assign(output_types_.size(), -1);
  if (plugin.getInterfaceInfo().major < 2) return;
  auto& aliasing = static_cast<nvinfer1::IPluginV3OneBuildV2&>(plugin);
  for (size_t i = 0; i < aliased_inputs_.size(); ++i) {
    aliased_inputs_[i] = aliasing.getAliasedInput(static_cast<int32_t>(i));
    const bool known = aliased_inputs_[i] < static_cast<int32_t>(profiles_[0].size());
    if (!known) fail("Plugin must alias one of its inputs.");
  }
}

void Engine::configure(IPluginV3OneBuild& plugin, const Profile& profile) {
  const auto inputs = describe_inputs(profile), outputs = describe_outputs(profile);
  const auto num_inputs = static_cast<int32_t>(inputs.size());
  const auto num_outputs = static_cast<int32_t>(outputs.size());
  if (plugin.configurePlugin(inputs.data(), num_inputs, outputs.data(), num_outputs) != 0) {
    fail("Plugin refused its configuration.");
  }
  workspace_sizes_.push_back(
      plugin.getWorkspaceSize(inputs.data(), num_inputs, outputs.data(), num_outputs));
}

void Engine::infer_outputs(IPluginV3OneBuild& plugin) {
  const int32_t count = plugin.getNbOutputs();
  output_types_.resize(static_cast<size_t>(count));
  output_shapes_.resize(static_cast<size_t>(count));
  std::vector<nvinfer1::DataType> types;
  const Profile& inputs = profiles_[0];
  std::vector<nvinfer1::DimsExprs> shapes(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    types.push_back(inputs[i].type);
    shapes[i].nbDims = inputs[i].min.nbDims;
    for (int32_t axis = 0; axis < shapes[i].nbDims; ++axis) {
      shapes[i].d[axis] = builder_.input_dim(static_cast<int>(i), axis);
    }
  }
  const auto num_inputs = static_cast<int32_t>(inputs.size());
  if (plugin.getOutputDataTypes(output_types_.data(), count, types.data(), num_inputs) != 0) {
    fail("Plugin refused its input types.");
  }
  if (plugin.getOutputShapes(shapes.data(), num_inputs, nullptr, 0, output_shapes_.data(), count,
                             builder_) != 0) {
    fail("Plugin refused its input shapes.");
  }
}

void Engine::negotiate_formats(IPluginV3OneBuild& plugin, const Profile& profile) const {
  auto tensors = describe_inputs(profile);
  const auto outputs = describe_outputs(profile);
  tensors.insert(tensors.end(), outputs.begin(), outputs.end());
  const auto num_inputs = static_cast<int32_t>(profile.size());
  const auto num_outputs = static_cast<int32_t>(outputs.size());
  for (int32_t i = 0; i < num_inputs + num_outputs; ++i) {
    if (!plugin.supportsFormatCombination(i, tensors.data(), num_inputs, num_outputs)) {
      fail("Plugin supports no row-major format at position " + std::to_string(i) + ".");
    }
  }
}

std::vector<DynamicPluginTensorDesc> Engine::describe_inputs(const Profile& profile) const {
  std::vector<DynamicPluginTensorDesc> descs;
  for (const InputProfile& input : profile) {
    descs.push_back({desc_of(symbolic(input), input.type), input.min, input.max, input.opt});
  }
  return descs;
}

std::vector<DynamicPluginTensorDesc> Engine::describe_outputs(const Profile& profile) const {
  const auto min = output_dims(dims_of(profile, [](const InputProfile& p) { return p.min; }));
  const auto opt = output_dims(dims_of(profile, [](const InputProfile& p) { return p.opt; }));
  const auto max = output_dims(dims_of(profile, [](const InputProfile& p) { return p.max; }));
  std::vector<DynamicPluginTensorDesc> descs;
  for (size_t i = 0; i < output_types_.size(); ++i) {
    const InputProfile output = {output_types_[i], min[i], opt[i], max[i]};
    descs.push_back({desc_of(symbolic(output), output.type), min[i], max[i], opt[i]});
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

Context::Context(const Engine& engine, size_t profile)
    : engine_(engine),
      profile_(engine.profile(profile)),
      plugin_(engine.attach()),
      runtime_(&capability<IPluginV3OneRuntime>(*plugin_, PluginCapabilityType::kRUNTIME)) {}

void Context::check_profile(const std::vector<Dims>& inputs) const {
  if (inputs.size() != profile_.size()) {
    fail("Call must have as many inputs as the engine, got " + std::to_string(inputs.size()) + ".");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputProfile& profile = profile_[i];
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
    input_descs_.push_back(desc_of(inputs[i], profile_[i].type));
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
