// The driver: checks a call, plans it and runs its phases.
#include "qkexport/cpu/attention_cpu.h"

#include <atomic>

namespace qkexport::cpu {
namespace {

int64_t longest_sequence(const AttentionParams& p) {
  if (p.kv_lengths == nullptr) return p.seqlen_total;
  int64_t longest = 0;
  for (int64_t b = 0; b < p.batch_size; ++b) {
    if (p.kv_lengths[b] > longest) longest = p.kv_lengths[b];
  }
  return longest < p.seqlen_total ? longest : p.seqlen_total;
}

bool positions_fit(const RotaryCache& rotary, int64_t batch_size, int64_t rows) {
  if (rotary.cos == nullptr || rotary.position_ids == nullptr) return true;
  const int64_t batches = rotary.position_batch_stride == 0 ? 1 : batch_size;
  for (int64_t b = 0; b < batches; ++b) {
    const int64_t* ids = rotary.position_ids + b * rotary.position_batch_stride;
    for (int64_t i = 0; i < rows; ++i) {
      if (ids[i] < 0 || ids[i] >= rotary.num_rows) return false;
    }
  }
  return true;
}

// One phase: items are taken from a counter, so a worker that starts late finds none left.
struct Phase {
  const Plan* plan;
  ItemFunction function;
  char* workspace;
  int64_t first_pair;
  int64_t items;
  std::atomic<int64_t> next;
};

void work(void* data, int64_t worker) {
  Phase& phase = *static_cast<Phase*>(data);
  const WorkspaceLayout& layout = phase.plan->layout;
  char* scratch =
      phase.workspace + layout.scratch + static_cast<size_t>(worker) * layout.scratch_stride;
  for (;;) {
    const int64_t item = phase.next.fetch_add(1, std::memory_order_relaxed);
    if (item >= phase.items) return;
    phase.function(*phase.plan, phase.workspace, phase.first_pair, item, scratch);
  }
}

struct Call {
  const Plan& plan;
  char* workspace;
  const Parallel& parallel;

  void run_phase(ItemFunction function, int64_t first_pair, int64_t items) const {
    Phase phase = {&plan, function, workspace, first_pair, items, {0}};
    const int64_t workers = plan.serial ? 1 : plan.workers;
    const int64_t tasks = items < workers ? items : workers;
    if (tasks == 1) return work(&phase, 0);
    if (tasks > 1) parallel.run(parallel.context, tasks, work, &phase);
  }
};

void run_phases(const KernelTable& kernels, const Call& call) {
  const Plan& plan = call.plan;
  call.run_phase(kernels.statistics, 0, plan.statistics_items);
  call.run_phase(kernels.append, 0, plan.append_items);
  if (plan.pair_rows == 0) return;
  for (int64_t pair = 0; pair < plan.pairs; pair += plan.wave_pairs) {
    const int64_t left = plan.pairs - pair;
    const int64_t pairs = left < plan.wave_pairs ? left : plan.wave_pairs;
    const bool packed = plan.mode == Mode::kPacked;
    if (packed) call.run_phase(kernels.pack, pair, pairs * plan.key_tiles);
    call.run_phase(kernels.attend, pair, pairs * (packed ? plan.row_tiles : plan.splits));
  }
  if (plan.splits > 1) call.run_phase(kernels.merge, 0, plan.pairs);
}

bool is_tensor_type(DataType type) { return type != DataType::kBool; }

bool sizes_are_valid(const AttentionParams& p) {
  const bool counts = p.batch_size >= 0 && p.seqlen_q >= 0 && p.seqlen_kv >= 0 &&
                      p.seqlen_past >= 0 && p.seqlen_total >= 0;
  const bool heads = p.num_kv_heads > 0 && p.num_heads > 0 && p.num_heads % p.num_kv_heads == 0;
  const bool dims = p.head_dim > 0 && p.head_dim_v >= 0;
  return counts && heads && dims;
}

bool rotary_is_valid(const AttentionParams& p) {
  if (p.rotary == Rotary::kNone) return true;
  return p.rotary_dim > 0 && p.rotary_dim % 2 == 0 && p.rotary_dim <= p.head_dim;
}

}  // namespace

const KernelTable& serving_kernels(const KernelTable& kernels, const AttentionParams& params) {
  const KernelTable* serving = &kernels;
  while (!serving->serves(params)) serving = serving->others;
  return *serving;
}

Status can_implement(const AttentionParams& p) {
  if (!is_tensor_type(p.dtype)) return Status::kUnsupportedType;
  if (!sizes_are_valid(p) || !rotary_is_valid(p)) return Status::kInvalidShape;
  // Tensors without elements may have null pointers.
  const bool cached = p.past_key.data != nullptr && p.past_value.data != nullptr;
  const bool complete =
      p.batch_size == 0 || (p.kv_lengths != nullptr && (cached || p.seqlen_total == 0));
  if (p.kv_cache == KvCache::kStatic && !complete) return Status::kInvalidShape;
  return Status::kSuccess;
}

size_t workspace_size(const KernelTable& kernels, const AttentionParams& params, int64_t workers) {
  const KernelTable& serving = serving_kernels(kernels, params);
  return serving.make_plan(params, workers, longest_sequence(params)).layout.total;
}

Status run(const KernelTable& chosen, const AttentionParams& params, void* workspace,
           size_t workspace_bytes, const Parallel& parallel) {
  const Status status = can_implement(params);
  if (status != Status::kSuccess) return status;
  const bool positions = positions_fit(params.query_rotary, params.batch_size, params.seqlen_q) &&
                         (!params.normalize_key ||
                          positions_fit(params.key_rotary, params.batch_size, params.seqlen_kv));
  if (!positions) return Status::kInvalidPosition;
  const KernelTable& kernels = serving_kernels(chosen, params);
  const Plan plan = kernels.make_plan(params, parallel.workers, longest_sequence(params));
  if (workspace_bytes < plan.layout.total) return Status::kWorkspaceTooSmall;
  const uintptr_t address = reinterpret_cast<uintptr_t>(workspace);
  constexpr uintptr_t kAlignment = 64;
  char* aligned = static_cast<char*>(workspace) + (kAlignment - address % kAlignment) % kAlignment;
  run_phases(kernels, Call{plan, aligned, parallel});
  return Status::kSuccess;
}

}  // namespace qkexport::cpu
