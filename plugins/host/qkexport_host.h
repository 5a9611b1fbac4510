/* C interface of libqkexport_host.so: drives any TensorRT plugin library without TensorRT.
 *
 * Functions that return a pointer return null, and those that return int return non-zero, where
 * something was refused; qkexport_host_error() then says what, on the same thread. Types are
 * nvinfer1::DataType and nvinfer1::PluginFieldType as numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QKEXPORT_HOST_API __attribute__((visibility("default")))
#define QKEXPORT_HOST_MAX_DIMS 8

typedef struct QkexportPluginLibrary QkexportPluginLibrary;
typedef struct QkexportPluginEngine QkexportPluginEngine;
typedef struct QkexportPluginContext QkexportPluginContext;

typedef struct {
  const char* name;
  const void* data;
  int32_t type;
  int32_t length; /* elements */
} QkexportPluginField;

typedef struct {
  int32_t rank;
  int64_t sizes[QKEXPORT_HOST_MAX_DIMS];
} QkexportPluginDims;

typedef struct {
  int32_t type;
  QkexportPluginDims min;
  QkexportPluginDims opt;
  QkexportPluginDims max;
} QkexportPluginInput;

QKEXPORT_HOST_API const char* qkexport_host_error(void);

QKEXPORT_HOST_API QkexportPluginLibrary* qkexport_host_open(const char* path);
QKEXPORT_HOST_API void qkexport_host_close(QkexportPluginLibrary* library);

/* The fields that a creator names, as "name=type" with commas between, valid on this thread until
 * the next call; null where there is no such creator. */
QKEXPORT_HOST_API const char* qkexport_host_field_names(const QkexportPluginLibrary* library,
                                                        const char* name, const char* version,
                                                        const char* plugin_namespace);

/* Builds, serializes and re-creates the plugin. `inputs` holds num_inputs entries for each of the
 * optimization profiles, profile after profile. The library must outlive the engine. */
QKEXPORT_HOST_API QkexportPluginEngine* qkexport_host_build(
    const QkexportPluginLibrary* library, const char* name, const char* version,
    const char* plugin_namespace, const QkexportPluginField* fields, int32_t num_fields,
    const QkexportPluginInput* inputs, int32_t num_inputs, int32_t num_profiles);
QKEXPORT_HOST_API void qkexport_host_destroy(QkexportPluginEngine* engine);
QKEXPORT_HOST_API int32_t qkexport_host_num_outputs(const QkexportPluginEngine* engine);
QKEXPORT_HOST_API int32_t qkexport_host_output_type(const QkexportPluginEngine* engine,
                                                    int32_t output);
QKEXPORT_HOST_API size_t qkexport_host_workspace_size(const QkexportPluginEngine* engine,
                                                      int32_t profile);
QKEXPORT_HOST_API const char* qkexport_host_metadata(const QkexportPluginEngine* engine);
QKEXPORT_HOST_API const char* qkexport_host_timing_cache_id(const QkexportPluginEngine* engine);
/* The input that an output may share its memory with, or -1. */
QKEXPORT_HOST_API int32_t qkexport_host_aliased_input(const QkexportPluginEngine* engine,
                                                      int32_t output);

/* The engine must outlive its contexts. A context serves one thread at a time. */
QKEXPORT_HOST_API QkexportPluginContext* qkexport_host_attach(const QkexportPluginEngine* engine,
                                                              int32_t profile);
QKEXPORT_HOST_API void qkexport_host_detach(QkexportPluginContext* context);
/* Announces the shapes of the next calls; fills `outputs`, one for each output of the engine. */
QKEXPORT_HOST_API int qkexport_host_set_shapes(QkexportPluginContext* context,
                                               const QkexportPluginDims* inputs, int32_t num_inputs,
                                               QkexportPluginDims* outputs);
/* Pointers are of the device that the plugin runs on; stream is a cudaStream_t. */
QKEXPORT_HOST_API int qkexport_host_enqueue(QkexportPluginContext* context,
                                            const void* const* inputs, void* const* outputs,
                                            void* workspace, void* stream);

#ifdef __cplusplus
}
#endif
