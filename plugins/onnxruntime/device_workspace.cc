#include "device_workspace.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "qkexport/op/refusal.h"

namespace qkexport::ort {
namespace {

cudaError_t make_pool(int device, cudaMemPool_t& pool) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  const cudaError_t error = cudaMemPoolCreate(&pool, &properties);
  if (error != cudaSuccess) return error;
  // Without this a pool gives its memory back whenever somebody synchronizes.
  uint64_t keep = UINT64_MAX;
  return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
}

// One pool a device, kept until the process ends.
cudaError_t current_pool(cudaMemPool_t& pool) {
  static std::mutex mutex;
  static std::map<int, cudaMemPool_t> pools;
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = pools.find(device);
  if (found != pools.end()) {
    pool = found->second;
    return cudaSuccess;
  }
  const cudaError_t made = make_pool(device, pool);
  if (made == cudaSuccess) pools[device] = pool;
  return made;
}

}  // namespace

DeviceWorkspace::DeviceWorkspace(std::size_t bytes, cuda::Stream stream) : stream_(stream) {
  if (bytes == 0) return;
  cudaMemPool_t pool = nullptr;
  cudaError_t error = current_pool(pool);
  if (error == cudaSuccess) error = cudaMallocFromPoolAsync(&data_, bytes, pool, stream);
  if (error != cudaSuccess) {
    op::refuse("needs " + std::to_string(bytes) + " bytes of workspace on the device",
               cudaGetErrorString(error));
  }
}

DeviceWorkspace::~DeviceWorkspace() {
  if (data_ != nullptr) cudaFreeAsync(data_, stream_);
}

}  // namespace qkexport::ort
