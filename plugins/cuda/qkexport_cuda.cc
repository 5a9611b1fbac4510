#include "qkexport/cuda/qkexport_cuda.h"

#include "qkexport/cuda/attention_cuda.h"

size_t qkexport_attention_params_size(void) { return sizeof(qkexport::AttentionParams); }

int qkexport_attention_cuda_can_implement(const QkexportAttentionParams* params) {
  return static_cast<int>(qkexport::cuda::can_implement(*params));
}

size_t qkexport_attention_cuda_workspace_size(const QkexportAttentionParams* params) {
  return qkexport::cuda::workspace_size(*params);
}

int qkexport_attention_cuda(const QkexportAttentionParams* params, void* workspace,
                            size_t workspace_bytes, void* stream) {
  return static_cast<int>(qkexport::cuda::run(*params, workspace, workspace_bytes,
                                              static_cast<qkexport::cuda::Stream>(stream)));
}
