#include <algorithm>

#include "device_features.h"
#include "kernels.h"
#include "qkexport/cuda/attention_cuda.h"
#include "workspace_layout.h"

namespace qkexport::cuda {
namespace {

// Positions, window edges and their sums are int in the kernels.
constexpr int64_t kMaxSeqlen = int64_t{1} << 28;
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

bool has_negative_size(const AttentionParams& p) {
  return p.batch_size < 0 || p.seqlen_q < 0 || p.seqlen_kv < 0 || p.seqlen_past < 0 ||
         p.seqlen_total < 0;
}

bool has_valid_heads(const AttentionParams& p) {
  return p.num_heads > 0 && p.num_kv_heads > 0 && p.num_heads % p.num_kv_heads == 0 &&
         p.head_dim > 0 && p.head_dim_v > 0;
}

// Also what no grid could cover, so that the products below stay inside 64 bits, and more rows than
// an int counts where all heads of a few queries are packed.
bool has_excessive_size(const AttentionParams& p) {
  return p.seqlen_q > kMaxSeqlen || p.seqlen_kv > kMaxSeqlen || p.seqlen_total > kMaxSeqlen ||
         p.head_dim > kMaxHeadDim || p.head_dim_v > kMaxHeadDim || p.batch_size > kMaxBlocks ||
         p.num_heads > kMaxBlocks / kDecodeSeqlen || p.batch_size * p.num_heads > kMaxBlocks;
}

bool has_valid_rotary(const AttentionParams& p) {
  if (p.rotary == Rotary::kNone) return true;
  const auto valid_width = [&p](const RotaryCache& cache) {
    return cache.width == p.rotary_dim || cache.width * 2 == p.rotary_dim;
  };
  return p.rotary_dim > 0 && p.rotary_dim % 2 == 0 && p.rotary_dim <= p.head_dim &&
         valid_width(p.query_rotary) && valid_width(p.key_rotary);
}

template <class T>
Status launch_tensor_core(const LaunchPlan& plan, const KernelArguments& a, Stream stream) {
  const int64_t blocks = plan.attention_blocks;
  const int keys = plan.key_block;
  switch (plan.head_dim_bucket) {
    case 64:
      return launch_attention<T, 64>(a, blocks, keys, stream);
    case 128:
      return launch_attention<T, 128>(a, blocks, keys, stream);
    case 256:
      return launch_attention<T, 256>(a, blocks, keys, stream);
    default:
      return Status::kUnsupportedSize;
  }
}

template <class T>
Status launch_path(const LaunchPlan& plan, const KernelArguments& a, Stream stream) {
  if (plan.path == AttentionPath::kTensorCore) return launch_tensor_core<T>(plan, a, stream);
  return launch_simt_attention<T, 512>(a, plan.attention_blocks, stream);
}

template <>
Status launch_path<float>(const LaunchPlan& plan, const KernelArguments& a, Stream stream) {
  const int64_t blocks = plan.attention_blocks;
  switch (plan.head_dim_bucket) {
    case 128:
      return launch_simt_attention<float, 128>(a, blocks, stream);
    case 256:
      return launch_simt_attention<float, 256>(a, blocks, stream);
    case 512:
      return launch_simt_attention<float, 512>(a, blocks, stream);
    default:
      return Status::kUnsupportedSize;
  }
}

template <class T>
Status launch_prologue(const LaunchPlan& plan, const KernelArguments& a, Stream stream) {
  if (plan.head_dim_bucket <= 128) {
    return launch_key_prologue<T, 128>(a, plan.prologue_blocks, stream);
  }
  return launch_key_prologue<T, 512>(a, plan.prologue_blocks, stream);
}

// The launches of one run, in their order; passes with nothing to do are left out.
template <class T>
Status launch_all(const LaunchPlan& plan, const KernelArguments& a, Stream stream) {
  Status status = Status::kSuccess;
  if (plan.statistics_blocks > 0) {
    status = launch_hidden_statistics<T>(a, plan.statistics_blocks, stream);
  }
  if (status == Status::kSuccess && plan.prologue_blocks > 0) {
    status = launch_prologue<T>(plan, a, stream);
  }
  if (status == Status::kSuccess && plan.attention_blocks > 0) {
    status = launch_path<T>(plan, a, stream);
  }
  if (status == Status::kSuccess && plan.combine_blocks > 0) {
    status = launch_combine<T>(a, plan.combine_blocks, stream);
  }
  return status;
}

bool has_launchable_grids(const LaunchPlan& plan) {
  return plan.statistics_blocks <= kMaxBlocks && plan.prologue_blocks <= kMaxBlocks &&
         plan.attention_blocks <= kMaxBlocks && plan.combine_blocks <= kMaxBlocks;
}

// Capabilities on either side of the choice of kernels.
constexpr DeviceFeatures kOldest{75};
constexpr DeviceFeatures kNewest{90};

}  // namespace

Status can_implement(const AttentionParams& p) {
  if (p.dtype == DataType::kBool) return Status::kUnsupportedType;
  if (has_negative_size(p) || !has_valid_heads(p) || !has_valid_rotary(p)) {
    return Status::kInvalidShape;
  }
  if (has_excessive_size(p)) return Status::kUnsupportedSize;
  return has_launchable_grids(make_plan(p, kNewest)) && has_launchable_grids(make_plan(p, kOldest))
             ? Status::kSuccess
             : Status::kUnsupportedSize;
}

std::size_t workspace_size(const AttentionParams& params) {
  if (can_implement(params) != Status::kSuccess) return 0;
  return std::max(layout_workspace(make_plan(params, kNewest)).size,
                  layout_workspace(make_plan(params, kOldest)).size);
}

// Sizes grow with every dimension, but for splits: fewer queries or batch entries may be split over
// more blocks. Where there can be splits, every such pair is tried.
std::size_t workspace_bound(const AttentionParams& smallest, const AttentionParams& largest) {
  std::size_t bound = workspace_size(largest);
  AttentionParams p = largest;
  const int64_t last_query = std::min(largest.seqlen_q, kDecodeSeqlen - 1);
  const int64_t last_batch = std::min(largest.batch_size, kTargetBlocks);
  for (p.seqlen_q = smallest.seqlen_q; p.seqlen_q <= last_query; ++p.seqlen_q) {
    for (p.batch_size = smallest.batch_size; p.batch_size <= last_batch; ++p.batch_size) {
      bound = std::max(bound, workspace_size(p));
    }
  }
  return bound;
}

Status run(const AttentionParams& params, void* workspace, std::size_t workspace_bytes,
           Stream stream) {
  const Status supported = can_implement(params);
  if (supported != Status::kSuccess) return supported;
  if (workspace_size(params) > workspace_bytes) return Status::kWorkspaceTooSmall;
  DeviceFeatures device;
  if (!query_device(device)) return Status::kLaunchFailed;
  const LaunchPlan plan = make_plan(params, device);
  const KernelArguments arguments = resolve_arguments(plan, workspace);
  switch (params.dtype) {
    case DataType::kFloat16:
      return launch_all<Half>(plan, arguments, stream);
    case DataType::kBFloat16:
      return launch_all<BFloat16>(plan, arguments, stream);
    default:
      return launch_all<float>(plan, arguments, stream);
  }
}

}  // namespace qkexport::cuda
