// Workspace of one call on a CUDA device.
#pragma once

#include <cstddef>

#include "qkexport/cuda/attention_cuda.h"

namespace qkexport::ort {

// Memory that belongs to one place in the order of a stream. The session's own allocator would not
// do: it knows no stream, and would hand out again what a kernel of a concurrent run still uses.
class DeviceWorkspace {
 public:
  // Throws Refusal where there is no memory.
  DeviceWorkspace(std::size_t bytes, cuda::Stream stream);
  ~DeviceWorkspace();
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  DeviceWorkspace& operator=(const DeviceWorkspace&) = delete;
  void* data() const { return data_; }  // null where no bytes were asked for

 private:
  cuda::Stream stream_;
  void* data_ = nullptr;
};

}  // namespace qkexport::ort
