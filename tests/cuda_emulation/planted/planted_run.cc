// run() with the fp16 kernels of head_dim up to 64 alone, so that a copy of the kernels with a bug
// planted in it compiles in seconds, and the cases that must expose the bug.
#include <cstdio>

#include "check.h"
#include "launchers/attention.cuh"
#include "launchers/passes.cuh"
#include "workspace_layout.h"

namespace qkexport::cuda {

std::size_t workspace_size(const AttentionParams& params) {
  return layout_workspace(make_plan(params, {80})).size;
}

Status run(const AttentionParams& params, void* workspace, std::size_t /*workspace_bytes*/,
           Stream stream) {
  const LaunchPlan plan = make_plan(params, {80});
  const KernelArguments arguments = resolve_arguments(plan, workspace);
  Status status = launch_key_prologue<Half, 128>(arguments, plan.prologue_blocks, stream);
  if (status == Status::kSuccess) {
    status = launch_attention<Half, 64>(arguments, plan.attention_blocks, plan.key_block, stream);
  }
  if (status == Status::kSuccess && plan.combine_blocks > 0) {
    status = launch_combine<Half>(arguments, plan.combine_blocks, stream);
  }
  return status;
}

}  // namespace qkexport::cuda

namespace {

using namespace qkexport;
using cases::AttentionCase;

AttentionCase base_case() {
  AttentionCase c;
  c.seqlen_q = 129;
  c.seqlen_kv = 257;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = c.head_dim_v = 64;
  c.rotary = Rotary::kAfterNorm;
  c.rotary_dim = 64;
  return c;
}

AttentionCase misaligned_case() {
  AttentionCase c = base_case();
  c.misalignment = 1;
  return c;
}

AttentionCase nonfinite_case() {
  AttentionCase c = base_case();
  c.seqlen_kv = c.seqlen_q;
  c.causal = Causal::kLowerRight;
  c.fill = cases::Fill::kNonfiniteRows;
  return c;
}

AttentionCase decode_case() {
  AttentionCase c = base_case();
  c.seqlen_q = 3;
  c.seqlen_past = 1024;
  c.seqlen_kv = 3;
  c.causal = Causal::kLowerRight;
  return c;
}

AttentionCase window_case() {
  AttentionCase c = base_case();
  c.window_left = 70;
  c.window_right = 3;
  c.scale = 2.0f;  // beyond the bound of the fixed maximum
  return c;
}

AttentionCase grouped_case() {
  AttentionCase c = base_case();
  c.num_heads = 4;
  c.num_kv_heads = 2;
  return c;
}

AttentionCase segments_case() {
  AttentionCase c = base_case();
  c.seqlen_kv = c.seqlen_q;
  c.num_segments = 3;
  c.scale = 1.0f;
  return c;
}

}  // namespace

int main() {
  int failed = 0;
  for (AttentionCase c : {base_case(), misaligned_case(), nonfinite_case(), decode_case(),
                          window_case(), grouped_case(), segments_case()}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      c.seed = seed;
      const cases::CheckResult result = cases::check_case(c);
      if (result.passed) continue;
      ++failed;
      std::printf("FAILED %s\n", result.message.c_str());
    }
  }
  std::printf("%d failed\n", failed);
  return failed == 0 ? 0 : 1;
}
