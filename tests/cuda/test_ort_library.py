"""ONNX Runtime's operator library as nvcc and the compiler built it, CUDA provider included."""

from __future__ import annotations

import onnxruntime as ort
from nvcc_build import called_of_cuda_runtime, nvcc_library

# Launches, questions that nobody waits for, and a pool whose memory follows the order of a stream.
ALLOWED = {
    "cudaDeviceGetAttribute",
    "cudaFreeAsync",
    "cudaFuncSetAttribute",
    "cudaGetDevice",
    "cudaGetErrorString",
    "cudaLaunchKernel",
    "cudaMallocFromPoolAsync",
    "cudaMemPoolCreate",
    "cudaMemPoolSetAttribute",
}


def test_the_cuda_provider_never_synchronizes() -> None:
    assert called_of_cuda_runtime("qkexport_ort", "qkexport_cuda_kernels") == ALLOWED


def test_runtimes_without_the_cuda_provider_load_the_library() -> None:
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(nvcc_library("libqkexport_ort.so")))
