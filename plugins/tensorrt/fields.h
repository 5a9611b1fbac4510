// The operator's attributes as plugin fields: read from TensorRT, kept, and handed back to it.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "qkexport/op/spec.h"

namespace qkexport::trt {

// One attribute as TensorRT carries it: INT as int32, STRING as characters without a terminator.
struct Field {
  const char* name;
  nvinfer1::PluginFieldType type;
};

// Every attribute of the operator, in the order of the contract.
const std::vector<Field>& operator_fields();

// The attributes of one node, by value.
class Fields : public op::AttributeReader {
 public:
  // Throws op::Refusal where a field is unknown, missing, or has another type or length.
  explicit Fields(const nvinfer1::PluginFieldCollection& collection);

  bool read_int(const char* name, int64_t& value) const override;
  bool read_float(const char* name, float& value) const override;
  bool read_string(const char* name, std::string& value) const override;
  std::string string_or_empty(const char* name) const;

  // `name=value` of every attribute, comma-separated, in the order of the contract.
  std::string text() const;
  // Pointers into this object, which must outlive the result.
  std::vector<nvinfer1::PluginField> plugin_fields() const;

 private:
  void add(const nvinfer1::PluginField& field);

  std::map<std::string, int32_t> ints_;
  std::map<std::string, float> floats_;
  std::map<std::string, std::string> strings_;
};

}  // namespace qkexport::trt
