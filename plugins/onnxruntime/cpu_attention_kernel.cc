// QKNormAttention on the CPU kernels, in the session's own thread pool.
#include <sched.h>

#include <cstdlib>

#include "attention_kernel.h"
#include "attention_node.h"
#include "ort_api.h"
#include "qkexport/cpu/attention_cpu.h"
#include "workspace.h"

namespace qkexport::ort {
namespace {

const cpu::KernelTable* choose_kernels() {
  const char* name = std::getenv("QKEXPORT_CPU_ISA");
  if (name != nullptr && *name == 0) name = nullptr;
  const cpu::KernelTable* kernels = cpu::find_kernels(name);
  if (kernels == nullptr) {
    throw op::Refusal(std::string("QKEXPORT_CPU_ISA must name a path this processor has, got '") +
                      name + "'.\nNote: available: " + cpu::available_kernels() + ".");
  }
  return kernels;
}

// The runtime does not tell how many threads its pool has. The processors this process may use are
// an upper bound; tasks beyond the pool find no work left and cost nothing.
int64_t available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

struct Task {
  void (*function)(void* data, int64_t index);
  void* data;
};

void run_on_pool(void* context, int64_t tasks, void (*function)(void*, int64_t), void* data) {
  Task task = {function, data};
  const auto trampoline = [](void* raw, size_t index) {
    const Task& task = *static_cast<Task*>(raw);
    task.function(task.data, static_cast<int64_t>(index));
  };
  OrtStatus* status =
      api().KernelContext_ParallelFor(static_cast<const OrtKernelContext*>(context), trampoline,
                                      static_cast<size_t>(tasks), 0, &task);
  if (status == nullptr) return;
  // The pool refused: the tasks are still owed.
  api().ReleaseStatus(status);
  for (int64_t index = 0; index < tasks; ++index) function(data, index);
}

void check_status(Status status, const AttentionParams& params) {
  if (status == Status::kSuccess) return;
  if (status == Status::kInvalidPosition) {
    op::refuse("position_ids must lie in [0, " + std::to_string(params.query_rotary.num_rows) + ")",
               "one outside", "the rotary cache has that many rows.");
  }
  op::refuse("must be a call that the CPU kernel can run",
             "status " + std::to_string(static_cast<int>(status)));
}

class CpuAttentionKernel : public AttentionKernel {
 public:
  explicit CpuAttentionKernel(const OrtKernelInfo* info)
      : node_(info), kernels_(choose_kernels()), workers_(available_processors()) {}

  void compute(OrtKernelContext* context) const override {
    node_.naming([&] {
      op::InputPointers inputs;
      const op::Signature signature = node_.read_inputs(context, inputs);
      const op::OutputPointers outputs = node_.make_outputs(context, signature);
      const AttentionParams params = op::fill_params(signature, inputs, outputs);
      const size_t bytes = cpu::workspace_size(*kernels_, params, workers_);
      const Workspace workspace(context, bytes);
      const cpu::Parallel parallel = {context, workers_, run_on_pool};
      check_status(cpu::run(*kernels_, params, workspace.data(), bytes, parallel), params);
    });
  }

 private:
  AttentionNode node_;
  const cpu::KernelTable* kernels_;
  int64_t workers_;
};

}  // namespace

std::unique_ptr<AttentionKernel> make_cpu_kernel(const OrtKernelInfo* info) {
  return std::make_unique<CpuAttentionKernel>(info);
}

}  // namespace qkexport::ort
