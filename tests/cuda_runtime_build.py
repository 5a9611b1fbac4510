"""Builds what nvcc makes on the shared CUDA runtime, so that another runtime can stand in."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
from pathlib import Path
from typing import Final

import pytest
from run_command import run_command

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build" / "cuda_shared_runtime"
CUDART_VARIABLE: Final = "QKEXPORT_CUDART_DIR"


def cudart_path() -> Path:
    """The CUDA runtime that the environment offers in place of NVIDIA's; skips without one."""
    folder = os.environ.get(CUDART_VARIABLE)
    if folder is None:
        pytest.skip(f"{CUDART_VARIABLE} names no folder with a libcudart")
    return next(iter(sorted(Path(folder).glob("libcudart.so.*"))))


@functools.cache
def build_on_shared_runtime(*targets: str) -> Path:
    """The build folder with these targets up to date; skips where there is no nvcc."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several workers want the same folder
        options = ("-DQKEXPORT_CUDART_SHARED=ON", "-DQKEXPORT_BUILD_GPU_TESTS=ON")
        run_command("cmake", "-S", ROOT / "plugins", "-B", BUILD, *options)
        run_command("cmake", "--build", BUILD, "-j", "2", "--target", *targets)
    return BUILD
