// One way to launch a kernel that takes KernelArguments, on a device or in the emulation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/platform.cuh"
#include "kernel_arguments.h"
#include "qkexport/cuda/attention_cuda.h"

namespace qkexport::cuda {

using Kernel = void (*)(const KernelArguments);

struct LaunchShape {
  int64_t blocks;
  int threads;
  std::size_t shared_bytes;
};

#if defined(QKEXPORT_CUDA_EMULATION)

inline Status launch(Kernel kernel, const LaunchShape& shape, Stream /*stream*/,
                     const KernelArguments& arguments) {
  const bool good = cuda_emulation::launch([&] { kernel(arguments); }, shape.blocks, shape.threads,
                                           shape.shared_bytes);
  return good ? Status::kSuccess : Status::kLaunchFailed;
}

#else

// More than 48 KiB of dynamic shared memory must be asked for; asking again is cheap and keeps
// this free of state.
inline Status launch(Kernel kernel, const LaunchShape& shape, Stream stream,
                     const KernelArguments& arguments) {
  constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
  if (shape.shared_bytes > kDefaultSharedBytes &&
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shape.shared_bytes)) != cudaSuccess) {
    return Status::kLaunchFailed;
  }
  void* pointers[] = {const_cast<KernelArguments*>(&arguments)};
  const cudaError_t error = cudaLaunchKernel(
      reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(shape.blocks)),
      dim3(static_cast<unsigned>(shape.threads)), pointers, shape.shared_bytes, stream);
  return error == cudaSuccess ? Status::kSuccess : Status::kLaunchFailed;
}

#endif

}  // namespace qkexport::cuda
