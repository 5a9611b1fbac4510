/* C interface of libqkexport_ort_plugin.so, beside RegisterCustomOps: an operator library for ONNX
 * Runtime whose QKNormAttention runs on a TensorRT plugin, without TensorRT. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The plugin library of sessions made from now on; its kernels must run on the CPU's memory. */
__attribute__((visibility("default"))) void qkexport_ort_plugin_use(const char* path);
/* How many attentions the plugin has computed in this process. */
__attribute__((visibility("default"))) int64_t qkexport_ort_plugin_calls(void);

#ifdef __cplusplus
}
#endif
