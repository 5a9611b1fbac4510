#include "fields.h"

#include <cstdio>

#include "qkexport/op/refusal.h"

namespace qkexport::trt {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

const Field* find_field(const std::string& name) {
  for (const Field& field : operator_fields()) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

const char* type_name(PluginFieldType type) {
  switch (type) {
    case PluginFieldType::kINT32:
      return "one int32";
    case PluginFieldType::kFLOAT32:
      return "one float32";
    default:
      return "characters";
  }
}

template <typename Map, typename Value>
bool find_value(const Map& map, const char* name, Value& value) {
  const auto entry = map.find(name);
  if (entry == map.end()) return false;
  value = entry->second;
  return true;
}

std::string shortest(float value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", static_cast<double>(value));
  return buffer;
}

}  // namespace

const std::vector<Field>& operator_fields() {
  constexpr auto kInt = PluginFieldType::kINT32;
  constexpr auto kFloat = PluginFieldType::kFLOAT32;
  constexpr auto kString = PluginFieldType::kCHAR;
  static const std::vector<Field> kFields = {
      {"num_heads", kInt},         {"num_kv_heads", kInt},       {"scale", kFloat},
      {"qk_norm", kString},        {"norm_axis", kString},       {"qk_norm_epsilon", kFloat},
      {"norm_rounding", kString},  {"normalize_key", kInt},      {"rotary", kString},
      {"rotary_dim", kInt},        {"rotary_interleaved", kInt}, {"causal", kString},
      {"window_left", kInt},       {"window_right", kInt},       {"softcap", kFloat},
      {"kv_cache", kString},       {"input_roles", kString},     {"output_roles", kString},
      {"plugin_version", kString}, {"plugin_namespace", kString}};
  return kFields;
}

Fields::Fields(const nvinfer1::PluginFieldCollection& collection) {
  for (int32_t i = 0; i < collection.nbFields; ++i) add(collection.fields[i]);
}

void Fields::add(const PluginField& field) {
  const std::string name = field.name == nullptr ? "" : field.name;
  const Field* known = find_field(name);
  if (known == nullptr) op::refuse("has no attribute of that name", "'" + name + "'");
  const bool is_text = known->type == PluginFieldType::kCHAR;
  const bool has_data = field.data != nullptr || field.length == 0;
  if (field.type != known->type || !has_data || (is_text ? field.length < 0 : field.length != 1)) {
    op::refuse(op::subject(known->name) + "must be " + type_name(known->type),
               "field type " + std::to_string(static_cast<int>(field.type)) + " of length " +
                   std::to_string(field.length));
  }
  if (known->type == PluginFieldType::kINT32) {
    ints_[name] = *static_cast<const int32_t*>(field.data);
  } else if (known->type == PluginFieldType::kFLOAT32) {
    floats_[name] = *static_cast<const float*>(field.data);
  } else {
    std::string value(static_cast<const char*>(field.data), static_cast<size_t>(field.length));
    // Some callers count a terminator in.
    while (!value.empty() && value.back() == '\0') value.pop_back();
    strings_[name] = value;
  }
}

bool Fields::read_int(const char* name, int64_t& value) const {
  return find_value(ints_, name, value);
}

bool Fields::read_float(const char* name, float& value) const {
  return find_value(floats_, name, value);
}

bool Fields::read_string(const char* name, std::string& value) const {
  return find_value(strings_, name, value);
}

std::string Fields::string_or_empty(const char* name) const {
  std::string value;
  return read_string(name, value) ? value : std::string();
}

std::string Fields::text() const {
  std::string result;
  for (const Field& field : operator_fields()) {
    int64_t number = 0;
    float real = 0.0f;
    std::string value = string_or_empty(field.name);
    if (read_int(field.name, number)) value = std::to_string(number);
    if (read_float(field.name, real)) value = shortest(real);
    result += (result.empty() ? "" : ",") + std::string(field.name) + "=" + value;
  }
  return result;
}

std::vector<PluginField> Fields::plugin_fields() const {
  std::vector<PluginField> result;
  for (const auto& [name, value] : ints_) {
    result.emplace_back(name.c_str(), &value, PluginFieldType::kINT32, 1);
  }
  for (const auto& [name, value] : floats_) {
    result.emplace_back(name.c_str(), &value, PluginFieldType::kFLOAT32, 1);
  }
  for (const auto& [name, value] : strings_) {
    result.emplace_back(name.c_str(), value.data(), PluginFieldType::kCHAR,
                        static_cast<int32_t>(value.size()));
  }
  return result;
}

}  // namespace qkexport::trt
