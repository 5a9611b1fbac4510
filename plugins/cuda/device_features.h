// What the current device can do.
#pragma once

#include "device/platform.cuh"
#include "launch_plan.h"

namespace qkexport::cuda {

#if defined(QKEXPORT_CUDA_EMULATION)

inline bool query_device(DeviceFeatures& device) {
  device.compute_capability = cuda_emulation::compute_capability();
  return true;
}

#else

inline bool query_device(DeviceFeatures& device) {
  int index = 0, major = 0, minor = 0;
  if (cudaGetDevice(&index) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess) {
    return false;
  }
  device.compute_capability = 10 * major + minor;
  return true;
}

#endif

}  // namespace qkexport::cuda
