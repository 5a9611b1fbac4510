#include "device_run.h"

#include <cstring>

#include "device_memory.h"
#include "qkexport/cuda/attention_cuda.h"

namespace qkexport::cases {
namespace {

// Device copies of all buffers, and parameters that point at them. Each copy is as large as its
// tensor, so that an access past its end is seen.
class DeviceTensors {
 public:
  explicit DeviceTensors(const CaseTensors& host) : params_(host.params) {
    for (const Buffer& buffer : host.buffers) {
      void* memory = device_allocate(buffer.bytes);
      good_ = good_ && memory != nullptr && copy_to_device(memory, buffer.data.get(), buffer.bytes);
      memory_.push_back(memory);
      void* start = static_cast<unsigned char*>(memory) + buffer.lead;
      for (const std::size_t slot : buffer.slots) {
        std::memcpy(reinterpret_cast<unsigned char*>(&params_) + slot, &start, sizeof start);
      }
    }
  }
  ~DeviceTensors() {
    for (void* memory : memory_) device_free(memory);
  }
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  bool good() const { return good_; }
  const AttentionParams& params() const { return params_; }

  bool fetch(CaseTensors& host) const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      Buffer& buffer = host.buffers[i];
      if (buffer.is_output && !copy_to_host(buffer.data.get(), memory_[i], buffer.bytes)) {
        return false;
      }
    }
    return true;
  }

 private:
  AttentionParams params_;
  std::vector<void*> memory_;
  bool good_ = true;
};

}  // namespace

std::string run_on_device(CaseTensors& tensors) {
  const DeviceTensors device(tensors);
  if (!device.good()) return "the device has no memory left";
  const std::size_t bytes = cuda::workspace_size(device.params());
  void* workspace = bytes > 0 ? device_allocate(bytes) : nullptr;
  const Status status = cuda::run(device.params(), workspace, bytes, nullptr);
  const bool ran = device_synchronize();
  if (workspace != nullptr) device_free(workspace);
  if (status != Status::kSuccess || !ran) {
    return "run() answered status " + std::to_string(static_cast<int>(status)) + ": " +
           device_error();
  }
  return device.fetch(tensors) ? "" : "results cannot be read back";
}

}  // namespace qkexport::cases
