// libqkexport_trt_register.so: gives libqkexport_trt.so, which stands beside it, to the TensorRT of
// the process as soon as it is loaded itself.
//
// For programs that open a plugin library and expect it to register on its own, such as ONNX
// Runtime's TensorRT provider. libqkexport_trt.so does not: where the registry opens it, it would
// register twice.
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace {

// IPluginRegistry of this version of TensorRT; the headers at hand may be of another.
struct Runtime {
  const char* version;
  // Of loadLibrary in the virtual table: version 11 dropped four older functions before it.
  int load_library_slot;
};
constexpr Runtime kRuntimes[] = {{"11", 6}, {"10", 10}};

using GetRegistry = void*();
using LoadLibrary = void*(void* registry, const char* path);

bool load_into(void* registry, const Runtime& runtime, const std::string& plugin) {
  LoadLibrary** functions = *static_cast<LoadLibrary***>(registry);
  return functions[runtime.load_library_slot](registry, plugin.c_str()) != nullptr;
}

// Null where this TensorRT is not loaded; nothing is loaded here.
void* registry_of(const char* flavour, const Runtime& runtime) {
  const std::string name = std::string(flavour) + ".so." + runtime.version;
  void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* get = reinterpret_cast<GetRegistry*>(dlsym(library, "getPluginRegistry"));
  return get == nullptr ? nullptr : get();
}

std::string folder_of_this_library() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&folder_of_this_library), &info) == 0) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

__attribute__((constructor)) void register_plugin() {
  const std::string plugin = folder_of_this_library() + "libqkexport_trt.so";
  for (const char* flavour : {"libnvinfer", "libnvinfer_lean", "libnvinfer_dispatch"}) {
    for (const Runtime& runtime : kRuntimes) {
      void* registry = registry_of(flavour, runtime);
      if (registry == nullptr) continue;
      if (load_into(registry, runtime, plugin)) return;
      std::fprintf(stderr, "TensorRT's plugin registry must load %s, got a refusal.\n",
                   plugin.c_str());
      return;
    }
  }
  std::fprintf(stderr, "libqkexport_trt_register.so needs a TensorRT in the process, got none.\n");
}

}  // namespace
