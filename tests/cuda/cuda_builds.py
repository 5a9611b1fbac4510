"""Builds the CUDA kernels for the CPU, against their emulation."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from run_command import run_command

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"


@pytest.fixture(scope="session")
def emulated_library() -> ctypes.CDLL:
    """The C interface of the kernels, compiled for the CPU against the emulation."""
    folder = BUILD / "emulation"
    options = ("-DQKEXPORT_BUILD_EMULATION=ON", "-DQKEXPORT_BUILD_CUDA=OFF")
    run_command(
        *("cmake", "-S", ROOT / "plugins", "-B", folder, "-DQKEXPORT_BUILD_ORT=OFF", *options)
    )
    run_command("cmake", "--build", folder, "-j", "2", "--target", "qkexport_cuda_emulated_c")
    library = ctypes.CDLL(str(folder / "emulation" / "libqkexport_cuda_emulated.so"))
    library.qkexport_attention_cuda_workspace_size.restype = ctypes.c_size_t
    library.qkexport_attention_params_size.restype = ctypes.c_size_t
    return library
