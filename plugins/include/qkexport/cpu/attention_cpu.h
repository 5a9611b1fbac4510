// The CPU implementation of QKNormAttention: can_implement, workspace_size, run.
//
// Nothing here throws, prints, allocates or starts a thread. The caller brings the workspace and a
// way to run tasks in parallel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/cpu/plan.h"

namespace qkexport::cpu {

// Runs task(data, 0) ... task(data, tasks - 1), in any order, on any threads, and returns when all
// have returned. Tasks do not wait for one another.
struct Parallel {
  void* context;
  int64_t workers;  // how many threads may be at work; bounds the scratch memory
  void (*run)(void* context, int64_t tasks, void (*task)(void* data, int64_t index), void* data);
};

// The kernels of an instruction set by name (portable, avx2, avx512, amx); with null the best that
// this processor has. Null if there is none of that name or the processor lacks it.
const KernelTable* find_kernels(const char* name);

// The names that find_kernels accepts on this processor, best last: "portable, avx2".
const char* available_kernels();

// Those that compute a call which `kernels` were chosen for: themselves, or others they leave it
// to.
const KernelTable& serving_kernels(const KernelTable& kernels, const AttentionParams& params);

Status can_implement(const AttentionParams& params);

// Bytes that run() needs for these sizes, lengths and this number of workers.
size_t workspace_size(const KernelTable& kernels, const AttentionParams& params, int64_t workers);

// Computes the attention. Position ids outside their cache give kInvalidPosition, and then nothing
// was written.
Status run(const KernelTable& kernels, const AttentionParams& params, void* workspace,
           size_t workspace_bytes, const Parallel& parallel);

}  // namespace qkexport::cpu
