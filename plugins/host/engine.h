// One plugin layer taken through the life that TensorRT gives it, without TensorRT.
//
// Build: create, output types, output shapes, formats, configure, workspace, serialize. Run: create
// again from what was serialized, attach a clone to each context, announce shapes, enqueue.
#pragma once

#include <NvInferRuntime.h>

#include <memory>
#include <string>
#include <vector>

#include "expressions.h"
#include "plugin_library.h"

namespace qkexport::host {

// What an engine is told of one input: its type, and the smallest, best and largest dimensions.
struct InputProfile {
  nvinfer1::DataType type;
  nvinfer1::Dims min;
  nvinfer1::Dims opt;
  nvinfer1::Dims max;
};

// What one optimization profile tells of every input.
using Profile = std::vector<InputProfile>;

struct PluginId {
  std::string name;
  std::string version;
  std::string plugin_namespace;
};

class Engine {
 public:
  // Throws HostError where the plugin refuses. All profiles must have the same types and ranks.
  Engine(const PluginLibrary& library, const PluginId& id,
         const nvinfer1::PluginFieldCollection& fields, std::vector<Profile> profiles);

  size_t num_profiles() const { return profiles_.size(); }
  const Profile& profile(size_t index) const { return profiles_[index]; }
  const std::vector<nvinfer1::DataType>& output_types() const { return output_types_; }
  size_t workspace_size(size_t profile) const { return workspace_sizes_[profile]; }
  const std::string& metadata() const { return metadata_; }
  const std::string& timing_cache_id() const { return timing_cache_id_; }
  // The input that an output may share its memory with, or -1: a builder that allows plugins to
  // alias passes one address for both, any other two.
  int32_t aliased_input(size_t output) const { return aliased_inputs_[output]; }
  std::vector<nvinfer1::Dims> output_dims(const std::vector<nvinfer1::Dims>& inputs) const;
  std::unique_ptr<nvinfer1::IPluginV3> attach() const;

 private:
  void check_profiles() const;
  void build(nvinfer1::IPluginV3& plugin);
  void infer_outputs(nvinfer1::IPluginV3OneBuild& plugin);
  void read_aliases(nvinfer1::IPluginV3OneBuild& plugin);
  void negotiate_formats(nvinfer1::IPluginV3OneBuild& plugin, const Profile& profile) const;
  void configure(nvinfer1::IPluginV3OneBuild& plugin, const Profile& profile);
  std::vector<nvinfer1::DynamicPluginTensorDesc> describe_inputs(const Profile& profile) const;
  std::vector<nvinfer1::DynamicPluginTensorDesc> describe_outputs(const Profile& profile) const;

  std::vector<Profile> profiles_;
  ExpressionBuilder builder_;
  std::vector<nvinfer1::DimsExprs> output_shapes_;
  std::vector<nvinfer1::DataType> output_types_;
  std::vector<size_t> workspace_sizes_;  // one a profile
  std::vector<int32_t> aliased_inputs_;  // one an output
  std::string metadata_;
  std::string timing_cache_id_;
  std::unique_ptr<nvinfer1::IPluginV3> plugin_;  // of the run phase
};

// One execution context: a plugin of its own, a profile, and the shapes of its next call.
class Context {
 public:
  explicit Context(const Engine& engine, size_t profile = 0);

  // Returns the dimensions of the outputs. Throws HostError outside the context's profile.
  const std::vector<nvinfer1::Dims>& set_shapes(const std::vector<nvinfer1::Dims>& inputs);
  void enqueue(const void* const* inputs, void* const* outputs, void* workspace,
               cudaStream_t stream);

 private:
  void check_profile(const std::vector<nvinfer1::Dims>& inputs) const;

  const Engine& engine_;
  const Profile& profile_;
  std::unique_ptr<nvinfer1::IPluginV3> plugin_;
  nvinfer1::IPluginV3OneRuntime* runtime_;
  std::vector<nvinfer1::PluginTensorDesc> input_descs_;
  std::vector<nvinfer1::PluginTensorDesc> output_descs_;
  std::vector<nvinfer1::Dims> output_dims_;
};

}  // namespace qkexport::host
