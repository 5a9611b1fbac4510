/* C interface of libqkexport_cuda.so. Include attention_params.h for the struct (C++), or lay it
 * out by the same rules; qkexport_attention_params_size() lets a caller check that both agree. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
#include "qkexport/attention_params.h"
extern "C" {
typedef qkexport::AttentionParams QkexportAttentionParams;
#else
typedef struct QkexportAttentionParams QkexportAttentionParams;
#endif

#define QKEXPORT_API __attribute__((visibility("default")))

/* sizeof(AttentionParams) as the library was built. */
QKEXPORT_API size_t qkexport_attention_params_size(void);

/* Whether there is a kernel for these sizes and types: a qkexport::Status as int. */
QKEXPORT_API int qkexport_attention_cuda_can_implement(const QkexportAttentionParams* params);

/* Bytes of device memory that a call needs, aligned as cudaMalloc aligns; 0 where refused. */
QKEXPORT_API size_t qkexport_attention_cuda_workspace_size(const QkexportAttentionParams* params);

/* Enqueues the attention on a cudaStream_t of the current device. Returns a qkexport::Status. */
QKEXPORT_API int qkexport_attention_cuda(const QkexportAttentionParams* params, void* workspace,
                                         size_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif
