// QKNormAttention on a CUDA device: the whole interface of the kernels in this folder.
//
// The three verbs neither throw, print, allocate, synchronize nor exit. Everything a launch needs
// is in AttentionParams; everything it writes is in the output, the presents and the workspace.
#pragma once

#include <cstddef>

#include "qkexport/attention_params.h"

struct CUstream_st;

namespace qkexport::cuda {

using Stream = CUstream_st*;  // the same type as cudaStream_t

// Bytes. cudaMalloc's own alignment.
inline constexpr std::size_t kWorkspaceAlignment = 256;

// Whether run() has a kernel for these sizes and types. Looks at no pointer's target and needs no
// device.
Status can_implement(const AttentionParams& params);

// Bytes of device memory that run() needs for these sizes; the same on every device.
std::size_t workspace_size(const AttentionParams& params);

// The most bytes that any call needs whose sizes lie between these, both included: no byte more
// than the largest of those calls. Presents must be other tensors than the past.
std::size_t workspace_bound(const AttentionParams& smallest, const AttentionParams& largest);

// Enqueues the launches on `stream`. `workspace` is device memory, aligned to kWorkspaceAlignment;
// it may be null where workspace_size(params) is 0.
Status run(const AttentionParams& params, void* workspace, std::size_t workspace_bytes,
           Stream stream);

}  // namespace qkexport::cuda
