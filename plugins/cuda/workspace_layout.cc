#include "workspace_layout.h"

#include "qkexport/cuda/attention_cuda.h"
#include "tile_config.cuh"

namespace qkexport::cuda {
namespace {

int64_t element_size(DataType dtype) { return dtype == DataType::kFloat32 ? 4 : 2; }

// Places one piece behind the others and returns its offset.
std::size_t place(WorkspaceLayout& layout, int64_t bytes) {
  const std::size_t offset = layout.size;
  const auto wanted = static_cast<std::size_t>(bytes);
  layout.size += (wanted + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  return offset;
}

bool is_vectorized(const StridedTensor& tensor, DataType dtype, int64_t channels) {
  const int64_t chunk = 16 / element_size(dtype);
  return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 && channels % chunk == 0 &&
         tensor.batch_stride % chunk == 0 && tensor.head_stride % chunk == 0 &&
         tensor.row_stride % chunk == 0;
}

// Whether quads of channels of gains and angles can be read at once. Absent tables can.
bool has_quads(const NormParameter& gain) {
  return gain.data == nullptr || (reinterpret_cast<std::uintptr_t>(gain.data) % 16 == 0 &&
                                  gain.segment_stride % 4 == 0 && gain.head_stride % 4 == 0);
}
bool has_quads(const RotaryCache& cache) {
  return reinterpret_cast<std::uintptr_t>(cache.cos) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(cache.sin) % 16 == 0 && cache.batch_stride % 4 == 0 &&
         cache.head_stride % 4 == 0 && cache.row_stride % 4 == 0;
}
bool transforms_quads(const AttentionParams& p, const NormParameter& weight,
                      const NormParameter& bias, const RotaryCache& rotary) {
  const int64_t rotated = p.rotary_interleaved ? 4 : 8;  // channels of which no quad is cut
  const bool turns_quads =
      p.rotary == Rotary::kNone || (p.rotary_dim % rotated == 0 && has_quads(rotary));
  return p.head_dim % 4 == 0 && has_quads(weight) && has_quads(bias) && turns_quads;
}

// An absent tensor has no addresses at all, whatever its strides say.
StridedTensor without_strides_if_absent(const StridedTensor& tensor) {
  return tensor.data == nullptr ? StridedTensor{nullptr, 0, 0, 0} : tensor;
}

KvSource source(const StridedTensor& present, const StridedTensor& past, const StridedTensor& fresh,
                int64_t num_fresh) {
  if (present.data != nullptr) return {present, {nullptr, 0, 0, 0}, 0, false};
  return {without_strides_if_absent(past), without_strides_if_absent(fresh),
          static_cast<int>(num_fresh), false};
}

void resolve_workspace(KernelArguments& a, const LaunchPlan& plan, unsigned char* workspace) {
  const AttentionParams& p = a.params;
  const WorkspaceLayout layout = layout_workspace(plan);
  if (plan.keys_in_workspace) {
    a.key_target = {workspace + layout.keys, p.num_kv_heads * p.seqlen_kv * p.head_dim,
                    p.seqlen_kv * p.head_dim, p.head_dim};
  } else {
    a.key_target = p.present_key;
  }
  if (plan.normalizes_hidden) {
    a.query_statistics = reinterpret_cast<RowStatistics*>(workspace + layout.query_statistics);
    if (p.normalize_key) {
      a.key_statistics = reinterpret_cast<RowStatistics*>(workspace + layout.key_statistics);
    }
  }
  if (plan.bounds_scores) a.key_norms = reinterpret_cast<float*>(workspace + layout.key_norms);
  if (a.num_splits > 1) {
    a.partial_output = reinterpret_cast<float*>(workspace + layout.partial_output);
    a.partial_state = reinterpret_cast<SplitState*>(workspace + layout.partial_state);
  }
}

void resolve_vectors(KernelArguments& a) {
  const AttentionParams& p = a.params;
  const auto keys = [&p](const StridedTensor& t) { return is_vectorized(t, p.dtype, p.head_dim); };
  const auto values = [&p](const StridedTensor& t) {
    return is_vectorized(t, p.dtype, p.head_dim_v);
  };
  a.query_vectorized = keys(p.query);
  a.output_vectorized = values(p.output);
  a.query_in_quads = transforms_quads(p, p.q_norm_weight, p.q_norm_bias, p.query_rotary);
  a.key_in_quads = transforms_quads(p, p.k_norm_weight, p.k_norm_bias, p.key_rotary);
  a.key.vectorized = keys(a.key.cached) && keys(a.key.fresh);
  a.value.vectorized = values(a.value.cached) && values(a.value.fresh);
  a.key_target_vectorized = keys(a.key_target);
  a.key_copy_vectorized = keys(p.key) && (!a.copies_past_key || keys(p.past_key));
  a.value_copy_vectorized =
      values(p.value) && values(p.present_value) && (!a.copies_past_value || values(p.past_value));
}

}  // namespace

WorkspaceLayout layout_workspace(const LaunchPlan& plan) {
  const KernelArguments& a = plan.arguments;
  const AttentionParams& p = a.params;
  const int64_t keys = plan.keys_in_workspace ? p.batch_size * p.num_kv_heads * p.seqlen_kv : 0;
  const int64_t statistics = plan.normalizes_hidden ? sizeof(RowStatistics) : 0;
  const int64_t norms = plan.bounds_scores ? plan.prologue_blocks * kAttentionWarps : 0;
  const int64_t partial_rows = plan.combine_blocks * a.num_splits;
  WorkspaceLayout layout;
  layout.keys = place(layout, keys * p.head_dim * element_size(p.dtype));
  layout.query_statistics = place(layout, statistics * p.batch_size * p.seqlen_q);
  layout.key_statistics =
      place(layout, p.normalize_key ? statistics * p.batch_size * p.seqlen_kv : 0);
  layout.key_norms = place(layout, norms * int64_t{sizeof(float)});
  layout.partial_output = place(layout, partial_rows * p.head_dim_v * int64_t{sizeof(float)});
  layout.partial_state = place(layout, partial_rows * int64_t{sizeof(SplitState)});
  return layout;
}

KernelArguments resolve_arguments(const LaunchPlan& plan, void* workspace) {
  KernelArguments a = plan.arguments;
  const AttentionParams& p = a.params;
  resolve_workspace(a, plan, static_cast<unsigned char*>(workspace));
  const StridedTensor& fresh_keys = plan.keys_in_workspace ? a.key_target : p.key;
  a.key = source(p.present_key, p.past_key, fresh_keys, p.seqlen_kv);
  a.value = source(p.present_value, p.past_value, p.value, p.seqlen_kv);
  resolve_vectors(a);
  return a;
}

}  // namespace qkexport::cuda
