"""ONNX Runtime's operator library as nvcc and the compiler built it, CUDA provider included."""

from __future__ import annotations

import onnxruntime as ort
import pytest
from cuda_runtime_build import build_on_shared_runtime, undefined_symbols

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


@pytest.mark.nightly
def test_the_cuda_provider_never_synchronizes_and_runtimes_without_it_load_the_library() -> None:
    library = build_on_shared_runtime("qkexport_ort") / "lib" / "libqkexport_ort.so"
    called = {name for name in undefined_symbols(library) if name.startswith("cuda")}
    assert called == ALLOWED
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library))
