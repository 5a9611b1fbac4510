// QKNormAttention as a TensorRT plugin: the attributes, and the CUDA kernels behind enqueue.
#pragma once

#include <NvInferRuntime.h>

#include <memory>
#include <string>
#include <vector>

#include "fields.h"
#include "qkexport/attention_params.h"
#include "qkexport/op/roles.h"
#include "qkexport/op/signature.h"

namespace qkexport::trt {

constexpr const char* kPluginName = "QKNormAttention";
constexpr const char* kPluginVersion = "1";
constexpr const char* kPluginNamespace = "";

class AttentionPlugin : public nvinfer1::IPluginV3,
                        public nvinfer1::IPluginV3OneCore,
                        public nvinfer1::IPluginV3OneBuildV2,
                        public nvinfer1::IPluginV3OneRuntime {
 public:
  // Throws op::Refusal where the attributes break the contract.
  explicit AttentionPlugin(std::shared_ptr<const Fields> fields);

  nvinfer1::IPluginCapability* getCapabilityInterface(
      nvinfer1::PluginCapabilityType type) noexcept override;
  nvinfer1::IPluginV3* clone() noexcept override;

  const char* getPluginName() const noexcept override { return kPluginName; }
  const char* getPluginVersion() const noexcept override { return kPluginVersion; }
  const char* getPluginNamespace() const noexcept override { return kPluginNamespace; }

  int32_t getNbOutputs() const noexcept override { return num_outputs_; }
  int32_t getOutputDataTypes(nvinfer1::DataType* outputs, int32_t num_outputs,
                             const nvinfer1::DataType* inputs,
                             int32_t num_inputs) const noexcept override;
  int32_t getOutputShapes(const nvinfer1::DimsExprs* inputs, int32_t num_inputs,
                          const nvinfer1::DimsExprs* shape_inputs, int32_t num_shape_inputs,
                          nvinfer1::DimsExprs* outputs, int32_t num_outputs,
                          nvinfer1::IExprBuilder& builder) noexcept override;
  bool supportsFormatCombination(int32_t position, const nvinfer1::DynamicPluginTensorDesc* tensors,
                                 int32_t num_inputs, int32_t num_outputs) noexcept override;
  int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc* inputs, int32_t num_inputs,
                          const nvinfer1::DynamicPluginTensorDesc* outputs,
                          int32_t num_outputs) noexcept override;
  size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc* inputs, int32_t num_inputs,
                          const nvinfer1::DynamicPluginTensorDesc* outputs,
                          int32_t num_outputs) const noexcept override;
  int32_t getAliasedInput(int32_t output) noexcept override;
  const char* getTimingCacheID() noexcept override { return description_.c_str(); }
  const char* getMetadataString() noexcept override { return description_.c_str(); }

  int32_t onShapeChange(const nvinfer1::PluginTensorDesc* inputs, int32_t num_inputs,
                        const nvinfer1::PluginTensorDesc* outputs,
                        int32_t num_outputs) noexcept override;
  int32_t enqueue(const nvinfer1::PluginTensorDesc* input_descs,
                  const nvinfer1::PluginTensorDesc* output_descs, const void* const* inputs,
                  void* const* outputs, void* workspace, cudaStream_t stream) noexcept override;
  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
  const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override;

 private:
  op::InputPositions positions(int32_t num_inputs) const;
  op::Signature signature(const nvinfer1::PluginTensorDesc* inputs, int32_t num_inputs) const;
  // At an end of the profile: member is &DynamicPluginTensorDesc::min or max.
  op::Signature signature(const nvinfer1::DynamicPluginTensorDesc* inputs, int32_t num_inputs,
                          nvinfer1::Dims nvinfer1::DynamicPluginTensorDesc::* end) const;

  std::shared_ptr<const Fields> fields_;  // shared by clones; never changes
  op::AttentionSpec spec_;
  std::string description_;
  int32_t num_outputs_;
  bool has_roles_ = false;          // input_roles names the inputs; else they are positional
  op::InputPositions packed_ = {};  // by input_roles
  int32_t num_inputs_ = 0;  // enqueue is not told; by input_roles, else as onShapeChange was told
  std::vector<nvinfer1::PluginField> serialized_;
  nvinfer1::PluginFieldCollection collection_;
};

}  // namespace qkexport::trt
