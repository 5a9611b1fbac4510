/* C interface of libqkexport_cpu.so. Include attention_params.h for the struct (C++), or lay it out
 * by the same rules; qkexport_attention_params_size() lets a caller check that both agree. */
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

/* The instruction set that runs: the value of QKEXPORT_CPU_ISA, else the best that the processor
 * has. Null if QKEXPORT_CPU_ISA names one that it lacks. */
QKEXPORT_API const char* qkexport_cpu_isa(void);

/* The names that QKEXPORT_CPU_ISA may have on this processor. */
QKEXPORT_API const char* qkexport_cpu_available_isas(void);

/* Bytes of workspace that a call with this many threads needs; 0 if the parameters are refused. */
QKEXPORT_API size_t qkexport_attention_cpu_workspace_size(const QkexportAttentionParams* params,
                                                          int num_threads);

/* Computes the attention. Returns a qkexport::Status as int, or -1 if qkexport_cpu_isa() is null.
 */
QKEXPORT_API int qkexport_attention_cpu(const QkexportAttentionParams* params, void* workspace,
                                        size_t workspace_bytes, int num_threads);

#ifdef __cplusplus
}
#endif
