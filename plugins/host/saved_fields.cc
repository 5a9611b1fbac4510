#include "saved_fields.h"

namespace qkexport::host {
namespace {

size_t element_bytes(nvinfer1::PluginFieldType type) {
  using nvinfer1::PluginFieldType;
  switch (type) {
    case PluginFieldType::kFLOAT64:
    case PluginFieldType::kINT64:
      return 8;
    case PluginFieldType::kFLOAT32:
    case PluginFieldType::kINT32:
      return 4;
    case PluginFieldType::kFLOAT16:
    case PluginFieldType::kBF16:
    case PluginFieldType::kINT16:
      return 2;
    case PluginFieldType::kDIMS:
      return sizeof(nvinfer1::Dims);
    default:
      return 1;
  }
}

}  // namespace

SavedFields::SavedFields(const nvinfer1::PluginFieldCollection& collection) {
  const auto count = static_cast<size_t>(collection.nbFields);
  names_.reserve(count);
  data_.reserve(count);
  fields_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const nvinfer1::PluginField& field = collection.fields[i];
    const auto* bytes = static_cast<const std::byte*>(field.data);
    const size_t size =
        bytes == nullptr ? 0 : element_bytes(field.type) * static_cast<size_t>(field.length);
    names_.emplace_back(field.name);
    data_.emplace_back(bytes, bytes + size);
    fields_.emplace_back(names_.back().c_str(), data_.back().data(), field.type, field.length);
  }
  collection_ = {static_cast<int32_t>(count), fields_.data()};
}

}  // namespace qkexport::host
