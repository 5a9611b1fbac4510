// The creator, and the two symbols by which TensorRT finds it in this library.
#include <NvInferRuntime.h>

#include <memory>

#include "attention_plugin.h"
#include "fields.h"
#include "log.h"

namespace qkexport::trt {
namespace {

class AttentionCreator : public nvinfer1::IPluginCreatorV3One {
 public:
  AttentionCreator() {
    for (const Field& field : operator_fields()) {
      fields_.emplace_back(field.name, nullptr, field.type, 1);
    }
    collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
  }

  nvinfer1::IPluginV3* createPlugin(const char* name,
                                    const nvinfer1::PluginFieldCollection* collection,
                                    nvinfer1::TensorRTPhase /*phase*/) noexcept override {
    return guarded<nvinfer1::IPluginV3*>(nullptr, [&]() -> nvinfer1::IPluginV3* {
      try {
        if (collection == nullptr) op::refuse("needs its attributes", "no field collection");
        return new AttentionPlugin(std::make_shared<const Fields>(*collection));
      } catch (const op::Refusal& refusal) {
        const std::string node = name == nullptr ? "" : name;
        throw op::Refusal("Node '" + node + "': " + refusal.what());
      }
    });
  }

  const nvinfer1::PluginFieldCollection* getFieldNames() noexcept override { return &collection_; }
  const char* getPluginName() const noexcept override { return kPluginName; }
  const char* getPluginVersion() const noexcept override { return kPluginVersion; }
  const char* getPluginNamespace() const noexcept override { return kPluginNamespace; }

 private:
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_;
};

}  // namespace
}  // namespace qkexport::trt

extern "C" {

__attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {
  qkexport::trt::set_logger_finder(finder);
}

__attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const* getCreators(
    int32_t& count) {
  static qkexport::trt::AttentionCreator creator;
  static nvinfer1::IPluginCreatorInterface* const kCreators[] = {&creator};
  count = 1;
  return kCreators;
}

}  // extern "C"
