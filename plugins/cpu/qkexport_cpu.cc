#include "qkexport/cpu/qkexport_cpu.h"

#include <cstdlib>

#include "qkexport/cpu/attention_cpu.h"
#include "thread_pool.h"

namespace {

const qkexport::cpu::KernelTable* chosen_kernels() {
  const char* name = std::getenv("QKEXPORT_CPU_ISA");
  const bool unset = name == nullptr || *name == 0;
  return qkexport::cpu::find_kernels(unset ? nullptr : name);
}

int64_t at_least_one(int num_threads) { return num_threads < 1 ? 1 : num_threads; }

}  // namespace

size_t qkexport_attention_params_size(void) { return sizeof(qkexport::AttentionParams); }

const char* qkexport_cpu_isa(void) {
  const auto* kernels = chosen_kernels();
  return kernels == nullptr ? nullptr : kernels->name;
}

const char* qkexport_cpu_available_isas(void) { return qkexport::cpu::available_kernels(); }

size_t qkexport_attention_cpu_workspace_size(const QkexportAttentionParams* params,
                                             int num_threads) {
  const auto* kernels = chosen_kernels();
  const bool accepted = qkexport::cpu::can_implement(*params) == qkexport::Status::kSuccess;
  if (kernels == nullptr || !accepted) return 0;
  return qkexport::cpu::workspace_size(*kernels, *params, at_least_one(num_threads));
}

int qkexport_attention_cpu(const QkexportAttentionParams* params, void* workspace,
                           size_t workspace_bytes, int num_threads) {
  const auto* kernels = chosen_kernels();
  if (kernels == nullptr) return -1;
  const auto pool = qkexport::cpu::shared_pool(at_least_one(num_threads));
  return static_cast<int>(qkexport::cpu::run(*kernels, *params, workspace, workspace_bytes, pool));
}
