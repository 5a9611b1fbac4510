// The pieces of the workspace, and the kernel arguments that point into it.
#pragma once

#include <cstddef>

#include "launch_plan.h"

namespace qkexport::cuda {

// Byte offsets; a piece that is not needed is empty.
struct WorkspaceLayout {
  std::size_t keys = 0;              // [B, Hkv, Skv, D]
  std::size_t query_statistics = 0;  // [B, Sq]
  std::size_t key_statistics = 0;    // [B, Skv]
  std::size_t key_norms = 0;         // [B, Hkv, num_key_tiles * warps]
  std::size_t partial_output = 0;    // [S, B, H, Sq, Dv]
  std::size_t partial_state = 0;     // [S, B, H, Sq]
  std::size_t size = 0;
};

WorkspaceLayout layout_workspace(const LaunchPlan& plan);

// The arguments of a plan with everything resolved: pointers into `workspace`, where keys and
// values are read from, and which tensors can be moved in 16-byte pieces.
KernelArguments resolve_arguments(const LaunchPlan& plan, void* workspace);

}  // namespace qkexport::cuda
