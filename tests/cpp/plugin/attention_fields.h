// The attributes of a QKNormAttention as plugin fields, and the descriptions of its tensors.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace plugin_test {

class AttentionFields {
 public:
  std::map<std::string, int32_t> ints = {
      {"num_heads", 2},    {"num_kv_heads", 1},  {"rotary_dim", 0},   {"rotary_interleaved", 0},
      {"window_left", -1}, {"window_right", -1}, {"normalize_key", 1}};
  std::map<std::string, float> floats = {
      {"qk_norm_epsilon", 1e-6f}, {"scale", 0.25f}, {"softcap", 0.0f}};
  std::map<std::string, std::string> texts = {
      {"qk_norm", "rms"},        {"norm_axis", "head"},    {"norm_rounding", "after_weight"},
      {"rotary", "none"},        {"causal", "none"},       {"kv_cache", "concat"},
      {"plugin_version", "1"},   {"plugin_namespace", ""}, {"input_roles", "query,key,value"},
      {"output_roles", "output"}};

  // Points into this object.
  nvinfer1::PluginFieldCollection collection() {
    fields_.clear();
    for (const auto& [name, value] : ints) {
      fields_.emplace_back(name.c_str(), &value, nvinfer1::PluginFieldType::kINT32, 1);
    }
    for (const auto& [name, value] : floats) {
      fields_.emplace_back(name.c_str(), &value, nvinfer1::PluginFieldType::kFLOAT32, 1);
    }
    for (const auto& [name, value] : texts) {
      fields_.emplace_back(name.c_str(), value.data(), nvinfer1::PluginFieldType::kCHAR,
                           static_cast<int32_t>(value.size()));
    }
    return {static_cast<int32_t>(fields_.size()), fields_.data()};
  }

 private:
  std::vector<nvinfer1::PluginField> fields_;
};

inline nvinfer1::Dims dims(std::initializer_list<int64_t> sizes) {
  nvinfer1::Dims result = {};
  for (const int64_t size : sizes) result.d[result.nbDims++] = size;
  return result;
}

}  // namespace plugin_test
