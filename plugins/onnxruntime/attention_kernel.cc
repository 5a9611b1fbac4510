#include "attention_kernel.h"

#include <sched.h>

#include <cstdlib>

#include "attribute_readers.h"
#include "ort_api.h"
#include "qkexport/op/check_signature.h"
#include "tensor_types.h"

namespace qkexport::ort {
namespace {

std::string node_name(const OrtKernelInfo* info) {
  size_t size = 0;
  check(api().KernelInfo_GetNodeName(info, nullptr, &size));
  std::string name(size, '\0');
  check(api().KernelInfo_GetNodeName(info, name.data(), &size));
  name.resize(size > 0 ? size - 1 : 0);
  return name;
}

// Names the node in whatever is refused.
template <typename Function>
void naming_node(const std::string& name, Function function) {
  try {
    function();
  } catch (const op::Refusal& refusal) {
    throw op::Refusal("Node '" + name + "': " + refusal.what());
  }
}

op::TensorType declared_type(const OrtKernelInfo* info, size_t position) {
  OrtTypeInfo* raw = nullptr;
  check(api().KernelInfo_GetInputTypeInfo(info, position, &raw));
  const TypeInfo type(raw);
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  check(api().CastTypeInfoToTensorInfo(type.get(), &tensor));
  if (tensor == nullptr) return {};
  return tensor_type(tensor, false);
}

// An optional input that is left out still has a position; its name is empty.
bool is_passed(const OrtKernelInfo* info, size_t position) {
  size_t size = 0;
  check(api().KernelInfo_GetInputName(info, position, nullptr, &size));
  return size > 1;
}

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

// Memory from the session's arena: nothing reaches the system allocator in steady state.
class Workspace {
 public:
  Workspace(const OrtKernelContext* context, size_t bytes) {
    OrtMemoryInfo* info = nullptr;
    check(api().CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &info));
    OrtStatus* status = api().KernelContext_GetAllocator(context, info, &allocator_);
    api().ReleaseMemoryInfo(info);
    check(status);
    data_ = allocator_->Alloc(allocator_, bytes);
    if (data_ != nullptr) return;
    api().ReleaseAllocator(allocator_);
    throw op::Refusal("QKNormAttention needs workspace, got no memory for " +
                      std::to_string(bytes) + " bytes.");
  }
  ~Workspace() {
    allocator_->Free(allocator_, data_);
    api().ReleaseAllocator(allocator_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }

 private:
  OrtAllocator* allocator_ = nullptr;
  void* data_ = nullptr;
};

void check_status(Status status, const AttentionParams& params) {
  if (status == Status::kSuccess) return;
  if (status == Status::kInvalidPosition) {
    op::refuse("position_ids must lie in [0, " + std::to_string(params.query_rotary.num_rows) + ")",
               "one outside", "the rotary cache has that many rows.");
  }
  op::refuse("must be a call that the CPU kernel can run",
             "status " + std::to_string(static_cast<int>(status)));
}

}  // namespace

AttentionKernel::AttentionKernel(const OrtKernelInfo* info) : node_name_(node_name(info)) {
  naming_node(node_name_, [&] {
    const KernelAttributes attributes(info);
    size_t inputs = 0, outputs = 0;
    check(api().KernelInfo_GetInputCount(info, &inputs));
    check(api().KernelInfo_GetOutputCount(info, &outputs));
    signature_.spec = op::read_spec(attributes);
    positions_ = op::input_positions(read_or_empty(attributes, "input_roles"), inputs);
    op::check_output_roles(read_or_empty(attributes, "output_roles"), outputs);
    signature_.num_outputs = static_cast<int>(outputs);
    for (int i = 0; i < op::kNumInputs; ++i) {
      if (positions_[i] == op::kAbsent) continue;
      if (!is_passed(info, positions_[i])) {
        positions_[i] = op::kAbsent;
        continue;
      }
      signature_.inputs[i] = declared_type(info, positions_[i]);
    }
    op::check_signature(signature_);
  });
  kernels_ = choose_kernels();
  workers_ = available_processors();
}

op::Signature AttentionKernel::read_inputs(OrtKernelContext* context,
                                           op::InputPointers& data) const {
  op::Signature signature = signature_;
  for (int i = 0; i < op::kNumInputs; ++i) {
    data[i] = nullptr;
    if (positions_[i] == op::kAbsent) continue;
    const OrtValue* value = nullptr;
    check(api().KernelContext_GetInput(context, positions_[i], &value));
    if (value == nullptr) {
      signature.inputs[i] = {};
      continue;
    }
    OrtTensorTypeAndShapeInfo* raw = nullptr;
    check(api().GetTensorTypeAndShape(value, &raw));
    const ShapeInfo info(raw);
    signature.inputs[i] = tensor_type(info.get(), true);
    void* pointer = nullptr;
    check(api().GetTensorMutableData(const_cast<OrtValue*>(value), &pointer));
    data[i] = pointer;
  }
  return signature;
}

op::OutputPointers AttentionKernel::make_outputs(OrtKernelContext* context,
                                                 const op::Signature& signature) const {
  op::OutputPointers outputs = {};
  const std::array<op::Shape, op::kNumOutputs> shapes = op::output_shapes(signature);
  for (int i = 0; i < signature.num_outputs; ++i) {
    OrtValue* value = nullptr;
    check(api().KernelContext_GetOutput(context, i, shapes[i].data(), shapes[i].size(), &value));
    if (value != nullptr) check(api().GetTensorMutableData(value, &outputs[i]));
  }
  return outputs;
}

void AttentionKernel::compute(OrtKernelContext* context) const {
  naming_node(node_name_, [&] {
    op::InputPointers inputs;
    const op::Signature signature = read_inputs(context, inputs);
    op::check_signature(signature);
    const op::OutputPointers outputs = make_outputs(context, signature);
    const AttentionParams params = op::fill_params(signature, inputs, outputs);
    const size_t bytes = cpu::workspace_size(*kernels_, params, workers_);
    const Workspace workspace(context, bytes);
    const cpu::Parallel parallel = {context, workers_, run_on_pool};
    check_status(cpu::run(*kernels_, params, workspace.data(), bytes, parallel), params);
  });
}

}  // namespace qkexport::ort
