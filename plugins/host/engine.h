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

struct PluginId {
  std::string name;
  std::string version;
  std::string plugin_namespace;
};

class Engine {
 public:
  // Throws HostError where the plugin refuses.
  Engine(const PluginLibrary& library, const PluginId& id,
         const nvinfer1::PluginFieldCollection& fields, std::vector<InputProfile> inputs);

  const std::vector<InputProfile>& inputs() const { return inputs_; }
  const std::vector<nvinfer1::DataType>& output_types() const { return output_types_; }
  size_t workspace_size() const { return workspace_size_; }
  const std::string& metadata() const { return metadata_; }
  std::vector<nvinfer1::Dims> output_dims(const std::vector<nvinfer1::Dims>& inputs) const;
  std::unique_ptr<nvinfer1::IPluginV3> attach() const;

 private:
  void build(nvinfer1::IPluginV3& plugin);
  void infer_outputs(nvinfer1::IPluginV3OneBuild& plugin);
  void negotiate_formats(nvinfer1::IPluginV3OneBuild& plugin) const;
  std::vector<nvinfer1::DynamicPluginTensorDesc> describe_inputs() const;
  std::vector<nvinfer1::DynamicPluginTensorDesc> describe_outputs() const;

  std::vector<InputProfile> inputs_;
  ExpressionBuilder builder_;
  std::vector<nvinfer1::DimsExprs> output_shapes_;
  std::vector<nvinfer1::DataType> output_types_;
  size_t workspace_size_ = 0;
  std::string metadata_;
  std::unique_ptr<nvinfer1::IPluginV3> plugin_;  // of the run phase
};

// One execution context: a plugin of its own, and the shapes of its next call.
class Context {
 public:
  explicit Context(const Engine& engine);

  // Returns the dimensions of the outputs. Throws HostError outside the engine's profile.
  const std::vector<nvinfer1::Dims>& set_shapes(const std::vector<nvinfer1::Dims>& inputs);
  void enqueue(const void* const* inputs, void* const* outputs, void* workspace,
               cudaStream_t stream);

 private:
  void check_profile(const std::vector<nvinfer1::Dims>& inputs) const;

  const Engine& engine_;
  std::unique_ptr<nvinfer1::IPluginV3> plugin_;
  nvinfer1::IPluginV3OneRuntime* runtime_;
  std::vector<nvinfer1::PluginTensorDesc> input_descs_;
  std::vector<nvinfer1::PluginTensorDesc> output_descs_;
  std::vector<nvinfer1::Dims> output_dims_;
};

}  // namespace qkexport::host
