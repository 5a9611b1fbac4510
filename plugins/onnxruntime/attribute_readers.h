// The attributes of a node, as a kernel and as shape inference read them.
#pragma once

#include <onnxruntime_c_api.h>

#include <string>

#include "qkexport/op/spec.h"

namespace qkexport::ort {

class KernelAttributes : public op::AttributeReader {
 public:
  explicit KernelAttributes(const OrtKernelInfo* info) : info_(info) {}
  bool read_int(const char* name, int64_t& value) const override;
  bool read_float(const char* name, float& value) const override;
  bool read_string(const char* name, std::string& value) const override;

 private:
  const OrtKernelInfo* info_;
};

class InferenceAttributes : public op::AttributeReader {
 public:
  explicit InferenceAttributes(const OrtShapeInferContext* context) : context_(context) {}
  bool read_int(const char* name, int64_t& value) const override;
  bool read_float(const char* name, float& value) const override;
  bool read_string(const char* name, std::string& value) const override;

 private:
  bool read(const char* name, OrtOpAttrType type, void* data, size_t bytes) const;
  const OrtShapeInferContext* context_;
};

// A string attribute, or "" where the node has none of that name.
std::string read_or_empty(const op::AttributeReader& reader, const char* name);

}  // namespace qkexport::ort
