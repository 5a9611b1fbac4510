"""Builds what the tests of the CUDA kernels run: the emulation, and real binaries where nvcc is."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"


def run_command(*command: str | Path, **environment: str) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def nvcc() -> str:
    path = shutil.which("nvcc")
    if path is None:
        pytest.skip("needs nvcc")
    return path


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
