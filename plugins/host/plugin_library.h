// A library of TensorRT plugins, opened as a plugin registry opens it.
#pragma once

#include <NvInferRuntime.h>

#include <stdexcept>
#include <string>

namespace qkexport::host {

// What went wrong, with what the plugin logged about it.
class HostError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The messages that plugins logged on this thread since the last call, errors only, one a line.
std::string take_log();

// Throws HostError with `what` and the plugin's own messages.
[[noreturn]] void fail(const std::string& what);

class PluginLibrary {
 public:
  explicit PluginLibrary(const char* path);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  nvinfer1::IPluginCreatorV3One& creator(const std::string& name, const std::string& version,
                                         const std::string& plugin_namespace) const;

 private:
  void* handle_;
};

}  // namespace qkexport::host
