// Memory of a CUDA device, for the cases.
#include "device_memory.h"

#include <cuda_runtime_api.h>

#include <string>

namespace qkexport::cases {

void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes == 0 ? 1 : bytes) == cudaSuccess ? memory : nullptr;
}

void device_free(void* memory) { cudaFree(memory); }

void* device_reserve(std::size_t bytes) { return device_allocate(bytes); }

void device_release(void* memory, std::size_t /*bytes*/) { device_free(memory); }

bool copy_to_device(void* device, const void* host, std::size_t bytes) {
  return cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

bool copy_to_host(void* host, const void* device, std::size_t bytes) {
  return cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

void device_shuffle(uint64_t /*seed*/) {}

bool device_synchronize() { return cudaDeviceSynchronize() == cudaSuccess; }

const char* device_error() { return cudaGetErrorString(cudaGetLastError()); }

}  // namespace qkexport::cases
