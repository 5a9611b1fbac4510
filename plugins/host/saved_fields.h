// A deep copy of plugin fields: what an engine file keeps of a plugin.
#pragma once

#include <NvInferRuntime.h>

#include <cstddef>
#include <string>
#include <vector>

namespace qkexport::host {

class SavedFields {
 public:
  explicit SavedFields(const nvinfer1::PluginFieldCollection& collection);
  SavedFields(const SavedFields&) = delete;
  SavedFields& operator=(const SavedFields&) = delete;

  const nvinfer1::PluginFieldCollection& collection() const { return collection_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<std::byte>> data_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_;
};

}  // namespace qkexport::host
