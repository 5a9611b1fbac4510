#include "launch_plan.h"

#include <algorithm>

#include "tile_config.cuh"

namespace qkexport::cuda {
namespace {

// A split shorter than this pays more for its combination than it gains.
constexpr int64_t kSplitKeys = 256;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int bucket(const AttentionParams& p) {
  const int64_t width = std::max(p.head_dim, p.head_dim_v);
  return width <= 64 ? 64 : width <= 128 ? 128 : width <= 256 ? 256 : 512;
}

// sm_80 brought bf16 to the tensor cores and asynchronous copies. Kernels decide by what they are
// compiled for, which is older than the device nowhere: CMakeLists.txt embeds no PTX before 80.
bool is_ampere_or_newer(const DeviceFeatures& device) { return device.compute_capability >= 80; }

// Before it 64 KiB of shared memory end at head_dim 128.
AttentionPath choose_path(const AttentionParams& p, const DeviceFeatures& device) {
  const int limit = is_ampere_or_newer(device) ? 256 : 128;
  const bool has_type = p.dtype == DataType::kFloat16 ||
                        (p.dtype == DataType::kBFloat16 && is_ampere_or_newer(device));
  return has_type && bucket(p) <= limit ? AttentionPath::kTensorCore : AttentionPath::kSimt;
}

// Kernels without tensor cores are few: float32 starts at 128, the 16-bit types have only 512.
int simt_bucket(const AttentionParams& p) {
  return p.dtype == DataType::kFloat32 ? std::max(bucket(p), 128) : 512;
}

void plan_statistics(LaunchPlan& plan) {
  const AttentionParams& p = plan.arguments.params;
  plan.normalizes_hidden = p.norm_axis == NormAxis::kHidden;
  const int64_t keys = p.normalize_key ? p.batch_size * p.seqlen_kv : 0;
  const int64_t tokens = plan.normalizes_hidden ? p.batch_size * p.seqlen_q + keys : 0;
  plan.statistics_blocks = divide_up(tokens, kAttentionWarps);
}

bool copies_past(const StridedTensor& past, const StridedTensor& present) {
  return present.data != nullptr && past.data != nullptr && past.data != present.data;
}

void plan_prologue(LaunchPlan& plan) {
  KernelArguments& a = plan.arguments;
  const AttentionParams& p = a.params;
  a.key_target_is_present = p.present_key.data != nullptr;
  plan.keys_in_workspace = p.normalize_key && !a.key_target_is_present;
  a.copies_past_key = copies_past(p.past_key, p.present_key);
  a.copies_past_value = copies_past(p.past_value, p.present_value);
  a.copies_past = a.copies_past_key || a.copies_past_value;
  const bool runs =
      plan.keys_in_workspace || a.key_target_is_present || p.present_value.data != nullptr;
  const int64_t rows = !runs ? 0 : a.copies_past ? p.seqlen_total : p.seqlen_kv;
  a.num_key_tiles = static_cast<int>(divide_up(rows, key_tile_rows(plan.head_dim_bucket)));
  plan.prologue_blocks = p.batch_size * p.num_kv_heads * a.num_key_tiles;
}

// Scores can be bounded where the prologue sees every key and the mask adds nothing. Decoding does
// not need it: its time is the reading of keys.
void plan_bound(LaunchPlan& plan) {
  const KernelArguments& a = plan.arguments;
  const AttentionParams& p = a.params;
  const bool sees_keys = plan.keys_in_workspace || a.key_target_is_present;
  const bool sees_past = a.copies_past_key || p.past_key.data == nullptr;
  const bool adds_mask = p.mask.data != nullptr && p.mask.dtype != DataType::kBool;
  plan.bounds_scores = plan.path == AttentionPath::kTensorCore && plan.prologue_blocks > 0 &&
                       sees_keys && sees_past && !adds_mask && p.seqlen_q >= kDecodeSeqlen;
}

void plan_attention(LaunchPlan& plan) {
  KernelArguments& a = plan.arguments;
  const AttentionParams& p = a.params;
  const bool decodes = p.seqlen_q < kDecodeSeqlen;
  const int rows = plan.path == AttentionPath::kTensorCore
                       ? attention_block_rows(plan.head_dim_bucket)
                       : simt_block_rows(plan.head_dim_bucket);
  a.heads_per_tile = static_cast<int>(decodes ? p.num_heads / p.num_kv_heads : 1);
  const int64_t tiles = divide_up(p.seqlen_q * a.heads_per_tile, rows);
  const int64_t blocks = p.batch_size * (p.num_heads / a.heads_per_tile) * tiles;
  a.num_splits = 1;
  if (decodes && blocks > 0) {
    const int64_t wanted = std::min(kTargetBlocks / blocks, p.seqlen_total / kSplitKeys);
    a.num_splits = static_cast<int>(std::max<int64_t>(1, wanted));
  }
  constexpr float kLog2E = 1.4426950408889634f;
  a.exponent_factor = plan.path == AttentionPath::kTensorCore ? 1.0f : kLog2E;
  plan.attention_blocks = blocks * a.num_splits;
  plan.combine_blocks = a.num_splits > 1 ? p.batch_size * p.num_heads * p.seqlen_q : 0;
  const bool plain_mask = p.mask.data == nullptr || p.mask.dtype == DataType::kBool;
  a.plain_scores = p.head_scale == nullptr && p.softcap == 0.0f && p.scale > 0.0f && plain_mask;
}

}  // namespace

LaunchPlan make_plan(const AttentionParams& params, const DeviceFeatures& device) {
  LaunchPlan plan{};
  plan.arguments.params = params;
  plan.path = choose_path(params, device);
  plan.head_dim_bucket =
      plan.path == AttentionPath::kTensorCore ? bucket(params) : simt_bucket(params);
  plan.key_block = key_block(plan.head_dim_bucket, is_ampere_or_newer(device));
  plan_statistics(plan);
  plan_prologue(plan);
  plan_bound(plan);
  plan_attention(plan);
  return plan;
}

}  // namespace qkexport::cuda
