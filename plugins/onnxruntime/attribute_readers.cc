#include "attribute_readers.h"

#include "ort_api.h"

namespace qkexport::ort {
namespace {

// True when there was no error; an error is dropped, it says that the attribute is missing.
bool succeeded(OrtStatus* status) {
  if (status == nullptr) return true;
  api().ReleaseStatus(status);
  return false;
}

}  // namespace

bool KernelAttributes::read_int(const char* name, int64_t& value) const {
  return succeeded(api().KernelInfoGetAttribute_int64(info_, name, &value));
}

bool KernelAttributes::read_float(const char* name, float& value) const {
  return succeeded(api().KernelInfoGetAttribute_float(info_, name, &value));
}

bool KernelAttributes::read_string(const char* name, std::string& value) const {
  size_t size = 0;  // counts the terminator
  if (!succeeded(api().KernelInfoGetAttribute_string(info_, name, nullptr, &size))) return false;
  std::string buffer(size, '\0');
  if (!succeeded(api().KernelInfoGetAttribute_string(info_, name, buffer.data(), &size))) {
    return false;
  }
  value.assign(buffer.c_str());
  return true;
}

bool InferenceAttributes::read(const char* name, OrtOpAttrType type, void* data,
                               size_t bytes) const {
  const OrtOpAttr* attribute = nullptr;
  if (!succeeded(api().ShapeInferContext_GetAttribute(context_, name, &attribute))) return false;
  if (attribute == nullptr) return false;
  size_t needed = 0;
  return succeeded(api().ReadOpAttr(attribute, type, data, bytes, &needed));
}

bool InferenceAttributes::read_int(const char* name, int64_t& value) const {
  return read(name, ORT_OP_ATTR_INT, &value, sizeof value);
}

bool InferenceAttributes::read_float(const char* name, float& value) const {
  return read(name, ORT_OP_ATTR_FLOAT, &value, sizeof value);
}

bool InferenceAttributes::read_string(const char* name, std::string& value) const {
  // input_roles with all 18 names is the longest string a node can have.
  char buffer[512] = {};
  if (!read(name, ORT_OP_ATTR_STRING, buffer, sizeof buffer - 1)) return false;
  value.assign(buffer);
  return true;
}

std::string read_or_empty(const op::AttributeReader& reader, const char* name) {
  std::string value;
  return reader.read_string(name, value) ? value : std::string();
}

}  // namespace qkexport::ort
