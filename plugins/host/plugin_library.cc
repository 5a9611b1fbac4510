#include "plugin_library.h"

#include <dlfcn.h>

#include <cstring>

namespace qkexport::host {
namespace {

using nvinfer1::ILogger;
using nvinfer1::IPluginCreatorInterface;
using nvinfer1::IPluginCreatorV3One;

thread_local std::string t_log;

class CapturingLogger : public ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity <= Severity::kERROR) t_log += std::string(message) + "\n";
  }
};

class LoggerFinder : public nvinfer1::ILoggerFinder {
 public:
  ILogger* findLogger() override { return &logger_; }

 private:
  CapturingLogger logger_;
};

// Plugins may log for as long as their library is loaded, which may be until the process ends.
LoggerFinder& logger_finder() {
  static LoggerFinder* const kFinder = new LoggerFinder;
  return *kFinder;
}

template <typename Function>
Function* symbol(void* handle, const char* name) {
  return reinterpret_cast<Function*>(dlsym(handle, name));
}

using GetCreators = IPluginCreatorInterface* const*(int32_t&);

bool is_v3(const IPluginCreatorInterface& creator) {
  return std::strcmp(creator.getInterfaceInfo().kind, "PLUGIN CREATOR_V3ONE") == 0;
}

}  // namespace

std::string take_log() {
  std::string log;
  log.swap(t_log);
  return log;
}

void fail(const std::string& what) {
  const std::string log = take_log();
  throw HostError(log.empty() ? what : what + "\n" + log.substr(0, log.size() - 1));
}

PluginLibrary::PluginLibrary(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw HostError(std::string("Plugin library must load: ") + dlerror());
  if (symbol<GetCreators>(handle_, "getCreators") == nullptr) {
    dlclose(handle_);
    throw HostError(std::string("Plugin library must export getCreators, got none in ") + path);
  }
  auto* set_finder = symbol<void(nvinfer1::ILoggerFinder*)>(handle_, "setLoggerFinder");
  if (set_finder != nullptr) set_finder(&logger_finder());
}

PluginLibrary::~PluginLibrary() { dlclose(handle_); }

IPluginCreatorV3One& PluginLibrary::creator(const std::string& name, const std::string& version,
                                            const std::string& plugin_namespace) const {
  int32_t count = 0;
  IPluginCreatorInterface* const* creators = symbol<GetCreators>(handle_, "getCreators")(count);
  std::string found;
  for (int32_t i = 0; i < count; ++i) {
    if (!is_v3(*creators[i])) continue;
    auto& creator = static_cast<IPluginCreatorV3One&>(*creators[i]);
    if (name == creator.getPluginName() && version == creator.getPluginVersion() &&
        plugin_namespace == creator.getPluginNamespace()) {
      return creator;
    }
    found += std::string(found.empty() ? "" : ", ") + creator.getPluginName() + " version " +
             creator.getPluginVersion() + " namespace '" + creator.getPluginNamespace() + "'";
  }
  throw HostError("Plugin library must have " + name + " version " + version + " namespace '" +
                  plugin_namespace + "', got " + (found.empty() ? "none" : found) + ".");
}

}  // namespace qkexport::host
