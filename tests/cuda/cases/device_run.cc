#include "device_run.h"

#include "device_memory.h"
#include "device_tensors.h"
#include "qkexport/cuda/attention_cuda.h"

namespace qkexport::cases {

std::string run_parameters(const AttentionParams& params) {
  const std::size_t bytes = cuda::workspace_size(params);
  void* workspace = bytes > 0 ? device_allocate(bytes) : nullptr;
  const Status status = cuda::run(params, workspace, bytes, nullptr);
  const bool ran = device_synchronize();
  if (workspace != nullptr) device_free(workspace);
  if (status != Status::kSuccess || !ran) {
    return "run() answered status " + std::to_string(static_cast<int>(status)) + ": " +
           device_error();
  }
  return "";
}

std::string run_on_device(CaseTensors& tensors) {
  const DeviceTensors device(tensors);
  if (!device.good()) {
    return std::string("the tensors cannot be placed on the device: ") + device_error();
  }
  const std::string fault = run_parameters(device.params());
  if (!fault.empty()) return fault;
  return device.fetch(tensors) ? "" : "results cannot be read back";
}

}  // namespace qkexport::cases
