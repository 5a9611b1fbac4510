// What run() does for given parameters, decided on the host: which kernels, how many blocks, where
// intermediate results stand in the workspace, and the arguments that the kernels share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_arguments.h"

namespace qkexport::cuda {

// Two blocks on each of the 132 multiprocessors of an H100. A constant instead of a query of the
// device: workspaces and results are the same everywhere. Batches beyond it are never split.
inline constexpr int64_t kTargetBlocks = 264;

// Below this many queries, heads that share a kv head are packed into one tile of rows, and keys
// are split over blocks.
inline constexpr int64_t kDecodeSeqlen = 64;

// What the choice of kernels depends on beside the parameters.
struct DeviceFeatures {
  int compute_capability;  // 80 for 8.0
};

enum class AttentionPath { kTensorCore, kSimt };

struct LaunchPlan {
  AttentionPath path;
  int head_dim_bucket;  // largest head_dim of the chosen instantiation: 64, 128, 256 or 512
  int key_block;        // keys per step of the tensor-core kernel

  bool normalizes_hidden;  // norm_axis "hidden": the statistics pass runs
  bool keys_in_workspace;  // transformed keys that no present asks for
  bool bounds_scores;      // the prologue leaves the largest norm of the keys
  int64_t statistics_blocks;
  int64_t prologue_blocks;
  int64_t attention_blocks;
  int64_t combine_blocks;
  KernelArguments arguments;  // no pointer into the workspace yet
};

LaunchPlan make_plan(const AttentionParams& params, const DeviceFeatures& device);

}  // namespace qkexport::cuda
