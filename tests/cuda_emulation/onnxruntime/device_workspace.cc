// Workspace of the emulated kernels: memory of the CPU, aligned as a device's.
#include "device_workspace.h"

#include <cstdlib>
#include <cstring>

namespace qkexport::ort {

DeviceWorkspace::DeviceWorkspace(std::size_t bytes, cuda::Stream stream) : stream_(stream) {
  if (bytes == 0) return;
  constexpr std::size_t kAlignment = cuda::kWorkspaceAlignment;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  data_ = std::aligned_alloc(kAlignment, rounded);
  std::memset(data_, 0xFF, rounded);  // reads as NaN
}

DeviceWorkspace::~DeviceWorkspace() { std::free(data_); }

}  // namespace qkexport::ort
