#include "qkexport_host.h"

#include <algorithm>
#include <string>

#include "engine.h"
#include "plugin_library.h"

using qkexport::host::Context;
using qkexport::host::Engine;
using qkexport::host::PluginLibrary;
using qkexport::host::Profile;

struct QkexportPluginLibrary {
  PluginLibrary library;
};

struct QkexportPluginEngine {
  Engine engine;
};

struct QkexportPluginContext {
  Context context;
};

namespace {

static_assert(QKEXPORT_HOST_MAX_DIMS == nvinfer1::Dims::MAX_DIMS);

thread_local std::string t_error;
thread_local std::string t_field_names;

// No exception crosses the C interface: its text becomes the error.
template <typename Result, typename Function>
Result guarded(Result failed, Function function) noexcept {
  try {
    return function();
  } catch (const std::exception& error) {
    t_error = error.what();
  } catch (...) {
    t_error = "Plugin host failed for an unknown reason.";
  }
  return failed;
}

nvinfer1::Dims dims_of(const QkexportPluginDims& dims) {
  if (dims.rank < 0 || dims.rank > QKEXPORT_HOST_MAX_DIMS) {
    qkexport::host::fail("Rank must be at most 8, got " + std::to_string(dims.rank) + ".");
  }
  nvinfer1::Dims result = {};
  result.nbDims = dims.rank;
  std::copy_n(dims.sizes, dims.rank, result.d);
  return result;
}

std::vector<Profile> profiles_of(const QkexportPluginInput* inputs, int32_t num_inputs,
                                 int32_t num_profiles) {
  std::vector<Profile> profiles(static_cast<size_t>(num_profiles));
  for (Profile& profile : profiles) {
    for (int32_t i = 0; i < num_inputs; ++i, ++inputs) {
      profile.push_back({static_cast<nvinfer1::DataType>(inputs->type), dims_of(inputs->min),
                         dims_of(inputs->opt), dims_of(inputs->max)});
    }
  }
  return profiles;
}

std::vector<nvinfer1::PluginField> fields_of(const QkexportPluginField* fields, int32_t count) {
  std::vector<nvinfer1::PluginField> result;
  for (int32_t i = 0; i < count; ++i) {
    result.emplace_back(fields[i].name, fields[i].data,
                        static_cast<nvinfer1::PluginFieldType>(fields[i].type), fields[i].length);
  }
  return result;
}

}  // namespace

const char* qkexport_host_error(void) { return t_error.c_str(); }

QkexportPluginLibrary* qkexport_host_open(const char* path) {
  return guarded<QkexportPluginLibrary*>(
      nullptr, [&] { return new QkexportPluginLibrary{PluginLibrary(path)}; });
}

void qkexport_host_close(QkexportPluginLibrary* library) { delete library; }

const char* qkexport_host_field_names(const QkexportPluginLibrary* library, const char* name,
                                      const char* version, const char* plugin_namespace) {
  return guarded<const char*>(nullptr, [&] {
    const auto* fields = library->library.creator(name, version, plugin_namespace).getFieldNames();
    t_field_names.clear();
    for (int32_t i = 0; fields != nullptr && i < fields->nbFields; ++i) {
      t_field_names += (i == 0 ? "" : ",") + std::string(fields->fields[i].name) + "=" +
                       std::to_string(static_cast<int32_t>(fields->fields[i].type));
    }
    return t_field_names.c_str();
  });
}

QkexportPluginEngine* qkexport_host_build(const QkexportPluginLibrary* library, const char* name,
                                          const char* version, const char* plugin_namespace,
                                          const QkexportPluginField* fields, int32_t num_fields,
                                          const QkexportPluginInput* inputs, int32_t num_inputs,
                                          int32_t num_profiles) {
  return guarded<QkexportPluginEngine*>(nullptr, [&] {
    const auto copied = fields_of(fields, num_fields);
    return new QkexportPluginEngine{Engine(library->library, {name, version, plugin_namespace},
                                           {num_fields, copied.data()},
                                           profiles_of(inputs, num_inputs, num_profiles))};
  });
}

void qkexport_host_destroy(QkexportPluginEngine* engine) { delete engine; }

int32_t qkexport_host_num_outputs(const QkexportPluginEngine* engine) {
  return static_cast<int32_t>(engine->engine.output_types().size());
}

int32_t qkexport_host_output_type(const QkexportPluginEngine* engine, int32_t output) {
  return static_cast<int32_t>(engine->engine.output_types()[static_cast<size_t>(output)]);
}

size_t qkexport_host_workspace_size(const QkexportPluginEngine* engine, int32_t profile) {
  return engine->engine.workspace_size(static_cast<size_t>(profile));
}

const char* qkexport_host_metadata(const QkexportPluginEngine* engine) {
  return engine->engine.metadata().c_str();
}

const char* qkexport_host_timing_cache_id(const QkexportPluginEngine* engine) {
  return engine->engine.timing_cache_id().c_str();
}

int32_t qkexport_host_aliased_input(const QkexportPluginEngine* engine, int32_t output) {
  return engine->engine.aliased_input(static_cast<size_t>(output));
}

QkexportPluginContext* qkexport_host_attach(const QkexportPluginEngine* engine, int32_t profile) {
  return guarded<QkexportPluginContext*>(nullptr, [&] {
    if (profile < 0 || static_cast<size_t>(profile) >= engine->engine.num_profiles()) {
      qkexport::host::fail("Engine must have the profile, got " + std::to_string(profile) + ".");
    }
    return new QkexportPluginContext{Context(engine->engine, static_cast<size_t>(profile))};
  });
}

void qkexport_host_detach(QkexportPluginContext* context) { delete context; }

int qkexport_host_set_shapes(QkexportPluginContext* context, const QkexportPluginDims* inputs,
                             int32_t num_inputs, QkexportPluginDims* outputs) {
  return guarded(1, [&] {
    std::vector<nvinfer1::Dims> dims;
    for (int32_t i = 0; i < num_inputs; ++i) dims.push_back(dims_of(inputs[i]));
    for (const nvinfer1::Dims& output : context->context.set_shapes(dims)) {
      outputs->rank = output.nbDims;
      std::copy_n(output.d, output.nbDims, outputs->sizes);
      ++outputs;
    }
    return 0;
  });
}

int qkexport_host_enqueue(QkexportPluginContext* context, const void* const* inputs,
                          void* const* outputs, void* workspace, void* stream) {
  return guarded(1, [&] {
    context->context.enqueue(inputs, outputs, workspace, static_cast<cudaStream_t>(stream));
    return 0;
  });
}
