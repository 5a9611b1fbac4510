"""The plugin that nvcc built: what it asks of the CUDA runtime, and its numbers without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_runtime_build import build_on_shared_runtime, cudart_path
from nvcc_build import called_of_cuda_runtime

PROGRAM = Path(__file__).with_name("run_real_plugin.py")

# Launches, and questions that the runtime answers without waiting for the device.
ALLOWED = {
    "cudaDeviceGetAttribute",
    "cudaFuncSetAttribute",
    "cudaGetDevice",
    "cudaLaunchKernel",
}


@pytest.fixture(autouse=True)
def _built() -> None:
    """Nothing emulated is needed here."""


def test_it_neither_allocates_nor_synchronizes() -> None:
    assert called_of_cuda_runtime("qkexport_trt", "qkexport_cuda_kernels") == ALLOWED


def test_the_real_binary_computes_the_same_under_another_cuda_runtime() -> None:
    cudart = cudart_path()
    folder = build_on_shared_runtime("qkexport_trt", "qkexport_host") / "lib"
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(cudart.parent),
        "QKEXPORT_LIBRARY_DIR": str(folder),
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder / "libqkexport_trt.so"), str(cudart)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # a runtime that interprets would report faults and races here
    errors = json.loads(done.stdout)
    assert len(errors) > 40
    assert {label: error for label, error in errors.items() if not error <= 1} == {}
